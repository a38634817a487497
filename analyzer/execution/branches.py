"""How groups leave a segment: branches, table branches, returns, exits."""

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from analyzer.execution.convergence import Onward, lane_bits
from analyzer.execution.lanes import ALL_LANES, Doubt, Origins, View, joined, where_active
from analyzer.execution.program import End, EndKind
from analyzer.execution.returning import blocks_after
from analyzer.execution.slicing import Guard
from analyzer.execution.step import Bits
from analyzer.ir.machine import WARP_LANES

if TYPE_CHECKING:
    from analyzer.execution.machine import Machine


def leave(machine: "Machine", end: End, view: View) -> Onward:
    if end.guard is not None and end.kind in _PARTLY:
        return _guarded(machine, end, end.guard, view)
    return _leave(machine, end, view)


_PARTLY = frozenset({EndKind.INDIRECT, EndKind.MEET, EndKind.WARP_SYNC, EndKind.CTA_BARRIER})


def _leave(machine: "Machine", end: End, view: View) -> Onward:
    group = view.group
    match end.kind:
        case EndKind.NEXT:
            return [(end.fall, group)]
        case EndKind.BRANCH:
            return _branch(machine, end, view)
        case EndKind.MASK_BRANCH:
            return _mask_branch(machine, end, view)
        case EndKind.INDIRECT:
            return _indirect(machine, end, view)
        case EndKind.EXIT:
            return _exit(machine, end, view)
        case EndKind.MEET:
            return machine.convergence.sync(end, view)
        case EndKind.WARP_SYNC:
            return machine.convergence.warp_sync(end, view)
        case EndKind.CTA_BARRIER:
            return machine.convergence.cta_barrier(end, view)
        case _:
            return [(end.fall, group)]


def _guarded(machine: "Machine", end: End, guard: Guard, view: View) -> Onward:
    """Lanes whose guard is false go on behind the instruction."""
    group = view.group
    taken, unknown = condition(machine, (guard,), view)
    if unknown is not None:  # those that may do it, do
        origin = int(np.where(view.active, unknown, 0).max())
        group.doubts = _doubted(machine, end.row, origin, group.doubts)
    taken = np.broadcast_to(view.flat(taken), group.mask.shape)
    goes, stays = group.mask & taken, group.mask & ~taken
    if not stays.any():
        return _leave(machine, end, view)
    if not goes.any():
        return [(end.fall, group)]
    view.flush()
    found: Onward = []
    for mask, does in ((goes, True), (stays, False)):
        here = mask.any(axis=1)
        part = machine.part(group.rows[here], mask[here], group, group.doubts)
        found += _leave(machine, end, View(machine.state, part)) if does else [(end.fall, part)]
    return found


def condition(machine: "Machine", conditions: tuple[Guard, ...], view: View) -> tuple[Bits, Origins | None]:
    """All of them true; what is not known of it, unless one that is known is false."""
    taken: Bits = ALL_LANES
    unknown: Origins | None = None
    for guard in conditions:
        lanes, origin = machine.guard(guard, view)
        if origin is not None:
            unknown = joined(unknown, np.where(taken, origin, 0).astype(np.int32))
            lanes = lanes | (origin != 0)
        elif unknown is not None:
            unknown = np.where(lanes, unknown, 0).astype(np.int32)
        taken = taken & lanes
    if unknown is not None and not (np.where(view.active, unknown, 0) != 0).any():
        unknown = None
    return taken, unknown


def _branch(machine: "Machine", end: End, view: View) -> Onward:
    if not end.conditions:
        return [(end.target, view.group)]
    taken, unknown = condition(machine, end.conditions, view)
    doubts = view.group.doubts
    if unknown is not None:
        origin = int(np.where(view.active, unknown, 0).max())
        unknown = view.flat(unknown)
        guess = machine.decide(machine, view, end, unknown)
        taken = np.where(unknown != 0, guess, view.flat(taken))
        doubts = _doubted(machine, end.row, origin, doubts)
    return _split(machine, end.target, end.fall, taken, view, doubts)


