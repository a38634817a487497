"""Which warps make up a CTA, and how many CTAs of the grid have work at all."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.demand.costs import FloatArray
from analyzer.demand.demand import instruction_weights
from analyzer.demand.tiles import makes_pairs
from analyzer.execution.profile import WarpClass
from analyzer.ir.opcode import MEMORY_KINDS, OpKind
from analyzer.models.base import Situation
from analyzer.models.roles import MOST_ROLES, group_by_loops, mean_weights

_IDLE_SHARE = 0.1
_FEW = 0.05
_ALIKE = 0.03
_MOST_KINDS = 6
_LOAD = 20.0  # instructions that one which waits for memory is worth


class Crew(Struct, frozen=True, eq=False):
    """weights: executions of each instruction by the mean warp of each role, [n]; roles: of each warp of a
    CTA, one for warps that enter the same loops and do nearly the same; working_ctas: CTAs of the grid that
    do more than look whether there is work; evenness: what the mean CTA executes over what the one that is
    played does; joined: with one role for all warps that enter the same loops, None where that is no other;
    busiest: the CTA that has most to do, None where that is hardly more, or is what is played.
    """

    weights: tuple[FloatArray, ...]
    roles: tuple[int, ...]
    working_ctas: float
    evenness: float = 1.0
    joined: "Crew | None" = None
    busiest: "Crew | None" = None


def find_crew(situation: Situation) -> Crew:
    """The mean working CTA; the busiest one where each has an SM of its own, as the last ends the launch."""
    n_warps = max(1, situation.occupancy.warps_per_cta)
    profile = situation.profile
    grid = float(situation.grid_ctas)
    if profile is None or not profile.classes:
        return Crew((situation.weights,), (0,) * n_warps, grid)
    hands_over = situation.rings is not None  # then it matters which warps make up one CTA
    found = _find_workers(situation, profile.classes, n_warps, hands_over=hands_over)
    busy, idle, ctas = found.busy, found.idle, grid * found.share
    groups = group_by_loops(situation, [one for one in busy + idle if one.n_warps])
    if hands_over:
        groups = _join_places(groups, idle, n_warps)
    free = _by_seat(busy, n_warps) < _IDLE_SHARE * ctas
    sizes = [_size(group, ctas, free if group[0] in idle else None) for group in groups]
    keep = [place for place, size in enumerate(sizes) if size >= 0.5][:MOST_ROLES] or [0]
    main = max(keep, key=lambda place: sizes[place])
    wanted = {number: max(1, round(sizes[place])) for number, place in enumerate(keep) if place != main}

    def crew_of(played: list[list[WarpClass]], evenness: float) -> Crew:
        roles = _seats(n_warps, keep.index(main), wanted, [_by_seat(group, n_warps) for group in played])
        return replace(_part(situation, played, roles, ctas), evenness=evenness)

    lengths, chosen = _lengths(situation), _add_others(situation, groups, keep, main, n_warps)
    most = [_busiest(group, lengths, n_warps) for group in chosen]
    evenness = _work(chosen, lengths) / max(1.0, _work(most, lengths))
    if grid <= situation.gpu.sm_count:
        return crew_of(most, evenness)
    mean = crew_of(chosen, 1.0)
    return replace(mean, busiest=crew_of(most, evenness)) if evenness < 1.0 - _ALIKE else mean


class _Workers(Struct, frozen=True, eq=False):
    """share: of the grid's CTAs, those that have work; idle: warps of these that have none."""

    busy: list[WarpClass]
    idle: list[WarpClass]
    share: float


def _find_workers(
    situation: Situation, classes: Sequence[WarpClass], n_warps: int, *, hands_over: bool
) -> _Workers:
    """Warps that reach no memory instruction, or execute less than a tenth of what the busiest do, are idle.

    Whole CTAs of them find no work, where they are more than a few: the grid is larger than the work.
    """
    lengths, reach = _lengths(situation), _memory_blocks(situation)
    least = _IDLE_SHARE * max(float(one.block_counts @ lengths) for one in classes)
    if not any((one.block_counts[reach] > 0).any() for one in classes):
        reach = np.ones(len(lengths), dtype=np.bool_)
    busy = [one for one in classes if one.block_counts @ lengths >= least and one.block_counts[reach].any()]
    idle = [one for one in classes if one not in busy]
    in_all = max(1, sum(one.n_warps for one in classes))
    alone = sum(one.n_warps - one.n_beside for one in idle) / in_all
    # no CTA is without work where a warp at the same place of each has some
    alone = min(alone, 1.0 - float(_by_seat(busy, n_warps).max()) * n_warps / in_all)
    if alone < _FEW:
        return _Workers(busy, idle, 1.0)
    ctas = alone * in_all / n_warps if hands_over else math.inf
    return _Workers(busy, _without(idle, ctas, n_warps), 1.0 - alone)


