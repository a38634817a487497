"""Convergence barriers and WARPSYNC: lanes that wait for each other; and who waits at CTA barriers.

The rules, as Volta and later do it ("Independent thread scheduling", CUDA C++ programming guide):

1. BSSY writes the mask of active lanes into convergence barrier B, for each of these lanes.
2. BSYNC B lets a lane wait until all live lanes of its mask wait there. Lanes whose masks differ may wait at
   one BSYNC, as in a recursion; each set is released alone.
3. BREAK B takes the active lanes out of the masks of their partners.
4. WARPSYNC waits for all live lanes of the warp.
5. A lane that exits is waited for no longer.
"""

from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.lowering.segments import (
    Action,
    ActionKind,
    CompiledKernel,
    Terminator,
    TerminatorKind,
)
from analyzer.execution.lowering.step import WordArray
from analyzer.execution.machine.cta_barriers import CtaBarriers, GroupScheduler, GroupSuccessors
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.group_factory import GroupFactory
from analyzer.execution.machine.register_state import LockstepGroup, RegisterView, Speculation, WarpIndices
from analyzer.execution.machine.speculation import SpeculationTracker
from analyzer.execution.machine.warp_order import WarpOrder
from analyzer.ir.arrays import BoolArray
from analyzer.ir.scheduling import WARP_SIZE

_NO_LANES: WordArray = np.zeros((1, 1), dtype=np.uint32)
_LANE_IDS = np.arange(WARP_SIZE, dtype=np.uint32)


