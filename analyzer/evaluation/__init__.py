"""Models held against measured times: cases, tasks, cached results, error metrics."""
