"""The last wave of a launch, in which some SMs have no CTA any more.

While all SMs are busy, each has its share of the rates of L2 and DRAM. In the last wave those that still have
a CTA divide what there is, up to what comes through one SM's port. So full waves take what they take with all
SMs busy, and the last wave what more CTAs take at the larger shares.

Example: 133 CTAs on 132 SMs of one slot. A CTA takes 100 cycles where all SMs load, and 80 alone: the launch
takes 180, not the 160 of two CTAs at the mean share, which is half.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from analyzer.models.sm.extrapolation import SmEstimate, estimate_sm_cycles
from analyzer.models.sm.simulation_state import SmParameters
from analyzer.models.sm.warp_program import WarpProgram

_MAX_WAVES = 8  # with more, the last one is little of the whole
_MIN_TAIL_CHANGE = 0.05  # of the shares, that is worth two more simulations


class SmLoad(Struct, frozen=True):
    """CTAs of the busiest SM and of all SMs."""

    n_ctas: int  # of the busiest SM
    n_slots: int  # of an SM
    mean_ctas: float  # of an SM
    mean_load_share: float  # by which the programs' demand for L2 and DRAM is scaled
    min_l2_share: float  # of the L2's rate for an SM over the width of its port

    @property
    def n_full(self) -> int:
        """CTAs of each SM in full waves."""
        return int(self.mean_ctas / self.n_slots + 1e-9) * self.n_slots

    @property
    def tail_share(self) -> float:
        """CTAs of the mean SM over those of the busiest one, in the last wave."""
        return (self.mean_ctas - self.n_full) / max(1, self.n_ctas - self.n_full)


def scale_shared_cycles(
    warp_program: WarpProgram, factor: float, l2_factor: float | None = None
) -> WarpProgram:
    """Scale the demand of a program for DRAM and atomics, and for the L2 if not by another factor."""
    l2_factor = factor if l2_factor is None else l2_factor
    return replace(
        warp_program,
        l2_cycles=[l2_factor * cycles for cycles in warp_program.l2_cycles],
        dram_cycles=[factor * cycles for cycles in warp_program.dram_cycles],
        atomic_cycles=[factor * cycles for cycles in warp_program.atomic_cycles],
    )


def estimate_waves(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, load: SmLoad
) -> SmEstimate:
    """Estimate the cycles of the busiest SM: full waves, then the last one with the shares that it has.

    The waits are those of all CTAs at the mean share.
    """
    found = estimate_sm_cycles(warp_programs, parameters, load.n_ctas)
    n_full, tail_share = load.n_full, load.tail_share
    if (
        not 0 < n_full < load.n_ctas <= _MAX_WAVES * load.n_slots
        or load.mean_load_share > 1.0 - _MIN_TAIL_CHANGE
        or parameters.pipelines
    ):
        return found

    def estimate_at(share: float) -> Callable[[int], float]:
        factor = share / load.mean_load_share
        l2_factor = max(share, load.min_l2_share) / max(load.mean_load_share, load.min_l2_share)
        programs = tuple(scale_shared_cycles(one, factor, l2_factor) for one in warp_programs)
        return lambda n_ctas: estimate_sm_cycles(programs, parameters, n_ctas).cycles

    busy, tail = estimate_at(1.0), estimate_at(tail_share)
    last = max(0.0, tail(load.n_ctas) - tail(n_full))
    return replace(found, cycles=busy(n_full) + last)
