"""A role's runs in the order in which a warp comes to them, loop by loop, all of them or a part.

Warps that hand work to each other must meet in that order, and what a loop does beside the loops inside of it
overlaps in that order; for others the order of whole loops does.
"""

from math import floor

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.rings import OddEnds
from analyzer.models.sm.script import WHOLE_VISITS, Run, Script

LEAST_ROUNDS = 2.0  # of a loop of which only a part is played
_MOST_ROUNDS = 2000.0  # of all loops together, where short ones are played whole
_ROUNDING = 1e-9


class _Loop(Struct, eq=False):
    """times: rounds for one round of the loop around it; items: runs by place, and loops inside; planned:
    rounds of the plan in all.
    """

    last: int
    times: float
    rounds: float
    items: "list[_Loop | _Visits]" = field(default_factory=list)
    begun: int = 0
    planned: int = 1


class _Visits(Struct, eq=False):
    place: int
    times: float
    odd_ends: OddEnds | None


class _Round(Struct, frozen=True):
    """A round of a loop among those of one time that it is gone through, or among all."""

    number: int
    of: int


def plan_runs(script: Script, part: float, inner: float | None = None) -> list[Run]:
    """About such a part of all visits, in order: outer loops are cut first, inner ones where it must be.

    inner: the part of inner loops, where these are cut by themselves.
    """
    whole = _tree(script)
    _cut(whole, part, inner)
    return _written(whole, script)


def cut_rounds(script: Script, most: int) -> list[Run]:
    """The visits in order, of each long loop so many rounds at most; of all loops, where short ones within
    each other are many rounds.
    """
    whole = _tree(script)
    _limit(whole, WHOLE_VISITS, most)
    if _rounds(whole) > _MOST_ROUNDS:
        _limit(whole, most, most)
    return _written(whole, script)


def has_long_nest(script: Script) -> bool:
    """Whether a loop that is cut short has more than one run inside."""
    return any(span.rounds > WHOLE_VISITS for span in script.spans)


def outer_rounds(script: Script) -> float:
    """Rounds of the loop that has others inside, the most; 0 where there is none."""
    loops = [item for item in _tree(script).items if isinstance(item, _Loop)]
    return max((loop.times for loop in loops if _has_loops(loop)), default=0.0)


def _has_loops(loop: _Loop) -> bool:
    return any(isinstance(item, _Loop) or item.times >= LEAST_ROUNDS for item in loop.items)


def _tree(script: Script) -> _Loop:
    root = _Loop(len(script.runs), 1.0, 1.0)
    spans = list(script.spans)
    around = [root]
    for place, run in enumerate(script.runs):
        while around[-1].last < place:
            around.pop()
        while spans and spans[0].first == place:
            span = spans.pop(0)
            outer = around[-1]
            inner = _Loop(span.last, span.rounds / outer.rounds, span.rounds)
            outer.items.append(inner)
            around.append(inner)
        times = run.visits / around[-1].rounds
        around[-1].items.append(_Visits(place, times, run.odd_ends if times < 1.0 else None))
    return root


def _cut(loop: _Loop, part: float, inner: float | None) -> None:
    for item in loop.items:
        left = max(min(item.times, LEAST_ROUNDS), item.times * part)
        if isinstance(item, _Loop):
            _cut(item, part * item.times / left if inner is None else inner, inner)
        item.times = left


def _limit(loop: _Loop, longest: int, most: int) -> None:
    for item in loop.items:
        if isinstance(item, _Loop):
            _limit(item, longest, most)
        if item.times > longest:
            item.times = min(item.times, most)


def _rounds(loop: _Loop) -> float:
    """Of all loops inside, for one round of this one."""
    return sum(
        item.times * (1.0 + _rounds(item)) if isinstance(item, _Loop) else item.times for item in loop.items
    )


def _written(whole: _Loop, script: Script) -> list[Run]:
    plan: list[Run] = []
    _count(whole)
    _write(whole, _Round(0, 1), script, plan)
    return plan


def _count(loop: _Loop) -> None:
    for item in loop.items:
        if isinstance(item, _Loop):
            item.planned = floor(item.times * loop.planned + _ROUNDING)
            _count(item)


def _write(loop: _Loop, place: _Round, script: Script, plan: list[Run]) -> None:
    """One round of a loop; what does not come in every round comes evenly spread over them, where it is not
    known in which it does.
    """
    number = loop.begun
    loop.begun += 1
    for item in loop.items:
        times = floor(item.times * (number + 1) + _ROUNDING) - floor(item.times * number + _ROUNDING)
        if isinstance(item, _Loop):
            for inner in range(times):
                _write(item, _Round(inner, times), script, plan)
            continue
        if item.odd_ends is not None:
            here = place if item.odd_ends.every_time else _Round(number, loop.planned)
            times = 0 if item.odd_ends.leaves_out(here.number, here.of) else 1
        run = script.runs[item.place]
        if run.guarded:
            plan += _rounds_of(run, _Round(number, loop.planned), place, times)
        elif times:
            plan.append(Run(run.start, run.stop, times, run.meets))


def _rounds_of(run: Run, in_all: _Round, this_time: _Round, times: int) -> list[Run]:
    """So many visits of a run, with what is left out in each."""
    found: list[Run] = []
    for visit in range(times):
        own = _Round(visit, times) if times > 1 else None
        places = [own or (this_time if odd.every_time else in_all) for odd in run.guarded]
        pairs = zip(run.guarded, places, strict=True)
        left_out = tuple(odd for odd, at in pairs if odd.leaves_out(at.number, at.of))
        if found and found[-1].left_out == left_out:
            found[-1] = replace(found[-1], visits=found[-1].visits + 1)
        else:
            found.append(Run(run.start, run.stop, 1, run.meets, left_out=left_out))
    return found
