"""Execution recorded as a trace: the same value that a tracer on a GPU would have filled."""

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from analyzer.execution.record import Addresses, Lanes, Warps
from analyzer.flow.cfg import Cfg
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.opcode import MEMORY_KINDS, OpKind, Space
from analyzer.ir.operand import Address, Described, Immediate, Operand, Register, RegisterFile
from analyzer.ir.program import InstructionForm, Kernel
from analyzer.ir.trace import (
    ZERO_REGISTER,
    AddressTable,
    IdArray,
    IntArray,
    MaskArray,
    Trace,
    TracedInstruction,
    TraceHeader,
    compress_addresses,
    lane_masks,
)
from analyzer.text.errors import UsageError

TRACER_VERSION = "5"
MAX_LINES = 10_000_000
_LISTED_SPACES = frozenset({Space.GLOBAL, Space.GENERIC, Space.LOCAL, Space.SHARED, Space.DISTRIBUTED_SHARED})


def recorded_header(kernel: Kernel, launch: Launch) -> TraceHeader:
    """The header of a trace of this launch. Raises UsageError where grid or block are not known."""
    if launch.grid is None or launch.block is None:
        raise UsageError("a trace needs the grid and the block of the launch", hint="give --grid and --block")
    resources, number = kernel.resources, kernel.arch[3:].rstrip("af")
    dynamic = launch.dynamic_shared_bytes or resources.dynamic_shared_bytes or 0
    return TraceHeader(
        name=kernel.name,
        kernel_id=1,
        grid=_plain(launch.grid),
        block=_plain(launch.block),
        shared_bytes=(resources.shared_bytes or 0) + dynamic,
        registers=resources.registers,
        binary_version=int(number) if number.isdigit() else None,
        tracer_version=TRACER_VERSION,
    )


def _plain(size: Dim3) -> Dim3:
    return Dim3(size.x, size.y, size.z)


class _Run(Struct):
    """One run of some rows by some warps: masks and rows of the address table, [n_warp, n_instruction]."""

    start: int
    warps: Warps
    masks: MaskArray
    accesses: IntArray

    def places(self, warps: Warps) -> IntArray:
        order = np.argsort(self.warps)
        return order[np.searchsorted(self.warps, warps, sorter=order)]


