"""Which warps make up a CTA, and how many CTAs of the grid have work at all."""

from itertools import combinations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.costs import FloatArray
from analyzer.demand.demand import instruction_weights
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
    do more than look whether there is work; joined: with one role for all warps that enter the same loops,
    None where that is no other.
    """

    weights: tuple[FloatArray, ...]
    roles: tuple[int, ...]
    working_ctas: float
    joined: "Crew | None" = None


def find_crew(situation: Situation) -> Crew:
    """The mean working CTA.

    Warps that reach no memory instruction, or execute less than a tenth of what the busiest do, are idle.
    Whole CTAs of them find no work, where they are more than a few: the grid is larger than the work.
    """
    n_warps = max(1, situation.occupancy.warps_per_cta)
    profile = situation.profile
    grid = float(situation.grid_ctas)
    if profile is None or not profile.classes:
        return Crew((situation.weights,), (0,) * n_warps, grid)
    lengths = np.array([len(block) for block in situation.cfg.blocks])
    work = [float(one.block_counts @ lengths) for one in profile.classes]
    least = _IDLE_SHARE * max(work)
    reach = _memory_blocks(situation)
    if not any((one.block_counts[reach] > 0).any() for one in profile.classes):
        reach = np.ones(len(lengths), dtype=np.bool_)
    busy = [
        one
        for one, size in zip(profile.classes, work, strict=True)
        if size >= least and (one.block_counts[reach] > 0).any()
    ]
    idle = [one for one in profile.classes if one not in busy]
    alone = sum(one.n_warps - one.n_beside for one in idle) / max(1, sum(c.n_warps for c in profile.classes))
    share = 1.0 if alone < _FEW else 1.0 - alone
    if alone >= _FEW:
        idle = [_beside(one) for one in idle]
    groups = group_by_loops(situation, [one for one in busy + idle if one.n_warps])
    ctas = grid * share
    sizes = [
        _idle_seats(busy, n_warps, ctas) if group[0] in idle else sum(one.n_warps for one in group) / ctas
        for group in groups
    ]
    keep = [place for place, size in enumerate(sizes) if size >= 0.5][:MOST_ROLES] or [0]
    main = max(keep, key=lambda place: sizes[place])
    for place, group in enumerate(groups):
        if place not in keep:
            groups[main] = groups[main] + group
    chosen = [groups[place] for place in keep]
    wanted = {number: max(1, round(sizes[place])) for number, place in enumerate(keep) if place != main}
    roles = _seats(n_warps, keep.index(main), wanted, [_by_seat(group, n_warps) for group in chosen])
    return _part(situation, chosen, roles, ctas)


def _beside(one: WarpClass) -> WarpClass:
    """Of a class those warps in whose CTA others execute much more."""
    part = one.n_beside / max(1, one.n_warps)
    return replace(one, n_warps=one.n_beside, seats=tuple(part * seat for seat in one.seats))


def _idle_seats(busy: list[WarpClass], n_warps: int, ctas: float) -> int:
    """Places of a CTA at which hardly any working CTA has a warp with work.

    Idle warps at other places are those of CTAs at the grid's rim: they make the mean warp's work less.
    """
    return int((_by_seat(busy, n_warps) < _IDLE_SHARE * ctas).sum())


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
    return Crew(tuple(weights), tuple(parted), ctas, joined)


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
