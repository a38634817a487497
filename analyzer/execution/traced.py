"""A recorded trace to an `ExecutionProfile`: counted, not computed.

The graph may be that of the trace's own kernel (`analyzer.frontend.trace_kernels`) or of a dump of the same
program; program counters tie one to the other.
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.profile import ExecutionProfile, WarpClass
from analyzer.execution.provenance import Provenance
from analyzer.execution.traced_counts import WarpCounts, count_warps
from analyzer.execution.traced_memory import measure_accesses, measure_traffic
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest, find_loops
from analyzer.ir.launch import Launch
from analyzer.ir.opcode import MEMORY_KINDS, OpKind, Space
from analyzer.ir.trace import IntArray, Trace
from analyzer.text.errors import InputError


def traced_profile(trace: Trace, cfg: Cfg, nest: LoopNest | None = None) -> ExecutionProfile:
    """What a trace says of a whole grid; nest: the loops of `cfg`, where they are known already.

    Where only some thread blocks were traced, sums are scaled to the grid, distinct bytes are left open, and
    everything is marked as assumed. A block ran as often as the instruction of it that was traced most often;
    its lanes are those that any of its instructions had in that run. Where all of them have guards, lanes
    that none let through are found by where they were before and after (see `traced_runs`).

    Raises InputError where the trace does not fit the graph's kernel.
    """
    rows = match_rows(trace, cfg)
    totals = _Totals(cfg, nest or find_loops(cfg), trace.header.warps_per_cta)
    for counted in count_warps(trace, cfg, totals.nest, rows):
        totals.add(counted)
    header, n_ctas = trace.header, len(trace.ctas)
    scale = header.grid.count / n_ctas
    provenance = Provenance.TRACED if n_ctas == header.grid.count else Provenance.ASSUMED
    measured = measure_accesses(trace, cfg, rows, scale, provenance)
    return ExecutionProfile(
        launch=_launch(trace, cfg),
        n_warps=header.n_warps,
        looked_at_ctas=n_ctas,
        classes=totals.classes(trace, scale),
        block_warps=_scaled(totals.warps, scale),
        block_lanes=_scaled(totals.lanes, scale),
        block_provenance=(provenance,) * len(cfg.blocks),
        loop_entries=totals.entries.astype(np.float64) * scale,
        accesses=measured.accesses,
        traffic=measure_traffic(measured, cfg),
        unknown_branches=(),
        provenance=provenance,
        assumptions=tuple(_assumptions(trace, cfg, rows)),
    )


def match_rows(trace: Trace, cfg: Cfg) -> IntArray:
    """Row of the kernel for each traced instruction; -1 for another function's code. Raises InputError."""
    kernel = cfg.kernel
    places = np.array([instruction.address for instruction in trace.instructions], dtype=np.int64)
    rows = np.minimum(np.searchsorted(kernel.addresses, places), len(kernel) - 1).astype(np.int64)
    for number, instruction in enumerate(trace.instructions):
        row = int(rows[number])
        if int(kernel.addresses[row]) == instruction.address:
            if kernel.opcode(row).name == instruction.mnemonic.partition(".")[0]:
                continue
            found = kernel.opcode(row).mnemonic
        else:
            found = "nothing"
        if instruction.address != instruction.pc:
            rows[number] = -1
            continue
        raise InputError(
            f"{trace.path}: the trace does not fit {kernel.name}: at {instruction.pc:#06x} "
            f"it has {instruction.mnemonic}, the kernel {found}",
            hint="the dump is of another build than the one that was traced",
        )
    return rows


class _Group(Struct):
    """Warps with equal counts: how many, the first one, and how many at each place of a CTA."""

    n_warps: int
    example: int
    seats: IntArray