class ConvergenceState:
    """Lanes, threads and groups that wait."""

    def __init__(
        self,
        kernel: CompiledKernel,
        batch: CtaBatch,
        groups: GroupFactory,
        speculation: SpeculationTracker,
        order: WarpOrder,
        scheduler: GroupScheduler,
    ) -> None:
        self.kernel, self.batch, self.groups, self.speculation = kernel, batch, groups, speculation
        # the scheduler owns this; a proxy, so that no cycle keeps its arrays alive
        self.scheduler: GroupScheduler = proxy(scheduler)
        # By convergence barrier: the mask that each lane's barrier holds, [n_warp, 32]. One mask per warp
        # would deadlock where diverged lanes open barriers of their own.
        self.lane_masks: dict[int, NDArray[np.uint32]] = {}
        # By segment: lanes that wait at its end, one word per warp, and their speculations.
        self.waiting_lanes: dict[int, WordArray] = {}
        self.speculations: dict[int, tuple[Speculation, ...]] = {}
        self.cta_barriers = CtaBarriers(
            batch, groups, speculation, order, scheduler, tracks_results=kernel.slice.tracks_barrier_results
        )

    @property
    def is_idle(self) -> bool:
        """True if no lane and no warp waits."""
        return not self.waiting_lanes and self.cta_barriers.is_idle

    def release_after_exit(self, group: LockstepGroup) -> None:
        """Release lanes and warps that waited only for lanes of the group that have exited."""
        for index in list(self.waiting_lanes):
            self._release_ready(index, group.warp_indices)
        self.cta_barriers.release_after_exit(group)

    def find_barrier_masks(self, barrier: int) -> NDArray[np.uint32]:
        """Return the mask that each lane's convergence barrier holds, [n_warp, 32]."""
        if barrier not in self.lane_masks:
            self.lane_masks[barrier] = np.zeros((self.batch.n_warps, WARP_SIZE), dtype=np.uint32)
        return self.lane_masks[barrier]

    def apply_barrier_action(self, action: Action, view: RegisterView, lanes: BoolArray | None) -> None:
        """Execute BSSY, BREAK or a BMOV from or to a convergence barrier."""
        group = view.group
        active = group.mask if lanes is None else group.mask & view.to_warp_rows(lanes)
        masks = self.find_barrier_masks(action.barrier)
        match action.kind:
            case ActionKind.OPEN_CONVERGENCE:
                masks[group.warp_indices] = np.where(
                    active, pack_lanes(active)[:, None], masks[group.warp_indices]
                )
            case ActionKind.BREAK_CONVERGENCE:
                gone = pack_lanes(active)[:, None]
                # only of lanes that hold the same barrier: others may have saved an outer one with BMOV
                partners = np.bitwise_or.reduce(np.where(active, masks[group.warp_indices], 0), axis=1)
                members = unpack_lanes(partners)
                masks[group.warp_indices] = np.where(
                    members, masks[group.warp_indices] & ~gone, masks[group.warp_indices]
                )
                self._recheck_waiting(action.barrier, group)
            case ActionKind.SAVE_CONVERGENCE_BARRIER:
                for slot in action.writes:
                    if slot < 0:  # BMOV RZ, B
                        continue
                    within = None if lanes is None else view.from_warp_rows(active)
                    view.write(slot, view.from_warp_rows(masks[group.warp_indices]), None, None, within)
            case ActionKind.RESTORE_CONVERGENCE_BARRIER:
                for slot in action.writes:
                    held = _NO_LANES if slot < 0 else view.to_warp_rows(view.read_value(slot))
                    value = np.broadcast_to(held, active.shape)
                    masks[group.warp_indices] = np.where(active, value, masks[group.warp_indices])
            case _:
                pass

    def _recheck_waiting(self, barrier: int, group: LockstepGroup) -> None:
        """Release lanes that waited only for lanes which have left their barrier."""
        for index in list(self.waiting_lanes):
            end = self.kernel.segments[index].terminator
            if end.kind is TerminatorKind.RECONVERGE and end.barrier == barrier:
                self._release_ready(index, group.warp_indices)

    def _release_ready(self, index: int, rows: WarpIndices) -> None:
        """Release lanes that wait at the end of a segment and whose partners all wait there or have exited.

        Partners hold the same mask: in a recursion other lanes wait at the same BSYNC for an outer barrier.
        """
        waiting = self.waiting_lanes.get(index)
        if waiting is None:
            return
        end = self.kernel.segments[index].terminator
        rows = rows[waiting[rows] != 0]
        here, live = waiting[rows], pack_lanes(self.groups.live_lanes[rows])
        if end.kind is TerminatorKind.WARP_SYNC:
            is_ready = live & ~here == 0
            ready_rows, ready = rows[is_ready], here[is_ready]
        else:
            ready_rows, ready = _find_ready_lanes(
                rows, here, live, self.find_barrier_masks(end.barrier)[rows]
            )
        np.bitwise_and.at(waiting, ready_rows, ~ready)
        speculations = self.speculations.get(index, ())
        if not waiting.any():
            self.waiting_lanes.pop(index, None)
            self.speculations.pop(index, None)
        if len(ready_rows):
            self._resume(end.fall_through, ready_rows, unpack_lanes(ready), speculations)

    def _add_waiting(self, index: int, group: LockstepGroup) -> None:
        """Let the group's lanes wait at the end of a segment."""
        if index not in self.waiting_lanes:
            self.waiting_lanes[index] = np.zeros(self.batch.n_warps, dtype=np.uint32)
        known = self.speculations.get(index, ())
        self.speculations[index] = (
            *known,
            *(speculation for speculation in group.speculations if speculation not in known),
        )
        self.waiting_lanes[index][group.warp_indices] |= pack_lanes(group.mask)
        self._release_ready(index, group.warp_indices)

    def _resume(
        self, index: int | None, rows: WarpIndices, masks: BoolArray, speculations: tuple[Speculation, ...]
    ) -> None:
        """Enqueue released lanes; a warp may be among `rows` more than once, with other lanes each time."""
        while len(rows):
            _, firsts = np.unique(rows, return_index=True)
            self.scheduler.enqueue_group(
                index, self.groups.group_lanes(rows[firsts], masks[firsts], speculations)
            )
            keep = np.ones(len(rows), dtype=bool)
            keep[firsts] = False
            rows, masks = rows[keep], masks[keep]

    def wait_convergence_barrier(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Execute BSYNC: return the group if it waits for no lane."""
        group = view.group
        masks = self.find_barrier_masks(end.barrier)[group.warp_indices]
        live = pack_lanes(self.groups.live_lanes[group.warp_indices])[:, None]
        own = pack_lanes(group.mask)[:, None]
        missing = np.where(group.mask, masks & live & ~own, 0)
        index = self._find_segment(end)
        if not missing.any() and index not in self.waiting_lanes:
            return [(end.fall_through, group)]
        view.flush()
        self._add_waiting(index, group)
        return []

    def _find_segment(self, end: Terminator) -> int:
        """Return the index of the segment with this terminator."""
        block = self.kernel.cfg.block_of[end.row]
        first = self.kernel.entry_segments[block]
        while self.kernel.segments[first].terminator is not end:
            first += 1
        return first

    def wait_warp_sync(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Execute WARPSYNC: return the group if it has all lanes; its mask is taken to be all live lanes."""
        group = view.group
        if group.has_all_lanes:
            return [(end.fall_through, group)]
        view.flush()
        self._add_waiting(self._find_segment(end), group)
        return []

    def release_deadlocked(self) -> bool:
        """Release the first that wait where hardware would hang, and mark all counts as speculative.

        Return False if none waits.
        """
        if self.cta_barriers.release_deadlocked():
            return True
        if self.waiting_lanes:
            index = next(iter(self.waiting_lanes))
            waiting = self.waiting_lanes.pop(index)
            rows = np.flatnonzero(waiting)
            end = self.kernel.segments[index].terminator
            self.speculation.mark_all_blocks(end.row)
            self._resume(
                end.fall_through, rows, unpack_lanes(waiting[rows]), self.speculations.pop(index, ())
            )
            return True
        return False


def pack_lanes(mask: BoolArray) -> WordArray:
    """Pack lanes, [n, 32], into one word per warp."""
    packed = np.packbits(np.ascontiguousarray(mask), axis=1, bitorder="little")
    words: WordArray = packed.view(np.uint32).reshape(-1)
    return words


def unpack_lanes(words: WordArray) -> BoolArray:
    """Unpack one word per warp into lanes, [n, 32]."""
    bits: BoolArray = (words[:, None] >> _LANE_IDS) & np.uint32(1) == 1
    return bits


def _find_ready_lanes(
    rows: WarpIndices, here: WordArray, live: WordArray, held: WordArray
) -> tuple[WarpIndices, WordArray]:
    """Return rows and lanes that may be released.

    A row comes more than once if lanes of a warp with different masks are released at once.
    here: lanes that wait, one word per row.
    live: lanes that have not exited, one word per row.
    held: masks that the lanes' barriers hold, [n, 32].
    """
    waits = unpack_lanes(here)
    wanted = held & live[:, None] | np.uint32(1) << _LANE_IDS
    is_complete = waits & (wanted & ~here[:, None] == 0)
    all_go = (is_complete == waits).all(axis=1) & ((wanted == here[:, None]) | ~waits).all(axis=1)
    found_rows, found = [rows[all_go]], [here[all_go]]
    seen: dict[bytes, list[int]] = {}  # most warps wait in the same way
    for place in np.flatnonzero(is_complete.any(axis=1) & ~all_go).tolist():
        word = int(here[place])
        key = here[place].tobytes() + wanted[place].tobytes()
        if key not in seen:
            seen[key] = _find_complete_sets(wanted[place].tolist(), word)
        found_rows += [rows[place : place + 1]] * len(seen[key])
        found.append(np.array(seen[key], dtype=np.uint32))
    return np.concatenate(found_rows), np.concatenate(found)


def _find_complete_sets(wanted: list[int], here: int) -> list[int]:
    """Return the sets of a warp's waiting lanes that may be released.

    wanted: for each lane the mask of those that it waits for.
    """
    waiting = {lane: wanted[lane] for lane in range(WARP_SIZE) if here >> lane & 1}
    found, rest = [], here
    for lane, mask in waiting.items():
        are_here = rest >> lane & 1 and not mask & ~rest
        if are_here and all(waiting[other] == mask for other in waiting if mask >> other & 1):
            found.append(mask)
            rest &= ~mask
    return found
