"""The version of warplens, which reports carry."""

__version__ = "0.1.0"