class _Totals:
    """Sums over warps, and warps by their counts and lanes in every block."""

    def __init__(self, cfg: Cfg, nest: LoopNest, warps_per_cta: int) -> None:
        self.cfg, self.nest, self.warps_per_cta = cfg, nest, warps_per_cta
        self.groups: dict[bytes, _Group] = {}
        self.warps = np.zeros(len(cfg.blocks), dtype=np.int64)
        self.lanes = np.zeros(len(cfg.blocks), dtype=np.int64)
        self.entries = np.zeros(len(nest.loops), dtype=np.int64)

    def add(self, counted: WarpCounts) -> None:
        self.warps += counted.blocks.sum(axis=0)
        self.lanes += counted.lanes.sum(axis=0)
        self.entries += counted.entries
        both = np.concatenate((counted.blocks, counted.lanes), axis=1)
        kinds, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
        n_seats = self.warps_per_cta
        places = which.reshape(-1) * n_seats + counted.warps % n_seats
        sizes = np.bincount(places, minlength=len(kinds) * n_seats).reshape(-1, n_seats)
        for kind, place, size in zip(kinds, first.tolist(), sizes, strict=True):
            group = self.groups.setdefault(
                kind.tobytes(), _Group(0, int(counted.warps[place]), np.zeros(n_seats, np.int64))
            )
            group.n_warps += int(size.sum())
            group.seats += size

    def classes(self, trace: Trace, scale: float) -> tuple[WarpClass, ...]:
        """Most numerous first, then by their first warps."""
        self._add_missing(trace)
        ordered = sorted(self.groups.items(), key=lambda item: (-item[1].n_warps, item[1].example))
        sizes = _apportioned([group.n_warps * scale for _, group in ordered], trace.header.n_warps)
        n_blocks = len(self.cfg.blocks)
        found = []
        for (key, group), size in zip(ordered, sizes, strict=True):
            both = np.frombuffer(key, dtype=np.int64)
            cta, warp = divmod(group.example, trace.header.warps_per_cta)
            found.append(
                WarpClass(
                    n_warps=size,
                    block_counts=both[:n_blocks],
                    block_lanes=both[n_blocks:],
                    example=(cta, warp),
                    seats=tuple((group.seats * scale).tolist()),
                    n_beside=size,  # traces are of launches that somebody looks into: few have idle CTAs
                )
            )
        return tuple(found)

    def _add_missing(self, trace: Trace) -> None:
        """Warps of traced thread blocks of which no line is there ran nothing."""
        missing = _missing_warps(trace)
        if len(missing):
            nothing = np.zeros((len(missing), len(self.cfg.blocks)), dtype=np.int64)
            self.add(WarpCounts(missing, nothing, nothing, np.zeros_like(self.entries)))


def _missing_warps(trace: Trace) -> IntArray:
    per_cta = trace.header.warps_per_cta
    if len(trace.warps) == len(trace.ctas) * per_cta:
        return np.zeros(0, dtype=np.int64)
    expected = (trace.ctas[:, None] * per_cta + np.arange(per_cta)).reshape(-1)
    return np.setdiff1d(expected, trace.warps)


def _apportioned(shares: list[float], total: int) -> list[int]:
    """Whole numbers near the shares that sum to the total: largest remainders are rounded up."""
    floors = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (floors[i] - shares[i], i))
    for place in by_remainder[: max(0, total - sum(floors))]:
        floors[place] += 1
    return floors


def _scaled(values: IntArray, scale: float) -> IntArray:
    return _frozen(values if scale == 1 else np.rint(values * scale).astype(np.int64))


def _frozen(values: IntArray) -> IntArray:
    values.setflags(write=False)
    return values


def _launch(trace: Trace, cfg: Cfg) -> Launch:
    """The traced launch; the header counts static and dynamic shared memory together."""
    launch, static = trace.header.launch, cfg.kernel.resources.shared_bytes
    if launch.dynamic_shared_bytes is None or static is None:
        return launch
    return replace(launch, dynamic_shared_bytes=max(0, launch.dynamic_shared_bytes - static))


def _untraced_memory(trace: Trace, cfg: Cfg, rows: IntArray) -> Iterator[str]:
    """Traffic that leaves no addresses: shared sides of asynchronous copies, textures, bulk copies."""
    listed = set(np.unique(trace.ids[trace.access_at]).tolist())
    ran = np.unique(trace.ids[trace.masks != 0]).tolist()
    opcodes = {number: cfg.kernel.opcode(int(rows[number])) for number in ran if rows[number] >= 0}
    copies = sum(opcode.kind is OpKind.ASYNC_COPY for opcode in opcodes.values())
    silent = sum(
        opcode.kind in MEMORY_KINDS and opcode.space is not Space.CONSTANT and number not in listed
        for number, opcode in opcodes.items()
    )
    if copies:
        yield f"{copies} asynchronous copies: what they write to shared memory is not traced"
    if silent:
        yield f"{silent} memory instructions were traced without addresses; sectors are not known"


def _assumptions(trace: Trace, cfg: Cfg, rows: IntArray) -> Iterator[str]:
    traced, grid = len(trace.ctas), trace.header.grid.count
    if traced != grid:
        yield f"{traced} of {grid} thread blocks were traced; the others are taken to do the same on average"
    if missing := len(_missing_warps(trace)):
        yield f"{missing} warps of traced thread blocks left no line; they are taken to run nothing"
    yield from _untraced_memory(trace, cfg, rows)
    if foreign := int((rows < 0).sum()):
        yield f"{foreign} instructions of called functions share addresses with the kernel; left out"
    known = rows[trace.ids]
    seen = np.bincount(known[known >= 0], minlength=len(cfg.kernel))
    uneven = silent = 0
    for block in cfg.blocks:
        own = seen[block.start : block.stop]
        if not own.any():
            continue
        silent += int((own == 0).sum())
        uneven += len(set(own[own > 0].tolist())) > 1
    if silent:
        yield f"{silent} instructions of executed blocks left no line; taken to run as often as their blocks"
    if uneven:
        yield f"{uneven} blocks have instructions traced unequally often; the largest number is taken"
