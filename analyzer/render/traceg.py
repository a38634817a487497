"""Text of traces: Accel-Sim's `kernel-N.traceg`, tracer version 5, grouped by thread block.

The simulator needs every thread block of the grid; a trace of some of them is for other readers.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzer.ir.launch import Dim3
from analyzer.ir.trace import FIRST_UNIFORM_REGISTER, MaskArray, Trace, TracedInstruction, TraceHeader
from analyzer.text.escaping import escape_controls

_FORMAT_LINE = (
    "#traces format = [line_num] PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width "
    "[adrrescompress?] [mem_addresses] immediate"
)
_TRACER_VERSION = "5"


def render_traceg(trace: Trace) -> Iterator[str]:
    """Yield the header, then one piece per warp; lines end with a blank, as the tracer writes them."""
    yield _format_header(trace.header)
    heads = [
        _format_instruction(instruction, trace.header.has_source_lines) for instruction in trace.instructions
    ]
    lists = _AddressFormatter(trace)
    per_cta, current = trace.header.warps_per_cta, -1
    for index, warp in enumerate(trace.warp_ids.tolist()):
        cta = warp // per_cta
        begin = ""
        if cta != current:
            begin = ("\n#END_TB\n" if current >= 0 else "") + _format_cta_begin(trace.header.grid, cta)
            current = cta
        first, last = int(trace.warp_starts[index]), int(trace.warp_starts[index + 1])
        lines = [f"{begin}\nwarp = {warp % per_cta}\ninsts = {last - first}\n"]
        for at in range(first, last):
            before, after, width, immediate = heads[trace.instruction_ids[at]]
            tail = lists.format_addresses(at)
            size = f"{width} {tail}" if tail else "0"
            lines.append(f"{before} {trace.masks[at]:08x} {after} {size} {immediate} \n")
        yield "".join(lines)
    yield "\n#END_TB\n"


def _format_header(header: TraceHeader) -> str:
    lines = [
        f"-kernel name = {escape_controls(header.name)}",
        f"-kernel id = {header.kernel_id}",
        f"-grid dim = {_format_dims(header.grid)}",
        f"-block dim = {_format_dims(header.block)}",
        f"-shmem = {header.shared_bytes or 0}",
        f"-nregs = {header.registers or 0}",
        f"-binary version = {header.binary_version or 0}",
        f"-cuda stream id = {header.stream}",
        f"-shmem base_addr = 0x{header.shared_base:016x}",
        f"-local mem base_addr = 0x{header.local_base:016x}",
        f"-nvbit version = {header.nvbit_version or 'none'}",
        f"-accelsim tracer version = {_TRACER_VERSION}",
        f"-enable lineinfo = {int(header.has_source_lines)}",
    ]
    return "\n".join((*lines, "", _FORMAT_LINE, "", ""))


def _format_dims(size: Dim3) -> str:
    return f"({size.x},{size.y},{size.z})"


def _format_cta_begin(grid: Dim3, cta: int) -> str:
    x, y, z = cta % grid.x, cta // grid.x % grid.y, cta // (grid.x * grid.y)
    return f"\n#BEGIN_TB\n\nthread block = {x},{y},{z}\n"


def _format_instruction(instruction: TracedInstruction, has_lines: bool) -> tuple[str, str, int, int]:
    """Return the text before the mask, the text after it, the width in bytes, and the immediate."""
    before = f"{instruction.pc:04x}"
    if has_lines:
        before = f"{instruction.source_line} {before}"
    registers = [
        " ".join((str(len(numbers)), *map(_format_register, numbers)))
        for numbers in (instruction.destinations, instruction.sources)
    ]
    after = f"{registers[0]} {instruction.mnemonic} {registers[1]}"
    return before, after, max(instruction.width_bytes, 1), instruction.immediate


def _format_register(number: int) -> str:
    return f"R{number}" if number < FIRST_UNIFORM_REGISTER else f"UR{number - FIRST_UNIFORM_REGISTER}"


class _AddressFormatter:
    """Formatter of a trace's address lists."""

    def __init__(self, trace: Trace) -> None:
        table = trace.addresses
        self.rows = np.full(len(trace), -1, dtype=np.int64)
        self.rows[trace.access_positions] = trace.address_rows
        self.bases, self.strides = table.bases.tolist(), table.strides.tolist()
        self.offsets, self.deltas = table.delta_offsets.tolist(), table.deltas.tolist()
        self.is_single_lane = _find_single_lane_masks(trace.masks)

    def format_addresses(self, index: int) -> str:
        """Return the address list of a line, empty where it has none."""
        row = int(self.rows[index])
        if row < 0:
            return ""
        steps = self.deltas[self.offsets[row] : self.offsets[row + 1]]
        if steps or self.is_single_lane[index]:
            return " ".join((f"2 0x{self.bases[row]:x}", *map(str, steps)))
        return f"1 0x{self.bases[row]:x} {self.strides[row]}"


def _find_single_lane_masks(masks: MaskArray) -> NDArray[np.bool_]:
    single: NDArray[np.bool_] = (masks != 0) & (masks & (masks - np.uint32(1)) == 0)
    return single