def _doubted(machine: "Machine", row: int, origin: int, doubts: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    block = machine.batch.meeting_block(row)
    cfg = machine.kernel.cfg
    if block is None and row not in machine.tally.hanging and cfg.callers:
        # the doubt outlives the function that it is in
        machine.tally.doubted |= blocks_after(cfg, cfg.block_of[row])
    machine.tally.hanging.setdefault(row, 0.0)
    machine.batch.note_origin(row, origin)
    if any(doubt.row == row for doubt in doubts):
        return doubts
    if block is not None and any(doubt.block == block for doubt in doubts):
        # both end there: the outer one's region holds the inner one's
        place = next(i for i, doubt in enumerate(doubts) if doubt.block == block)
        return (*doubts[: place + 1], *doubts[place + 1 :], Doubt(row, block, origin))
    return (*doubts, Doubt(row, block, origin))


def _split(
    machine: "Machine",
    target: int | None,
    fall: int | None,
    taken: Bits,
    view: View,
    doubts: tuple[Doubt, ...],
) -> Onward:
    group = view.group
    group.doubts = doubts
    n_taken = np.count_nonzero(taken)  # of few places where many warps are alike
    if n_taken in (0, taken.size):
        return [(target if n_taken else fall, group)]
    if view.active is ALL_LANES and taken.shape[:2] == (1, 1) and taken.ndim == view.mask.ndim:
        return _split_alike(machine, target, fall, taken, view)
    taken = view.flat(taken)
    goes = group.mask & taken
    if not goes.any():
        return [(fall, group)]
    stays = group.mask & ~taken
    if not stays.any():
        return [(target, group)]
    found: Onward = []
    for index, mask in ((target, goes), (fall, stays)):
        here = mask.any(axis=1)
        rows = group.rows[here]
        found.append((index, machine.part(rows, mask[here], group, doubts)))
    return found


def _split_alike(machine: "Machine", target: int | None, fall: int | None, taken: Bits, view: View) -> Onward:
    """Where all lanes of the group are there, and those of every CTA go the same ways."""
    group, (*ctas, n_warps) = view.group, view.shape
    rows = group.rows.reshape(-1, n_warps)
    lanes = np.broadcast_to(taken[0, 0], (n_warps, WARP_LANES))
    numbers = np.arange(n_warps) if group.warps is None else group.warps
    found: Onward = []
    for index, mask in ((target, lanes), (fall, ~lanes)):
        here = mask.any(axis=1)
        every = np.broadcast_to(mask[here], (prod(ctas), int(here.sum()), WARP_LANES))
        part = every.reshape(-1, WARP_LANES)
        is_full = bool(mask[here].all())
        own = rows[:, here].reshape(-1)
        found.append((index, machine.made(own, part, group.doubts, is_full=is_full, warps=numbers[here])))
    return found


def _mask_branch(machine: "Machine", end: End, view: View) -> Onward:
    """BRA.DIV goes where lanes of the mask are missing, BRA.CONV where none is."""
    group = view.group
    wanted: Bits = machine.live[group.rows]
    if end.slot is not None and end.slot >= 0:
        words = np.broadcast_to(view.flat(view.value(end.slot))[:, 0], len(group.rows))
        wanted = np.logical_and(wanted, lane_bits(words))
    together: Bits = np.logical_not((wanted & ~group.mask).any(axis=1, keepdims=True))
    taken: Bits = together if end.wants_together else np.logical_not(together)
    if end.guard is not None:
        guard = view.flat(machine.guard(end.guard, view)[0])
        return _split(machine, end.target, end.fall, np.logical_and(taken, guard), view, group.doubts)
    return _split(machine, end.target, end.fall, taken, view, group.doubts)


def _indirect(machine: "Machine", end: End, view: View) -> Onward:
    group = view.group
    origin = view.origin(end.slot) if end.slot is not None and end.slot >= 0 else None
    origin = where_active(origin, view.active)
    if end.slot is None or end.slot < 0 or origin is not None or not end.targets:
        source = end.row + 1 if origin is None else int(np.where(view.active, origin, 0).max())
        group.doubts = _lost(machine, end.row, source or end.row + 1, group.doubts)
        return [(end.targets[0][1] if end.targets else end.fall, group)]
    word = np.broadcast_to(view.flat(view.value(end.slot)), group.mask.shape).astype(np.int64)
    word = np.where(word >= 1 << 31, word - (1 << 32), word)
    left = group.mask.copy()
    found: Onward = []
    for address, index in end.targets:
        here = left & ((word == address) | (word + end.offset == address))
        if here.any():
            rows = here.any(axis=1)
            found.append((index, machine.part(group.rows[rows], here[rows], group, group.doubts)))
            left &= ~here
    if left.any():
        doubts = _lost(machine, end.row, end.row + 1, group.doubts)
        rows = left.any(axis=1)
        found.append((end.targets[0][1], machine.part(group.rows[rows], left[rows], group, doubts)))
    return found


def _lost(machine: "Machine", row: int, origin: int, doubts: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    """Where a jump goes is not known: any block may run more often, or less, than it does."""
    machine.tally.doubted.update(range(len(machine.kernel.cfg.blocks)))
    return _doubted(machine, row, origin, doubts)


def _exit(machine: "Machine", end: End, view: View) -> Onward:
    group = view.group
    conditions = (*((end.guard,) if end.guard else ()), *end.conditions)
    if not conditions:
        machine.die(group, group.mask)
        return []
    taken, unknown = condition(machine, conditions, view)
    doubts = group.doubts
    if unknown is not None:
        origin = int(np.where(view.active, unknown, 0).max())
        unknown = view.flat(unknown)
        taken = np.where(unknown != 0, machine.decide(machine, view, end, unknown), view.flat(taken))
        doubts = _doubted(machine, end.row, origin, doubts)
    gone = group.mask & view.flat(taken)
    if not gone.any():
        group.doubts = doubts
        return [(end.fall, group)]
    stays = group.mask & ~gone
    was_full = group.is_full
    machine.die(group, gone)
    here = stays.any(axis=1)
    if not here.any():
        return []
    return [(end.fall, machine.made(group.rows[here], stays[here], doubts, is_full=was_full))]
