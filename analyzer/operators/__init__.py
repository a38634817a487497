"""Operators (matrix products, attention, norms, collectives): workloads named by shapes, without code."""
