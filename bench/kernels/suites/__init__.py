"""One module per suite of measured kernels; each has `recipe(row)`, how the row's kernel is compiled.

Rows that a suite does not cover: `recipe` returns None, and the module's UNCOVERED says why.
"""
