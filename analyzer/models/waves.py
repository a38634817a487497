"""Waves of CTAs of a grid: full ones, and a last one with the rest."""

import math

from msgspec import Struct

from analyzer.models.interface import ModelInput


class Wave(Struct, frozen=True):
    """Equal waves of CTAs."""

    n_waves: int
    max_ctas_per_sm: int
    n_ctas: int  # of one wave, on the whole GPU
    n_busy_sms: float


def split_into_waves(model_input: ModelInput) -> tuple[Wave, ...]:
    """Split the grid into full waves and the rest, which is spread over all SMs."""
    sms, slots = model_input.gpu.sm_count, model_input.occupancy.ctas_per_sm
    full, rest = divmod(model_input.grid_ctas, sms * slots)
    waves = [Wave(full, slots, sms * slots, float(sms))] if full else []
    if rest:
        waves.append(Wave(1, math.ceil(rest / sms), rest, float(min(sms, rest))))
    return tuple(waves)
