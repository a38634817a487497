"""Triton kernels that are compiled for their facts; importing them needs Triton, importing this does not."""
