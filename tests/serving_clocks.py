"""Clocks of closed form, for tests of the serving simulation."""

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.forecast.step_clock import StepLengths, StepShape


class AffineClock(Struct, frozen=True):
    """Seconds of a step, affine in what it computes."""

    fixed_s: float = 0.004
    per_row_s: float = 2e-5
    per_kv_token_s: float = 3e-8
    per_pair_s: float = 1e-9

    def time_step(self, shape: StepShape, list_lengths: Callable[[], StepLengths]) -> float:
        return (
            self.fixed_s
            + self.per_row_s * shape.rows
            + self.per_kv_token_s * shape.decode_kv_tokens
            + self.per_pair_s * shape.prefill_pairs
        )

    def time_decode_run(
        self, shape: StepShape, list_lengths: Callable[[], StepLengths], steps: int
    ) -> NDArray[np.float64]:
        kv_tokens = shape.decode_kv_tokens + shape.decodes * np.arange(steps)
        return self.fixed_s + self.per_row_s * shape.decodes + self.per_kv_token_s * kv_tokens


CONSTANT = AffineClock(fixed_s=0.01, per_row_s=0.0, per_kv_token_s=0.0, per_pair_s=0.0)
