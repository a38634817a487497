"""Evaluation of models against measured times: cases, tasks, cached results, error metrics."""
