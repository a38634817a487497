"""Distinct sectors that windows of a grid access: its first CTAs along each axis.

They are counted in the log of an execution that kept all requests or, if there is none, by executing the
largest window without building a profile.
"""

import copy
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from msgspec import Struct

from analyzer.execution.footprint.footprint import Footprint, count_union_sectors
from analyzer.execution.footprint.lane_patterns import LanePatterns
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.access_totals import READ_KINDS, WRITE_KINDS, AccessLogEntry, AccessTotals
from analyzer.execution.machine.budget import StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.request_measurement import add_to_footprint, count_lanes
from analyzer.execution.machine.request_tables import build_request_tables
from analyzer.execution.profile.cta_boxes import CtaBox, delinearize_ctas
from analyzer.execution.sampling.cta_samples import make_box_sample, make_exhaustive_sample
from analyzer.execution.sampling.execution_task import ExecutionTask
from analyzer.execution.sampling.launch_executor import LaunchExecutor
from analyzer.ir.launch import Dim3
from analyzer.ir.opcode import GLOBAL_SPACES


class TouchedSectors(Struct, frozen=True):
    """Numbers of distinct sectors of global memory that are accessed."""

    read_sectors: int
    written_sectors: int
    total_sectors: int  # read or written
    asked_bytes: float  # that lanes ask for in all reads, with repetitions


def find_touched_in_log(log: AccessLog, windows: Sequence[Dim3]) -> tuple[TouchedSectors, ...] | None:
    """Count the sectors that each window of an executed grid accessed; None if unknown.

    log: the log of an `ExecutionResult`.
    """
    entries = {
        key: record
        for key, record in (log.global_records or {}).items()
        if _is_global_access(log.totals[key].access)
    }
    if log.global_records is None or not all(log.totals[key].has_complete_footprint for key in entries):
        return None
    parts: list[list[_WindowFootprints]] = []
    for window in windows:
        footprints, batch = _WindowFootprints([], []), _restrict_to_window(log.batch, window)
        for key, record in entries.items():
            footprints.add_instruction(
                log.totals[key], record.entries, batch, () if batch.neighbor_ctas else record.patterns
            )
        parts.append([footprints])
    return _count_all_windows(parts)


def execute_touched_sectors(
    task: ExecutionTask, windows: Sequence[Dim3], boxes: Sequence[CtaBox]
) -> tuple[TouchedSectors, ...] | None:
    """Execute a window of a grid and count the sectors that each window accesses; None if unknown.

    windows: sizes of windows, the largest first, which is the grid of the task.
    boxes: boxes of the launch's whole grid of CTAs that were proven equivalent, if there are any.
    """
    clipped = [
        box.clip_to_window(windows[0].sizes) for box in boxes if box.contains_ctas_of_window(windows[0].sizes)
    ]
    sample = make_box_sample(windows[0], clipped) if clipped else make_exhaustive_sample(windows[0])
    parts: list[list[_WindowFootprints]] = [[] for _ in windows]
    for run in LaunchExecutor(task, lambda batch: _WindowLog(batch, windows)).run_batches(sample):
        log = run.machine.counters.memory_log
        if run.stop_reason or not isinstance(log, _WindowLog) or not log.is_known:
            return None
        for part, footprints in zip(parts, log.window_footprints, strict=True):
            part.append(footprints)
    return _count_all_windows(parts)


class _WindowFootprints(Struct, eq=False):
    """Footprints of what one window reads and writes."""

    reads: list[Footprint]
    writes: list[Footprint]
    asked_bytes: float = 0.0

    def add_instruction(
        self,
        totals: AccessTotals,
        entries: Sequence[AccessLogEntry],
        batch: CtaBatch,
        known: Sequence[LanePatterns | None] = (),
    ) -> None:
        """Add what one instruction accesses in CTAs whose weight is not zero.

        known: lane patterns of the request tables, in their order, if known and valid for the same rows.
        """
        access, footprint = totals.access, Footprint()
        for requests, patterns in zip_longest(build_request_tables(totals, entries, batch), known):
            rows = requests.weights > 0
            inside = requests.select_rows(rows)
            if access.kind in READ_KINDS:
                self.asked_bytes += count_lanes(inside) * access.lane_bytes
            if inside.addresses is not None and len(inside.weights):
                add_to_footprint(footprint, access, inside, patterns and patterns.select_warps(rows))
        if access.kind in READ_KINDS:
            self.reads.append(footprint)
        if access.kind in WRITE_KINDS:
            self.writes.append(footprint)


def _count_all_windows(parts: Sequence[Sequence[_WindowFootprints]]) -> tuple[TouchedSectors, ...] | None:
    found = [_count_window(part) for part in parts]
    return None if None in found else tuple(one for one in found if one is not None)


def _count_window(every: Sequence[_WindowFootprints]) -> TouchedSectors | None:
    reads = [footprint for part in every for footprint in part.reads]
    writes = [footprint for part in every for footprint in part.writes]
    read, written, both = map(count_union_sectors, (reads, writes, reads + writes))
    if read is None or written is None or both is None:
        return None
    return TouchedSectors(read, written, both, sum(part.asked_bytes for part in every))


class _WindowLog(AccessLog):
    """A log that keeps only the footprints of windows; they are unknown if those of one access are."""

    def __init__(self, batch: CtaBatch, windows: Sequence[Dim3]) -> None:
        super().__init__(batch, access_filter=_is_global_access)
        self.batches = [_restrict_to_window(batch, window) for window in windows]
        self.window_footprints = [_WindowFootprints([], []) for _ in windows]

    @property
    def is_known(self) -> bool:
        return all(totals.has_complete_footprint for totals in self.totals.values())

    def _append_entry(self, totals: AccessTotals, entry: AccessLogEntry) -> None:
        if not totals.has_complete_footprint:
            raise StopExecution("an address is not known")  # the result is unknown, whatever else is accessed
        super()._append_entry(totals, entry)

    def _add_entries_to_totals(self, totals: AccessTotals) -> tuple[LanePatterns | None, ...]:
        for batch, footprints in zip(self.batches, self.window_footprints, strict=True):
            footprints.add_instruction(totals, totals.entries, batch)
        return ()


def _is_global_access(access: LoweredAccess) -> bool:
    return access.space in GLOBAL_SPACES and access.kind in READ_KINDS | WRITE_KINDS


def _restrict_to_window(batch: CtaBatch, window: Dim3) -> CtaBatch:
    """Return a copy of a batch in which CTAs outside of a window have weight 0."""
    restricted = copy.copy(batch)
    places = delinearize_ctas(batch.launch_shape.grid, batch.cta_numbers)
    remaining = [size - place for size, place in zip(window.sizes, places, strict=True)]
    restricted.box_counts = tuple(
        np.clip(counts, 1, np.maximum(1, -(-more // np.where(neighbors < 0, 1, at[neighbors] - at))))
        for counts, more, neighbors, at in zip(
            batch.box_counts, remaining, batch.neighbor_ctas, places, strict=False
        )
    )
    inside = np.logical_and.reduce([more > 0 for more in remaining])
    weights = batch.cta_weights
    if restricted.box_counts:
        weights = np.minimum(weights, np.multiply.reduce(restricted.box_counts))
    restricted.warp_weights = np.repeat(np.where(inside, weights, 0.0), batch.launch_shape.warps_per_cta)
    return restricted
