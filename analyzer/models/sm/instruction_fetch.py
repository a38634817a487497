"""Instruction caches that the warps of an SM share, as the simulation of an SM keeps them.

Code lies in lines of 128 bytes. An SM holds the latest lines in a cache of its own. What that lacks comes
from a cache that several SMs share, where code is fetched a few lines ahead, or from the L2, in pieces of
some lines and not ahead. The way from the shared cache to the SM serves one line after another, at the rate
that is left for one SM while the others ask too.

The invariant: lines are asked for in the order in which warps come to them, so the way is one number, the
time from which it is free. The first warp that comes to a line brings it for all: warps close together wait
for one fetch, those far apart compete.

Example: code of 200 KB in pieces of 8 lines that take 350 cycles. One warp, or several in step, wait for 44
cycles a line, whatever their instructions take. Two that lie apart wait as long, side by side.

Measured on an H100 and an H200: loops and straight code of FFMA by 1 to 16 warps, together and apart, on 1 to
132 SMs (traces/h100/code_fetch.jsonl.xz, traces/h200/fetch.jsonl.xz).
"""

from collections.abc import Iterable

from msgspec import Struct

from analyzer.ir.arrays import BoolArray
from analyzer.ir.module import INSTRUCTION_BYTES
from analyzer.models.interface import ModelInput

_LINE_BYTES = 128
_ROWS_PER_LINE = _LINE_BYTES // INSTRUCTION_BYTES
# Nsight Compute counts 0.35 misses for each line that comes from the shared cache, and 0.81 beyond it.
_LINES_AHEAD = 2


class FetchParameters(Struct, frozen=True):
    """Instruction caches as one SM sees them; sizes in lines, times in cycles."""

    sm_lines: int  # that the SM's own cache holds
    shared_sets: int  # of the cache of several SMs, whose entries are pieces of `miss_lines`
    shared_ways: int  # entries of a set
    line_cycles: float  # between two lines from there, by the SM's share of its rate
    miss_lines: int  # lines that one request to the L2 brings
    miss_cycles: float  # from the request until they are here


def find_fetch_parameters(model_input: ModelInput) -> FetchParameters | None:
    """Return the parameters of the caches; None where they are not known, or hold all that executes."""
    caches = model_input.arch.instruction_caches
    if caches is None:
        return None
    sm_lines = int(caches.sm_bytes.value / _LINE_BYTES)
    if len(list_lines(model_input.execution_counts > 0)) <= sm_lines:
        return None
    busy_share = min(1.0, model_input.grid_ctas / model_input.gpu.sm_count)
    shared_bytes = model_input.arch.memory.instruction_cache_bytes.value
    return FetchParameters(
        sm_lines=sm_lines,
        shared_sets=max(1, int(shared_bytes / (caches.miss_bytes.value * caches.shared_ways.value))),
        shared_ways=int(caches.shared_ways.value),
        line_cycles=caches.line_cycles.value * busy_share,
        miss_lines=max(1, int(caches.miss_bytes.value / _LINE_BYTES)),
        miss_cycles=caches.miss_cycles.value,
    )


def list_lines(executes: BoolArray) -> set[int]:
    """Return the lines with an instruction that executes; executes: by instruction, [n]."""
    return {row // _ROWS_PER_LINE for row in executes.nonzero()[0].tolist()}


def find_entered_lines(first_row: int, last_row: int, previous_row: int) -> tuple[int, ...]:
    """Return the lines that rows [first_row, last_row] lie in, less the one of the row before them.

    previous_row: the row that executes before, -1 where none is known.
    """
    first = first_row // _ROWS_PER_LINE
    if previous_row == first_row - 1 and previous_row >= 0 and previous_row // _ROWS_PER_LINE == first:
        first += 1
    return tuple(range(first, last_row // _ROWS_PER_LINE + 1))


class InstructionCache:
    """Lines that an SM holds, and the way to the others.

    Both caches drop what is least recently used, the shared one of a set: a loop that is a little longer than
    that loses the sets with one entry too many, not all.
    """

    __slots__ = ("_free_at", "_parameters", "_ready_at", "_shared")

    def __init__(self, parameters: FetchParameters) -> None:
        self._parameters = parameters
        self._free_at = 0.0
        self._ready_at: dict[int, float] = {}  # by line that the SM holds, the latest used last
        # The start of a kernel's code is in the shared cache when its CTAs begin: straight code of 64 KB runs
        # after other code as fast as after itself. By set: numbers of pieces, the latest used last.
        sets, ways = parameters.shared_sets, parameters.shared_ways
        self._shared = [dict.fromkeys(range(first, sets * ways, sets)) for first in range(sets)]

    def fetch(self, lines: Iterable[int], time: float) -> float:
        """Return when a warp that comes to these lines at a time has them all."""
        ready_at = self._ready_at
        for line in lines:
            ready = ready_at.pop(line, None)
            if ready is None:
                self._request(line, time)
                ready = ready_at.pop(line)
            ready_at[line] = ready  # now the latest
            if ready > time:
                time = ready
            self._fetch_ahead(line, time, ready)
        return time

    def _fetch_ahead(self, line: int, time: float, ready: float) -> None:
        """Ask for the lines behind one, each when the one before it is here."""
        ready_at = self._ready_at
        for ahead in range(line + 1, line + 1 + _LINES_AHEAD):
            known = ready_at.get(ahead)
            if known is None:
                if not self._is_near(ahead):
                    return
                known = self._request(ahead, max(time, ready))
            ready = known

    def _request(self, line: int, time: float) -> float:
        """Ask for a line, and return when it is here; from the L2, for those behind it too."""
        parameters = self._parameters
        begin = max(time, self._free_at)
        piece = line // parameters.miss_lines
        if self._is_near(line):
            lines, latency = range(line, line + 1), 0.0
            self._free_at = begin + parameters.line_cycles
        else:
            first = piece * parameters.miss_lines
            lines, latency = range(first, first + parameters.miss_lines), parameters.miss_cycles
            self._free_at = begin
        pieces = self._shared[piece % parameters.shared_sets]
        pieces.pop(piece, None)
        pieces[piece] = None
        _drop_oldest(pieces, parameters.shared_ways)
        for one in lines:
            self._ready_at.pop(one, None)
            self._ready_at[one] = begin + latency
        _drop_oldest(self._ready_at, parameters.sm_lines)
        return begin + latency

    def _is_near(self, line: int) -> bool:
        """Return whether the shared cache holds a line."""
        piece = line // self._parameters.miss_lines
        return piece in self._shared[piece % self._parameters.shared_sets]


def _drop_oldest(lines: "dict[int, float] | dict[int, None]", capacity: int) -> None:
    while len(lines) > capacity:
        del lines[next(iter(lines))]
