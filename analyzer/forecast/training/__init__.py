"""Whole models as graphs of tensor operators: their kernels forward and backward, parallelism, times."""
