"""Distinct sectors that the first CTAs of a grid touch: a little less than an execution's profile."""

import copy
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from msgspec import Struct

from analyzer.execution.access_log import MemoryLog
from analyzer.execution.boxes import Box, cta_places
from analyzer.execution.budget import StopExecution
from analyzer.execution.entries import READ_KINDS, WRITE_KINDS, AccessTotals, Entry
from analyzer.execution.executor import Executor
from analyzer.execution.footprint import Footprint, union_sectors
from analyzer.execution.measuring import touch
from analyzer.execution.patterns import Patterns
from analyzer.execution.program import Access
from analyzer.execution.request_tables import tables_of
from analyzer.execution.sampling import boxed, whole_grid
from analyzer.execution.task import Task
from analyzer.execution.warps import Batch
from analyzer.ir.launch import Dim3
from analyzer.ir.opcode import GLOBAL_SPACES


class Touched(Struct, frozen=True):
    """Distinct sectors of global memory; both: read or written."""

    read_sectors: int
    written_sectors: int
    both_sectors: int


def touched_in(log: MemoryLog, windows: Sequence[Dim3]) -> tuple[Touched, ...] | None:
    """What the first CTAs of an executed grid touched, for each window; None where not known.

    log: see `Execution`.
    """
    entries = {key: own for key, own in (log.kept or {}).items() if _is_wanted(log.totals[key].access)}
    if log.kept is None or not all(log.totals[key].knows_bytes for key in entries):
        return None
    parts: list[list[_Prints]] = []
    for window in windows:
        prints, batch = _Prints([], []), _of_window(log.batch, window)
        for key, own in entries.items():
            prints.add(log.totals[key], own.entries, batch, () if batch.neighbours else own.patterns)
        parts.append([prints])
    return _all_touched(parts)


def touched_by(task: Task, windows: Sequence[Dim3], boxes: Sequence[Box]) -> tuple[Touched, ...] | None:
    """What each window's CTAs touch; None where not known.

    windows: of the first CTAs of the grid, the largest first, which is the grid of the task; boxes: of the
    launch's whole grid, proven alike, where there are such.
    """
    clipped = [box.within(windows[0].sizes) for box in boxes if box.meets(windows[0].sizes)]
    sample = boxed(windows[0], clipped) if clipped else whole_grid(windows[0])
    parts: list[list[_Prints]] = [[] for _ in windows]
    for machine, stopped in Executor(task, lambda batch: _WindowLog(batch, windows)).runs(sample):
        log = machine.tally.memory
        if stopped or not isinstance(log, _WindowLog) or not log.is_known:
            return None
        for part, prints in zip(parts, log.prints, strict=True):
            part.append(prints)
    return _all_touched(parts)


class _Prints(Struct, eq=False):
    """What one window reads and writes."""

    reads: list[Footprint]
    writes: list[Footprint]

    def add(
        self,
        totals: AccessTotals,
        entries: Sequence[Entry],
        batch: Batch,
        known: Sequence[Patterns | None] = (),
    ) -> None:
        """What one instruction touches in CTAs that weigh anything.

        known: the patterns of the tables that all CTAs come to, in order, where these have the same rows.
        """
        access, footprint = totals.access, Footprint()
        for requests, patterns in zip_longest(tables_of(totals, entries, batch), known):
            rows = requests.weights > 0
            inside = requests.kept(rows)
            if inside.addresses is not None and len(inside.weights):
                touch(footprint, access, inside, patterns and patterns.kept(rows))
        if access.kind in READ_KINDS:
            self.reads.append(footprint)
        if access.kind in WRITE_KINDS:
            self.writes.append(footprint)


def _all_touched(parts: Sequence[Sequence[_Prints]]) -> tuple[Touched, ...] | None:
    found = [_touched(part) for part in parts]
    return None if None in found else tuple(one for one in found if one is not None)


def _touched(every: Sequence[_Prints]) -> Touched | None:
    reads = [footprint for part in every for footprint in part.reads]
    writes = [footprint for part in every for footprint in part.writes]
    read, written, both = map(union_sectors, (reads, writes, reads + writes))
    return None if read is None or written is None or both is None else Touched(read, written, both)


class _WindowLog(MemoryLog):
    """Only what is touched, for each of some windows; not known where it is not of one access."""

    def __init__(self, batch: Batch, windows: Sequence[Dim3]) -> None:
        super().__init__(batch, wants=_is_wanted)
        self.batches = [_of_window(batch, window) for window in windows]
        self.prints = [_Prints([], []) for _ in windows]

    @property
    def is_known(self) -> bool:
        return all(totals.knows_bytes for totals in self.totals.values())

    def _enter(self, totals: AccessTotals, entry: Entry) -> None:
        if not totals.knows_bytes:
            raise StopExecution("an address is not known")  # the rest would be in vain
        super()._enter(totals, entry)

    def _reduce(self, totals: AccessTotals) -> tuple[Patterns | None, ...]:
        for batch, prints in zip(self.batches, self.prints, strict=True):
            prints.add(totals, totals.entries, batch)
        return ()


def _is_wanted(access: Access) -> bool:
    return access.space in GLOBAL_SPACES and access.kind in READ_KINDS | WRITE_KINDS


def _of_window(batch: Batch, window: Dim3) -> Batch:
    """The same batch, in which CTAs outside of the window weigh nothing."""
    own = copy.copy(batch)
    places = cta_places(batch.shape.grid, batch.cta_numbers)
    left = [size - place for size, place in zip(window.sizes, places, strict=True)]
    own.box_counts = tuple(
        np.clip(counts, 1, np.maximum(1, -(-more // np.where(beside < 0, 1, at[beside] - at))))
        for counts, more, beside, at in zip(batch.box_counts, left, batch.neighbours, places, strict=False)
    )
    inside = np.logical_and.reduce([more > 0 for more in left])
    own.weights = np.repeat(np.where(inside, batch.cta_weights, 0.0), batch.shape.warps_per_cta)
    return own
