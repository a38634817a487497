"""Sums over the batches of CTAs that a launch was executed in."""

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from analyzer.execution.footprint.hashing import make_hash_factors
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.access_totals import AccessKey, AccessTotals
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.doubts import Doubt
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierRecorder
from analyzer.execution.profile.cta_work import SampledWork
from analyzer.execution.profile.execution_profile import WarpClass
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import IntArray


class LaunchSums(Struct, eq=False):
    """Sums over the batches of a launch, weighted to the grid."""

    segment_executions: NDArray[np.float64]  # [n_segment], by warps
    segment_active_lanes: NDArray[np.float64]  # [n_segment]
    loop_entries: NDArray[np.float64]  # [n_loop]
    access_totals: dict[AccessKey, AccessTotals] = field(default_factory=dict)
    # Instructions that depend on each undecided branch, by the branch's row.
    speculative_instructions: dict[int, float] = field(default_factory=dict)
    speculative_blocks: set[int] = field(default_factory=set)  # whose counts depend on an undecided branch
    # Origin of the unknown value of each undecided branch: a text, or the row of an instruction.
    branch_origins: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    # Rows of atomics whose results were taken to differ from those of others (see `atomic_counters`).
    atomic_counters: set[int] = field(default_factory=set)
    doubts: dict[int, Doubt] = field(default_factory=dict)  # by the row of the instruction
    # By row of a trap that surely runs: the first CTA, and its warp, that run it.
    traps: dict[int, tuple[int, int]] = field(default_factory=dict)
    warp_classes: list[WarpClass] = field(default_factory=list)
    cta_work: list[SampledWork] = field(default_factory=list)
    memory_log: AccessLog | None = None  # of the only batch, None if there are several
    mbarrier_recorder: MbarrierRecorder | None = None  # recorded mbarrier operations of CTA 0
    stop_reason: str = ""  # why a batch did not run to its end, else empty


def collect_batch(machine: AbstractMachine, stop_reason: str, sums: LaunchSums) -> None:
    """Add the counts of one batch."""
    counters, batch = machine.counters, machine.batch
    sums.stop_reason = sums.stop_reason or stop_reason
    sums.segment_executions += _sum_weighted(counters.segment_runs, batch.warp_weights)
    sums.segment_active_lanes += _sum_weighted(counters.active_lanes, batch.warp_weights)
    sums.loop_entries += _sum_weighted(counters.loop_entries, batch.warp_weights)
    for key, totals in counters.memory_log.totals.items():
        _merge_totals(sums.access_totals, key, totals)
    for row, weight in counters.speculative_instructions.items():
        sums.speculative_instructions[row] = sums.speculative_instructions.get(row, 0.0) + weight
        sums.branch_origins.setdefault(row, batch.describe_origin(batch.branch_origins[row]))
    sums.atomic_counters |= batch.unknown_words.atomic_counters
    sums.doubts |= batch.unknown_words.doubts
    for row, warp in counters.trapped_warps.items():
        cta = int(batch.cta_numbers[batch.cta_indices[warp]])
        sums.traps.setdefault(row, (cta, int(batch.warp_ids[warp])))
    sums.speculative_blocks |= counters.speculative_blocks
    for row in counters.speculative_instructions:
        sums.speculative_blocks |= batch.branch_regions.find_blocks(row, batch.find_reconvergence_block(row))
    entries = list(machine.kernel.entry_segments)
    blocks = counters.segment_runs[entries]
    is_beside_busier = _find_warps_beside_busier(blocks, machine.kernel.cfg, batch)
    sums.cta_work.append(_measure_cta_work(blocks, machine.kernel.cfg, batch))
    sums.warp_classes += _group_warps(blocks, counters.active_lanes[entries], is_beside_busier, batch)


def _sum_weighted(table: IntArray, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted sum of each row of `table` [row, warp].

    Equal weights are applied to the sum, which saves a conversion of the table to floats.
    """
    if bool((weights == weights[:1]).all()):
        once: NDArray[np.float64] = table.sum(axis=1) * weights[0]
        return once
    weighed: NDArray[np.float64] = table @ weights
    return weighed


def _merge_totals(accesses: dict[AccessKey, AccessTotals], key: AccessKey, more: AccessTotals) -> None:
    """Add the totals of a batch to those of earlier ones; what is less certain prevails."""
    own = accesses.get(key)
    if own is None:
        accesses[key] = more
        return
    own.requests += more.requests
    own.lanes += more.lanes
    own.sectors += more.sectors
    own.wavefronts += more.wavefronts
    own.lines += more.lines
    own.trust = min(own.trust, more.trust)
    own.base_address = more.base_address if own.base_address is None else own.base_address
    own.add_sources(more)
    own.is_speculative |= more.is_speculative
    own.is_exhaustive &= more.is_exhaustive
    own.misaligned_address = own.misaligned_address or more.misaligned_address
    own.footprint.merge(more.footprint)


def _measure_cta_work(blocks: IntArray, cfg: Cfg, batch: CtaBatch) -> SampledWork:
    """Return the instructions that each CTA executes; blocks: [n_block, n_warp], executions."""
    work = np.array([len(block) for block in cfg.blocks]) @ blocks
    instructions = np.bincount(batch.cta_indices, weights=work, minlength=len(batch.cta_numbers))
    return SampledWork(batch.cta_numbers, instructions.astype(np.float64))


_BUSIER_WARP_RATIO = 10


def _find_warps_beside_busier(blocks: IntArray, cfg: Cfg, batch: CtaBatch) -> NDArray[np.bool_]:
    """Return for each warp whether another warp of its CTA executes much more.

    blocks: [n_block, n_warp], executions.
    """
    work = np.array([len(block) for block in cfg.blocks]) @ blocks
    most = np.zeros(int(batch.cta_indices.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(most, batch.cta_indices, work)
    found: NDArray[np.bool_] = work * _BUSIER_WARP_RATIO <= most[batch.cta_indices]
    return found


def _group_warps(
    blocks: IntArray, lanes: IntArray, is_beside_busier: NDArray[np.bool_], batch: CtaBatch
) -> list[WarpClass]:
    """Group warps with equal executions and active lanes of every block."""
    factors = make_hash_factors(2 * len(blocks)).view(np.int64)
    keys = factors[: len(blocks)] @ blocks + factors[len(blocks) :] @ lanes
    _, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
    n_warp_slots = batch.launch_shape.warps_per_cta
    places = which.reshape(-1) * n_warp_slots + batch.warp_ids
    n_beside = np.bincount(
        which.reshape(-1), weights=batch.warp_weights * is_beside_busier, minlength=len(firsts)
    )
    sizes = np.bincount(places, weights=batch.warp_weights, minlength=len(firsts) * n_warp_slots)
    return [
        WarpClass(
            n_warps=round(float(slot_counts.sum())),
            block_counts=blocks[:, first].copy(),
            block_active_lanes=lanes[:, first].copy(),
            example_warp=(int(batch.cta_numbers[batch.cta_indices[first]]), int(batch.warp_ids[first])),
            warp_slot_counts=tuple(slot_counts.tolist()),
            n_beside_busier_warp=round(float(others)),
        )
        for first, slot_counts, others in zip(
            firsts.tolist(), sizes.reshape(-1, n_warp_slots), n_beside, strict=True
        )
    ]
