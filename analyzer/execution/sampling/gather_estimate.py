"""Estimate of gathers and scatters: requests whose addresses depend on loaded words.

A few CTAs are executed, with random words in place of unknown ones (see `RandomData`). They show how many
sectors and wavefronts a request takes. They also show how large the table is that all requests access:
n random accesses to a table of T sectors find S = T (1 - exp(-n / T)) distinct ones, which is solved for T.
There is no estimate of T if sectors are not accessed often enough, or if new ones are found until the end. Of
words that the user gave, the table then reaches from the lowest place that they name to the highest one.

Example: 4096 accesses that find 1000 distinct sectors are of a table of 1018 sectors, if the first half of
them finds at least 750.
"""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.binding.constant_banks import AddressWindows
from analyzer.execution.footprint.hashing import sort_unique
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.machine.access_totals import AccessTotals
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch, limit_ctas_by_memory
from analyzer.execution.machine.random_data import RandomData, TargetBuffer
from analyzer.execution.machine.request_measurement import add_to_totals
from analyzer.execution.machine.request_tables import RequestTable
from analyzer.execution.sampling.execution_task import ExecutionTask
from analyzer.execution.traces.execution_recorder import LaneMaskArray, WarpArray
from analyzer.execution.traces.launch_recording import RecordingMachine
from analyzer.ir.arrays import Addresses
from analyzer.ir.opcode import GLOBAL_SPACES, AddressSpace, OpKind

_STEP_LIMIT = 4000  # about as long as a tenth of a second
_MAX_SAMPLED_CTAS = 256
_MIN_SAMPLED_CTAS = 2
_TARGET_WARPS = 1024
_MAX_MEASURED_REQUESTS = 4096  # requests of an instruction
_MIN_VISITS_PER_SECTOR = 3  # mean accesses of each distinct sector, for a bounded table
# If the sectors of all CTAs together are at least this part of one table per CTA, each CTA has its own table.
_MIN_PRIVATE_TABLE_SHARE = 0.5
# Part of a table's sectors that the first half of the requests must find; a linear walk finds half of them.
_MIN_EARLY_SECTOR_SHARE = 0.75
_OWNER_BIT = 48  # above all sector numbers of allocations
_BISECTION_STEPS = 60


class GatherEstimate(Struct, frozen=True):
    """Estimate of an instruction whose addresses depend on loaded words."""

    sectors_per_request: float
    wavefronts_per_request: float
    table_sectors: float | None  # sectors of the table that the grid's requests access; None if not bounded
    is_scattered: bool = False  # each lane accesses a sector of its own
    has_known_words: bool = False  # the user gave the words


class GatherTraffic(Struct):
    """Traffic of a grid's gathers and scatters in one allocation."""

    n_sectors: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0

    def find_table_bytes(self, estimate: GatherEstimate) -> float | None:
        """Return the bytes of the table that an instruction accesses; None if unknown.

        An unbounded table of scattered lanes has as many elements as lanes ask for: each is accessed once on
        average, as by a permutation. For gathered rows, the number of equal rows is unknown.
        """
        if estimate.table_sectors is not None:
            return estimate.table_sectors * SECTOR_BYTES
        return max(self.read_bytes, self.written_bytes) if estimate.is_scattered else None


InstructionKey = tuple[int, AddressSpace]


