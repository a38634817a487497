"""Where spilled registers are served: by what else of the frame is touched between two touches of a slot.

Code with spills goes through its frame in an order that is known, so each access has its own reuse distance
(Mattson's stack distance); all resident threads are taken to be at about the same place.
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.cache_routes import Route, route_of
from analyzer.demand.costs import FloatArray
from analyzer.ir.opcode import MEMORY_KINDS, OpKind, Space
from analyzer.ir.operand import Address, Register
from analyzer.models.base import Situation
from analyzer.models.block_runs import block_runs
from analyzer.models.placement import ALL_IN_L1, Placement, memory_latency_cycles

_WORD_BYTES = 4
_LAST_USE = "LU"

Slot = tuple[tuple[Register, ...], int]


class Spills(Struct, frozen=True, eq=False):
    """Of each instruction, [n]: is_local: an executed access to local memory; l2_share, dram_share: of its
    bytes, those that go beyond the L1 and beyond the L2; added_cycles: to its latency in the L1.
    """

    is_local: NDArray[np.bool_]
    l2_share: FloatArray
    dram_share: FloatArray
    added_cycles: FloatArray


class _Touch(Struct, frozen=True):
    """A word of the frame that an instruction touches; drops: it is not needed any more."""

    row: int
    slot: Slot
    is_store: bool
    drops: bool


def find_spills(situation: Situation) -> Spills:
    """Reuse distances of all resident threads against the SM's L1 and its part of the L2."""
    n = len(situation.kernel)
    rows = _local_rows(situation)
    l2_share, dram_share = np.zeros(n), np.zeros(n)
    touches = list(_touches(situation, rows))
    if touches:
        n_slots = len({touch.slot for touch in touches})
        again = max(1.0, _words_touched(situation, rows) / n_slots - 1.0)
        in_l1, in_l2 = _rooms(situation, n_slots, again)
        l2_share = _beyond(touches, n, in_l1, keeps_dropped=False)
        dram_share = np.minimum(l2_share, _beyond(touches, n, in_l2, keeps_dropped=True))
    base = memory_latency_cycles(situation, ALL_IN_L1)
    of_l2 = memory_latency_cycles(situation, Placement(1.0, 0.0)) - base
    of_dram = memory_latency_cycles(situation, Placement(1.0, 1.0)) - base - of_l2
    return Spills(rows, l2_share, dram_share, of_l2 * l2_share + of_dram * dram_share)


def _rooms(situation: Situation, n_slots: int, again: float) -> "tuple[_Room, _Room]":
    """What the L1 and an SM's part of the L2 have for words, beside other data that come between two touches.

    again: how often a thread comes back to a word.
    """
    memory, ctas = situation.arch.memory, situation.occupancy.ctas_per_sm
    frame = n_slots * _WORD_BYTES * situation.block_threads
    used = ctas * (situation.kernel.resources.shared_bytes or 0)
    l1 = max(0.0, memory.l1_shared_bytes_per_sm.value - used)
    l1 *= frame / (frame + _global_bytes_per_cta(situation, in_l1=True) / again)
    l2 = situation.gpu.file.l2.size_bytes.value / situation.gpu.sm_count
    l2 *= frame / (frame + _global_bytes_per_cta(situation) / again)
    of_all = _WORD_BYTES * situation.block_threads * ctas
    kept = (memory.spill_lost_from.value, memory.spill_lost_by.value)
    return _Room(l1 / of_all, *kept), _Room(l2 / of_all, *kept)


def _local_rows(situation: Situation) -> NDArray[np.bool_]:
    kernel = situation.kernel
    is_local = kernel.vocabulary.mask(lambda o: o.kind in MEMORY_KINDS and o.space is Space.LOCAL)
    rows: NDArray[np.bool_] = is_local[kernel.opcode_ids] & (situation.weights > 0)
    return rows


