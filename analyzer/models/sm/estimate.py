"""From the simulation of a few CTAs and loop visits to a whole launch."""

from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.costs import PIPE_INDEX
from analyzer.ir.machine import Pipe
from analyzer.models.sm.engine import play
from analyzer.models.sm.plan import plan_runs
from analyzer.models.sm.script import Run, Script
from analyzer.models.sm.state import Played, SmFigures

# Steps of a simulation: more change predictions by little and take longer.
STEP_BUDGET = 40_000
_RING_BUDGET = 12_000  # pipelines soon go round alike: docs/blackwell.md is the same as with 40,000
_TENSOR = PIPE_INDEX[Pipe.TENSOR]
ALL_VISITS = 10**12
_LEAST_VISITS = 6
_MOST_VISITS = 24
_WAVES, _MOST_WAVES = 2, 8
_SETTLED = 0.005
# Waves of CTAs that are played to their end where no loop is cut short and CTAs are more than a few.
_WHOLE_WAVES = 4
# Of few CTAs the first take turns at the tensor core where later ones do not: all waves tell the pace.
_FEW_SLOTS, _TOLD_VISITS = 4, 12


class Estimate(Struct, frozen=True, eq=False):
    """cycles of the busiest SM; played: the simulation that its waits are taken from; visits: of each run at
    most in it; visited: how often each role went through the run at each first step, where runs were played
    in their order.
    """

    cycles: float
    played: Played
    visits: int
    visited: tuple[Counter[int], ...] = ()

    def visits_of(self, role: int, run: Run) -> int:
        """Visits of a run that were played."""
        if self.visited:
            return self.visited[role][run.start]
        return run.most_visits(self.visits)


