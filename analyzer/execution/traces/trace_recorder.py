"""Recorder that builds a `Trace`, the same value as is read from the file of a tracer on a GPU."""

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from analyzer.execution.traces.execution_recorder import AddressArray, LaneMaskArray, WarpArray
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import IdArray, IntArray
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.opcode import MEMORY_KINDS, AddressSpace, OpKind
from analyzer.ir.operand import Address, DescriptorOperand, Immediate, Operand, Register, RegisterFile
from analyzer.ir.trace import (
    ZERO_REGISTER,
    AddressTable,
    MaskArray,
    Trace,
    TracedInstruction,
    TraceHeader,
    compress_addresses,
    pack_lane_masks,
)
from analyzer.text.errors import UsageError

TRACER_VERSION = "5"
MAX_TRACE_INSTRUCTIONS = 10_000_000
_ADDRESS_TRACED_SPACES = frozenset(
    {
        AddressSpace.GLOBAL,
        AddressSpace.GENERIC,
        AddressSpace.LOCAL,
        AddressSpace.SHARED,
        AddressSpace.DISTRIBUTED_SHARED,
    }
)


def make_trace_header(kernel: Kernel, launch: Launch) -> TraceHeader:
    """Make the header of a trace of this launch. Raises UsageError if grid or block are unknown."""
    if launch.grid is None or launch.block is None:
        raise UsageError("a trace needs the grid and the block of the launch", hint="give --grid and --block")
    resources, number = kernel.resources, kernel.arch[3:].rstrip("af")
    dynamic = launch.dynamic_shared_bytes or resources.dynamic_shared_bytes or 0
    return TraceHeader(
        name=kernel.name,
        kernel_id=1,
        grid=_copy_dim3(launch.grid),
        block=_copy_dim3(launch.block),
        shared_bytes=(resources.shared_bytes or 0) + dynamic,
        registers=resources.registers,
        binary_version=int(number) if number.isdigit() else None,
        tracer_version=TRACER_VERSION,
    )


def _copy_dim3(size: Dim3) -> Dim3:
    return Dim3(size.x, size.y, size.z)


class _RecordedRun(Struct):
    """One run of some rows by some warps."""

    start: int  # the first row
    warps: WarpArray
    masks: MaskArray  # [n_warp, n_instruction]
    access_ids: IntArray  # [n_warp, n_instruction], rows of the address table; -1 without addresses

    def find_warp_indices(self, warps: WarpArray) -> IntArray:
        order = np.argsort(self.warps)
        return order[np.searchsorted(self.warps, warps, sorter=order)]


