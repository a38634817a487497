"""Kernels that can be tuned, one file each; the name of the file is the kernel's."""
