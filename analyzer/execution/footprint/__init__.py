"""Geometry of memory requests: sectors, shared-memory wavefronts and distinct bytes."""
