"""Where lanes and warps wait for each other: convergence barriers, WARPSYNC, barriers of a CTA."""

from typing import TYPE_CHECKING
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.lanes import Doubt, Group, Rows, View
from analyzer.execution.program import Action, ActionKind, End, EndKind
from analyzer.execution.step import Bits, Words
from analyzer.ir.machine import WARP_LANES

if TYPE_CHECKING:
    from analyzer.execution.machine import Machine

IntArray = NDArray[np.int64]
_NOBODY: Words = np.zeros((1, 1), dtype=np.uint32)
_LANES = np.arange(WARP_LANES, dtype=np.uint32)
Onward = list[tuple[int | None, Group]]


class Convergence:
    """Who waits where.

    masks[b]: lane mask that each lane's convergence barrier b holds, [n_warp, 32]: one per warp would
    deadlock where lanes that have parted open barriers of their own. meeting[segment]: lanes that wait at
    its end, one word per warp; doubts[segment]: what they have doubts about.
    arrived, waiting: threads that came to a CTA's barrier of some number, [n_warp, 32], and groups that wait
    there; wanted: threads that open it, None for all that live.
    """

    def __init__(self, machine: "Machine") -> None:
        self.machine: Machine = proxy(machine)  # which owns this: it must go when nothing else needs it
        self.masks: dict[int, NDArray[np.uint32]] = {}
        self.meeting: dict[int, Words] = {}
        self.doubts: dict[int, tuple[Doubt, ...]] = {}
        self.arrived: dict[int, Bits] = {}
        self.wanted: dict[int, int | None] = {}
        self.waiting: dict[int, list[tuple[int | None, Group]]] = {}

    @property
    def is_idle(self) -> bool:
        """Nobody waits."""
        return not self.meeting and not any(self.waiting.values())

    def gone(self, group: Group) -> None:
        """Lanes of the group have ended: others need not wait for them."""
        for index in list(self.meeting):
            self._meet(index, group.rows)
        for barrier in list(self.arrived):
            self._open_barrier(barrier)

    def barrier_masks(self, barrier: int) -> NDArray[np.uint32]:
        """Lane mask that each lane's convergence barrier holds, [n_warp, 32]."""
        if barrier not in self.masks:
            self.masks[barrier] = np.zeros((self.machine.batch.n_warps, WARP_LANES), dtype=np.uint32)
        return self.masks[barrier]

    def converge(self, action: Action, view: View, lanes: Bits | None) -> None:
        group = view.group
        active = group.mask if lanes is None else group.mask & view.flat(lanes)
        masks = self.barrier_masks(action.barrier)
        match action.kind:
            case ActionKind.OPEN:
                masks[group.rows] = np.where(active, lane_words(active)[:, None], masks[group.rows])
            case ActionKind.BREAK:
                gone = lane_words(active)[:, None]
                # of those lanes only that hold the same barrier: others may have put an outer one aside
                partners = np.bitwise_or.reduce(np.where(active, masks[group.rows], 0), axis=1)
                members = lane_bits(partners)
                masks[group.rows] = np.where(members, masks[group.rows] & ~gone, masks[group.rows])
                self._recheck(action.barrier, group)
            case ActionKind.SAVE:
                for slot in action.writes:
                    if slot < 0:  # BMOV RZ, B
                        continue
                    within = None if lanes is None else view.shaped(active)
                    view.write(slot, view.shaped(masks[group.rows]), None, None, within)
            case ActionKind.RESTORE:
                for slot in action.writes:
                    held = _NOBODY if slot < 0 else view.flat(view.value(slot))
                    value = np.broadcast_to(held, active.shape)
                    masks[group.rows] = np.where(active, value, masks[group.rows])
            case _:
                pass

    def _recheck(self, barrier: int, group: Group) -> None:
        """Lanes that wait may go on when others leave their barrier."""
        for index in list(self.meeting):
            end = self.machine.kernel.segments[index].end
            if end.kind is EndKind.MEET and end.barrier == barrier:
                self._meet(index, group.rows)

    def _meet(self, index: int, rows: Rows) -> None:
        """Release the lanes whose partners are all there, or gone.

        Partners hold the same mask: in a recursion others wait at the same BSYNC for an outer one.
        """
        waiting = self.meeting.get(index)
        if waiting is None:
            return
        end = self.machine.kernel.segments[index].end
        rows = rows[waiting[rows] != 0]
        here, live = waiting[rows], lane_words(self.machine.live[rows])
        if end.kind is EndKind.WARP_SYNC:
            is_ready = live & ~here == 0
            ready_rows, ready = rows[is_ready], here[is_ready]
        else:
            ready_rows, ready = _ready(rows, here, live, self.barrier_masks(end.barrier)[rows])
        np.bitwise_and.at(waiting, ready_rows, ~ready)
        doubts = self.doubts.get(index, ())
        if not waiting.any():
            self.meeting.pop(index, None)
            self.doubts.pop(index, None)
        if len(ready_rows):
            self._send(end.fall, ready_rows, lane_bits(ready), doubts)

    def _wait(self, index: int, group: Group) -> None:
        """The group's lanes wait at the end of a segment."""
        if index not in self.meeting:
            self.meeting[index] = np.zeros(self.machine.batch.n_warps, dtype=np.uint32)
        known = self.doubts.get(index, ())
        self.doubts[index] = (*known, *(doubt for doubt in group.doubts if doubt not in known))
        self.meeting[index][group.rows] |= lane_words(group.mask)
        self._meet(index, group.rows)

    def _send(self, index: int | None, rows: Rows, masks: Bits, doubts: tuple[Doubt, ...]) -> None:
        """A warp may be among `rows` more than once, with other lanes: those go separately."""
        while len(rows):
            _, firsts = np.unique(rows, return_index=True)
            self.machine.enter(index, self.machine.group(rows[firsts], masks[firsts], doubts))
            keep = np.ones(len(rows), dtype=bool)
            keep[firsts] = False
            rows, masks = rows[keep], masks[keep]

    def sync(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        group = view.group
        masks = self.barrier_masks(end.barrier)[group.rows]
        live = lane_words(self.machine.live[group.rows])[:, None]
        own = lane_words(group.mask)[:, None]
        missing = np.where(group.mask, masks & live & ~own, 0)
        index = self._segment_of(end)
        if not missing.any() and index not in self.meeting:
            return [(end.fall, group)]
        view.flush()
        self._wait(index, group)
        return []

    def _segment_of(self, end: End) -> int:
        block = self.machine.kernel.cfg.block_of[end.row]
        first = self.machine.kernel.entry_of[block]
        while self.machine.kernel.segments[first].end is not end:
            first += 1
        return first

    def warp_sync(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        """All lanes of a warp meet; those of the mask are taken to be all that live."""
        group = view.group
        if group.is_full:
            return [(end.fall, group)]
        view.flush()
        self._wait(self._segment_of(end), group)
        return []

    def cta_barrier(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        group = view.group
        view.flush()
        ctas = self.machine.batch.ctas[group.rows]
        if self._all_came(group, ctas, end):
            return [(end.fall, group)]
        arrived = self.arrived.setdefault(end.barrier, np.zeros_like(self.machine.live))
        arrived[group.rows] |= group.mask
        self.wanted[end.barrier] = end.count
        if not end.arrives_only:
            self.waiting.setdefault(end.barrier, []).append((end.fall, group))
        self._open_barrier(end.barrier)
        return [(end.fall, group)] if end.arrives_only else []

    def _all_came(self, group: Group, ctas: IntArray, end: End) -> bool:
        """All live warps of these CTAs come to the barrier at once, and nobody was there before."""
        if not group.is_full or end.arrives_only or self.arrived:
            return False
        if group.is_whole:
            return True
        n_ctas = len(self.machine.batch.cta_numbers)
        came = np.bincount(ctas, minlength=n_ctas)
        alive = np.bincount(self.machine.batch.ctas, weights=self.machine.live.any(axis=1), minlength=n_ctas)
        return bool(((came == 0) | (came == alive)).all())

    def _open_barrier(self, barrier: int) -> None:
        """In CTAs of which enough threads have come, let those at a barrier go on."""
        batch, live = self.machine.batch, self.machine.live
        arrived, count = self.arrived[barrier], self.wanted[barrier]
        n_ctas = len(batch.cta_numbers)
        came = np.bincount(batch.ctas, weights=(arrived & live).sum(axis=1), minlength=n_ctas)
        wanted = np.bincount(batch.ctas, weights=live.sum(axis=1), minlength=n_ctas)
        if count is not None:
            wanted = np.minimum(wanted, count)
        opens = ((came > 0) & (came >= wanted))[batch.ctas]
        if not opens.any():
            return
        arrived[opens] = False
        if not arrived.any():
            del self.arrived[barrier]
        still: list[tuple[int | None, Group]] = []
        for index, group in self.waiting.pop(barrier, []):
            goes = opens[group.rows]
            for chosen, here in ((True, goes), (False, ~goes)):
                if not here.any():
                    continue
                whole = bool(here.all())
                part = group if whole else self._part(group, here)
                if chosen:
                    self.machine.enter(index, part)
                else:
                    still.append((index, part))
        if still:
            self.waiting[barrier] = still

    def _part(self, group: Group, here: Bits) -> Group:
        return self.machine.part(group.rows[here], group.mask[here], group, group.doubts)

    def release_stuck(self) -> bool:
        """Nobody can go on: let the first that wait go on, where hardware would hang, and trust nothing."""
        if self.waiting:
            barrier = next(iter(self.waiting))
            self.arrived.pop(barrier, None)
            for index, part in self.waiting.pop(barrier):
                if index is not None:
                    self.machine.note_lost(self.machine.kernel.segments[index - 1].end.row)
                self.machine.enter(index, part)
            return True
        if self.meeting:
            index = next(iter(self.meeting))
            waiting = self.meeting.pop(index)
            rows = np.flatnonzero(waiting)
            end = self.machine.kernel.segments[index].end
            self.machine.note_lost(end.row)
            self._send(end.fall, rows, lane_bits(waiting[rows]), self.doubts.pop(index, ()))
            return True
        return False


def lane_words(mask: Bits) -> Words:
    """[n, 32] lanes as one word per warp."""
    packed = np.packbits(np.ascontiguousarray(mask), axis=1, bitorder="little")
    words: Words = packed.view(np.uint32).reshape(-1)
    return words


def lane_bits(words: Words) -> Bits:
    """[n, 32] lanes of one word per warp."""
    bits: Bits = (words[:, None] >> _LANES) & np.uint32(1) == 1
    return bits


def _ready(rows: Rows, here: Words, live: Words, held: Words) -> tuple[Rows, Words]:
    """Rows and lanes that may go on; held: what each lane's barrier holds, [n, 32].

    A row comes more than once where lanes of a warp that hold different masks go on at once.
    """
    waits = lane_bits(here)
    wanted = held & live[:, None] | np.uint32(1) << _LANES
    is_complete = waits & (wanted & ~here[:, None] == 0)
    all_go = (is_complete == waits).all(axis=1) & ((wanted == here[:, None]) | ~waits).all(axis=1)
    found_rows, found = [rows[all_go]], [here[all_go]]
    seen: dict[bytes, list[int]] = {}  # most warps wait alike
    for place in np.flatnonzero(is_complete.any(axis=1) & ~all_go).tolist():
        word = int(here[place])
        key = here[place].tobytes() + wanted[place].tobytes()
        if key not in seen:
            seen[key] = _complete(wanted[place].tolist(), word)
        found_rows += [rows[place : place + 1]] * len(seen[key])
        found.append(np.array(seen[key], dtype=np.uint32))
    return np.concatenate(found_rows), np.concatenate(found)


def _complete(wanted: list[int], here: int) -> list[int]:
    """Sets of a warp's waiting lanes that may go on; wanted: for each lane those that it waits for."""
    waiting = {lane: wanted[lane] for lane in range(WARP_LANES) if here >> lane & 1}
    found, rest = [], here
    for lane, mask in waiting.items():
        are_here = rest >> lane & 1 and not mask & ~rest
        if are_here and all(waiting[other] == mask for other in waiting if mask >> other & 1):
            found.append(mask)
            rest &= ~mask
    return found
