"""Outputs: each file prints a report in one format and computes nothing."""
