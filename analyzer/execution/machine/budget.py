"""How much work abstract execution may take before it says what it knows by then."""

DEFAULT_STEP_LIMIT = 100_000  # some three seconds
_ACTIONS_PER_STEP = 4
_WORDS_PER_STEP = 32_000
_WASTED_STEPS_DIVISOR = 4
_ATTEMPT_STEPS_DIVISOR = 2
_MIN_ATTEMPT_STEPS = 1000


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

    __slots__ = ("n_words_written", "spent_steps", "step_limit", "wasted_steps")

    def __init__(self, limit: int) -> None:
        self.step_limit, self.spent_steps, self.wasted_steps, self.n_words_written = limit, 0, 0, 0

    @property
    def is_attempt_affordable(self) -> bool:
        """Whether little enough has been lost to try an outer loop."""
        return self.wasted_steps <= self.spent_steps // _WASTED_STEPS_DIVISOR

    @property
    def attempt_step_limit(self) -> int:
        """How much may be spent when a trial ends that begins now."""
        return self.spent_steps + max(_MIN_ATTEMPT_STEPS, self.spent_steps // _ATTEMPT_STEPS_DIVISOR)

    def estimate_steps(self, factor: float) -> float:
        """About what so many times as much would take: the same actions, with as many times the words."""
        return self.spent_steps + (factor - 1.0) * self.n_words_written / _WORDS_PER_STEP

    def spend(self, n_actions: int, n_words: int) -> None:
        """Pay for a segment's run: its actions, and the words that they wrote. Raises StopExecution."""
        self.n_words_written += n_words
        self.spent_steps += 1 + n_actions // _ACTIONS_PER_STEP + n_words // _WORDS_PER_STEP
        if self.spent_steps > self.step_limit:
            raise StopExecution(f"{self.step_limit:,} steps were not enough (--step-limit)")
