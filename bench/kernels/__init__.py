"""Kernels whose times others measured on real GPUs, written anew, built, and checked against the table."""
