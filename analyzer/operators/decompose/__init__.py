"""Decomposers: a kernel's inputs and a GPU to its tasks (SynPerf, equation 1), one module per kernel."""
