"""Ends of segments: branches, indirect jumps, returns, barriers, exits."""

from math import prod
from typing import Protocol
from weakref import proxy

import numpy as np

from analyzer.execution.lowering.guarded_liveness import Guard
from analyzer.execution.lowering.segments import Terminator, TerminatorKind
from analyzer.execution.machine.convergence import ConvergenceState, unpack_lanes
from analyzer.execution.machine.cta_barriers import GroupSuccessors
from analyzer.execution.machine.group_factory import GroupFactory
from analyzer.execution.machine.register_state import (
    ALL_LANES,
    LockstepGroup,
    RegisterView,
    Speculation,
    UnknownOrigins,
    drop_inactive_origins,
    join_origins,
)
from analyzer.execution.machine.speculation import SpeculationTracker
from analyzer.ir.arrays import BoolArray
from analyzer.ir.scheduling import WARP_SIZE

_GUARDED_KINDS = frozenset(
    {TerminatorKind.INDIRECT, TerminatorKind.RECONVERGE, TerminatorKind.WARP_SYNC, TerminatorKind.CTA_BARRIER}
)


class TerminatorHost(Protocol):
    """Part of the machine that terminators call."""

    def decide_unknown_branch(
        self, view: RegisterView, end: Terminator, unknown: UnknownOrigins
    ) -> BoolArray:
        """Return the lanes that take a branch whose condition is unknown."""

    def retire_lanes(self, group: LockstepGroup, gone: BoolArray) -> None:
        """End these lanes of a group."""


