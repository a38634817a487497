"""Loaders of measured rows, one module for each data set; they stay in ../shared/data."""