def _lengths(situation: Situation) -> NDArray[np.int64]:
    return np.array([len(block) for block in situation.cfg.blocks])


def _add_others(
    situation: Situation, groups: list[list[WarpClass]], keep: list[int], main: int, n_warps: int
) -> list[list[WarpClass]]:
    """Groups that are kept; those that are too few go to one that stands where they do, or to the main one.

    The second CTA of a pair leaves products to the first, and yet its tensor core works as long.
    """
    chosen = {place: groups[place] for place in keep}
    for place, group in enumerate(groups):
        if place not in chosen and not makes_pairs(situation.kernel):
            shares = {other: _share_places(groups[other], group, n_warps) for other in keep}
            nearest = max(keep, key=lambda other: (shares[other], other == main))
            chosen[nearest] = chosen[nearest] + group
    return list(chosen.values())


def _without(idle: list[WarpClass], alone: float, n_warps: int) -> list[WarpClass]:
    """Idle warps that are not among those of so many CTAs without work.

    Warps in whose CTA others execute much more are not; of the rest, as many at each place as there are CTAs.
    """
    beside = np.array([one.n_beside / max(1, one.n_warps) for one in idle])
    seats = np.stack([_by_seat([one], n_warps) for one in idle])
    others = (1.0 - beside) @ seats
    kept = np.maximum(0.0, 1.0 - alone / np.maximum(others, 1.0))
    seats *= beside[:, None] + (1.0 - beside[:, None]) * kept
    return [
        replace(one, n_warps=round(left.sum()), seats=tuple(left.tolist()))
        for one, left in zip(idle, seats, strict=True)
    ]


def _join_places(groups: list[list[WarpClass]], idle: list[WarpClass], n_warps: int) -> list[list[WarpClass]]:
    """Groups that stand at the same places are one: their warps do another part of the work in other CTAs."""
    found: dict[tuple[bool, ...], list[WarpClass]] = {}
    for group in groups:
        places = (_by_seat(group, n_warps) > 0).tolist()
        found.setdefault((group[0] in idle, *places), []).extend(group)
    return list(found.values())


def _share_places(one: list[WarpClass], other: list[WarpClass], n_warps: int) -> float:
    """Of the warps of a group, those that stand where another group's do."""
    here = _by_seat(other, n_warps)
    return float(here[_by_seat(one, n_warps) > 0].sum() / max(1.0, here.sum()))


def _size(group: list[WarpClass], ctas: float, free: NDArray[np.bool_] | None) -> float:
    """Warps of a CTA that are of a group.

    free: for idle ones, places at which hardly any working CTA has a warp with work. Idle warps at other
    places are those of CTAs at the grid's rim, or of the second one of a pair.
    """
    size = sum(one.n_warps for one in group) / ctas
    if free is None:
        return size
    return min(size, float(free.sum())) if _by_seat(group, len(free))[free].any() else 0.0


def _busiest(group: list[WarpClass], lengths: NDArray[np.int64], n_warps: int) -> list[WarpClass]:
    """At each place those that execute most."""
    at = np.stack([_by_seat([one], n_warps) for one in group])
    work = np.where(at > 0, np.array([[float(one.block_counts @ lengths)] for one in group]), -1.0)
    at = np.where(work >= work.max(axis=0), at, 0.0)
    return [
        replace(one, n_warps=max(1, round(seats.sum())), seats=tuple(seats.tolist()))
        for one, seats in zip(group, at, strict=True)
        if seats.any()
    ]


def _work(groups: list[list[WarpClass]], lengths: NDArray[np.int64]) -> float:
    """What the mean warps execute together."""
    return sum(
        float(
            sum(one.n_warps * (one.block_counts @ lengths) for one in group)
            / sum(one.n_warps for one in group)
        )
        for group in groups
    )