class TerminatorExecutor:
    """Executes the last instruction of a segment: which part of a group continues where."""

    def __init__(
        self,
        groups: GroupFactory,
        convergence: ConvergenceState,
        speculation: SpeculationTracker,
        host: TerminatorHost,
    ) -> None:
        self.groups, self.convergence, self.speculation = groups, convergence, speculation
        # the host owns this; a proxy, so that no cycle keeps its arrays alive
        self.host: TerminatorHost = proxy(host)

    def execute(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Return the segments at which the group continues, and the part of it that does."""
        if end.guard is not None and end.kind in _GUARDED_KINDS:
            return self._execute_guarded(end, end.guard, view)
        return self._execute_unguarded(end, view)

    def _execute_unguarded(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Execute a terminator in all lanes of a group."""
        group = view.group
        match end.kind:
            case TerminatorKind.FALL_THROUGH:
                return [(end.fall_through, group)]
            case TerminatorKind.BRANCH:
                return self._execute_branch(end, view)
            case TerminatorKind.DIVERGENCE_BRANCH:
                return self._execute_mask_branch(end, view)
            case TerminatorKind.INDIRECT:
                return self._execute_indirect(end, view)
            case TerminatorKind.EXIT:
                return self._execute_exit(end, view)
            case TerminatorKind.RECONVERGE:
                return self.convergence.wait_convergence_barrier(end, view)
            case TerminatorKind.WARP_SYNC:
                return self.convergence.wait_warp_sync(end, view)
            case TerminatorKind.CTA_BARRIER:
                return self.convergence.cta_barriers.wait(end, view)
            case _:
                return [(end.fall_through, group)]

    def _execute_guarded(self, end: Terminator, guard: Guard, view: RegisterView) -> GroupSuccessors:
        """Execute a guarded barrier or jump; lanes whose guard is false fall through."""
        group = view.group
        taken, unknown = _evaluate_condition((guard,), view)
        if unknown is not None:  # lanes whose guard is unknown execute it
            origin = int(np.where(view.active, unknown, 0).max())
            group.speculations = self.speculation.add_branch(end.row, origin, group.speculations)
        taken = np.broadcast_to(view.to_warp_rows(taken), group.mask.shape)
        taken_lanes, remaining_lanes = group.mask & taken, group.mask & ~taken
        if not remaining_lanes.any():
            return self._execute_unguarded(end, view)
        if not taken_lanes.any():
            return [(end.fall_through, group)]
        view.flush()
        found: GroupSuccessors = []
        for mask, is_taken in ((taken_lanes, True), (remaining_lanes, False)):
            here = mask.any(axis=1)
            part = self.groups.make_subgroup(group.warp_indices[here], mask[here], group, group.speculations)
            found += (
                self._execute_unguarded(end, RegisterView(view.state, part))
                if is_taken
                else [(end.fall_through, part)]
            )
        return found

    def _execute_branch(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Execute a branch; `decide_unknown_branch` decides lanes whose condition is unknown."""
        if not end.conditions:
            return [(end.target, view.group)]
        taken, unknown = _evaluate_condition(end.conditions, view)
        speculations = view.group.speculations
        if unknown is not None:
            origin = int(np.where(view.active, unknown, 0).max())
            unknown = view.to_warp_rows(unknown)
            decision = self.host.decide_unknown_branch(view, end, unknown)
            taken = np.where(unknown != 0, decision, view.to_warp_rows(taken))
            speculations = self.speculation.add_branch(end.row, origin, speculations)
        return self._split_group(end.target, end.fall_through, taken, view, speculations)

    def _split_group(
        self,
        target: int | None,
        fall: int | None,
        taken: BoolArray,
        view: RegisterView,
        speculations: tuple[Speculation, ...],
    ) -> GroupSuccessors:
        """Split a group into the lanes that take a branch and those that fall through."""
        group = view.group
        group.speculations = speculations
        n_taken = np.count_nonzero(taken)  # cheap: the array is small where many warps are uniform
        if n_taken in (0, taken.size):
            return [(target if n_taken else fall, group)]
        if view.active is ALL_LANES and taken.shape[:2] == (1, 1) and taken.ndim == view.mask.ndim:
            return self._split_cta_uniform(target, fall, taken, view)
        taken = view.to_warp_rows(taken)
        taken_lanes = group.mask & taken
        if not taken_lanes.any():
            return [(fall, group)]
        remaining_lanes = group.mask & ~taken
        if not remaining_lanes.any():
            return [(target, group)]
        found: GroupSuccessors = []
        for index, mask in ((target, taken_lanes), (fall, remaining_lanes)):
            here = mask.any(axis=1)
            rows = group.warp_indices[here]
            found.append((index, self.groups.make_subgroup(rows, mask[here], group, speculations)))
        return found

    def _split_cta_uniform(
        self, target: int | None, fall: int | None, taken: BoolArray, view: RegisterView
    ) -> GroupSuccessors:
        """Split a group with all lanes whose CTAs all branch in the same way."""
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
                    self.groups.make_group(
                        own, part, group.speculations, has_all_lanes=is_full, common_warp_ids=numbers[here]
                    ),
                )
            )
        return found

    def _execute_mask_branch(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Execute BRA.DIV, taken if lanes of the mask are missing, or BRA.CONV, taken if none is."""
        group = view.group
        wanted: BoolArray = self.groups.live_lanes[group.warp_indices]
        if end.slot is not None and end.slot >= 0:
            words = np.broadcast_to(
                view.to_warp_rows(view.read_value(end.slot))[:, 0], len(group.warp_indices)
            )
            wanted = np.logical_and(wanted, unpack_lanes(words))
        together: BoolArray = np.logical_not((wanted & ~group.mask).any(axis=1, keepdims=True))
        taken: BoolArray = together if end.is_taken_if_converged else np.logical_not(together)
        if end.guard is not None:
            guard = view.to_warp_rows(view.evaluate_guard(end.guard)[0])
            return self._split_group(
                end.target, end.fall_through, np.logical_and(taken, guard), view, group.speculations
            )
        return self._split_group(end.target, end.fall_through, taken, view, group.speculations)

    def _execute_indirect(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Execute an indirect jump; lanes whose target is unknown go to the first possible one."""
        group = view.group
        origin = view.read_origin(end.slot) if end.slot is not None and end.slot >= 0 else None
        origin = drop_inactive_origins(origin, view.active)
        if end.slot is None or end.slot < 0 or origin is not None or not end.indirect_targets:
            source = end.row + 1 if origin is None else int(np.where(view.active, origin, 0).max())
            group.speculations = self.speculation.add_jump(end.row, source or end.row + 1, group.speculations)
            return [(end.indirect_targets[0][1] if end.indirect_targets else end.fall_through, group)]
        word = np.broadcast_to(view.to_warp_rows(view.read_value(end.slot)), group.mask.shape).astype(
            np.int64
        )
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
                        self.groups.make_subgroup(
                            group.warp_indices[rows], here[rows], group, group.speculations
                        ),
                    )
                )
                left &= ~here
        if left.any():
            speculations = self.speculation.add_jump(end.row, end.row + 1, group.speculations)
            rows = left.any(axis=1)
            found.append(
                (
                    end.indirect_targets[0][1],
                    self.groups.make_subgroup(group.warp_indices[rows], left[rows], group, speculations),
                )
            )
        return found

    def _execute_exit(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Execute EXIT; lanes whose condition is false fall through."""
        group = view.group
        conditions = (*((end.guard,) if end.guard else ()), *end.conditions)
        if not conditions:
            self.host.retire_lanes(group, group.mask)
            return []
        taken, unknown = _evaluate_condition(conditions, view)
        speculations = group.speculations
        if unknown is not None:
            origin = int(np.where(view.active, unknown, 0).max())
            unknown = view.to_warp_rows(unknown)
            taken = np.where(
                unknown != 0, self.host.decide_unknown_branch(view, end, unknown), view.to_warp_rows(taken)
            )
            speculations = self.speculation.add_branch(end.row, origin, speculations)
        gone = group.mask & view.to_warp_rows(taken)
        if not gone.any():
            group.speculations = speculations
            return [(end.fall_through, group)]
        remaining_lanes = group.mask & ~gone
        was_full = group.has_all_lanes
        group.speculations = speculations
        self.host.retire_lanes(group, gone)
        here = remaining_lanes.any(axis=1)
        if not here.any():
            return []
        return [
            (
                end.fall_through,
                self.groups.make_group(
                    group.warp_indices[here], remaining_lanes[here], speculations, has_all_lanes=was_full
                ),
            )
        ]


def _evaluate_condition(
    conditions: tuple[Guard, ...], view: RegisterView
) -> tuple[BoolArray, UnknownOrigins | None]:
    """Return the lanes in which all conditions are true or unknown, and the origin where that is unknown.

    A lane with a condition that is known to be false is known.
    """
    taken: BoolArray = ALL_LANES
    unknown: UnknownOrigins | None = None
    for guard in conditions:
        lanes, origin = view.evaluate_guard(guard)
        if origin is not None:
            unknown = join_origins(unknown, np.where(taken, origin, 0).astype(np.int32))
            lanes = lanes | (origin != 0)
        elif unknown is not None:
            unknown = np.where(lanes, unknown, 0).astype(np.int32)
        taken = taken & lanes
    if unknown is not None and not (np.where(view.active, unknown, 0) != 0).any():
        unknown = None
    return taken, unknown