class TraceRecorder(Struct):
    """An `ExecutionRecorder` that keeps everything; `build_trace` makes a trace of it.

    Of an instruction with two addresses (LDGSTS) the side recorded last remains, as in a grouped trace, with
    its mask: the global side must be recorded last.
    """

    cfg: Cfg
    header: TraceHeader
    max_instructions: int = MAX_TRACE_INSTRUCTIONS
    n_instructions: int = 0
    current_run: _RecordedRun | None = None
    row_parts: list[IdArray] = field(default_factory=list)
    mask_parts: list[MaskArray] = field(default_factory=list)
    warp_parts: list[IntArray] = field(default_factory=list)
    access_id_parts: list[IntArray] = field(default_factory=list)
    tables: list[AddressTable] = field(default_factory=list)
    n_accesses: int = 0

    def record_run(self, start: int, stop: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`. Raises UsageError if the trace would exceed `max_instructions`."""
        self._flush_run()
        self.n_instructions += len(warps) * (stop - start)
        if self.n_instructions > self.max_instructions:
            raise UsageError(
                f"the trace would have more than {self.max_instructions:,} instructions",
                hint="--ctas N records the first N thread blocks alone",
            )
        masks = np.repeat(pack_lane_masks(active)[:, None], stop - start, axis=1)
        self.current_run = _RecordedRun(start, warps.copy(), masks, np.full(masks.shape, -1, dtype=np.int64))

    def record_access(
        self, row: int, warps: WarpArray, active: LaneMaskArray, addresses: AddressArray
    ) -> None:
        """See `ExecutionRecorder`."""
        run = self._require_run()
        places, column = run.find_warp_indices(warps), row - run.start
        run.masks[places, column] = pack_lane_masks(active)
        if not _find_access_width_bytes(self.cfg.kernel.decode_form(row)):
            return
        run.access_ids[places, column] = self.n_accesses + np.arange(len(warps))
        self.tables.append(compress_addresses(addresses.astype(np.uint64), active))
        self.n_accesses += len(warps)

    def record_guard(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`."""
        run = self._require_run()
        run.masks[run.find_warp_indices(warps), row - run.start] = pack_lane_masks(active)

    def record_unknown_access(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """See `ExecutionRecorder`. The trace has the lanes only."""
        self.record_guard(row, warps, active)

    def _require_run(self) -> _RecordedRun:
        if self.current_run is None:
            raise ValueError("a recorder is told of an instruction before any run")
        return self.current_run

    def _flush_run(self) -> None:
        run = self.current_run
        if run is None:
            return
        n_warps, length = run.masks.shape
        rows = np.arange(run.start, run.start + length, dtype=np.int32)
        self.row_parts.append(np.tile(rows, n_warps))
        self.mask_parts.append(run.masks.reshape(-1))
        self.warp_parts.append(np.repeat(run.warps.astype(np.int64), length))
        self.access_id_parts.append(run.access_ids.reshape(-1))
        self.current_run = None

    def build_trace(self, path: str = "") -> Trace:
        """Build the trace of what was recorded so far. Raises ValueError if nothing was."""
        self._flush_run()
        if not self.row_parts:
            raise ValueError("nothing was recorded")
        rows, warps = np.concatenate(self.row_parts), np.concatenate(self.warp_parts)
        order = np.argsort(warps, kind="stable")
        numbers = np.unique(warps)
        used, ids = np.unique(rows[order], return_inverse=True)
        masks, accesses = np.concatenate(self.mask_parts)[order], np.concatenate(self.access_id_parts)[order]
        table, accesses = self._add_empty_accesses(rows[order], masks, accesses)
        kernel = self.cfg.kernel
        return Trace(
            path=path,
            header=self.header,
            instructions=tuple(
                make_traced_instruction(kernel.decode_form(row), int(kernel.addresses[row]))
                for row in used.tolist()
            ),
            instruction_ids=ids.reshape(-1).astype(np.int32),
            masks=masks,
            warp_ids=numbers,
            warp_starts=np.append(np.searchsorted(warps[order], numbers), len(rows)).astype(np.int64),
            access_positions=np.flatnonzero(accesses >= 0),
            address_rows=accesses[accesses >= 0],
            addresses=table,
        )

    def _add_empty_accesses(
        self, rows: NDArray[np.int32], masks: MaskArray, accesses: IntArray
    ) -> tuple[AddressTable, IntArray]:
        """Give memory instructions that ran with no active lane an empty list of addresses, as tracers do."""
        forms = {row: self.cfg.kernel.decode_form(row) for row in np.unique(rows).tolist()}
        listed = np.zeros(max(forms) + 1, dtype=bool)
        listed[[row for row, form in forms.items() if _find_access_width_bytes(form)]] = True
        empty = (accesses < 0) & (masks == 0) & listed[rows]
        none = compress_addresses(np.zeros((1, 32), np.uint64), np.zeros((1, 32), np.bool_))
        return _concatenate_tables([*self.tables, none]), np.where(empty, self.n_accesses, accesses)


def _concatenate_tables(tables: list[AddressTable]) -> AddressTable:
    sizes = np.concatenate([np.diff(table.delta_offsets) for table in tables])
    return AddressTable(
        bases=np.concatenate([table.bases for table in tables]),
        strides=np.concatenate([table.strides for table in tables]),
        delta_offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        deltas=np.concatenate([table.deltas for table in tables]),
    )


def make_traced_instruction(form: InstructionForm, address: int) -> TracedInstruction:
    """Describe an instruction as a tracer does: general registers, bases of addresses, an immediate."""
    operands = form.operands
    has_result = bool(operands) and _find_register(operands[0]) is not None and not _is_address(operands[0])
    sources = [number for operand in operands[has_result:] if (number := _find_register(operand)) is not None]
    immediates = [o.value for o in operands if isinstance(o, Immediate) and isinstance(o.value, int)]
    result = _find_register(operands[0]) if has_result else None
    return TracedInstruction(
        pc=address,
        address=address,
        mnemonic=form.opcode.mnemonic,
        destinations=() if result is None else (result,),
        sources=tuple(sources),
        width_bytes=_find_access_width_bytes(form),
        immediate=immediates[-1] if immediates else 0,
    )


def _is_address(operand: Operand) -> bool:
    return isinstance(operand, Address | DescriptorOperand)


def _find_register(operand: Operand) -> int | None:
    """Return the general register of an operand, for an address its first one; None if it has none."""
    match operand:
        case Register(file=RegisterFile.GENERAL, index=index):
            return ZERO_REGISTER if index is None else index
        case Address(bases=bases):
            return next((n for base in bases if (n := _find_register(base)) is not None), ZERO_REGISTER)
        case DescriptorOperand(address=Address() as address):
            return _find_register(address)
        case _:
            return None


def _find_access_width_bytes(form: InstructionForm) -> int:
    """Return the bytes per lane of an instruction for which a tracer lists addresses, else 0.

    These are loads, stores and atomics with an address operand; bulk copies and textures have none.
    """
    opcode = form.opcode
    if opcode.kind not in MEMORY_KINDS or opcode.kind in (OpKind.BULK_COPY, OpKind.TEXTURE):
        return 0
    if opcode.space not in _ADDRESS_TRACED_SPACES or not any(
        _is_address(operand) for operand in form.operands
    ):
        return 0
    return opcode.width_bytes