def estimate(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> Estimate:
    """Cycles in which an SM runs so many CTAs, one after another in its slots."""
    slots = figures.slots
    if figures.rings:
        return _estimate_rings(scripts, figures, n_ctas)
    if _steps_per_cta(scripts, figures, ALL_VISITS) * n_ctas <= 2 * STEP_BUDGET:
        played = play(scripts, replace(figures, most_visits=ALL_VISITS), n_ctas)
        return Estimate(played.cycles, played, ALL_VISITS)
    full, rest = divmod(n_ctas, slots)
    at_once, waves = min(n_ctas, slots), max(1, min(full, _WAVES))
    most = _most_visits(scripts, figures, STEP_BUDGET / (at_once * waves))
    figures = replace(figures, most_visits=_LEAST_VISITS)
    is_cut = any(_is_cut(run) for script in scripts for run in script.runs)
    if not is_cut and slots > _FEW_SLOTS:
        return _estimate_whole(scripts, figures, n_ctas)
    if is_cut and waves > 1 and slots <= _FEW_SLOTS and _use_tensor_core(scripts):
        figures = replace(figures, most_visits=_TOLD_VISITS)
        played = play(scripts, figures, slots * waves)
        wave = played.cycles / waves + _left_by_slope(scripts, figures, played, waves)
    else:
        figures, first = _settled(scripts, figures, at_once, most) if is_cut else (figures, None)
        if first is None or figures.most_visits == most:
            per_wave = slots * _steps_per_cta(scripts, figures, figures.most_visits)
            waves = max(waves, min(full, _MOST_WAVES, int(2 * STEP_BUDGET / per_wave)))
        played = first if first and waves == 1 else play(scripts, figures, at_once * waves)
        wave = played.cycles / waves + (_left(scripts, figures, first) if first else 0.0)
    cycles = max(1, full) * wave
    if full and rest:
        tail = play(scripts, figures, rest)
        cycles += min(tail.cycles + _left(scripts, figures, tail), wave)
    return Estimate(cycles, played, figures.most_visits)


def _estimate_whole(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> Estimate:
    """Where no loop is cut short: some waves are played, and later CTAs come at the pace of these.

    Of few CTAs nothing hides that one follows another: their waves take as long as those played in the mean.
    """
    slots, most = figures.slots, _WHOLE_WAVES * figures.slots
    played = play(scripts, figures, min(n_ctas, most))
    cycles = played.cycles
    if n_ctas > most:
        cycles += (n_ctas - most) * _pace(sorted(played.ends), slots)
    return Estimate(cycles, played, figures.most_visits)


def _pace(ends: list[float], slots: int) -> float:
    """Cycles between the ends of CTAs: how much later those of the last wave but one ended than the first's.

    CTAs of the first wave load at the same time, those of the last find an SM that empties: neither tells how
    long one takes among others that are further on.
    """
    last = len(ends) - slots
    return (sum(ends[last - slots : last]) - sum(ends[:slots])) / slots / (last - slots)


def _is_cut(run: Run) -> bool:
    """Long enough to be cut short."""
    return run.most_visits(_LEAST_VISITS) < run.visits


def _settled(
    scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int, most: int
) -> tuple[SmFigures, Played]:
    """CTAs that come together, with so many visits of long runs that more say the same, or the most."""
    played = play(scripts, figures, n_ctas)
    before, now = 0.0, played.cycles + _left(scripts, figures, played)
    while figures.most_visits < most and abs(now - before) > _SETTLED * now:
        figures = replace(figures, most_visits=2 * figures.most_visits)
        played = play(scripts, figures, n_ctas)
        before, now = now, played.cycles + _left(scripts, figures, played)
    return figures, played


def _estimate_rings(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> Estimate:
    """Warps that hand work to each other go through their loops together: all are cut alike.

    From two parts of the visits a straight line gives all of them.
    """
    at_once = min(n_ctas, figures.slots)
    figures = replace(figures, most_visits=ALL_VISITS)
    steps = _steps_per_cta(scripts, figures, ALL_VISITS) * at_once
    part = min(1.0, _RING_BUDGET / steps)
    whole = _planned(scripts, part)
    played = play(whole, figures, at_once)
    cycles = played.cycles
    if part < 1.0:
        half = _planned(scripts, part / 2)
        shares = [_steps_per_cta(plan, figures, ALL_VISITS) * at_once / steps for plan in (half, whole)]
        if shares[1] > shares[0]:
            more = max(0.0, cycles - play(half, figures, at_once).cycles)
            cycles += more * (1.0 - shares[1]) / (shares[1] - shares[0])
    visited = tuple(_visited(script.runs) for script in whole)
    return Estimate(cycles * n_ctas / at_once, played, ALL_VISITS, visited)


def _visited(plan: list[Run]) -> Counter[int]:
    visits: Counter[int] = Counter()
    for run in plan:
        visits[run.start] += run.visits
    return visits


def _planned(scripts: tuple[Script, ...], part: float) -> tuple[Script, ...]:
    return tuple(replace(script, runs=plan_runs(script, part)) for script in scripts)


def _steps_per_cta(scripts: tuple[Script, ...], figures: SmFigures, most: int) -> float:
    per = [sum((run.stop - run.start) * run.most_visits(most) for run in script.runs) for script in scripts]
    return float(sum(per[role] for role in figures.crew))


def _most_visits(scripts: tuple[Script, ...], figures: SmFigures, steps_per_cta: float) -> int:
    """Most visits of a run for which a CTA takes no more steps."""
    visits = _LEAST_VISITS
    while visits < _MOST_VISITS and _steps_per_cta(scripts, figures, visits * 2) <= steps_per_cta:
        visits *= 2
    return visits


def _use_tensor_core(scripts: tuple[Script, ...]) -> bool:
    return any(pipe == _TENSOR for script in scripts for pipes in script.pipes for pipe, *_ in pipes)


def _left_by_slope(scripts: tuple[Script, ...], figures: SmFigures, played: Played, waves: int) -> float:
    """Cycles that a wave's left visits take: as much more as those played took more than half of them."""
    fewer = replace(figures, most_visits=figures.most_visits // 2)
    half, told, every = (
        _steps_per_cta(scripts, figures, most)
        for most in (fewer.most_visits, figures.most_visits, ALL_VISITS)
    )
    if every <= told or told <= half:
        return 0.0
    more = played.cycles - play(scripts, fewer, figures.slots * waves).cycles
    return max(0.0, more) / waves * (every - told) / (told - half)


def _left(scripts: tuple[Script, ...], figures: SmFigures, played: Played) -> float:
    """Cycles of the visits that were left out, of the role that has most."""
    most = 0.0
    for number, script in enumerate(scripts):
        total = 0.0
        for place, run in enumerate(script.runs):
            visits = played.visits.get((number, place, 0))
            if visits is not None:
                total += (run.visits - figures.most_visits) * visits.pace
        most = max(most, total)
    return most
