"""Waves of CTAs of a grid: full ones, and a last one with the rest, the tail.

What the tail costs is the time beyond that of the same work spread evenly over the SMs. A model is asked for
a grid that fills whole waves, and its cycles are taken in proportion: 1,057 CTAs where 1,056 fit at a time
take two waves; 1,056 take one, so that 1,057 evenly spread would take 1.001 of it, and the tail costs 50 %.
"""

import math

from msgspec import Struct

from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

_MIN_TAIL_SHARE = 0.05  # a tail that cannot cost more is not worth another run of the model


class Wave(Struct, frozen=True):
    """Equal waves of CTAs."""

    n_waves: int
    max_ctas_per_sm: int
    n_ctas: int  # of one wave, on the whole GPU
    n_busy_sms: float


def split_into_waves(model_input: ModelInput, n_ctas: int | None = None) -> tuple[Wave, ...]:
    """Split CTAs, all of the grid if None, into full waves and the rest, which is spread over all SMs."""
    sms, slots = model_input.gpu.sm_count, model_input.occupancy.ctas_per_sm
    full, rest = divmod(model_input.grid_ctas if n_ctas is None else n_ctas, sms * slots)
    waves = [Wave(full, slots, sms * slots, float(sms))] if full else []
    if rest:
        waves.append(Wave(1, math.ceil(rest / sms), rest, float(min(sms, rest))))
    return tuple(waves)


def measure_tail_share(result: ModelResult) -> float | None:
    """Return the share of a launch's time that its last, partly filled wave costs.

    None where the grid is not known, the model does not say what another grid takes, or the last wave cannot
    cost 5 %; 0 where it is full. A grid of less than one wave is compared with one of equally many CTAs on
    every SM, and has no tail where SMs have at most one.
    """
    model_input, scaling = result.model_input, result.sm_scaling
    if model_input.grid is None or scaling is None:
        return None
    ctas, slots = scaling.ctas_per_sm, model_input.occupancy.ctas_per_sm
    step = slots if ctas >= slots else 1
    balanced_ctas = math.floor(ctas / step) * step
    largest_share = 1.0 - ctas / (math.ceil(ctas / step) * step)
    if not balanced_ctas or not largest_share or result.prediction.cycles <= 0:
        return 0.0
    if largest_share < _MIN_TAIL_SHARE:
        return None
    even_cycles = scaling.predict_balanced_cycles(balanced_ctas) * ctas / balanced_ctas
    share = (scaling.busy_cycles - even_cycles) / result.prediction.cycles
    return min(max(share, 0.0), largest_share)