def _by_seat(group: list[WarpClass], n_warps: int) -> FloatArray:
    """How many warps of some classes stand at each place of a CTA."""
    found: FloatArray = np.zeros(n_warps)
    for one in group:
        found[: len(one.seats)] += one.seats[:n_warps]
    return found


def _seats(n_warps: int, main: int, wanted: dict[int, int], by_seat: list[FloatArray]) -> tuple[int, ...]:
    """The role of each warp, so many of each that is wanted, where most of its warps are."""
    roles = [main] * n_warps
    free = set(range(n_warps))
    for number, count in wanted.items():
        for _ in range(min(count, len(free) - 1)):
            seat = max(free, key=lambda warp: (by_seat[number][warp], warp))
            roles[seat] = number
            free.discard(seat)
    return tuple(roles)


class _Kind(Struct, eq=False):
    """Warps of a role that do nearly the same; counts: executions of each block by one of them."""

    seats: list[int]
    counts: FloatArray

    def join(self, other: "_Kind") -> None:
        n, m = len(self.seats), len(other.seats)
        self.counts = (n * self.counts + m * other.counts) / (n + m)
        self.seats += other.seats


def _part(situation: Situation, groups: list[list[WarpClass]], roles: tuple[int, ...], ctas: float) -> Crew:
    """Roles parted by what their warps do: the others wait for the slowest one, not for the mean."""
    worth = _worth(situation)
    kinds: list[_Kind] = []
    for number, group in enumerate(groups):
        if seats := [seat for seat, role in enumerate(roles) if role == number]:
            kinds += _few(_kinds(group, seats), worth)
    joined = Crew(tuple(mean_weights(situation, group) for group in groups), roles, ctas)
    if len(kinds) == len(groups):
        return joined
    parted = [next(n for n, kind in enumerate(kinds) if seat in kind.seats) for seat in range(len(roles))]
    weights = (instruction_weights(situation.cfg, tuple(kind.counts.tolist())) for kind in kinds)
    return Crew(tuple(weights), tuple(parted), ctas, joined=joined)


def _kinds(group: list[WarpClass], seats: list[int]) -> list[_Kind]:
    """The mean warp at each place."""
    counts = np.array([one.block_counts for one in group], dtype=np.float64)
    table = np.stack([_by_seat([one], max(seats) + 1) for one in group])[:, seats]
    table[:, table.sum(axis=0) == 0] = np.array([[one.n_warps] for one in group])
    means = (table / table.sum(axis=0)).T @ counts
    return [_Kind([seat], mean) for seat, mean in zip(seats, means, strict=True)]


def _few(kinds: list[_Kind], worth: FloatArray) -> list[_Kind]:
    """Those that are nearly alike as one, and not too many."""
    found: list[_Kind] = []
    for kind in kinds:
        alike = next((known for known in found if _differ(known, kind, worth) < _ALIKE), None)
        if alike is None:
            found.append(kind)
        else:
            alike.join(kind)
    while len(found) > _MOST_KINDS:
        one, other = min(combinations(found, 2), key=lambda pair: _differ(pair[0], pair[1], worth))
        one.join(other)
        found.remove(other)
    return found


def _worth(situation: Situation) -> FloatArray:
    """About how long each block holds a warp up: its instructions, and many for each load, [block]."""
    kernel = situation.kernel
    ids = kernel.opcode_ids
    worth = 1.0 + _LOAD * kernel.vocabulary.mask(lambda opcode: opcode.kind is OpKind.LOAD)[ids]
    return np.array([float(worth[block.start : block.stop].sum()) for block in situation.cfg.blocks])


def _differ(one: _Kind, other: _Kind, worth: FloatArray) -> float:
    """Share of what the warps of a kind do that those of another do not."""
    most = max(float(one.counts @ worth), float(other.counts @ worth), 1.0)
    return float(np.abs(one.counts - other.counts) @ worth) / most


def _memory_blocks(situation: Situation) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Blocks that hold a memory instruction, [block]."""
    kernel, cfg = situation.kernel, situation.cfg
    rows = kernel.vocabulary.mask(lambda opcode: opcode.kind in MEMORY_KINDS)[kernel.opcode_ids]
    return np.array([bool(rows[block.start : block.stop].any()) for block in cfg.blocks])
