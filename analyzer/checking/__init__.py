"""The gate of `warplens check`: kernels against a committed baseline, thresholds and budgets."""
