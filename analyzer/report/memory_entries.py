"""Memory accesses as report entries: by instruction, by memory space, and traffic of the grid."""

from collections.abc import Iterator

from analyzer.demand.access_bytes import count_ideal_sectors, count_ideal_wavefronts
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.profile.provenance import Provenance, find_worst_provenance
from analyzer.ir.opcode import GLOBAL_SPACES, MEMORY_KINDS, SHARED_SPACES, AddressSpace, Opcode, OpKind
from analyzer.report.analyze_schema import MemoryEntry, MemorySpaceEntry, TrafficEntry
from analyzer.report.counts_entries import count_grid_warps
from analyzer.report.kernel_analysis import KernelAnalysis

_READING_KINDS = frozenset({OpKind.LOAD, OpKind.ASYNC_COPY, OpKind.BULK_COPY, OpKind.ATOMIC})
_WRITING_KINDS = frozenset({OpKind.STORE, OpKind.BULK_COPY, OpKind.ATOMIC, OpKind.REDUCTION})
# Spaces whose cost is the passes of a data path, not sectors.
_ON_CHIP_SPACES = SHARED_SPACES | {AddressSpace.CONSTANT}


def make_memory_entries(analysis: KernelAnalysis) -> tuple[MemoryEntry, ...]:
    """Return memory instructions in address order, also those that no warp executes."""
    profile = analysis.profile
    if profile is None:
        return tuple(_make_static_entries(analysis))
    sides: dict[int, list[MemoryAccess]] = {row: [] for row in _find_memory_rows(analysis)}
    for access in profile.accesses:
        sides.setdefault(access.row, []).append(access)
    return tuple(
        _make_executed_entry(analysis, row, entry)
        for row in sorted(sides)
        for entry in _group_accesses(analysis, row, sides[row] or [_make_idle_access(analysis, row)])
    )


def _group_accesses(
    analysis: KernelAnalysis, row: int, sides: list[MemoryAccess]
) -> list[list[MemoryAccess]]:
    """Group the sides of an access: a generic one has an entry for each space that it reaches."""
    is_generic = analysis.kernel.find_opcode(row).space is AddressSpace.GENERIC
    return [[side] for side in sides] if is_generic else [sides]


def _find_memory_rows(analysis: KernelAnalysis) -> list[int]:
    kernel = analysis.kernel
    wanted, ids = kernel.form_table.make_opcode_mask(_is_memory_opcode), kernel.opcode_ids.tolist()
    return [row for row in range(analysis.cfg.blocks[-1].stop) if wanted[ids[row]]]


def _make_idle_access(analysis: KernelAnalysis, row: int) -> MemoryAccess:
    provenance = analysis.counts.provenance
    if analysis.profile is not None:
        provenance = analysis.profile.block_provenance[analysis.cfg.block_of[row]]
    return MemoryAccess(
        row=row,
        space=analysis.kernel.find_opcode(row).space or AddressSpace.GLOBAL,
        is_store=False,
        requests=0,
        lanes=0,
        bytes=0,
        sectors=0,
        wavefronts=0,
        unique_bytes=0,
        provenance=provenance,
    )


def _make_executed_entry(analysis: KernelAnalysis, row: int, sides: list[MemoryAccess]) -> MemoryEntry:
    """Return the entry of an access. An LDGSTS has two sides, the global one first."""
    kernel, warps = analysis.kernel, count_grid_warps(analysis) or 1
    access, data_path = sides[0], sides[-1]
    return MemoryEntry(
        address=int(kernel.addresses[row]),
        opcode=kernel.find_opcode(row).mnemonic,
        source=kernel.find_source_place(row),
        space=access.space.value,
        requests=access.requests,
        requests_per_warp=access.requests / warps,
        lanes=access.lanes,
        bytes=access.bytes,
        sectors=access.sectors,
        ideal_sectors=count_ideal_sectors(access),
        wavefronts=data_path.wavefronts,
        ideal_wavefronts=count_ideal_wavefronts(data_path),
        wavefront_requests=data_path.requests,
        unique_bytes=access.unique_bytes,
        provenance=access.provenance.value,
    )