def estimate_gathers(
    task: ExecutionTask,
    unknown: Collection[InstructionKey],
    given: Collection[InstructionKey],
    tables: Mapping[int, TargetBuffer],
) -> dict[InstructionKey, GatherEstimate]:
    """Estimate instructions as far as a few CTAs reach them.

    unknown: those whose addresses depend on unknown words.
    given: those whose addresses are known; which of them gather, the distances between their lanes show.
    tables: buffers of known size that instructions access, by row.
    """
    recorder = _GatherRecorder(task, unknown, given)
    kernel, shape = task.kernel, task.shape
    n_ctas = min(
        shape.grid.count, max(_MIN_SAMPLED_CTAS, min(_MAX_SAMPLED_CTAS, _TARGET_WARPS // shape.warps_per_cta))
    )
    n_ctas = limit_ctas_by_memory(kernel, shape, n_ctas)
    numbers = np.unique(np.linspace(0, shape.grid.count - 1, n_ctas).astype(np.int64))
    batch = CtaBatch(kernel, task.image, shape, numbers, np.ones(len(numbers)))
    random_data = RandomData(kernel, batch.unknown_words, tables, has_pitches=True)
    machine = RecordingMachine(
        kernel, batch, task.options.branch_decider, recorder, Budget(_STEP_LIMIT), random_data=random_data
    )
    machine.start()
    with suppress(StopExecution):  # requests up to the limit are enough
        machine.run()
    return recorder.build_estimates(len(numbers), tables)


class _GatherRecorder:
    """An `ExecutionRecorder` that measures the wanted instructions."""

    def __init__(
        self, task: ExecutionTask, unknown: Collection[InstructionKey], given: Collection[InstructionKey]
    ) -> None:
        self.task, self.given = task, given
        wanted = {*unknown, *given}
        actions = [action for segment in task.kernel.segments for action in segment.actions]
        self.accesses = {
            access.row: access
            for action in actions
            for access in action.accesses
            if (access.row, access.space) in wanted and not _is_shared_side(task, access)
        }
        self.totals = {row: AccessTotals(access) for row, access in self.accesses.items()}
        self.touched_sectors: dict[int, list[NDArray[np.uint64]]] = {row: [] for row in self.accesses}
        self.owner_ctas: dict[int, list[NDArray[np.int64]]] = {row: [] for row in self.accesses}
        self.irregular_requests = dict.fromkeys(self.accesses, 0)

    def record_run(self, start: int, stop: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`."""

    def record_guard(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`."""

    def record_unknown_access(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`."""

    def record_access(self, row: int, warps: WarpArray, active: LaneMaskArray, addresses: Addresses) -> None:
        """See `ExecutionRecorder`. Raises StopExecution once enough requests of all were measured."""
        access = self.accesses.get(row)
        if access is None or self.totals[row].requests >= _MAX_MEASURED_REQUESTS:
            return
        if access.space is AddressSpace.GENERIC:
            windows = AddressWindows()
            active = active & ~(windows.find_shared_lanes(addresses) | windows.find_local_lanes(addresses))
        requests = RequestTable(
            weights=np.ones(len(warps)),
            counts=np.ones(1, dtype=np.int64),
            active=active.copy(),
            addresses=addresses.copy(),
            steps=None,
        )
        add_to_totals(self.totals[row], requests)
        if (row, access.space) in self.given:
            self.irregular_requests[row] += _count_irregular_requests(active, addresses)
        if access.space in GLOBAL_SPACES:
            self._add_sectors(row, warps, active, addresses)
        if all(totals.requests >= _MAX_MEASURED_REQUESTS for totals in self.totals.values()):
            raise StopExecution("enough is known")

    def _add_sectors(self, row: int, warps: WarpArray, active: LaneMaskArray, addresses: Addresses) -> None:
        """Keep the distinct sectors of each request; of a lane that accesses several, the first one only."""
        sectors = np.sort(np.where(active, addresses // np.uint64(SECTOR_BYTES), np.uint64(0)), axis=1)
        is_new = np.ones(sectors.shape, np.bool_)
        is_new[:, 1:] = sectors[:, 1:] != sectors[:, :-1]
        is_new &= sectors > 0
        self.touched_sectors[row].append(sectors[is_new])
        ctas = warps // self.task.shape.warps_per_cta
        self.owner_ctas[row].append(np.broadcast_to(ctas[:, None], sectors.shape)[is_new])

    def build_estimates(
        self, n_ctas: int, tables: Mapping[int, TargetBuffer]
    ) -> dict[InstructionKey, GatherEstimate]:
        """Build the estimate of each instruction that was executed."""
        found: dict[InstructionKey, GatherEstimate] = {}
        for row, totals in self.totals.items():
            key = row, totals.access.space
            is_given = key in self.given
            if totals.requests and not (is_given and self.irregular_requests[row] * 2 < totals.requests):
                found[key] = GatherEstimate(
                    sectors_per_request=totals.sectors / totals.requests,
                    wavefronts_per_request=totals.wavefronts / totals.requests,
                    table_sectors=self._estimate_table_sectors(row, n_ctas, tables.get(row))
                    or (self._measure_extent_sectors(row) if is_given else None),
                    is_scattered=totals.is_scattered,
                    has_known_words=is_given,
                )
        return found

    def _estimate_table_sectors(self, row: int, n_ctas: int, known: TargetBuffer | None) -> float | None:
        """Estimate the sectors of the table that the whole grid accesses; None if not bounded.

        If each CTA has a table of its own, the table is the union over the grid.
        """
        if not self.touched_sectors[row]:
            return None
        if known is not None:
            return max(1.0, known.size_bytes / SECTOR_BYTES)
        sectors, owners = np.concatenate(self.touched_sectors[row]), np.concatenate(self.owner_ctas[row])
        n_sectors, n_grid = len(sectors), self.task.shape.grid.count
        private_sectors = sectors ^ owners.view(np.uint64) << np.uint64(_OWNER_BIT)
        shared_table, private_table = (
            _estimate_bounded_table_sectors(sectors, n_sectors),
            _estimate_bounded_table_sectors(private_sectors, n_sectors / n_ctas, n_ctas),
        )
        if (
            private_table is not None
            and (shared_table is None or shared_table >= _MIN_PRIVATE_TABLE_SHARE * n_ctas * private_table)
            and n_ctas > 1
        ):
            return private_table * n_grid
        return shared_table

    def _measure_extent_sectors(self, row: int) -> float:
        """Return the sectors from the lowest accessed one to the highest."""
        lows_highs = [(part.min(), part.max()) for part in self.touched_sectors[row] if len(part)]
        lows, highs = zip(*lows_highs, strict=True)
        return float(max(highs) - min(lows)) + 1.0


def _count_irregular_requests(active: LaneMaskArray, addresses: Addresses) -> int:
    """Count the requests of whole warps whose lanes lie at many different distances, as by loaded words."""
    distances = np.sort(np.diff(addresses.view(np.int64), axis=1), axis=1)
    n_distances = (distances[:, 1:] != distances[:, :-1]).sum(axis=1) + 1
    is_whole = np.broadcast_to(active, addresses.shape).all(axis=1)
    return int((is_whole & (n_distances >= addresses.shape[1] // 2)).sum())


def _is_shared_side(task: ExecutionTask, access: LoweredAccess) -> bool:
    """Return whether an access is the shared side of LDGSTS, which is not recorded."""
    opcode = task.kernel.cfg.kernel.find_opcode(access.row)
    return opcode.kind is OpKind.ASYNC_COPY and access.kind is OpKind.STORE


def _estimate_bounded_table_sectors(
    sectors: NDArray[np.uint64], n_accesses: float, n_parts: int = 1
) -> float | None:
    """Estimate the sectors of a table; None if not bounded.

    sectors: sectors accessed, in order, of all parts.
    n_accesses: accesses to each part.
    n_parts: number of equal, disjoint parts; the result is the size of one of them.
    """
    n_distinct = len(sort_unique(sectors))
    table = estimate_table_size(n_accesses, n_distinct / n_parts)
    is_bounded = (
        table is not None
        and len(sort_unique(sectors[: len(sectors) // 2])) >= _MIN_EARLY_SECTOR_SHARE * n_distinct
    )
    return table if is_bounded else None


def estimate_distinct_sectors(table_bytes: float, n_sectors: float) -> float:
    """Return the expected distinct sectors of `n_sectors` random accesses to a table."""
    table = max(1.0, table_bytes / SECTOR_BYTES)
    return table * -math.expm1(-n_sectors / table)


def estimate_table_size(n_accesses: float, n_distinct: float) -> float | None:
    """Return the size of the table of which `n_accesses` random accesses find `n_distinct` distinct elements.

    None if elements are accessed too seldom for an estimate, or none is.
    """
    if n_distinct <= 0 or n_distinct * _MIN_VISITS_PER_SECTOR > n_accesses:
        return None
    low, high = n_distinct, n_distinct * n_accesses
    for _ in range(_BISECTION_STEPS):  # the number of distinct elements grows with the table
        middle = math.sqrt(low * high)
        expected = -middle * math.expm1(-n_accesses / middle)
        low, high = (middle, high) if expected < n_distinct else (low, middle)
    return low
