"""Models of operators: each module has `NAME` and `predict(batch, gpu)`, found by its file name."""
