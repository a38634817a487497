"""Abstract execution: counts and addresses of a launch without a GPU."""
