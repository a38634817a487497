"""`ExecutionProfile` of a recorded trace.

The CFG may be of the trace's own kernel (`analyzer.frontend.trace_module`) or of a dump of the same program;
program counters match one to the other.
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.profile.execution_profile import ExecutionProfile, WarpClass
from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.traces.trace_block_counts import WarpCounts, count_warp_executions
from analyzer.execution.traces.trace_memory import measure_accesses, measure_global_traffic
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest, find_loops
from analyzer.ir.arrays import IntArray
from analyzer.ir.launch import Launch
from analyzer.ir.opcode import MEMORY_KINDS, AddressSpace, OpKind
from analyzer.ir.trace import Trace
from analyzer.isa.opcode_table import resolve_opcode
from analyzer.text.errors import InputError


def build_trace_profile(trace: Trace, cfg: Cfg, loop_forest: LoopForest | None = None) -> ExecutionProfile:
    """Build the profile of a whole grid from a trace.

    If only some CTAs were traced, sums are scaled to the grid, distinct bytes are unknown, and all counts are
    marked as assumed; as assumed, too, where the trace is cut off (`missing_code`). A block counts as
    executed as often as that instruction of it which was traced most often; `trace_block_runs` finds its
    lanes.

    Raises InputError if the trace does not fit the kernel.

    loop_forest: the loops of `cfg`, if they are known already.
    """
    rows = match_rows(trace, cfg)
    totals = _WarpTotals(cfg, loop_forest or find_loops(cfg), trace.header.warps_per_cta)
    for counted in count_warp_executions(trace, cfg, totals.loop_forest, rows):
        totals.add_counts(counted)
    header, n_ctas = trace.header, len(trace.cta_ids)
    scale = header.grid.count / n_ctas
    missing = tuple(_describe_lost_warps(trace))
    is_whole = n_ctas == header.grid.count and not missing
    provenance = Provenance.TRACED if is_whole else Provenance.ASSUMED
    measured = measure_accesses(trace, cfg, rows, scale, provenance)
    return ExecutionProfile(
        launch=_make_launch(trace, cfg),
        n_warps=header.n_warps,
        n_sampled_ctas=n_ctas,
        warp_classes=totals.build_warp_classes(trace, scale),
        block_executions=_scale_counts(totals.block_executions, scale),
        block_active_lanes=_scale_counts(totals.block_active_lanes, scale),
        block_provenance=(provenance,) * len(cfg.blocks),
        loop_entries=totals.loop_entries.astype(np.float64) * scale,
        accesses=measured.accesses,
        traffic=measure_global_traffic(measured, cfg),
        unknown_branches=(),
        is_sample=n_ctas < header.grid.count,
        provenance=provenance,
        missing_code=missing,
        assumptions=tuple(_describe_assumptions(trace, cfg, rows)),
    )


def match_rows(trace: Trace, cfg: Cfg) -> IntArray:
    """Return the kernel's row of each traced instruction; -1 for code of another function.

    Raises InputError if the trace does not fit the kernel.
    """
    kernel = cfg.kernel
    places = np.array([instruction.address for instruction in trace.instructions], dtype=np.int64)
    rows = np.minimum(np.searchsorted(kernel.addresses, places), len(kernel) - 1).astype(np.int64)
    for number, instruction in enumerate(trace.instructions):
        row = int(rows[number])
        if int(kernel.addresses[row]) == instruction.address:
            if kernel.find_opcode(row).name == instruction.mnemonic.partition(".")[0]:
                continue
            found = kernel.find_opcode(row).mnemonic
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


class _WarpGroup(Struct):
    """Warps with equal counts."""

    n_warps: int
    example_warp: int  # global number of the first one
    warp_slot_counts: IntArray  # [n_warp_slot], how many of them are warp 0 of their CTA, warp 1, …


class _WarpTotals:
    """Sums over warps, and groups of warps with equal counts and lanes in every block."""

    def __init__(self, cfg: Cfg, loop_forest: LoopForest, warps_per_cta: int) -> None:
        self.cfg, self.loop_forest, self.warps_per_cta = cfg, loop_forest, warps_per_cta
        self.groups: dict[bytes, _WarpGroup] = {}
        self.block_executions = np.zeros(len(cfg.blocks), dtype=np.int64)
        self.block_active_lanes = np.zeros(len(cfg.blocks), dtype=np.int64)
        self.loop_entries = np.zeros(len(loop_forest.loops), dtype=np.int64)

    def add_counts(self, counted: WarpCounts) -> None:
        """Add the counts of some warps."""
        self.block_executions += counted.block_executions.sum(axis=0)
        self.block_active_lanes += counted.block_active_lanes.sum(axis=0)
        self.loop_entries += counted.loop_entries
        both = np.concatenate((counted.block_executions, counted.block_active_lanes), axis=1)
        kinds, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
        n_warp_slots = self.warps_per_cta
        places = which.reshape(-1) * n_warp_slots + counted.warp_numbers % n_warp_slots
        sizes = np.bincount(places, minlength=len(kinds) * n_warp_slots).reshape(-1, n_warp_slots)
        for kind, place, size in zip(kinds, first.tolist(), sizes, strict=True):
            group = self.groups.setdefault(
                kind.tobytes(),
                _WarpGroup(0, int(counted.warp_numbers[place]), np.zeros(n_warp_slots, np.int64)),
            )
            group.n_warps += int(size.sum())
            group.warp_slot_counts += size

    def build_warp_classes(self, trace: Trace, scale: float) -> tuple[WarpClass, ...]:
        """Build classes of warps scaled to the grid, the largest first, then by first warp."""
        self._add_missing_warps(trace)
        ordered = sorted(self.groups.items(), key=lambda item: (-item[1].n_warps, item[1].example_warp))
        sizes = _apportion([group.n_warps * scale for _, group in ordered], trace.header.n_warps)
        n_blocks = len(self.cfg.blocks)
        found = []
        for (key, group), size in zip(ordered, sizes, strict=True):
            both = np.frombuffer(key, dtype=np.int64)
            cta, warp = divmod(group.example_warp, trace.header.warps_per_cta)
            found.append(
                WarpClass(
                    n_warps=size,
                    block_counts=both[:n_blocks],
                    block_active_lanes=both[n_blocks:],
                    example_warp=(cta, warp),
                    warp_slot_counts=tuple((group.warp_slot_counts * scale).tolist()),
                    # few launches that are traced have idle CTAs
                    n_beside_busier_warp=size,
                )
            )
        return tuple(found)

    def _add_missing_warps(self, trace: Trace) -> None:
        """Add warps of traced CTAs that left no line, with zero counts."""
        missing = _find_missing_warps(trace)
        if len(missing):
            nothing = np.zeros((len(missing), len(self.cfg.blocks)), dtype=np.int64)
            self.add_counts(WarpCounts(missing, nothing, nothing, np.zeros_like(self.loop_entries)))


def _find_missing_warps(trace: Trace) -> IntArray:
    per_cta = trace.header.warps_per_cta
    if len(trace.warp_ids) == len(trace.cta_ids) * per_cta:
        return np.zeros(0, dtype=np.int64)
    expected = (trace.cta_ids[:, None] * per_cta + np.arange(per_cta)).reshape(-1)
    return np.setdiff1d(expected, trace.warp_ids)


def _apportion(shares: list[float], total: int) -> list[int]:
    """Round shares to integers that sum to the total (largest remainder method)."""
    floors = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (floors[i] - shares[i], i))
    for place in by_remainder[: max(0, total - sum(floors))]:
        floors[place] += 1
    return floors


def _scale_counts(values: IntArray, scale: float) -> IntArray:
    return values if scale == 1 else np.rint(values * scale).astype(np.int64)


def _make_launch(trace: Trace, cfg: Cfg) -> Launch:
    """Return the traced launch; the header's shared memory is the sum of static and dynamic."""
    launch, static = trace.header.launch, cfg.kernel.resources.shared_bytes
    if launch.dynamic_shared_bytes is None or static is None:
        return launch
    return replace(launch, dynamic_shared_bytes=max(0, launch.dynamic_shared_bytes - static))


