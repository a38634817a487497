"""Limit on the work of abstract execution; what is known when it is reached is reported."""

DEFAULT_STEP_LIMIT = 100_000  # some three seconds, and as long again for the fallbacks
_ACTIONS_PER_STEP = 4
_ACTIONS_PER_ACCESS = 1  # that an access takes longer
_WORDS_PER_STEP = 32_000
_WASTED_STEPS_DIVISOR = 4
_ATTEMPT_STEPS_DIVISOR = 2
_MIN_ATTEMPT_STEPS = 1000
_LOOPS_PER_STEP = 8
_STEPS_PER_SYMBOLIC_ITERATION = 16


class StopExecution(Exception):
    """Raised when a limit is reached, or a loop has no end."""


class EndlessLoop(StopExecution):
    """Raised if a loop has no end, or none within a time that a kernel may take."""


class Budget:
    """Steps spent, and their limit; a step is about 30 microseconds of work, so the limit is one of time.

    Work is counted, not timed: the same launch always stops at the same place.

    Failed attempts to accelerate outer loops may cost a quarter of all steps, and each attempt half of those
    spent before it; so they at most double the cost of execution.
    """

    __slots__ = ("n_words_written", "spent_steps", "step_limit", "wasted_steps")

    def __init__(self, limit: int) -> None:
        self.step_limit, self.spent_steps = limit, 0
        self.wasted_steps = 0  # of failed attempts to accelerate outer loops
        self.n_words_written = 0  # which a part of the steps was spent for

    @property
    def is_attempt_affordable(self) -> bool:
        """True if few enough steps were wasted to try to accelerate an outer loop."""
        return self.wasted_steps <= self.spent_steps // _WASTED_STEPS_DIVISOR

    @property
    def attempt_step_limit(self) -> int:
        """Steps that may be spent in all when an attempt ends that begins now."""
        return self.spent_steps + max(_MIN_ATTEMPT_STEPS, self.spent_steps // _ATTEMPT_STEPS_DIVISOR)

    def estimate_steps(self, factor: float) -> float:
        """Estimate the steps of `factor` times as many CTAs: the same actions, `factor` times the words."""
        return self.spent_steps + (factor - 1.0) * self.n_words_written / _WORDS_PER_STEP

    def spend(self, n_actions: int, n_accesses: int, n_words: int) -> None:
        """Spend the steps of a segment's actions, of the accesses to memory among them, and of the words that
        they wrote. Raises StopExecution.
        """
        self.n_words_written += n_words
        n_units = n_actions + _ACTIONS_PER_ACCESS * n_accesses
        self._add_steps(1 + n_units // _ACTIONS_PER_STEP + n_words // _WORDS_PER_STEP)

    def spend_at_header(self, depth: int) -> None:
        """Spend the steps of an arrival at a loop that so many loops contain. Raises StopExecution.

        Nests of some loops, as people write them, cost nothing; in a deep one, each loop runs symbolic
        iterations of those inside it, which take far longer than their few actions say.
        """
        self._add_steps(depth // _LOOPS_PER_STEP)

    def spend_symbolic_iteration(self) -> None:
        """Spend the steps of a symbolic iteration beyond those of its actions. Raises StopExecution."""
        self._add_steps(_STEPS_PER_SYMBOLIC_ITERATION)

    def _add_steps(self, n_steps: int) -> None:
        self.spent_steps += n_steps
        if self.spent_steps > self.step_limit:
            raise StopExecution(f"{self.step_limit:,} steps were not enough (--step-limit)")
