"""SynPerf: network, features, and the decomposers of kernels into tasks (equation 1)."""