def _make_static_entries(analysis: KernelAnalysis) -> Iterator[MemoryEntry]:
    kernel, cfg = analysis.kernel, analysis.cfg
    opcodes = kernel.form_table.opcodes
    wanted = kernel.form_table.make_opcode_mask(_is_memory_opcode)
    ids, addresses = kernel.opcode_ids.tolist(), kernel.addresses.tolist()
    warps = count_grid_warps(analysis)
    for block, count in zip(cfg.blocks, analysis.counts.per_warp, strict=True):
        for row in range(block.start, block.stop):
            if not wanted[ids[row]]:
                continue
            opcode = opcodes[ids[row]]
            yield MemoryEntry(
                address=addresses[row],
                opcode=opcode.mnemonic,
                source=kernel.find_source_place(row),
                space=opcode.space.value if opcode.space else "",
                requests=None if warps is None else count * warps,
                requests_per_warp=count,
                lanes=None,
                bytes=None,
                sectors=None,
                ideal_sectors=None,
                wavefronts=None,
                ideal_wavefronts=None,
                wavefront_requests=None,
                unique_bytes=None,
                provenance=analysis.counts.provenance.value,
            )


def make_space_entries(analysis: KernelAnalysis) -> tuple[MemorySpaceEntry, ...]:
    """Return totals of each memory space that the grid reaches; none where nothing was executed or traced."""
    if analysis.profile is None:
        return ()
    spaces: dict[AddressSpace, list[MemoryAccess]] = {}
    for access in analysis.profile.accesses:
        if access.requests:
            spaces.setdefault(access.space, []).append(access)
    ordered = sorted(spaces.items(), key=lambda item: item[0].value)
    return tuple(_make_space_entry(analysis, space, accesses) for space, accesses in ordered)


def _make_space_entry(
    analysis: KernelAnalysis, space: AddressSpace, accesses: list[MemoryAccess]
) -> MemorySpaceEntry:
    on_chip = space in _ON_CHIP_SPACES
    known: list[tuple[float, float, MemoryAccess]] = []  # units beyond the ideal, the ideal ones
    for access in accesses:
        actual = access.wavefronts if on_chip else access.sectors
        ideal = count_ideal_wavefronts(access) if on_chip else count_ideal_sectors(access)
        if actual is not None and ideal is not None:
            known.append((actual - ideal, ideal, access))
    ideal_total = sum(ideal for _, ideal, _ in known) if known else None
    total = None if ideal_total is None else round(ideal_total + sum(beyond for beyond, _, _ in known))
    most, _, worst = max(known, key=lambda item: item[0], default=(0.0, 0.0, None))
    requests = sum(access.requests for access in accesses)
    return MemorySpaceEntry(
        space=space.value,
        requests=requests,
        bytes=sum(access.bytes for access in accesses),
        unknown_requests=requests - sum(access.requests for _, _, access in known),
        sectors=None if on_chip else total,
        ideal_sectors=None if on_chip else ideal_total,
        wavefronts=total if on_chip else None,
        ideal_wavefronts=ideal_total if on_chip else None,
        worst_address=int(analysis.kernel.addresses[worst.row]) if worst and most > 0 else None,
        provenance=find_worst_provenance(access.provenance for _, _, access in known).value,
    )


def make_traffic_entry(analysis: KernelAnalysis) -> TrafficEntry | None:
    """Return requested and distinct bytes of the whole grid; None where addresses are not known."""
    profile = analysis.profile
    if profile is None or profile.traffic is None:
        return None
    traffic = profile.traffic
    return TrafficEntry(
        read_bytes=traffic.read_bytes,
        read_unique_bytes=traffic.read_unique_bytes,
        written_bytes=traffic.written_bytes,
        written_unique_bytes=traffic.written_unique_bytes,
        read_provenance=_find_traffic_provenance(analysis, profile, _READING_KINDS),
        written_provenance=_find_traffic_provenance(analysis, profile, _WRITING_KINDS),
    )


def _find_traffic_provenance(
    analysis: KernelAnalysis, profile: ExecutionProfile, kinds: frozenset[OpKind]
) -> Provenance:
    return find_worst_provenance(
        access.provenance
        for access in profile.accesses
        if access.space in GLOBAL_SPACES and analysis.kernel.find_opcode(access.row).kind in kinds
    )


def _is_memory_opcode(opcode: Opcode) -> bool:
    return opcode.kind in MEMORY_KINDS and opcode.space is not AddressSpace.CONSTANT
