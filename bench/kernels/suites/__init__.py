"""Suites of measured kernels, one module each, whose `recipe(row)` returns how the row's kernel is compiled.

For a row that a suite does not cover, `recipe` returns None, and the module's docstring says why.
"""
