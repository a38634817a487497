"""Kernels of a running program: analyzed as Triton compiled them, and their launches recorded."""
