"""How much work abstract execution may take before it says what it knows by then."""

STEP_LIMIT = 100_000  # some three seconds
_ACTIONS_PER_STEP = 4
_WORDS_PER_STEP = 32_000
_LOSING_SHARE = 4
_TRIAL_SHARE = 2
_LEAST_TRIAL = 1000


class StopExecution(Exception):
    """A limit was reached, or a loop has no end."""


class EndlessLoop(StopExecution):
    """A loop has no end, or none that a kernel could come to."""


class Budget:
    """Steps that are left; one is some 30 microseconds of work, so that the limit is one of time.

    Counted rather than timed: the same launch always stops at the same place.

    words: what was written, for which part of the steps were paid.
    lost: steps of trials in vain, of loops in which others are closed. They are kept to a quarter, and each
    of them to half, of all till then, so that such trials at most double what execution costs without them.
    """

    __slots__ = ("limit", "lost", "spent", "words")

    def __init__(self, limit: int) -> None:
        self.limit, self.spent, self.lost, self.words = limit, 0, 0, 0

    @property
    def may_try(self) -> bool:
        """Whether little enough has been lost to try an outer loop."""
        return self.lost <= self.spent // _LOSING_SHARE

    @property
    def trial_end(self) -> int:
        """How much may be spent when a trial ends that begins now."""
        return self.spent + max(_LEAST_TRIAL, self.spent // _TRIAL_SHARE)

    def steps_for(self, times: float) -> float:
        """About what so many times as much would take: the same actions, with as many times the words."""
        return self.spent + (times - 1.0) * self.words / _WORDS_PER_STEP

    def spend(self, n_actions: int, n_words: int) -> None:
        """Pay for a segment's run: its actions, and the words that they wrote. Raises StopExecution."""
        self.words += n_words
        self.spent += 1 + n_actions // _ACTIONS_PER_STEP + n_words // _WORDS_PER_STEP
        if self.spent > self.limit:
            raise StopExecution(f"{self.limit:,} steps were not enough (--step-limit)")