class TraceRecorder(Struct):
    """A `Recorder` that keeps everything; `trace` puts it together.

    Of an instruction with two addresses (LDGSTS) the one told of last stays, as in a grouped trace: tell of
    the global side last. Its mask is then that of the lanes that access.
    """

    cfg: Cfg
    header: TraceHeader
    max_lines: int = MAX_LINES
    n_lines: int = 0
    current: _Run | None = None
    ids: list[IdArray] = field(default_factory=list)
    masks: list[MaskArray] = field(default_factory=list)
    warps: list[IntArray] = field(default_factory=list)
    accesses: list[IntArray] = field(default_factory=list)
    tables: list[AddressTable] = field(default_factory=list)
    n_accesses: int = 0

    def run(self, start: int, stop: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`. Raises UsageError where the trace would be longer than `max_lines`."""
        self._flush()
        self.n_lines += len(warps) * (stop - start)
        if self.n_lines > self.max_lines:
            raise UsageError(
                f"the trace would have more than {self.max_lines:,} instructions",
                hint="--ctas N records the first N thread blocks alone",
            )
        masks = np.repeat(lane_masks(active)[:, None], stop - start, axis=1)
        self.current = _Run(start, warps.copy(), masks, np.full(masks.shape, -1, dtype=np.int64))

    def access(self, row: int, warps: Warps, active: Lanes, addresses: Addresses) -> None:
        """See `Recorder`."""
        run = self._running()
        places, column = run.places(warps), row - run.start
        run.masks[places, column] = lane_masks(active)
        if not _width(self.cfg.kernel.form(row)):
            return
        run.accesses[places, column] = self.n_accesses + np.arange(len(warps))
        self.tables.append(compress_addresses(addresses.astype(np.uint64), active))
        self.n_accesses += len(warps)

    def guard(self, row: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`."""
        run = self._running()
        run.masks[run.places(warps), row - run.start] = lane_masks(active)

    def lost(self, row: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`. A tracer has no way to say more than which lanes ran."""
        self.guard(row, warps, active)

    def _running(self) -> _Run:
        if self.current is None:
            raise ValueError("a recorder is told of an instruction before any run")
        return self.current

    def _flush(self) -> None:
        run = self.current
        if run is None:
            return
        n_warps, length = run.masks.shape
        rows = np.arange(run.start, run.start + length, dtype=np.int32)
        self.ids.append(np.tile(rows, n_warps))
        self.masks.append(run.masks.reshape(-1))
        self.warps.append(np.repeat(run.warps.astype(np.int64), length))
        self.accesses.append(run.accesses.reshape(-1))
        self.current = None

    def trace(self, path: str = "") -> Trace:
        """What was recorded so far. Raises ValueError where nothing was."""
        self._flush()
        if not self.ids:
            raise ValueError("nothing was recorded")
        rows, warps = np.concatenate(self.ids), np.concatenate(self.warps)
        order = np.argsort(warps, kind="stable")
        numbers = np.unique(warps)
        used, ids = np.unique(rows[order], return_inverse=True)
        masks, accesses = np.concatenate(self.masks)[order], np.concatenate(self.accesses)[order]
        table, accesses = self._with_empty(rows[order], masks, accesses)
        kernel = self.cfg.kernel
        return Trace(
            path=path,
            header=self.header,
            instructions=tuple(
                traced_instruction(kernel.form(row), int(kernel.addresses[row])) for row in used.tolist()
            ),
            ids=ids.reshape(-1).astype(np.int32),
            masks=masks,
            warps=numbers,
            starts=np.append(np.searchsorted(warps[order], numbers), len(rows)).astype(np.int64),
            access_at=np.flatnonzero(accesses >= 0),
            access_ids=accesses[accesses >= 0],
            addresses=table,
        )

    def _with_empty(
        self, rows: NDArray[np.int32], masks: MaskArray, accesses: IntArray
    ) -> tuple[AddressTable, IntArray]:
        """Memory instructions that ran with no lane have an empty list of addresses, as a tracer writes."""
        forms = {row: self.cfg.kernel.form(row) for row in np.unique(rows).tolist()}
        listed = np.zeros(max(forms) + 1, dtype=bool)
        listed[[row for row, form in forms.items() if _width(form)]] = True
        empty = (accesses < 0) & (masks == 0) & listed[rows]
        none = compress_addresses(np.zeros((1, 32), np.uint64), np.zeros((1, 32), np.bool_))
        return _joined([*self.tables, none]), np.where(empty, self.n_accesses, accesses)


def _joined(tables: list[AddressTable]) -> AddressTable:
    sizes = np.concatenate([np.diff(table.offsets) for table in tables])
    return AddressTable(
        bases=np.concatenate([table.bases for table in tables]),
        strides=np.concatenate([table.strides for table in tables]),
        offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        deltas=np.concatenate([table.deltas for table in tables]),
    )


def traced_instruction(form: InstructionForm, address: int) -> TracedInstruction:
    """An instruction as a tracer describes it: general registers, bases of addresses, an immediate."""
    operands = form.operands
    has_result = bool(operands) and _number(operands[0]) is not None and not _is_base(operands[0])
    sources = [number for operand in operands[has_result:] if (number := _number(operand)) is not None]
    immediates = [o.value for o in operands if isinstance(o, Immediate) and isinstance(o.value, int)]
    result = _number(operands[0]) if has_result else None
    return TracedInstruction(
        pc=address,
        address=address,
        mnemonic=form.opcode.mnemonic,
        dests=() if result is None else (result,),
        sources=tuple(sources),
        width_bytes=_width(form),
        immediate=immediates[-1] if immediates else 0,
    )


def _is_base(operand: Operand) -> bool:
    return isinstance(operand, Address | Described)


def _number(operand: Operand) -> int | None:
    """General register of an operand, of an address its first one; None where it has none."""
    match operand:
        case Register(file=RegisterFile.GENERAL, index=index):
            return ZERO_REGISTER if index is None else index
        case Address(bases=bases):
            return next((n for base in bases if (n := _number(base)) is not None), ZERO_REGISTER)
        case Described(address=Address() as address):
            return _number(address)
        case _:
            return None


def _width(form: InstructionForm) -> int:
    """Bytes of a lane where the tracer lists addresses: plain memory instructions with an address operand."""
    opcode = form.opcode
    if opcode.kind not in MEMORY_KINDS or opcode.kind in (OpKind.BULK_COPY, OpKind.TEXTURE):
        return 0
    if opcode.space not in _LISTED_SPACES or not any(_is_base(operand) for operand in form.operands):
        return 0
    return opcode.width_bytes
