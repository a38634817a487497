"""Headers and markers of a trace: whose instructions the next lines are."""

import re
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from analyzer.frontend.trace_lines import LineError, parse_line
from analyzer.ir.launch import MAX_BLOCK, MAX_BLOCK_THREADS, MAX_GRID, Dim3
from analyzer.ir.trace import TraceHeader

_MAX_NAME = 1 << 14
_MAX_NUMBER = 1 << 63


class HeaderBuilder(Struct):
    """Header lines gathered while they come."""

    counts: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, Dim3] = field(default_factory=dict)

    def take(self, text: str) -> None:
        """One line that begins with `-`. Raises LineError."""
        tree = parse_line("header", text)
        key = str(tree.children[0])[1:].rstrip("=").rstrip()
        values = tree.children[1:]
        match tree.data:
            case "kernel_name" | "text":
                self.texts[key] = str(values[0]).rstrip()[:_MAX_NAME]
            case "count":
                self.counts[key] = _bounded(values[0], 10)
            case "address":
                self.counts[key] = _bounded(values[0], 16)
            case "dimension":
                self.sizes[key] = _dimensions(values, MAX_GRID if key == "grid dim" else MAX_BLOCK)
            case _:
                pass

    def finish(self) -> TraceHeader:
        """The header. Raises LineError where a line is missing that nothing works without."""
        for key, found in (("kernel name", self.texts), ("grid dim", self.sizes), ("block dim", self.sizes)):
            if key not in found:
                raise LineError(0, f"instructions begin, but no line `-{key} = ...` stands before them")
        if self.sizes["block dim"].count > MAX_BLOCK_THREADS:
            raise LineError(
                0, f"a thread block of {self.sizes['block dim']} has more than {MAX_BLOCK_THREADS} threads"
            )
        return TraceHeader(
            name=self.texts["kernel name"],
            kernel_id=self.counts.get("kernel id", 0),
            grid=self.sizes["grid dim"],
            block=self.sizes["block dim"],
            shared_bytes=self.counts.get("shmem"),
            registers=self.counts.get("nregs"),
            binary_version=self.counts.get("binary version"),
            stream=self.counts.get("cuda stream id", 0),
            shared_base=self.counts.get("shmem base_addr", 0),
            local_base=self.counts.get("local mem base_addr", 0),
            nvbit_version=self.texts.get("nvbit version", ""),
            tracer_version=self.texts.get("accelsim tracer version", ""),
            has_lines=bool(self.counts.get("enable lineinfo", 0)),
        )


def _bounded(token: Any, radix: int) -> int:
    value = int(token, radix)
    if value >= _MAX_NUMBER << 1:
        raise LineError(token.start_pos, "this number is too large")
    return value


def _dimensions(tokens: list[Any], limits: tuple[int, int, int]) -> Dim3:
    for token, limit in zip(tokens, limits, strict=True):
        if not 1 <= int(token) <= limit:
            raise LineError(token.start_pos, f"this dimension must be between 1 and {limit}")
    return Dim3(*map(int, tokens))


_NUMBER = re.compile(r"(?<!\w)\d{1,20}(?!\w)")


@lru_cache(maxsize=64)
def _marker_kind(shape: str) -> str:
    """Which rule fits a marker; its numbers are replaced by 0. Raises LineError."""
    return str(parse_line("marker", shape).data)


def _split_marker(text: str) -> tuple[str, list[int], list[int]]:
    """Kind, numbers and their columns. Raises LineError."""
    found = [(int(match[0]), match.start()) for match in _NUMBER.finditer(text)]
    try:
        kind = _marker_kind(_NUMBER.sub("0", text))
    except LineError:
        parse_line("marker", text)  # says where
        raise
    return kind, [number for number, _ in found], [column for _, column in found]


class Grouping(Struct):
    """Where in a grouped trace the lines stand: thread block, warp, and how many instructions were announced.

    warps, counts: one entry for each `warp =` line, in order.
    """

    header: TraceHeader
    in_block: bool = False
    cta: int | None = None
    announced: int | None = None
    warps: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    has_warp: bool = False

    def take(self, text: str) -> None:
        """One marker. Raises LineError."""
        kind, numbers, columns = _split_marker(text)
        if kind == "begin_block":
            if self.in_block:
                raise LineError(0, "a thread block begins before the one before it has ended")
            self.in_block, self.cta = True, None
        elif not self.in_block:
            raise LineError(0, "this stands outside of #BEGIN_TB and #END_TB")
        elif kind == "end_block":
            self.close_warp()
            self.in_block = False
        elif kind == "thread_block":
            self.cta = self._cta(numbers, columns)
        elif kind == "warp":
            self._begin_warp(numbers[0], columns[0])
        elif kind == "instructions":
            self._announce(numbers[0])

    def add(self, count: int) -> None:
        """Instructions of the current warp. Raises LineError."""
        if not self.has_warp:
            raise LineError(0, "an instruction stands before any `warp = ...` line")
        self.counts[-1] += count

    def close_warp(self) -> None:
        """The current warp is complete. Raises LineError."""
        if self.has_warp and self.announced is not None and self.counts[-1] != self.announced:
            cta, warp = divmod(self.warps[-1], self.header.warps_per_cta)
            raise LineError(
                0,
                f"{self.announced} instructions were announced for warp {warp} of thread block {cta}, "
                f"{self.counts[-1]} came",
            )
        self.has_warp, self.announced = False, None

    def _cta(self, numbers: list[int], columns: list[int]) -> int:
        self.close_warp()
        grid = self.header.grid
        for number, column, size in zip(numbers, columns, (grid.x, grid.y, grid.z), strict=True):
            if number >= size:
                raise LineError(column, f"this is outside of the grid of {grid}")
        x, y, z = numbers
        return x + grid.x * (y + grid.y * z)

    def _begin_warp(self, number: int, column: int) -> None:
        self.close_warp()
        if self.cta is None:
            raise LineError(0, "a warp stands before any `thread block = ...` line")
        if number >= self.header.warps_per_cta:
            raise LineError(column, f"a thread block has {self.header.warps_per_cta} warps here")
        warp = self.cta * self.header.warps_per_cta + number
        if warp in self.seen:
            raise LineError(0, "this warp was traced before")
        self.seen.add(warp)
        self.warps.append(warp)
        self.counts.append(0)
        self.has_warp = True

    def _announce(self, number: int) -> None:
        if not self.has_warp or self.announced is not None:
            raise LineError(0, "this stands before any `warp = ...` line, or twice after one")
        self.announced = number
