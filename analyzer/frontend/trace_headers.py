"""Headers of a trace, and markers that say to which CTA and warp the next lines belong.

The markers of a grouped trace:

    #BEGIN_TB
    thread block = 0,0,0
    warp = 0
    insts = 2
"""

import re
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from analyzer.frontend.trace_lines import TraceSyntaxError, parse_line
from analyzer.ir.launch import MAX_BLOCK_DIMS, MAX_BLOCK_THREADS, MAX_GRID_DIMS, Dim3
from analyzer.ir.trace import TraceHeader

_MAX_NAME_CHARACTERS = 1 << 14
_MAX_REGISTERS = 256  # 255, and one more where a tracer rounds up to the unit of allocation
_MAX_SHARED_BYTES = 1 << 18
_MIN_BINARY_VERSION, _MAX_BINARY_VERSION = 20, 199
_INT64_LIMIT = 1 << 63


class TraceHeaderBuilder(Struct):
    """Header lines, collected as they come."""

    integers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    dimensions: dict[str, Dim3] = field(default_factory=dict)
    rejected_lines: list[str] = field(default_factory=list)

    def parse_line(self, text: str) -> None:
        """Parse one line that begins with `-`. Raises TraceSyntaxError."""
        tree = parse_line("header", text)
        key = str(tree.children[0])[1:].rstrip("=").rstrip()
        values = tree.children[1:]
        match tree.data:
            case "kernel_name" | "text":
                self.texts[key] = str(values[0]).rstrip()[:_MAX_NAME_CHARACTERS]
            case "count":
                self.integers[key] = _parse_bounded(values[0], 10)
            case "address":
                self.integers[key] = _parse_bounded(values[0], 16)
            case "dimension":
                self.dimensions[key] = _parse_dimensions(
                    values, MAX_GRID_DIMS if key == "grid dim" else MAX_BLOCK_DIMS
                )
            case _:
                pass

    def build(self) -> TraceHeader:
        """Build the header. Raises TraceSyntaxError if a required line is missing."""
        for key, found in (
            ("kernel name", self.texts),
            ("grid dim", self.dimensions),
            ("block dim", self.dimensions),
        ):
            if key not in found:
                raise TraceSyntaxError(
                    0, f"instructions begin, but no line `-{key} = ...` stands before them"
                )
        if self.dimensions["block dim"].count > MAX_BLOCK_THREADS:
            raise TraceSyntaxError(
                0,
                f"a thread block of {self.dimensions['block dim']} has more than {MAX_BLOCK_THREADS} threads",
            )
        shared_bytes = self._take_plausible("shmem", 0, _MAX_SHARED_BYTES)
        registers = self._take_plausible("nregs", 1, _MAX_REGISTERS)
        binary_version = self._take_plausible("binary version", _MIN_BINARY_VERSION, _MAX_BINARY_VERSION)
        return TraceHeader(
            name=self.texts["kernel name"],
            kernel_id=self.integers.get("kernel id", 0),
            grid=self.dimensions["grid dim"],
            block=self.dimensions["block dim"],
            shared_bytes=shared_bytes,
            registers=registers,
            binary_version=binary_version,
            stream=self.integers.get("cuda stream id", 0),
            shared_base=self.integers.get("shmem base_addr", 0),
            local_base=self.integers.get("local mem base_addr", 0),
            nvbit_version=self.texts.get("nvbit version", ""),
            tracer_version=self.texts.get("accelsim tracer version", ""),
            has_source_lines=bool(self.integers.get("enable lineinfo", 0)),
            rejected_lines=tuple(self.rejected_lines),
        )

    def _take_plausible(self, key: str, least: int, most: int) -> int | None:
        """Return a header's number; None if it is missing or if no kernel can have it.

        0 stands for what a tracer did not know. Some tracers write whatever was in memory.
        """
        value = self.integers.get(key)
        if value is None or least <= value <= most:
            return value
        if value:
            self.rejected_lines.append(f"{key} = {value}")
        return None


def _parse_bounded(token: Any, radix: int) -> int:
    value = int(token, radix)
    if value >= _INT64_LIMIT << 1:
        raise TraceSyntaxError(token.start_pos, "this number is too large")
    return value


def _parse_dimensions(tokens: list[Any], limits: tuple[int, int, int]) -> Dim3:
    for token, limit in zip(tokens, limits, strict=True):
        if not 1 <= int(token) <= limit:
            raise TraceSyntaxError(token.start_pos, f"this dimension must be between 1 and {limit}")
    return Dim3(*map(int, tokens))