def _touches(situation: Situation, rows: NDArray[np.bool_]) -> Iterator[_Touch]:
    """In the order of a warp's way through the code; loops twice, so that rounds follow each other."""
    cfg, weights = situation.cfg, situation.weights
    for run in block_runs(cfg, situation.nest):
        again = run.loop is not None and max(weights[cfg.blocks[b].start] for b in run.blocks) > 1
        for _ in range(2 if again else 1):
            for block in run.blocks:
                for row in range(cfg.blocks[block].start, cfg.blocks[block].stop):
                    if rows[row]:
                        yield from _touches_of(situation, row)


def _touches_of(situation: Situation, row: int) -> Iterator[_Touch]:
    form = situation.kernel.form(row)
    is_store = form.opcode.kind is OpKind.STORE
    drops = not is_store and _LAST_USE in form.opcode.modifiers
    for operand in form.operands:
        if isinstance(operand, Address):
            for word in range(0, max(_WORD_BYTES, form.opcode.width_bytes), _WORD_BYTES):
                yield _Touch(row, (operand.bases, operand.offset + word), is_store, drops)


class _Room(Struct, frozen=True):
    """Words of each thread that a cache has room for; it loses some before it is full (see `MemoryPath`)."""

    words: float
    lost_from: float
    lost_by: float

    def lost_share(self, gap: int) -> float:
        """Of words that so many others are touched between."""
        if not self.words:
            return 1.0
        part = (gap / self.words - self.lost_from) / (self.lost_by - self.lost_from)
        return min(1.0, max(0.0, part))


def _beyond(touches: list[_Touch], n: int, room: _Room, *, keeps_dropped: bool) -> FloatArray:
    """Of each row's words, the share that a cache has lost: those that a load finds gone, and those that a
    store leaves and that are pushed out before they are replaced.
    """
    lost, total = np.zeros(n), np.zeros(n)
    twice = touches + touches  # two CTAs after each other
    gaps = _gaps(twice, keeps_dropped=keeps_dropped)
    left: dict[Slot, float] = {}
    for touch, gap in zip(reversed(twice), reversed(gaps), strict=True):
        away = room.lost_share(gap)
        if touch.is_store:
            lost[touch.row] += left.get(touch.slot, 0.0)
            left[touch.slot] = away if keeps_dropped else 0.0
        else:
            lost[touch.row] += away
            stays = 0.0 if touch.drops and not keeps_dropped else left.get(touch.slot, 0.0)
            left[touch.slot] = max(away, stays)
        total[touch.row] += 1.0
    return lost / np.maximum(total, 1.0)


def _gaps(touches: list[_Touch], *, keeps_dropped: bool) -> list[int]:
    """Words touched since each touch's word was touched before."""
    last: dict[Slot, int] = {}
    times: list[int] = []  # of the last touch of each word, in order
    gaps: list[int] = []
    for now, touch in enumerate(touches):
        before = last.pop(touch.slot, -1)
        place = bisect_left(times, before)
        if before >= 0:
            del times[place]
        gaps.append(len(times) - place)
        if keeps_dropped or not touch.drops:
            last[touch.slot] = now
            times.append(now)
    return gaps


def _words_touched(situation: Situation, rows: NDArray[np.bool_]) -> float:
    """Words of its frame that a thread touches, each as often as it does."""
    kernel = situation.kernel
    words = np.array([max(1, opcode.width_bytes // _WORD_BYTES) for opcode in kernel.vocabulary.opcodes])
    return float((words[kernel.opcode_ids] * situation.weights)[rows].sum())


def _global_bytes_per_cta(situation: Situation, *, in_l1: bool = False) -> float:
    """in_l1: of those that are put there, not what the copy engine or LDGSTS bring past it."""
    kernel = situation.kernel
    moved = situation.moved.global_bytes * situation.weights
    if in_l1:
        put_in = kernel.vocabulary.mask(
            lambda opcode: opcode.kind is not OpKind.BULK_COPY and route_of(opcode) is Route.CACHED
        )
        moved = np.where(put_in[kernel.opcode_ids], moved, 0.0)
    return float(moved.sum()) * max(1, situation.occupancy.warps_per_cta)
