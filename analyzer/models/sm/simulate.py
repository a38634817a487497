"""A launch as the simulation of one SM takes it: scripts, figures, how many CTAs come to the busiest SM."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.demand.costs import FloatArray
from analyzer.execution.rings import Ring
from analyzer.models.base import Situation
from analyzer.models.placement import Placement, memory_latency_cycles
from analyzer.models.sm.crew import Crew, find_crew
from analyzer.models.sm.engine import N_WAITS
from analyzer.models.sm.estimate import ALL_VISITS, Estimate, estimate, plays_whole
from analyzer.models.sm.script import Script, write_script
from analyzer.models.sm.state import RingFigures, SmFigures
from analyzer.models.sm.traffic import Act, Traffic, measure_traffic
from analyzer.models.walk import latencies_of
from analyzer.models.walking import walk_options
from analyzer.models.warp_state import Code

# Waves of CTAs in which the longest one may be what a launch takes.
_FEW_WAVES = 2


class WarpCycles(Struct, frozen=True, eq=False):
    """Cycles of warps in proportion: selected [n], waits [n, N_WAITS], and what stall counts add [n]."""

    selected: FloatArray
    waits: FloatArray
    added: FloatArray

    @property
    def total(self) -> float:
        return float(self.selected.sum() + self.waits.sum() + self.added.sum())


class Simulation(Struct, frozen=True, eq=False):
    """The busiest SM: n_ctas one after another in its slots, in `cycles`; idle_share: CTAs of the grid that
    find no work; least_cycles: of the CTA that has most to do, where few others can hide it.
    """

    scripts: tuple[Script, ...]
    traffic: Traffic
    figures: SmFigures
    n_ctas: int
    idle_share: float
    estimate: Estimate
    least_cycles: float = 0.0

    @property
    def cycles(self) -> float:
        return max(self.estimate.cycles, self.least_cycles)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of it."""
        notes = []
        lost = self.traffic.lost_share
        if not lost:
            notes.append(
                "all data are in the L2 from the last such launch: nothing comes from DRAM (--cold-l2)"
            )
        elif lost < 1.0:
            notes.append(f"{1.0 - lost:.0%} of the data are in the L2 from the last such launch (--cold-l2)")
        if self.idle_share:
            idle = f"{self.idle_share:.0%}"
            notes.append(
                f"{idle} of the CTAs find little or no work, and count for the time to hand them out"
            )
        return tuple(notes)

    def parts(self) -> Iterator[tuple[Script, int]]:
        """Each script with the warps of a CTA that follow it."""
        for number, script in enumerate(self.scripts):
            yield script, self.figures.crew.count(number)

    def warp_cycles(self, n_rows: int) -> WarpCycles:
        """Of all warps of the played CTAs, by instruction."""
        selected, added = np.zeros(n_rows), np.zeros(n_rows)
        waits = np.zeros((n_rows, N_WAITS))
        played = self.estimate.played
        n_ctas = max(1, played.n_ctas)
        for role, ((script, n_warps), found) in enumerate(zip(self.parts(), played.waits, strict=True)):
            table = np.array(found).reshape(len(script), N_WAITS) / n_ctas
            for run in script.runs:
                table[run.start : run.stop] *= run.visits / max(1, self.estimate.visits_of(role, run))
                for step in range(run.start, run.stop):
                    rows = slice(script.first[step], script.last[step] + 1)
                    times = n_warps * run.visits
                    selected[rows] += times * script.share[step]
                    longer = times * (script.stalls[step] - script.issued[step])
                    added[rows] += longer / (rows.stop - rows.start)
            np.add.at(waits, np.array(script.last), table)
        return WarpCycles(selected, waits, np.maximum(added, 0.0))


