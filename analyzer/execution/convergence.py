"""Where lanes and warps wait for each other: convergence barriers, WARPSYNC, barriers of a CTA."""

from typing import TYPE_CHECKING

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
    deadlock where lanes that have parted open barriers of their own. meeting[segment][row]: lanes that wait
    at its end; doubts[segment]: what they have doubts about.
    arrived, waiting: threads that came to a CTA's barrier of some number, [n_warp, 32], and groups that wait
    there; wanted: threads that open it, None for all that live.
    """

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine
        self.masks: dict[int, NDArray[np.uint32]] = {}
        self.meeting: dict[int, dict[int, int]] = {}
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
                members = (partners[:, None] >> _LANES) & np.uint32(1) == 1
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
        end = self.machine.kernel.segments[index].end
        waiting = self.meeting.get(index, {})
        ready_rows: list[int] = []
        ready_words: list[int] = []
        seen: dict[tuple[int, int, bytes], list[int]] = {}  # most warps wait alike
        masks = None if end.kind is EndKind.WARP_SYNC else self.barrier_masks(end.barrier)
        alive = lane_words(self.machine.live[rows]).tolist()
        for row, live in zip(rows.tolist(), alive, strict=True):
            here = waiting.get(row)
            if here is None:
                continue
            own = b"" if masks is None else masks[row].tobytes()
            found = seen.get((live, here, own))
            if found is None:
                held = None if masks is None else masks[row].tolist()
                found = seen[live, here, own] = _complete(held, live, here)
            for out in found:
                ready_rows.append(row)
                ready_words.append(out)
                here &= ~out
            if here:
                waiting[row] = here
            else:
                del waiting[row]
        doubts = self.doubts.get(index, ())
        if not waiting:
            self.meeting.pop(index, None)
            self.doubts.pop(index, None)
        if ready_rows:
            self._send(end.fall, np.array(ready_rows, dtype=np.int64), _lane_bits(ready_words), doubts)

    def _wait(self, index: int, group: Group) -> None:
        """The group's lanes wait at the end of a segment."""
        waiting = self.meeting.setdefault(index, {})
        known = self.doubts.get(index, ())
        self.doubts[index] = (*known, *(doubt for doubt in group.doubts if doubt not in known))
        for row, word in zip(group.rows.tolist(), lane_words(group.mask).tolist(), strict=True):
            waiting[row] = waiting.get(row, 0) | word
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
            rows = np.array(list(waiting), dtype=np.int64)
            end = self.machine.kernel.segments[index].end
            self.machine.note_lost(end.row)
            self._send(end.fall, rows, _lane_bits(list(waiting.values())), self.doubts.pop(index, ()))
            return True
        return False


def lane_words(mask: Bits) -> Words:
    """[n, 32] lanes as one word per warp."""
    packed = np.packbits(np.ascontiguousarray(mask), axis=1, bitorder="little")
    words: Words = packed.view(np.uint32).reshape(-1)
    return words


def _lane_bits(words: list[int]) -> Bits:
    """[n, 32] lanes of one word per warp."""
    bits: Bits = (np.array(words, dtype=np.uint32)[:, None] >> _LANES) & np.uint32(1) == 1
    return bits


def _complete(held: list[int] | None, live: int, here: int) -> list[int]:
    """Sets of waiting lanes of a warp that may go on; held: what each lane's barrier holds, None for all."""
    if held is None:
        return [here] if not live & ~here else []
    wanted = {lane: held[lane] & live | 1 << lane for lane in range(WARP_LANES) if here >> lane & 1}
    found, rest = [], here
    for lane, mask in wanted.items():
        are_here = rest >> lane & 1 and not mask & ~rest
        if are_here and all(wanted[other] == mask for other in wanted if mask >> other & 1):
            found.append(mask)
            rest &= ~mask
    return found
