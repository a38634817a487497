"""A grid as waves of CTAs: full ones, and the last with what is left."""

import math

from msgspec import Struct

from analyzer.models.interface import ModelInput


class Wave(Struct, frozen=True):
    """Equal waves: how many, CTAs of the fullest SM, CTAs of the whole GPU, and how many SMs work."""

    n_waves: int
    max_ctas_per_sm: int
    n_ctas: int
    n_busy_sms: float


def split_into_waves(model_input: ModelInput) -> tuple[Wave, ...]:
    """Waves = CTAs over SMs times resident CTAs; the last one spreads what is left over all SMs."""
    sms, slots = model_input.gpu.sm_count, model_input.occupancy.ctas_per_sm
    full, rest = divmod(model_input.grid_ctas, sms * slots)
    waves = [Wave(full, slots, sms * slots, float(sms))] if full else []
    if rest:
        waves.append(Wave(1, math.ceil(rest / sms), rest, float(min(sms, rest))))
    return tuple(waves)
