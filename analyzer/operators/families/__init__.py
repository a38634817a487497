"""Operator families: one module each, with `FAMILY`, found by its file name."""
