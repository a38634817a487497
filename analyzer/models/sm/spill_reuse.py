"""Compute which cache level serves spilled registers, by the reuse distances of their stack slots.

The order in which code accesses its stack frame is known. So each access has its own reuse distance: the
words of the frame that are accessed since the last access to its word (Mattson's stack distance). All
resident threads are taken to be at about the same instruction, so a cache holds an access whose distance is
less than the cache's capacity divided by those threads.

Example: `STL [R1]; STL [R1+4]; LDL [R1]` has distance 1 for the load: one other word lies between.
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.l1_policies import L1Policy, find_l1_policy
from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import Opcode, OpKind, accesses_local_memory
from analyzer.ir.operand import Address, Register
from analyzer.models.block_sequences import split_into_block_sequences
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import ALL_IN_L1, MissRates, compute_memory_latency_cycles

_WORD_BYTES = 4
_LAST_USE_MODIFIER = "LU"

FrameSlot = tuple[tuple[Register, ...], int]


class SpillAccesses(Struct, frozen=True, eq=False):
    """Accesses to local memory by instruction, [n]."""

    is_local: NDArray[np.bool_]  # executed accesses to local memory
    l1_miss_rate: FloatArray  # share of the bytes that goes beyond the L1
    dram_share: FloatArray  # and beyond the L2
    added_latency_cycles: FloatArray  # to the latency of the L1


class _FrameAccess(Struct, frozen=True):
    """An access of one instruction to one word of the frame."""

    row: int
    slot: FrameSlot
    is_store: bool
    is_last_use: bool  # the word is not needed any more


def measure_spill_reuse(model_input: ModelInput) -> SpillAccesses:
    """Compare reuse distances of all resident threads with the SM's L1 and its part of the L2."""
    n = len(model_input.kernel)
    rows = _mask_local_rows(model_input)
    l2_share, dram_share = np.zeros(n), np.zeros(n)
    touches = list(_iterate_frame_accesses(model_input, rows))
    if touches:
        n_slots = len({touch.slot for touch in touches})
        again = max(1.0, _count_accessed_words(model_input, rows) / n_slots - 1.0)
        in_l1, in_l2 = _compute_cache_capacities(model_input, n_slots, again)
        l2_share = _compute_miss_rate(touches, n, in_l1, keeps_last_used=False)
        if model_input.arch.memory.local_store_l2_share is not None:
            stores = (
                rows
                & model_input.kernel.form_table.make_opcode_mask(_is_store)[model_input.kernel.opcode_ids]
            )
            l2_share[stores] = model_input.arch.memory.local_store_l2_share.value
        dram_share = np.minimum(l2_share, _compute_miss_rate(touches, n, in_l2, keeps_last_used=True))
    base = compute_memory_latency_cycles(model_input, ALL_IN_L1)
    of_l2 = compute_memory_latency_cycles(model_input, MissRates(1.0, 0.0)) - base
    of_dram = compute_memory_latency_cycles(model_input, MissRates(1.0, 1.0)) - base - of_l2
    return SpillAccesses(rows, l2_share, dram_share, of_l2 * l2_share + of_dram * dram_share)


def _compute_cache_capacities(
    model_input: ModelInput, n_slots: int, again: float
) -> "tuple[_CacheCapacity, _CacheCapacity]":
    """Return the words that the L1 and an SM's part of the L2 hold beside other data accessed in between.

    again: accesses of a thread to a word after the first one.
    """
    memory, ctas = model_input.arch.memory, model_input.occupancy.ctas_per_sm
    frame = n_slots * _WORD_BYTES * model_input.block_threads
    # not in the steps of the carveout: `spill_lost_from` was calibrated so
    used = ctas * model_input.shared_bytes_per_cta
    l1 = max(0.0, memory.l1_shared_bytes_per_sm.value - used)
    l1 *= frame / (frame + _count_global_bytes_per_cta(model_input, in_l1=True) / again)
    l2 = model_input.gpu.file.l2.size_bytes.value / model_input.gpu.sm_count
    l2 *= frame / (frame + _count_global_bytes_per_cta(model_input) / again)
    of_all = _WORD_BYTES * model_input.block_threads * ctas
    begin = memory.spill_lost_from.value
    return _CacheCapacity(l1 / of_all, begin), _CacheCapacity(l2 / of_all, begin)


