"""From the simulation of a few CTAs and loop visits to a whole launch."""

import math
from collections import Counter
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from analyzer.models.sm.engine import TENSOR, play
from analyzer.models.sm.plan import LEAST_ROUNDS, cut_rounds, has_long_nest, outer_rounds, plan_runs
from analyzer.models.sm.script import Run, Script
from analyzer.models.sm.state import Played, SmFigures

# Steps of a simulation: more change predictions by little and take longer.
STEP_BUDGET = 80_000
_RING_BUDGET = 12_000  # a pipeline soon goes round alike: docs/blackwell.md is the same as with 40,000
ALL_VISITS = 10**12
_LEAST_VISITS = 6
_MOST_VISITS = 24
_WAVES, _MOST_WAVES = 2, 8
_SETTLED = 0.005
# Waves of CTAs that are played to their end where CTAs are more than a few, within so many steps; where no
# loop would be cut short, within twice as many, and never fewer than tell the pace.
_WHOLE_WAVES, _LEAST_WHOLE_WAVES = 8, 3
_WHOLE_BUDGET = 3 * STEP_BUDGET
_UNCUT_BUDGET = 2 * _WHOLE_BUDGET
_LONG_BUDGET = 5 * STEP_BUDGET  # of the fewest waves: about what two plays with fewer visits take
_FEW_SLOTS = 4  # of so few CTAs nothing hides that one follows another
# Of long loops whose CTAs take turns at the tensor core, or that have others inside, where waves to their end
# are too many steps. The further apart two plays are, the less a line through them errs: of 30 products and
# attention kernels those of 12 and 6 visits were up to 29 % off a whole play, those of 24 and 6 up to 13 %.
_TOLD_VISITS = (24, 12, 6, 4)
_FEWER = 4


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


