"""What a command does that takes long, told on standard error."""

import sys
from time import monotonic

_QUIET_S = 1.0  # a run that takes less says nothing
_INTERVAL_S = 1.0  # between two messages


class ProgressLine:
    """Prints messages on standard error, from the first second on and at most one a second."""

    def __init__(self) -> None:
        self._next_s = monotonic() + _QUIET_S

    def __call__(self, message: str) -> None:
        """Print a message if the run has taken more than a second, and so has what follows the last one."""
        now_s = monotonic()
        if now_s > self._next_s:
            self._next_s = now_s + _INTERVAL_S
            print(message, file=sys.stderr, flush=True)
