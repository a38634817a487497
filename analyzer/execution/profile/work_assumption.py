"""Assumptions on the work behind branches that nothing decides: likely, least or most.

The likely one gives the counts of a report. The other two give the ends of its interval: what the launch
takes if each unknown branch goes the way with less code, or with more, and each unknown loop is passed at
once, or takes `MAX_UNKNOWN_TRIPS`.

Example: behind `@P0 EXIT` with an unknown P0 the least work is to exit, the most not to.
"""

from enum import StrEnum

MIN_UNKNOWN_TRIPS = 1
MAX_UNKNOWN_TRIPS = 4096  # 256 times the likely ones; reports state it


class WorkAssumption(StrEnum):
    """How much work waits behind branches that nothing decides."""

    LIKELY = "likely"
    LEAST = "least"
    MOST = "most"
