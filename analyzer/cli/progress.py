"""What a command does that takes long, told on standard error."""

import sys
from time import monotonic

_QUIET_S = 1.0  # a run that takes less says nothing


class ProgressLine:
    """Prints messages on standard error, from the first second on."""

    def __init__(self) -> None:
        self._start_s = monotonic()

    def __call__(self, message: str) -> None:
        """Print a message if the run has taken more than a second."""
        if monotonic() - self._start_s > _QUIET_S:
            print(message, file=sys.stderr, flush=True)