def _is_store(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.STORE


def _mask_local_rows(model_input: ModelInput) -> NDArray[np.bool_]:
    kernel = model_input.kernel
    is_local = kernel.form_table.make_opcode_mask(accesses_local_memory)
    rows: NDArray[np.bool_] = is_local[kernel.opcode_ids] & (model_input.execution_counts > 0)
    return rows


def _iterate_frame_accesses(model_input: ModelInput, rows: NDArray[np.bool_]) -> Iterator[_FrameAccess]:
    """Yield accesses in the order of execution; loops twice, so that one iteration follows another."""
    cfg, weights = model_input.cfg, model_input.execution_counts
    for sequence in split_into_block_sequences(cfg, model_input.loop_forest):
        again = sequence.loop is not None and max(weights[cfg.blocks[b].start] for b in sequence.blocks) > 1
        for _ in range(2 if again else 1):
            for block in sequence.blocks:
                for row in range(cfg.blocks[block].start, cfg.blocks[block].stop):
                    if rows[row]:
                        yield from _decode_frame_accesses(model_input, row)


def _decode_frame_accesses(model_input: ModelInput, row: int) -> Iterator[_FrameAccess]:
    form = model_input.kernel.decode_form(row)
    is_store = form.opcode.kind is OpKind.STORE
    is_last_use = not is_store and _LAST_USE_MODIFIER in form.opcode.modifiers
    for operand in form.operands:
        if isinstance(operand, Address):
            for word in range(0, max(_WORD_BYTES, form.opcode.width_bytes), _WORD_BYTES):
                yield _FrameAccess(row, (operand.bases, operand.offset + word), is_store, is_last_use)


class _CacheCapacity(Struct, frozen=True):
    """Words of each thread that a cache has room for."""

    words_per_thread: float
    eviction_start: float  # part of that at which evictions begin, see `MemorySubsystem`

    def compute_evicted_share(self, gap: int) -> float:
        """Return the evicted share of words at a reuse distance.

        gap: the distance, in words.
        """
        if not self.words_per_thread:
            return 1.0
        part = (gap / self.words_per_thread - self.eviction_start) / (1.0 - self.eviction_start)
        return min(1.0, max(0.0, part))


def _compute_miss_rate(
    touches: list[_FrameAccess], n: int, capacity: _CacheCapacity, *, keeps_last_used: bool
) -> FloatArray:
    """Compute the share of each row's words that a cache has lost.

    These are words that a load does not find, and words of a store that are evicted before the next store.
    """
    lost, total = np.zeros(n), np.zeros(n)
    twice = touches + touches  # two CTAs, one after the other
    gaps = _compute_reuse_distances(twice, keeps_last_used=keeps_last_used)
    left: dict[FrameSlot, float] = {}
    for touch, gap in zip(reversed(twice), reversed(gaps), strict=True):
        evicted_share = capacity.compute_evicted_share(gap)
        if touch.is_store:
            lost[touch.row] += left.get(touch.slot, 0.0)
            left[touch.slot] = evicted_share if keeps_last_used else 0.0
        else:
            lost[touch.row] += evicted_share
            stays = 0.0 if touch.is_last_use and not keeps_last_used else left.get(touch.slot, 0.0)
            left[touch.slot] = max(evicted_share, stays)
        total[touch.row] += 1.0
    return lost / np.maximum(total, 1.0)


def _compute_reuse_distances(touches: list[_FrameAccess], *, keeps_last_used: bool) -> list[int]:
    """Count the words accessed since the last access to each access's word."""
    last: dict[FrameSlot, int] = {}
    times: list[int] = []  # of the last access to each word, in order
    gaps: list[int] = []
    for now, touch in enumerate(touches):
        before = last.pop(touch.slot, -1)
        place = bisect_left(times, before)
        if before >= 0:
            del times[place]
        gaps.append(len(times) - place)
        if keeps_last_used or not touch.is_last_use:
            last[touch.slot] = now
            times.append(now)
    return gaps


def _count_accessed_words(model_input: ModelInput, rows: NDArray[np.bool_]) -> float:
    """Count the accesses of a thread to words of its frame."""
    kernel = model_input.kernel
    words = np.array([max(1, opcode.width_bytes // _WORD_BYTES) for opcode in kernel.form_table.opcodes])
    return float((words[kernel.opcode_ids] * model_input.execution_counts)[rows].sum())


def _count_global_bytes_per_cta(model_input: ModelInput, *, in_l1: bool = False) -> float:
    """Count the bytes of global memory that a CTA accesses.

    in_l1: only those that are allocated in the L1, without what the copy engine or LDGSTS bring past it.
    """
    kernel = model_input.kernel
    moved = model_input.access_bytes.global_bytes * model_input.execution_counts
    if in_l1:
        put_in = kernel.form_table.make_opcode_mask(_fills_l1)
        moved = np.where(put_in[kernel.opcode_ids], moved, 0.0)
    return float(moved.sum()) * max(1, model_input.occupancy.warps_per_cta)


def _fills_l1(opcode: Opcode) -> bool:
    return opcode.kind is not OpKind.BULK_COPY and find_l1_policy(opcode) is L1Policy.READ_ALLOCATE
