"""The version of warplens, which is part of every report."""

__version__ = "0.1.0"
