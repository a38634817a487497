"""Comparison of two kernels: identity, matching, alignment, what changed, and whether it matters."""
