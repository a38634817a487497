"""The last wave of a launch, in which some SMs have no CTA any more.

While all SMs are busy, each has its share of the rates of L2 and DRAM. In the last wave those that still have
a CTA divide what there is, up to what comes through one SM's port. So full waves take what they take with all
SMs busy, and the last wave what more CTAs take at the larger shares.

Example: 133 CTAs on 132 SMs of one slot. A CTA takes 100 cycles where all SMs load, and 80 alone: the launch
takes 180, not the 160 of two CTAs at the mean share, which is half.

The CTAs of the last wave go to the slots that free first. Where the CTAs of an SM end together, a few SMs get
as many as they hold and the others none. Where they end one by one, each SM gets one before any gets two.
Clocks of CTAs show both on an H100 (traces/h100/tail.txt.xz): 233 CTAs follow two waves of three; those of
LDS, of FFMA and of reads of the L2 fill 59 to 66 SMs with three. 389 CTAs of LDS follow two waves of five,
whose CTAs end far apart, and each SM gets two or three. So do products: of 1.29 waves of three CTAs the mean
SM is busy for .76 of the launch, with 2.83 CTAs while it is (Nsight Compute).

Example: 116 CTAs follow a wave of three on each of 132 SMs. Where these end within less than SMs are apart,
39 SMs get three each, and the launch takes two waves of three, the second at the larger shares.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist

from msgspec import Struct
from msgspec.structs import replace

from analyzer.models.sm.simulation_state import SimulationResult, SmParameters
from analyzer.models.sm.sm_simulator import LastWave, simulate_ctas
from analyzer.models.sm.warp_program import WarpProgram

# Standard deviation of the pace of SMs that do the same, on an H100 (traces/h100/tail.txt.xz): .012 to .018
# by two CTAs an SM where the L2 binds, .02 to .05 where the DRAM does, and more by three and five.
_PACE_SPREAD = 0.014
_MIN_BINDING_SHARE = 0.7  # of the cycles that an SM's part of L2 or DRAM is busy, from which on it binds


class SmLoad(Struct, frozen=True):
    """CTAs of the busiest SM and of all SMs."""

    n_ctas: int  # of the busiest SM
    n_slots: int  # of an SM
    mean_ctas: float  # of an SM
    n_sms: int
    mean_load_share: float  # by which the programs' demand for L2 and DRAM is scaled
    min_l2_share: float  # of the L2's rate for an SM over the width of its port

    @property
    def n_full(self) -> int:
        """CTAs of each SM in full waves."""
        return int(self.mean_ctas / self.n_slots + 1e-9) * self.n_slots

    @property
    def n_tail(self) -> int:
        """CTAs of all SMs in the last wave."""
        return round((self.mean_ctas - self.n_full) * self.n_sms)


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


def simulate_waves(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, load: SmLoad, most_steps: float
) -> SimulationResult:
    """Simulate the busiest SM: full waves, then the last one with the shares that it has."""
    n_full = load.n_full
    if not 0 < n_full < load.n_ctas:
        return simulate_ctas(warp_programs, parameters, load.n_ctas, most_steps=most_steps)
    full = tuple(scale_shared_cycles(one, 1.0 / load.mean_load_share) for one in warp_programs)

    n_even = load.n_ctas - n_full

    def make_last_wave(n_ctas: int) -> LastWave:
        share = min(1.0, load.n_tail / load.n_sms / n_ctas)
        l2_share = max(share, load.min_l2_share)
        programs = tuple(scale_shared_cycles(one, share, l2_share) for one in full)
        return LastWave(n_full, n_ctas, programs, gather)

    def gather(found: SimulationResult) -> LastWave:
        n_gathered = _find_gathered_ctas(full, parameters, load, found)
        return even if n_gathered <= n_even else make_last_wave(n_gathered)

    even = make_last_wave(n_even)
    return simulate_ctas(full, parameters, load.n_ctas, even, most_steps=most_steps)


def _find_gathered_ctas(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, load: SmLoad, found: SimulationResult
) -> int:
    """Find how many CTAs of the last wave an SM gets that gets any, as the slots of full waves have freed.

    0 where neither L2 nor DRAM binds: CTAs of FFMA end together by two and three an SM, and .7 of their time
    apart by five, and the simulation does not tell that well.
    """
    ends = found.cta_end_cycles[-load.n_slots :]
    busy_cycles = load.n_full * _sum_shared_cycles(warp_programs, parameters)
    if len(ends) < load.n_slots or busy_cycles < _MIN_BINDING_SHARE * ends[-1]:
        return 0
    return count_gathered_ctas(
        [end - ends[0] for end in ends],
        ends[-1],
        load.n_tail,
        NormalDist(1.0, _PACE_SPREAD),
        load.n_sms,
    )


def _sum_shared_cycles(warp_programs: tuple[WarpProgram, ...], parameters: SmParameters) -> float:
    """Sum what a CTA takes of its SM's part of the L2, or of the DRAM if that is more."""
    l2 = dram = 0.0
    for role in parameters.role_by_warp:
        program = warp_programs[role]
        for sequence in program.sequences:
            steps = slice(sequence.start, sequence.stop)
            l2 += sequence.iterations * sum(program.l2_cycles[steps])
            dram += sequence.iterations * sum(program.dram_cycles[steps])
    return max(l2, dram)


def count_gathered_ctas(
    lags: Sequence[float], cycles: float, n_ctas: int, pace: NormalDist, n_sms: int
) -> int:
    """Count the CTAs that the SM of the median CTA gets, of so many that go to the slots which free first.

    Single SMs that get more are the fastest ones, which begin first.

    lags: from the end of an SM's first CTA until each of its CTAs ends.
    cycles: until the mean SM's first CTA ends; pace: what SMs take over it.
    """
    first_ends = [cycles * pace.inv_cdf((number + 0.5) / n_sms) for number in range(n_sms)]
    freed = sorted((end + lag, number) for number, end in enumerate(first_ends) for lag in lags)
    by_sm = Counter(number for _, number in freed[:n_ctas])
    gathered = sorted(by_sm[number] for number in by_sm.elements())
    return gathered[n_ctas // 2] if n_ctas else 0
