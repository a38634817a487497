"""How groups leave a segment: branches, table branches, returns, exits."""

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from analyzer.execution.lowering.call_returns import find_blocks_after
from analyzer.execution.lowering.segments import Terminator, TerminatorKind
from analyzer.execution.lowering.slicing import Guard
from analyzer.execution.lowering.step import BoolArray
from analyzer.execution.machine.convergence import GroupSuccessors, unpack_lanes
from analyzer.execution.machine.register_state import (
    ALL_LANES,
    RegisterView,
    Speculation,
    UnknownOrigins,
    drop_inactive_origins,
    join_origins,
)
from analyzer.ir.scheduling import WARP_SIZE

if TYPE_CHECKING:
    from analyzer.execution.machine.abstract_machine import AbstractMachine


def execute_terminator(machine: "AbstractMachine", end: Terminator, view: RegisterView) -> GroupSuccessors:
    if end.guard is not None and end.kind in _GUARDED_KINDS:
        return _execute_guarded(machine, end, end.guard, view)
    return _execute_unguarded(machine, end, view)


_GUARDED_KINDS = frozenset(
    {TerminatorKind.INDIRECT, TerminatorKind.RECONVERGE, TerminatorKind.WARP_SYNC, TerminatorKind.CTA_BARRIER}
)


def _execute_unguarded(machine: "AbstractMachine", end: Terminator, view: RegisterView) -> GroupSuccessors:
    group = view.group
    match end.kind:
        case TerminatorKind.FALL_THROUGH:
            return [(end.fall_through, group)]
        case TerminatorKind.BRANCH:
            return _execute_branch(machine, end, view)
        case TerminatorKind.DIVERGENCE_BRANCH:
            return _execute_mask_branch(machine, end, view)
        case TerminatorKind.INDIRECT:
            return _execute_indirect(machine, end, view)
        case TerminatorKind.EXIT:
            return _execute_exit(machine, end, view)
        case TerminatorKind.RECONVERGE:
            return machine.convergence.wait_convergence_barrier(end, view)
        case TerminatorKind.WARP_SYNC:
            return machine.convergence.wait_warp_sync(end, view)
        case TerminatorKind.CTA_BARRIER:
            return machine.convergence.wait_cta_barrier(end, view)
        case _:
            return [(end.fall_through, group)]


def _execute_guarded(
    machine: "AbstractMachine", end: Terminator, guard: Guard, view: RegisterView
) -> GroupSuccessors:
    """Lanes whose guard is false go on behind the instruction."""
    group = view.group
    taken, unknown = evaluate_condition(machine, (guard,), view)
    if unknown is not None:  # those that may do it, do
        origin = int(np.where(view.active, unknown, 0).max())
        group.speculations = _add_speculation(machine, end.row, origin, group.speculations)
    taken = np.broadcast_to(view.to_warp_rows(taken), group.mask.shape)
    goes, stays = group.mask & taken, group.mask & ~taken
    if not stays.any():
        return _execute_unguarded(machine, end, view)
    if not goes.any():
        return [(end.fall_through, group)]
    view.flush()
    found: GroupSuccessors = []
    for mask, does in ((goes, True), (stays, False)):
        here = mask.any(axis=1)
        part = machine.make_subgroup(group.warp_indices[here], mask[here], group, group.speculations)
        found += (
            _execute_unguarded(machine, end, RegisterView(machine.state, part))
            if does
            else [(end.fall_through, part)]
        )
    return found


def evaluate_condition(
    machine: "AbstractMachine", conditions: tuple[Guard, ...], view: RegisterView
) -> tuple[BoolArray, UnknownOrigins | None]:
    """All of them true; what is not known of it, unless one that is known is false."""
    taken: BoolArray = ALL_LANES
    unknown: UnknownOrigins | None = None
    for guard in conditions:
        lanes, origin = machine.evaluate_guard(guard, view)
        if origin is not None:
            unknown = join_origins(unknown, np.where(taken, origin, 0).astype(np.int32))
            lanes = lanes | (origin != 0)
        elif unknown is not None:
            unknown = np.where(lanes, unknown, 0).astype(np.int32)
        taken = taken & lanes
    if unknown is not None and not (np.where(view.active, unknown, 0) != 0).any():
        unknown = None
    return taken, unknown


