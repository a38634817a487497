"""How much work abstract execution may take before it says what it knows by then."""

STEP_LIMIT = 100_000  # some three seconds
_ACTIONS_PER_STEP = 4
_WORDS_PER_STEP = 32_000


class StopExecution(Exception):
    """A limit was reached, or a loop has no end."""


class EndlessLoop(StopExecution):
    """A loop has no end, or none that a kernel could come to."""


class Budget:
    """Steps that are left; one is some 30 microseconds of work, so that the limit is one of time.

    Counted rather than timed: the same launch always stops at the same place.
    """

    __slots__ = ("limit", "spent")

    def __init__(self, limit: int) -> None:
        self.limit, self.spent = limit, 0

    def spend(self, n_actions: int, n_words: int) -> None:
        """Pay for a segment's run: its actions, and the words that they wrote. Raises StopExecution."""
        self.spent += 1 + n_actions // _ACTIONS_PER_STEP + n_words // _WORDS_PER_STEP
        if self.spent > self.limit:
            raise StopExecution(f"{self.limit:,} steps were not enough (--step-limit)")