def simulate(situation: Situation, placement: Placement, clock_mhz: float) -> Simulation:
    """Simulate the SM that gets most CTAs."""
    crew = find_crew(situation)
    sms = situation.gpu.sm_count
    mean_ctas = crew.working_ctas / sms
    n_ctas = max(1, math.ceil(mean_ctas - 1e-9))
    busy_ctas = crew.working_ctas / min(sms, max(1.0, crew.working_ctas))
    traffic = measure_traffic(
        situation, placement, clock_mhz, balance=min(1.0, busy_ctas / n_ctas) * crew.evenness
    )
    options = walk_options(situation, situation.weights, placement, lost_share=traffic.lost_share)
    latency = latencies_of(situation.kernel, situation.costs, options)
    latency = latency + traffic.spill_cycles
    for row in np.flatnonzero(traffic.act == Act.COPY).tolist():
        latency[row] += memory_latency_cycles(situation, Placement(1.0, traffic.copied_dram_share))
    code = Code(situation.kernel, situation.costs, latency, options.read_release_cycles)
    path = situation.arch.memory
    launch, store_factor = situation.gpu.file.launch, situation.gpu.file.l2.store_factor
    launch_cycles = sms * clock_mhz / launch.ctas_per_us.value
    figures = SmFigures(
        subcores=int(situation.arch.limits.subcores_per_sm.value),
        crew=crew.roles,
        slots=situation.occupancy.ctas_per_sm,
        path_depth=path.path_queue_cycles.value,
        burst=path.l2_burst_cycles.value,
        store_depth=path.store_queue_cycles.value,
        dram_load=path.dram_load_cycles.value,
        launch_cycles=launch_cycles,
        read_release=options.read_release_cycles,
        most_visits=ALL_VISITS,
        copies=int(path.ldgsts_per_warp.value) if path.ldgsts_per_warp else 0,
        l2_store_factor=store_factor.value if store_factor is not None else 0.0,
    )
    cast = _cast(situation, crew, code, traffic, figures, n_ctas)
    least = 0.0
    if crew.busiest is not None and n_ctas <= _FEW_WAVES * figures.slots:
        alone = _cast(situation, crew.busiest, code, _lighter(traffic, crew.busiest.evenness), figures, 1)
        least = estimate(alone.scripts, alone.figures, 1).cycles
    return Simulation(
        scripts=cast.scripts,
        traffic=traffic,
        figures=cast.figures,
        n_ctas=n_ctas,
        idle_share=1.0 - crew.working_ctas / max(1, situation.grid_ctas),
        estimate=estimate(cast.scripts, cast.figures, n_ctas),
        least_cycles=least,
    )


class _Cast(Struct, frozen=True, eq=False):
    """What the warps of a CTA do, and the SM's figures with their roles."""

    scripts: tuple[Script, ...]
    figures: SmFigures


def _cast(
    situation: Situation, crew: Crew, code: Code, traffic: Traffic, figures: SmFigures, n_ctas: int
) -> _Cast:
    scripts = _scripts(situation, crew, code, traffic)
    figures = replace(figures, crew=crew.roles, rings=_ring_figures(situation, scripts, crew))
    if crew.joined is not None and not figures.rings and not plays_whole(scripts, figures, n_ctas):
        # where loops are cut short, warps that have priority would leave the others' visits to be added;
        # those that hand buffers to each other keep to each other's pace
        return _cast(situation, crew.joined, code, traffic, figures, n_ctas)
    return _Cast(scripts, figures)


def _lighter(traffic: Traffic, evenness: float) -> Traffic:
    """While the busiest CTA works, others that have less to do leave it their share of L2 and DRAM."""
    return replace(
        traffic,
        l2_cycles=traffic.l2_cycles * evenness,
        dram_cycles=traffic.dram_cycles * evenness,
        atomic_cycles=traffic.atomic_cycles * evenness,
    )


def _scripts(situation: Situation, crew: Crew, code: Code, traffic: Traffic) -> tuple[Script, ...]:
    return tuple(write_script(situation, weights, code, traffic) for weights in crew.weights)


_ARRIVING = frozenset({int(Act.ARRIVE), int(Act.COMMIT), int(Act.COPY)})


def _ring_figures(situation: Situation, scripts: tuple[Script, ...], crew: Crew) -> tuple[RingFigures, ...]:
    """Arrivals that end a phase: of each warp and of all, over the waits of a warp, which goes through every
    phase.
    """
    if situation.rings is None:
        return ()
    told = np.zeros((len(situation.rings.rings), len(scripts)))
    asked = np.zeros_like(told)
    for number, script in enumerate(scripts):
        for run in script.runs:
            for step in range(run.start, run.stop):
                ring = script.ring[step]
                if ring >= 0 and script.act[step] in _ARRIVING:
                    told[ring, number] += run.visits * script.arrivals[step] * script.part[step]
                elif ring >= 0:
                    asked[ring, number] += run.visits * script.share[step] * script.part[step]
    n_warps = np.array([crew.roles.count(number) for number in range(len(scripts))])
    return tuple(
        _figures_of(ring, told[number], float(asked[number].max()), n_warps)
        for number, ring in enumerate(situation.rings.rings)
    )


def _figures_of(ring: Ring, told: FloatArray, waits: float, n_warps: NDArray[np.int64]) -> RingFigures:
    each = [_of_a_phase(arrivals, waits, ring.barriers) for arrivals in told.tolist()]
    if all(arrivals.is_integer() for arrivals in each):
        return RingFigures(float(np.dot(each, n_warps)), ring.free_waits, tuple(each))
    return RingFigures(_of_a_phase(float(told @ n_warps), waits, ring.barriers), ring.free_waits)


_ODD_ENDS = 0.03  # of arrivals, where loops are counted in the mean


def _of_a_phase(arrivals: float, waits: float, barriers: int) -> float:
    """Who fills a pipeline before its first wait leaves as many phases at its end that nobody waits for."""
    if not waits:
        return math.inf
    each = arrivals / waits
    if abs(each - round(each)) < _ODD_ENDS * each:
        return float(round(each))
    fewest = arrivals / (waits + barriers)
    return float(math.floor(each)) if math.floor(each) >= fewest else each