def _execute_branch(machine: "AbstractMachine", end: Terminator, view: RegisterView) -> GroupSuccessors:
    if not end.conditions:
        return [(end.target, view.group)]
    taken, unknown = evaluate_condition(machine, end.conditions, view)
    speculations = view.group.speculations
    if unknown is not None:
        origin = int(np.where(view.active, unknown, 0).max())
        unknown = view.to_warp_rows(unknown)
        decision = machine.decide_branch(machine, view, end, unknown)
        taken = np.where(unknown != 0, decision, view.to_warp_rows(taken))
        speculations = _add_speculation(machine, end.row, origin, speculations)
    return _split_group(machine, end.target, end.fall_through, taken, view, speculations)


def _add_speculation(
    machine: "AbstractMachine", row: int, origin: int, speculations: tuple[Speculation, ...]
) -> tuple[Speculation, ...]:
    block = machine.batch.find_reconvergence_block(row)
    cfg = machine.kernel.cfg
    if block is None and row not in machine.counters.speculative_instructions and cfg.calling_blocks:
        # the doubt outlives the function that it is in
        machine.counters.speculative_blocks |= find_blocks_after(cfg, cfg.block_of[row])
    machine.counters.speculative_instructions.setdefault(row, 0.0)
    machine.batch.record_branch_origin(row, origin)
    if any(speculation.branch_row == row for speculation in speculations):
        return speculations
    if block is not None and any(speculation.reconvergence_block == block for speculation in speculations):
        # both end there: the outer one's region holds the inner one's
        place = next(
            i for i, speculation in enumerate(speculations) if speculation.reconvergence_block == block
        )
        return (*speculations[: place + 1], *speculations[place + 1 :], Speculation(row, block, origin))
    return (*speculations, Speculation(row, block, origin))


def _split_group(
    machine: "AbstractMachine",
    target: int | None,
    fall: int | None,
    taken: BoolArray,
    view: RegisterView,
    speculations: tuple[Speculation, ...],
) -> GroupSuccessors:
    group = view.group
    group.speculations = speculations
    n_taken = np.count_nonzero(taken)  # of few places where many warps are alike
    if n_taken in (0, taken.size):
        return [(target if n_taken else fall, group)]
    if view.active is ALL_LANES and taken.shape[:2] == (1, 1) and taken.ndim == view.mask.ndim:
        return _split_cta_uniform(machine, target, fall, taken, view)
    taken = view.to_warp_rows(taken)
    goes = group.mask & taken
    if not goes.any():
        return [(fall, group)]
    stays = group.mask & ~taken
    if not stays.any():
        return [(target, group)]
    found: GroupSuccessors = []
    for index, mask in ((target, goes), (fall, stays)):
        here = mask.any(axis=1)
        rows = group.warp_indices[here]
        found.append((index, machine.make_subgroup(rows, mask[here], group, speculations)))
    return found


def _split_cta_uniform(
    machine: "AbstractMachine", target: int | None, fall: int | None, taken: BoolArray, view: RegisterView
) -> GroupSuccessors:
    """Where all lanes of the group are there, and those of every CTA go the same ways."""
    group, (*ctas, n_warps) = view.group, view.shape
    rows = group.warp_indices.reshape(-1, n_warps)
    lanes = np.broadcast_to(taken[0, 0], (n_warps, WARP_SIZE))
    numbers = np.arange(n_warps) if group.common_warp_ids is None else group.common_warp_ids
    found: GroupSuccessors = []
    for index, mask in ((target, lanes), (fall, ~lanes)):
        here = mask.any(axis=1)
        every = np.broadcast_to(mask[here], (prod(ctas), int(here.sum()), WARP_SIZE))
        part = every.reshape(-1, WARP_SIZE)
        is_full = bool(mask[here].all())
        own = rows[:, here].reshape(-1)
        found.append(
            (
                index,
                machine.make_group(
                    own, part, group.speculations, has_all_lanes=is_full, common_warp_ids=numbers[here]
                ),
            )
        )
    return found


