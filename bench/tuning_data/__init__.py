"""Loaders of measured configuration sweeps, one module for each data set."""
