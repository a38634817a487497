"""Performance models: each takes the analysis of a kernel and a GPU, and returns a `ModelResult`."""