def plays_whole(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> bool:
    """Whether warps are played from end to end: all of the CTAs, or some of them."""
    return not figures.rings and (
        not _is_cut(scripts)
        or _are_few(scripts, figures, n_ctas)
        or _whole_waves(scripts, figures) >= _LEAST_WHOLE_WAVES
    )


def _are_few(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> bool:
    return _steps_per_cta(scripts, figures, ALL_VISITS) * n_ctas <= 2 * STEP_BUDGET


def _whole_waves(scripts: tuple[Script, ...], figures: SmFigures) -> int:
    """Waves of CTAs that can be played to their end."""
    if figures.slots <= _FEW_SLOTS:
        return 0
    steps = _steps_per_cta(scripts, figures, ALL_VISITS) * figures.slots
    if not _is_cut(scripts):
        return max(_LEAST_WHOLE_WAVES, min(_WHOLE_WAVES, int(_UNCUT_BUDGET / steps)))
    return min(_WHOLE_WAVES, int(_WHOLE_BUDGET / steps))


def estimate(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> Estimate:
    """Cycles in which an SM runs so many CTAs, one after another in its slots."""
    slots = figures.slots
    if figures.rings:
        return _estimate_rings(scripts, figures, n_ctas)
    if _are_few(scripts, figures, n_ctas):
        return _estimate_whole(scripts, replace(figures, most_visits=ALL_VISITS), n_ctas, math.inf)
    if (whole_waves := _whole_waves(scripts, figures)) >= _LEAST_WHOLE_WAVES:
        return _estimate_whole(scripts, replace(figures, most_visits=ALL_VISITS), n_ctas, whole_waves)
    are_cut = _is_cut(scripts)
    if are_cut and (_use_tensor_core(scripts) or any(map(has_long_nest, scripts))):
        found = _estimate_by_visits(scripts, replace(figures, most_visits=ALL_VISITS), n_ctas)
        if found is not None:
            return found
    full, rest = divmod(n_ctas, slots)
    at_once, waves = min(n_ctas, slots), max(1, min(full, _WAVES))
    most = _most_visits(scripts, figures, STEP_BUDGET / (at_once * waves))
    figures = replace(figures, most_visits=_LEAST_VISITS)
    figures, first = _settled(scripts, figures, at_once, most) if are_cut else (figures, None)
    if first is None or figures.most_visits == most:
        per_wave = slots * _steps_per_cta(scripts, figures, figures.most_visits)
        waves = max(waves, min(full, _MOST_WAVES, int(STEP_BUDGET / per_wave)))
    played = first if first and waves == 1 else play(scripts, figures, at_once * waves)
    wave = played.cycles / waves + (_left(scripts, figures, first) if first else 0.0)
    cycles = max(1, full) * wave
    if full and rest:
        tail = play(scripts, figures, rest)
        cycles += min(tail.cycles + _left(scripts, figures, tail), wave)
    return Estimate(cycles, played, figures.most_visits)


def _estimate_whole(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int, waves: float) -> Estimate:
    """All CTAs, or some waves of them, are played to their end; later ones come at the pace of these."""
    slots, most = figures.slots, waves * figures.slots
    in_order = _in_order(scripts)
    played = play(in_order, figures, int(min(n_ctas, most)))
    cycles = played.cycles
    if n_ctas > most:
        cycles += (n_ctas - most) * _pace(sorted(played.ends), slots)
    visited = tuple(_visited(script.runs) for script in in_order) if in_order is not scripts else ()
    return Estimate(cycles, played, figures.most_visits, visited)


def _in_order(scripts: tuple[Script, ...]) -> tuple[Script, ...]:
    """Long loops that have more than one run inside, round by round: what loads for a later round comes
    before the products of this one, not before all of them.
    """
    return _cut_runs(scripts, ALL_VISITS) if any(map(has_long_nest, scripts)) else scripts


def _waves(steps_per_cta: float, figures: SmFigures) -> int:
    """Waves of CTAs that can be played, and no fewer than tell the pace."""
    affordable = int(_WHOLE_BUDGET / (steps_per_cta * figures.slots))
    return max(_LEAST_WHOLE_WAVES, min(_WHOLE_WAVES, affordable))


def _estimate_by_visits(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> Estimate | None:
    """Some waves of CTAs are played to their end, or with fewer visits of long loops, twice: a straight line
    then tells what all visits take. None where that would be too many steps.
    """
    least_ctas = min(n_ctas, _LEAST_WHOLE_WAVES * figures.slots)
    per_cta = _steps_per_cta(scripts, figures, ALL_VISITS)
    if per_cta * least_ctas <= _LONG_BUDGET:
        return _estimate_whole(scripts, figures, n_ctas, _waves(per_cta, figures))
    for visits in _TOLD_VISITS:
        fewer, told = (_cut_runs(scripts, most) for most in (visits // _FEWER, visits))
        steps = _Steps(*(_steps_per_cta(some, figures, ALL_VISITS) for some in (scripts, told, fewer)))
        if steps.played * least_ctas <= _WHOLE_BUDGET:
            waves = _waves(steps.played, figures)
            break
    else:
        return None
    found = _estimate_whole(told, figures, n_ctas, waves)
    left = steps.left(found.cycles, lambda: _estimate_whole(fewer, figures, n_ctas, waves).cycles)
    return Estimate(
        found.cycles + left, found.played, ALL_VISITS, tuple(_visited(script.runs) for script in told)
    )


class _Steps(Struct, frozen=True):
    """All steps, those that were played, and those of a play with fewer visits."""

    every: float
    played: float
    fewer: float

    def left(self, cycles: float, play_fewer: Callable[[], float]) -> float:
        """Cycles of what was not played, on a straight line through both plays; cycles: of the longer one."""
        if not self.every > self.played > self.fewer:
            return 0.0
        longer = max(0.0, cycles - play_fewer())
        return longer * (self.every - self.played) / (self.played - self.fewer)


def _cut_runs(scripts: tuple[Script, ...], most: int) -> tuple[Script, ...]:
    """In the order in which a warp comes to them, so that there are no spans any more."""
    return tuple(replace(script, runs=cut_rounds(script, most), spans=()) for script in scripts)


def _pace(ends: list[float], slots: int) -> float:
    """Cycles between the ends of CTAs: how much later those of the last wave but one ended than the first's.

    CTAs of the first wave load at the same time, those of the last find an SM that empties: neither tells how
    long one takes among others that are further on.
    """
    last = len(ends) - slots
    return (sum(ends[last - slots : last]) - sum(ends[:slots])) / slots / (last - slots)


def _is_cut(scripts: tuple[Script, ...]) -> bool:
    """Whether a run is long enough to be cut short, where CTAs are not played to their end."""
    return any(run.most_visits(_LEAST_VISITS) < run.visits for script in scripts for run in script.runs)


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
    """Warps that hand work to each other go through their loops together: all are cut alike."""
    at_once = min(n_ctas, figures.slots)
    pipelines = _Pipelines(scripts, replace(figures, most_visits=ALL_VISITS), at_once)
    rounds = max(map(outer_rounds, scripts))
    part = min(1.0, (STEP_BUDGET if rounds else _RING_BUDGET) / pipelines.steps_of(scripts))
    if part < 1.0 and rounds * part / 2 < LEAST_ROUNDS <= rounds:
        cycles, played, plan = _by_rounds(pipelines, rounds, part)
    else:
        cycles, played, plan = _by_parts(pipelines, part)
    visited = tuple(_visited(script.runs) for script in plan)
    return Estimate(cycles * n_ctas / at_once, played, ALL_VISITS, visited)


class _Pipelines(Struct, frozen=True, eq=False):
    """Roles of a CTA, as many as are resident at once."""

    scripts: tuple[Script, ...]
    figures: SmFigures
    n_ctas: int

    def planned(self, part: float, inner: float | None = None) -> tuple[Script, ...]:
        """See `plan_runs`."""
        return tuple(replace(script, runs=plan_runs(script, part, inner)) for script in self.scripts)

    def steps_of(self, scripts: tuple[Script, ...]) -> float:
        return _steps_per_cta(scripts, self.figures, ALL_VISITS) * self.n_ctas

    def play(self, scripts: tuple[Script, ...]) -> Played:
        return play(scripts, self.figures, self.n_ctas)


def _by_parts(pipelines: _Pipelines, part: float) -> tuple[float, Played, tuple[Script, ...]]:
    """From two parts of the visits a straight line gives all of them."""
    whole = pipelines.planned(part)
    played = pipelines.play(whole)
    if part == 1.0:
        return played.cycles, played, whole
    half = pipelines.planned(part / 2)
    steps = _Steps(*map(pipelines.steps_of, (pipelines.scripts, whole, half)))
    left = steps.left(played.cycles, lambda: pipelines.play(half).cycles)
    return played.cycles + left, played, whole


def _by_rounds(pipelines: _Pipelines, rounds: float, part: float) -> tuple[float, Played, tuple[Script, ...]]:
    """Where outer rounds are too long to be played whole: what a round takes, and what its inner loops do.

    Two rounds with more of their inner loops than half of them, and a third round, tell the two apart.
    """
    inner = min(1.0, rounds * part / LEAST_ROUNDS)
    first = LEAST_ROUNDS / rounds
    plan = pipelines.planned(first, inner)
    played = pipelines.play(plan)
    fewer = pipelines.play(pipelines.planned(first, inner / 2)).cycles
    more = pipelines.play(pipelines.planned((LEAST_ROUNDS + 1.0) / rounds, inner / 2)).cycles
    whole_inner = max(0.0, played.cycles - fewer) / LEAST_ROUNDS / (inner / 2)
    one_round = max(0.0, more - fewer - whole_inner * inner / 2) + whole_inner
    left = (rounds - LEAST_ROUNDS) * one_round + LEAST_ROUNDS * (1.0 - inner) * whole_inner
    return played.cycles + left, played, plan


def _visited(plan: list[Run]) -> Counter[int]:
    visits: Counter[int] = Counter()
    for run in plan:
        visits[run.start] += run.visits
    return visits


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
    return any(pipe == TENSOR for script in scripts for pipes in script.pipes for pipe, *_ in pipes)


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
