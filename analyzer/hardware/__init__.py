"""GPUs and architectures as values, read from `hwdb/` and checked on load; occupancy."""
