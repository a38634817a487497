"""The version of warplens, which is part of every report, and the time at which this process loaded it."""

from time import time_ns

__version__ = "0.1.0"

IMPORT_TIME_NS = time_ns()  # sources edited later are not what runs (see pipeline/content_digests.py)