def _describe_untraced_memory(trace: Trace, cfg: Cfg, rows: IntArray) -> Iterator[str]:
    """Yield notes on accesses without addresses: shared sides of LDGSTS, textures, bulk copies."""
    listed = set(np.unique(trace.instruction_ids[trace.access_positions]).tolist())
    ran = np.unique(trace.instruction_ids[trace.masks != 0]).tolist()
    opcodes = {number: cfg.kernel.find_opcode(int(rows[number])) for number in ran if rows[number] >= 0}
    copies = sum(opcode.kind is OpKind.ASYNC_COPY for opcode in opcodes.values())
    silent = sum(
        opcode.kind in MEMORY_KINDS and opcode.space is not AddressSpace.CONSTANT and number not in listed
        for number, opcode in opcodes.items()
    )
    if copies:
        yield f"{copies} asynchronous copies: what they write to shared memory is not traced"
    if silent:
        yield f"{silent} memory instructions were traced without addresses; sectors are not known"


def _describe_lost_warps(trace: Trace) -> Iterator[str]:
    """Yield what a trace that was cut off has lost: each warp of a CTA runs, and runs to its end."""
    ends = np.array([resolve_opcode(each.mnemonic).kind is OpKind.EXIT for each in trace.instructions])
    n_unfinished = int((~ends[trace.instruction_ids[trace.warp_starts[1:] - 1]]).sum())
    lost = {"left no line": len(_find_missing_warps(trace)), "end without EXIT": n_unfinished}
    found = ", ".join(f"{n} of its warps {what}" for what, n in lost.items() if n)
    if found:
        yield f"the trace is cut off: {found}; what they ran is not counted"


def _describe_assumptions(trace: Trace, cfg: Cfg, rows: IntArray) -> Iterator[str]:
    """Yield notes on what the trace lacks and how that was filled, for the report."""
    traced, grid = len(trace.cta_ids), trace.header.grid.count
    if traced != grid:
        yield (
            f"{traced} of {grid} thread blocks were traced; the others are assumed to do the same on average"
        )
    yield from _describe_untraced_memory(trace, cfg, rows)
    if foreign := int((rows < 0).sum()):
        yield f"{foreign} instructions of called functions share addresses with the kernel; left out"
    known = rows[trace.instruction_ids]
    seen = np.bincount(known[known >= 0], minlength=len(cfg.kernel))
    uneven = silent = 0
    for block in cfg.blocks:
        own = seen[block.start : block.stop]
        if not own.any():
            continue
        silent += int((own == 0).sum())
        uneven += len(set(own[own > 0].tolist())) > 1
    if silent:
        yield f"{silent} instructions of executed blocks left no line; assumed to run as their blocks do"
    if uneven:
        yield f"{uneven} blocks have instructions traced unequally often; the largest number is taken"