def _execute_mask_branch(machine: "AbstractMachine", end: Terminator, view: RegisterView) -> GroupSuccessors:
    """BRA.DIV goes where lanes of the mask are missing, BRA.CONV where none is."""
    group = view.group
    wanted: BoolArray = machine.live_lanes[group.warp_indices]
    if end.slot is not None and end.slot >= 0:
        words = np.broadcast_to(view.to_warp_rows(view.read_value(end.slot))[:, 0], len(group.warp_indices))
        wanted = np.logical_and(wanted, unpack_lanes(words))
    together: BoolArray = np.logical_not((wanted & ~group.mask).any(axis=1, keepdims=True))
    taken: BoolArray = together if end.is_taken_if_converged else np.logical_not(together)
    if end.guard is not None:
        guard = view.to_warp_rows(machine.evaluate_guard(end.guard, view)[0])
        return _split_group(
            machine, end.target, end.fall_through, np.logical_and(taken, guard), view, group.speculations
        )
    return _split_group(machine, end.target, end.fall_through, taken, view, group.speculations)


def _execute_indirect(machine: "AbstractMachine", end: Terminator, view: RegisterView) -> GroupSuccessors:
    group = view.group
    origin = view.read_origin(end.slot) if end.slot is not None and end.slot >= 0 else None
    origin = drop_inactive_origins(origin, view.active)
    if end.slot is None or end.slot < 0 or origin is not None or not end.indirect_targets:
        source = end.row + 1 if origin is None else int(np.where(view.active, origin, 0).max())
        group.speculations = _speculate_on_target(machine, end.row, source or end.row + 1, group.speculations)
        return [(end.indirect_targets[0][1] if end.indirect_targets else end.fall_through, group)]
    word = np.broadcast_to(view.to_warp_rows(view.read_value(end.slot)), group.mask.shape).astype(np.int64)
    word = np.where(word >= 1 << 31, word - (1 << 32), word)
    left = group.mask.copy()
    found: GroupSuccessors = []
    for address, index in end.indirect_targets:
        here = left & ((word == address) | (word + end.offset == address))
        if here.any():
            rows = here.any(axis=1)
            found.append(
                (
                    index,
                    machine.make_subgroup(group.warp_indices[rows], here[rows], group, group.speculations),
                )
            )
            left &= ~here
    if left.any():
        speculations = _speculate_on_target(machine, end.row, end.row + 1, group.speculations)
        rows = left.any(axis=1)
        found.append(
            (
                end.indirect_targets[0][1],
                machine.make_subgroup(group.warp_indices[rows], left[rows], group, speculations),
            )
        )
    return found


def _speculate_on_target(
    machine: "AbstractMachine", row: int, origin: int, speculations: tuple[Speculation, ...]
) -> tuple[Speculation, ...]:
    """Where a jump goes is not known: any block may run more often, or less, than it does."""
    machine.counters.speculative_blocks.update(range(len(machine.kernel.cfg.blocks)))
    return _add_speculation(machine, row, origin, speculations)


def _execute_exit(machine: "AbstractMachine", end: Terminator, view: RegisterView) -> GroupSuccessors:
    group = view.group
    conditions = (*((end.guard,) if end.guard else ()), *end.conditions)
    if not conditions:
        machine.retire_lanes(group, group.mask)
        return []
    taken, unknown = evaluate_condition(machine, conditions, view)
    speculations = group.speculations
    if unknown is not None:
        origin = int(np.where(view.active, unknown, 0).max())
        unknown = view.to_warp_rows(unknown)
        taken = np.where(
            unknown != 0, machine.decide_branch(machine, view, end, unknown), view.to_warp_rows(taken)
        )
        speculations = _add_speculation(machine, end.row, origin, speculations)
    gone = group.mask & view.to_warp_rows(taken)
    if not gone.any():
        group.speculations = speculations
        return [(end.fall_through, group)]
    stays = group.mask & ~gone
    was_full = group.has_all_lanes
    machine.retire_lanes(group, gone)
    here = stays.any(axis=1)
    if not here.any():
        return []
    return [
        (
            end.fall_through,
            machine.make_group(group.warp_indices[here], stays[here], speculations, has_all_lanes=was_full),
        )
    ]
