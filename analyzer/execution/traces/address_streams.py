"""Address stream of a few CTAs that share an SM: the input of the cache models.

CTAs of a grid's first wave go to SMs round-robin, so SM s holds CTAs s, s + n_sms, s + 2 n_sms and so on.
They are executed together. Their requests are then sorted as if warps issued one instruction each,
round-robin; the order on hardware is not known. Loops are executed iteration by iteration, until a limit is
reached.

Example: two warps execute a load as their third instruction and another one as their fifth. The stream is the
first load of warp 0, the first load of warp 1, then the second loads.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.binding.constant_banks import AddressWindows
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch, LaunchShape, limit_ctas_by_memory
from analyzer.execution.machine.random_data import RandomData, TargetBuffer
from analyzer.execution.traces.execution_recorder import LaneMaskArray, WarpArray
from analyzer.execution.traces.launch_recording import RecordingMachine
from analyzer.ir.arrays import Addresses, IntArray, make_read_only
from analyzer.ir.module import Kernel
from analyzer.ir.opcode import AddressSpace, Opcode, OpKind
from analyzer.ir.scheduling import WARP_SIZE, SchedClass

_Number = TypeVar("_Number", np.uint8, np.int32, np.int64, np.uint64)

RowArray = NDArray[np.int32]
ByteArray = NDArray[np.uint8]

_STREAM_SPACES = frozenset({AddressSpace.GLOBAL, AddressSpace.GENERIC, AddressSpace.LOCAL})
_STREAM_KINDS = frozenset({OpKind.LOAD, OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION, OpKind.ASYNC_COPY})
_STORE_KINDS = frozenset({OpKind.STORE, OpKind.REDUCTION})
_INVALIDATE_ALL = "IVALL"  # modifier of CCTL that drops all lines of the L1
_MAX_PENDING_REQUESTS = 512
_SEGMENT_OVERHEAD_ACTIONS = 10  # cost of going from block to block
_WORD_BYTES = 4
_WORDS_PER_SECTOR = np.uint64(SECTOR_BYTES // _WORD_BYTES)
_SECTOR_WORD_MASK = np.uint64((1 << SECTOR_BYTES // _WORD_BYTES) - 1)  # one bit for each word of a sector
# Addresses given to local memory, one range per warp, above all other addresses.
_LOCAL_BASE_ADDRESS = 1 << 56
_LOCAL_SPACING_BITS = 36


class StreamLimits(Struct, frozen=True):
    """Limits of a recording, some 0.3 s of work.

    They count work rather than time, so that the same launch always stops at the same place.
    """

    max_sectors: int = 200_000
    max_actions: int = (
        12_000  # instructions of the slice, each counted once for all warps that run it together
    )


class AddressStream(Struct, frozen=True, kw_only=True, eq=False):
    """Sectors of global, generic and local memory that some co-resident CTAs ask for, in order.

    Arrays have one entry for each distinct sector of a request; sectors of one request ascend. Local memory
    is interleaved word by word, at addresses that no other memory has.
    """

    ctas: tuple[int, ...]
    warps_per_cta: int
    rows: RowArray  # the instruction
    warps: (
        RowArray  # number of the warp among those recorded: index of its CTA in `ctas` * warps_per_cta + warp
    )
    sectors: Addresses  # address of the sector's first byte
    word_masks: ByteArray  # one bit for each 4-byte word of the sector that is accessed
    is_store: NDArray[np.bool_]  # true for reductions too
    request_numbers: IntArray  # number of the request, non-decreasing
    issue_indices: IntArray  # instructions that the warp had issued before this one
    l1_epochs: IntArray  # times that any of the warps had invalidated the L1 before
    # (row, requests) with unknown addresses, or made by the copy engine or the texture unit.
    unknown_requests: tuple[tuple[int, int], ...]
    speculative_rows: tuple[int, ...]  # rows of branches whose outcome was assumed
    stop_reason: str = ""  # the limit that was reached, empty if all CTAs ran to their end
    is_copy: NDArray[np.bool_] | None = None  # made by LDGSTS: no register waits for it; None: none is

    def __post_init__(self) -> None:
        make_read_only(
            self.rows,
            self.warps,
            self.sectors,
            self.word_masks,
            self.is_store,
            self.request_numbers,
            self.issue_indices,
            self.l1_epochs,
        )
        if self.is_copy is not None:
            make_read_only(self.is_copy)

    @property
    def is_complete(self) -> bool:
        return not self.stop_reason

    def __len__(self) -> int:
        return len(self.rows)


def find_co_resident_ctas(
    n_ctas: int,
    *,
    n_sms: int,
    ctas_per_sm: int,
    sectors_per_cta: float | None = None,
    limits: StreamLimits | None = None,
    sm: int = 0,
    first: int = 0,
) -> tuple[int, ...]:
    """Return the CTAs of one SM in the wave that begins at CTA `first`, as many as the limits allow.

    CTAs go to SMs round-robin. At least one CTA is returned, even if its sectors exceed the limit.

    sectors_per_cta: sectors of global and local memory of an executed profile; None if unknown.
    """
    resident = range(first + sm, min(n_ctas, first + n_sms * ctas_per_sm), n_sms)
    if sectors_per_cta:
        n_fitting = int((limits or StreamLimits()).max_sectors / sectors_per_cta)
        resident = resident[: max(1, n_fitting)]
    return tuple(resident)


def record_address_stream(
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: LaunchShape,
    ctas: tuple[int, ...],
    *,
    branch_decider: BranchDecider | None = None,
    limits: StreamLimits | None = None,
    tables: Mapping[int, TargetBuffer] | None = None,
) -> AddressStream:
    """Execute these CTAs together and record their memory requests, up to the limits.

    CTAs are dropped from the end while their shared memory takes too much room.

    tables: buffers of known size that instructions access by unknown words, by row (see `RandomData`).
    """
    limits = limits or StreamLimits()
    ctas = ctas[: limit_ctas_by_memory(kernel, shape, len(ctas))]
    numbers = np.array(ctas, dtype=np.int64)
    batch = CtaBatch(kernel, image, shape, numbers, np.ones(len(numbers)))
    recorder = _StreamRecorder(kernel.cfg.kernel, numbers, shape.warps_per_cta, limits.max_sectors)
    decider = branch_decider or BranchDecider(kernel)
    random_data = RandomData(kernel, batch.unknown_words, tables)
    machine = RecordingMachine(
        kernel, batch, decider, recorder, _ActionBudget(limits.max_actions), random_data=random_data
    )
    stop_reason = ""
    machine.start()
    try:
        machine.run()
    except StopExecution as stop:
        stop_reason = str(stop)
    return recorder.build_stream(tuple(sorted(machine.counters.speculative_instructions)), stop_reason)


class _ActionBudget(Budget):
    """A budget that counts actions: for so few warps the cost of an action hardly depends on their number."""

    __slots__ = ()

    def spend(self, n_actions: int, n_accesses: int, n_words: int) -> None:
        """See `Budget`. Raises StopExecution."""
        self.spent_steps += _SEGMENT_OVERHEAD_ACTIONS + n_actions
        if self.spent_steps > self.step_limit:
            raise StopExecution(f"more than {self.step_limit:,} instructions")


class _PendingRequests(Struct):
    """Requests of one call of the recorder, by one instruction."""

    row: int
    warps: IntArray  # [n], as in `AddressStream`
    issue_indices: IntArray  # [n]
    active: LaneMaskArray  # [n, 32]
    addresses: Addresses  # [n, 32]


class _MeasuredRequests(Struct):
    """Requests with their distinct sectors."""

    rows: RowArray  # [n_request]
    warps: IntArray  # [n_request]
    issue_indices: IntArray  # [n_request]
    sector_counts: IntArray  # [n_request]
    sectors: Addresses  # [n_sector], those of one request after those of another
    word_masks: ByteArray  # [n_sector]


class _StreamRecorder:
    """An `ExecutionRecorder` that keeps sectors of global, generic and local memory."""

    def __init__(self, kernel: Kernel, ctas: IntArray, warps_per_cta: int, max_sectors: int) -> None:
        self.kernel, self.ctas, self.warps_per_cta = kernel, ctas, warps_per_cta
        self.max_sectors, self.n_sectors = max_sectors, 0
        self.stop_row = 0
        self.running_warps: WarpArray = np.zeros(0, dtype=np.int64)
        self.running_indices: IntArray = self.running_warps
        self.issued_counts: IntArray = np.zeros(len(ctas) * warps_per_cta, dtype=np.int64)
        self.unknown_requests: dict[int, int] = {}
        self.pending: list[_PendingRequests] = []
        self.n_pending = 0
        self.is_row_streamed: list[bool] = kernel.form_table.make_opcode_mask(_is_streamed)[
            kernel.opcode_ids
        ].tolist()
        self.measured_parts: list[_MeasuredRequests] = []
        invalidates = kernel.form_table.make_opcode_mask(_invalidates_l1)[kernel.opcode_ids]
        self.invalidating_rows: list[int] = np.flatnonzero(invalidates).tolist()
        self.invalidations: list[IntArray] = []  # as keys of their place in the order

    def record_run(self, start: int, stop: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`."""
        self.running_warps, self.running_indices = warps, self._find_warp_indices(warps)
        self.issued_counts[self.running_indices] += stop - start
        self.stop_row = stop
        for row in self.invalidating_rows:
            if start <= row < stop:
                places = self.running_indices
                self.invalidations.append(
                    self._make_order_keys(self.issued_counts[places] - (stop - row), places)
                )

    def _make_order_keys(self, issue_indices: IntArray, warps: IntArray) -> IntArray:
        """Return numbers that ascend in the order of the stream: warps issue round-robin."""
        return issue_indices * len(self.issued_counts) + warps

    def record_guard(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`: lanes that a guard leaves are known from the access."""

    def record_access(self, row: int, warps: WarpArray, active: LaneMaskArray, addresses: Addresses) -> None:
        """See `ExecutionRecorder`. Raises StopExecution at the limit of sectors."""
        if not self.is_row_streamed[row]:
            return
        places = self.running_indices if warps is self.running_warps else self._find_warp_indices(warps)
        runs: NDArray[np.bool_] = np.any(active, axis=1)
        if not runs.all():
            places, active, addresses = places[runs], active[runs], addresses[runs]
        issue_indices = self.issued_counts[places] - (self.stop_row - row)
        self.pending.append(
            _PendingRequests(row, places, issue_indices, active.copy(), addresses.astype(np.uint64))
        )
        self.n_pending += len(places)
        if self.n_pending >= _MAX_PENDING_REQUESTS:
            self._flush_pending()
            if self.n_sectors > self.max_sectors:
                raise StopExecution(f"more than {self.max_sectors:,} sectors")

    def record_unknown_access(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`."""
        if self.kernel.find_opcode(row).space not in (*_STREAM_SPACES, AddressSpace.TEXTURE):
            return
        self.unknown_requests[row] = self.unknown_requests.get(row, 0) + int(active.any(axis=1).sum())

    def _find_warp_indices(self, warps: WarpArray) -> IntArray:
        ctas, own = np.divmod(warps, self.warps_per_cta)
        places: IntArray = np.searchsorted(self.ctas, ctas) * self.warps_per_cta + own
        return places

    def _flush_pending(self) -> None:
        """Find the sectors of pending requests, for all instructions of one space and width at once."""
        by_kind: dict[tuple[AddressSpace | None, int], list[_PendingRequests]] = {}
        for held in self.pending:
            opcode = self.kernel.find_opcode(held.row)
            by_kind.setdefault((opcode.space, opcode.width_bytes), []).append(held)
        for (space, width), group in by_kind.items():
            self._measure_group(group, space, width)
        self.pending.clear()
        self.n_pending = 0

    def _measure_group(self, group: list[_PendingRequests], space: AddressSpace | None, width: int) -> None:
        """Find the sectors of requests of one address space and access width."""
        sizes = [len(held.warps) for held in group]
        rows = np.repeat(np.array([held.row for held in group], dtype=np.int32), sizes)
        warps = np.concatenate([held.warps for held in group])
        issue_indices = np.concatenate([held.issue_indices for held in group])
        active = np.concatenate([held.active for held in group])
        addresses = np.concatenate([held.addresses for held in group])
        if space is AddressSpace.GENERIC:
            windows = AddressWindows()
            active = active & ~(windows.find_shared_lanes(addresses) | windows.find_local_lanes(addresses))
            kept: NDArray[np.bool_] = np.any(active, axis=1)
            rows, warps, issue_indices = rows[kept], warps[kept], issue_indices[kept]
            active, addresses = active[kept], addresses[kept]
        if space is AddressSpace.LOCAL:
            keys, active = _make_local_keys(addresses, active, warps, width)
        else:
            keys, active = _make_global_keys(addresses, active, width)
        self.measured_parts.append(
            _MeasuredRequests(rows, warps, issue_indices, *_find_distinct_sectors(keys, active))
        )
        self.n_sectors += len(self.measured_parts[-1].sectors)

    def build_stream(self, speculative_rows: tuple[int, ...], stop_reason: str) -> AddressStream:
        """Build the stream of all recorded requests, ordered as if warps issued round-robin."""
        if self.pending:
            self._flush_pending()
        rows = _concatenate([part.rows for part in self.measured_parts], np.int32)
        warps = _concatenate([part.warps for part in self.measured_parts], np.int64)
        issue_indices = _concatenate([part.issue_indices for part in self.measured_parts], np.int64)
        counts = _concatenate([part.sector_counts for part in self.measured_parts], np.int64)
        sectors = _concatenate([part.sectors for part in self.measured_parts], np.uint64)
        words = _concatenate([part.word_masks for part in self.measured_parts], np.uint8)
        keys = self._make_order_keys(issue_indices, warps)
        order = np.argsort(keys, kind="stable")
        epochs = np.searchsorted(np.sort(_concatenate(self.invalidations, np.int64)), keys[order])
        starts = np.cumsum(counts) - counts
        counts = counts[order]
        ends = np.cumsum(counts)
        places = np.arange(len(sectors)) + np.repeat(starts[order] - (ends - counts), counts)
        rows = np.repeat(rows[order], counts)
        return AddressStream(
            ctas=tuple(self.ctas.tolist()),
            warps_per_cta=self.warps_per_cta,
            rows=rows,
            warps=np.repeat(warps[order], counts).astype(np.int32),
            sectors=sectors[places],
            word_masks=words[places],
            is_store=self.kernel.form_table.make_opcode_mask(_is_store)[self.kernel.opcode_ids][rows],
            is_copy=self.kernel.form_table.make_opcode_mask(_is_copy)[self.kernel.opcode_ids][rows],
            request_numbers=np.repeat(np.arange(len(counts), dtype=np.int64), counts),
            issue_indices=np.repeat(issue_indices[order], counts),
            l1_epochs=np.repeat(epochs.astype(np.int64), counts),
            unknown_requests=tuple(sorted(self.unknown_requests.items())),
            speculative_rows=speculative_rows,
            stop_reason=stop_reason,
        )


def _concatenate(parts: list[NDArray[_Number]], dtype: type[_Number]) -> NDArray[_Number]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _is_streamed(opcode: Opcode) -> bool:
    return opcode.kind in _STREAM_KINDS and opcode.space in _STREAM_SPACES


def _invalidates_l1(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.CACHE_CONTROL and _INVALIDATE_ALL in opcode.modifiers


def _is_store(opcode: Opcode) -> bool:
    return opcode.kind in _STORE_KINDS


def _is_copy(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.ASYNC_COPY


def _make_global_keys(
    addresses: Addresses, active: LaneMaskArray, width: int
) -> tuple[Addresses, LaneMaskArray]:
    """Return a key for each sector of each lane: the sector's number and, in the low bits, a mask of words.

    The arrays are [n, 32], or [n, 64] if some lane accesses two sectors.
    """
    size, word = np.uint64(SECTOR_BYTES), np.uint64(_WORD_BYTES)
    start, last = addresses % size, np.uint64(max(width, 1) - 1)
    first_word, last_word = start // word, (start + last) // word
    words = (np.uint64(2) << last_word) - (np.uint64(1) << first_word)
    first = addresses // size
    keys = first << _WORDS_PER_SECTOR | words & _SECTOR_WORD_MASK
    if bool(((last_word < _WORDS_PER_SECTOR) | ~active).all()):
        return keys, active
    more = (first + np.uint64(1)) << _WORDS_PER_SECTOR | words >> _WORDS_PER_SECTOR
    return np.concatenate([keys, more], axis=1), np.concatenate(
        [active, active & (last_word >= _WORDS_PER_SECTOR)], axis=1
    )


def _make_local_keys(
    addresses: Addresses, active: LaneMaskArray, warps: IntArray, width: int
) -> tuple[Addresses, LaneMaskArray]:
    """Return the same keys for local memory, where the same word of all lanes of a warp is contiguous.

    The arrays are [n, 32 k] for accesses of k words.
    """
    word, n_words = np.uint64(_WORD_BYTES), max(1, width // _WORD_BYTES)
    base = np.uint64(_LOCAL_BASE_ADDRESS) + (warps.astype(np.uint64) << np.uint64(_LOCAL_SPACING_BITS))
    lane = np.arange(WARP_SIZE, dtype=np.uint64) * word
    row_bytes = np.uint64(WARP_SIZE * _WORD_BYTES)
    tables = [
        _make_global_keys(
            base[:, None] + (addresses // word + np.uint64(k)) * row_bytes + lane, active, _WORD_BYTES
        )[0]
        for k in range(n_words)
    ]
    return np.concatenate(tables, axis=1), np.tile(active, (1, n_words))


def _find_distinct_sectors(keys: Addresses, active: LaneMaskArray) -> tuple[IntArray, Addresses, ByteArray]:
    """Return the distinct sectors of each row's active keys: counts [n], addresses and masks of words."""
    leads = active.argmax(axis=1)
    filled = np.where(active, keys, keys[np.arange(len(keys)), leads][:, None])
    filled.sort(axis=1)
    sectors = filled >> _WORDS_PER_SECTOR
    new = np.ones(filled.shape, dtype=np.bool_)
    np.not_equal(sectors[:, 1:], sectors[:, :-1], out=new[:, 1:])
    counts: IntArray = new.sum(axis=1, dtype=np.int64)
    starts = np.flatnonzero(new)
    words = (filled & _SECTOR_WORD_MASK).astype(np.uint8).reshape(-1)
    touched = np.bitwise_or.reduceat(words, starts) if len(starts) else words
    return counts, sectors[new] * np.uint64(SECTOR_BYTES), touched
