"""A grid as waves of CTAs: full ones, and the last with what is left."""

import math

from msgspec import Struct

from analyzer.models.base import Situation


class Wave(Struct, frozen=True):
    """Equal waves: how many, CTAs of the fullest SM, CTAs of the whole GPU, and how many SMs work."""

    count: int
    ctas_of_sm: int
    ctas: int
    busy_sms: float


def split_waves(situation: Situation) -> tuple[Wave, ...]:
    """Waves = CTAs over SMs times resident CTAs; the last one spreads what is left over all SMs."""
    sms, slots = situation.gpu.sm_count, situation.occupancy.ctas_per_sm
    full, rest = divmod(situation.grid_ctas, sms * slots)
    waves = [Wave(full, slots, sms * slots, float(sms))] if full else []
    if rest:
        waves.append(Wave(1, math.ceil(rest / sms), rest, float(min(sms, rest))))
    return tuple(waves)