_MARKER_NUMBER = re.compile(r"(?<!\w)\d{1,20}(?!\w)")


@lru_cache(maxsize=64)
def _parse_marker_kind(shape: str) -> str:
    """Return the grammar rule of a marker whose numbers are replaced by 0. Raises TraceSyntaxError."""
    return str(parse_line("marker", shape).data)


def _split_marker(text: str) -> tuple[str, list[int], list[int]]:
    """Return (kind, numbers, their columns) of a marker. Raises TraceSyntaxError."""
    found = [(int(match[0]), match.start()) for match in _MARKER_NUMBER.finditer(text)]
    try:
        kind = _parse_marker_kind(_MARKER_NUMBER.sub("0", text))
    except TraceSyntaxError:
        parse_line("marker", text)  # raises with the column of the error
        raise
    return kind, [number for number, _ in found], [column for _, column in found]


class ThreadBlockTracker(Struct):
    """Position in a grouped trace: CTA, warp, and the number of instructions that the trace announces."""

    header: TraceHeader
    in_block: bool = False  # between #BEGIN_TB and #END_TB
    cta: int | None = None  # linear index
    n_announced: int | None = None  # of the current warp, by its `insts =` line
    warp_ids: list[int] = field(default_factory=list)  # of each `warp =` line, in order
    instruction_counts: list[int] = field(default_factory=list)  # found after each of them
    seen_warps: set[int] = field(default_factory=set)
    has_warp: bool = False

    def parse_marker(self, text: str) -> None:
        """Parse one marker. Raises TraceSyntaxError."""
        kind, numbers, columns = _split_marker(text)
        if kind == "begin_block":
            if self.in_block:
                raise TraceSyntaxError(0, "a thread block begins before the one before it has ended")
            self.in_block, self.cta = True, None
        elif not self.in_block:
            raise TraceSyntaxError(0, "this stands outside of #BEGIN_TB and #END_TB")
        elif kind == "end_block":
            self.close_warp()
            self.in_block = False
        elif kind == "thread_block":
            self.cta = self._begin_cta(numbers, columns)
        elif kind == "warp":
            self._begin_warp(numbers[0], columns[0])
        elif kind == "instructions":
            self._announce_instructions(numbers[0])

    def add_instructions(self, count: int) -> None:
        """Count instructions of the current warp. Raises TraceSyntaxError."""
        if not self.has_warp:
            raise TraceSyntaxError(0, "an instruction stands before any `warp = ...` line")
        self.instruction_counts[-1] += count

    def close_warp(self) -> None:
        """End the current warp. Raises TraceSyntaxError if its number of instructions is not as announced."""
        if self.has_warp and self.n_announced is not None and self.instruction_counts[-1] != self.n_announced:
            cta, warp = divmod(self.warp_ids[-1], self.header.warps_per_cta)
            raise TraceSyntaxError(
                0,
                f"{self.n_announced} instructions were announced for warp {warp} of thread block {cta}, "
                f"{self.instruction_counts[-1]} came",
            )
        self.has_warp, self.n_announced = False, None

    def _begin_cta(self, numbers: list[int], columns: list[int]) -> int:
        self.close_warp()
        grid = self.header.grid
        for number, column, size in zip(numbers, columns, (grid.x, grid.y, grid.z), strict=True):
            if number >= size:
                raise TraceSyntaxError(column, f"this is outside of the grid of {grid}")
        x, y, z = numbers
        return x + grid.x * (y + grid.y * z)

    def _begin_warp(self, number: int, column: int) -> None:
        self.close_warp()
        if self.cta is None:
            raise TraceSyntaxError(0, "a warp stands before any `thread block = ...` line")
        if number >= self.header.warps_per_cta:
            raise TraceSyntaxError(column, f"a thread block has {self.header.warps_per_cta} warps here")
        warp = self.cta * self.header.warps_per_cta + number
        if warp in self.seen_warps:
            raise TraceSyntaxError(0, "this warp was traced before")
        self.seen_warps.add(warp)
        self.warp_ids.append(warp)
        self.instruction_counts.append(0)
        self.has_warp = True

    def _announce_instructions(self, number: int) -> None:
        if not self.has_warp or self.n_announced is not None:
            raise TraceSyntaxError(0, "this stands before any `warp = ...` line, or twice after one")
        self.n_announced = number
