"""Lowering of kernels for abstract execution: the slice for control flow and addresses, as segments."""
