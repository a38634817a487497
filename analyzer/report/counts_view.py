"""Execution counts and memory accesses as report entries."""

from collections.abc import Iterator
from dataclasses import replace

from analyzer.execution.profile import ExecutionProfile, MemoryAccess
from analyzer.execution.provenance import Provenance
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import MEMORY_KINDS, Opcode, Space
from analyzer.ir.program import INSTRUCTION_BYTES
from analyzer.report.analysis import KernelAnalysis
from analyzer.report.report import (
    BlockEntry,
    CountsEntry,
    MemoryEntry,
    TrafficEntry,
    UnknownBranchEntry,
)


def count_entries(analysis: KernelAnalysis) -> CountsEntry:
    """Executions of each block, and what they rest on."""
    counts, profile = analysis.counts, analysis.profile
    warps = _grid_warps(analysis)
    instructions = analysis.instructions_per_warp
    executed: float | None = None if warps is None else instructions * warps
    if profile is not None:
        lengths = [len(block) for block in analysis.cfg.blocks]
        executed = sum(n * length for n, length in zip(profile.block_warps.tolist(), lengths, strict=True))
    return CountsEntry(
        provenance=counts.provenance.value,
        executed_warp_instructions=executed,
        instructions_per_warp=instructions,
        looked_at_ctas=None if profile is None else profile.looked_at_ctas,
        assumptions=counts.assumptions,
        blocks=tuple(_blocks(analysis, warps)),
        unknown_branches=_unknown_branches(analysis),
    )


def _blocks(analysis: KernelAnalysis, warps: int | None) -> Iterator[BlockEntry]:
    counts, cfg, profile = analysis.counts, analysis.cfg, analysis.profile
    addresses = analysis.kernel.addresses.tolist()
    for block, per_warp in zip(cfg.blocks, counts.per_warp, strict=True):
        executed: float | None = None if warps is None else per_warp * warps
        provenance, lanes = counts.provenance, None
        if profile is not None:
            executed = int(profile.block_warps[block.index])
            lanes = int(profile.block_lanes[block.index])
            provenance = profile.block_provenance[block.index]
        yield BlockEntry(
            start=addresses[block.start],
            end=addresses[block.stop - 1] + INSTRUCTION_BYTES,
            successors=tuple(addresses[cfg.blocks[s].start] for s in cfg.successors[block.index]),
            executed_warps=executed,
            executed_per_warp=per_warp,
            active_lanes=lanes,
            provenance=provenance.value,
        )


def _grid_warps(analysis: KernelAnalysis) -> int | None:
    grid, block = analysis.launch.grid, analysis.launch.block
    if grid is None or block is None:
        return None
    return grid.count * -(-block.count // WARP_LANES)


def _unknown_branches(analysis: KernelAnalysis) -> tuple[UnknownBranchEntry, ...]:
    profile, kernel = analysis.profile, analysis.kernel
    if profile is None:
        return _unknown_exits(analysis)
    return tuple(
        UnknownBranchEntry(
            address=int(kernel.addresses[branch.row]),
            instruction=kernel.form(branch.row).text,
            origin=branch.origin,
            share=branch.share,
            settle=branch.settle,
            rule=branch.rule,
        )
        for branch in profile.unknown_branches
    )


def _unknown_exits(analysis: KernelAnalysis) -> tuple[UnknownBranchEntry, ...]:
    """The exits of loops whose trips are assumed; `share` is what hangs on them."""
    kernel, cfg = analysis.kernel, analysis.cfg
    found = []
    for trip in analysis.counts.trips:
        if trip.provenance is Provenance.EXACT:
            continue
        loop = analysis.nest.loops[trip.loop]
        exits = loop.exits or ((loop.latches[0], loop.header),)
        row = cfg.blocks[exits[0][0]].stop - 1
        header = int(kernel.addresses[cfg.blocks[loop.header].start])
        found.append(
            UnknownBranchEntry(
                address=int(kernel.addresses[row]),
                instruction=kernel.form(row).text,
                origin=str(kernel.origin(row) or ""),
                share=analysis.share_of(loop),
                settle=f"--trip {header:#x}=N",
                rule=f"{trip.value:g} trips {trip.reason}",
            )
        )
    return tuple(found)


def memory_entries(analysis: KernelAnalysis) -> tuple[MemoryEntry, ...]:
    """Memory instructions in address order."""
    if analysis.profile is not None:
        return tuple(_executed(analysis, access) for access in _all_accesses(analysis, analysis.profile))
    return tuple(_guessed(analysis))


def _all_accesses(analysis: KernelAnalysis, profile: ExecutionProfile) -> list[MemoryAccess]:
    """Those that ran, and those that no warp came to.

    An LDGSTS is one entry, of its global side; its wavefronts are those of what it writes to shared memory.
    """
    ran = {access.row for access in profile.accesses}
    kernel, cfg = analysis.kernel, analysis.cfg
    wanted = kernel.vocabulary.mask(_reaches_memory)
    ids = kernel.opcode_ids.tolist()
    idle = [
        MemoryAccess(
            row=row,
            space=kernel.opcode(row).space or Space.GLOBAL,
            is_store=False,
            requests=0,
            lanes=0,
            bytes=0,
            sectors=0,
            wavefronts=0,
            unique_bytes=0,
            provenance=profile.block_provenance[block.index],
        )
        for block in cfg.blocks
        for row in range(block.start, block.stop)
        if wanted[ids[row]] and row not in ran
    ]
    merged: dict[int, MemoryAccess] = {}
    for access in profile.accesses:
        first = merged.get(access.row)
        merged[access.row] = access if first is None else replace(first, wavefronts=access.wavefronts)
    return sorted([*merged.values(), *idle], key=lambda access: access.row)


def _executed(analysis: KernelAnalysis, access: MemoryAccess) -> MemoryEntry:
    kernel, warps = analysis.kernel, _grid_warps(analysis) or 1
    return MemoryEntry(
        address=int(kernel.addresses[access.row]),
        opcode=kernel.opcode(access.row).mnemonic,
        space=access.space.value,
        requests=access.requests,
        requests_per_warp=access.requests / warps,
        lanes=access.lanes,
        bytes=access.bytes,
        sectors=access.sectors,
        wavefronts=access.wavefronts,
        unique_bytes=access.unique_bytes,
        provenance=access.provenance.value,
    )


def _guessed(analysis: KernelAnalysis) -> Iterator[MemoryEntry]:
    kernel, cfg = analysis.kernel, analysis.cfg
    opcodes = kernel.vocabulary.opcodes
    wanted = kernel.vocabulary.mask(_reaches_memory)
    ids, addresses = kernel.opcode_ids.tolist(), kernel.addresses.tolist()
    warps = _grid_warps(analysis)
    for block, count in zip(cfg.blocks, analysis.counts.per_warp, strict=True):
        for row in range(block.start, block.stop):
            if not wanted[ids[row]]:
                continue
            opcode = opcodes[ids[row]]
            yield MemoryEntry(
                address=addresses[row],
                opcode=opcode.mnemonic,
                space=opcode.space.value if opcode.space else "",
                requests=None if warps is None else count * warps,
                requests_per_warp=count,
                lanes=None,
                bytes=None,
                sectors=None,
                wavefronts=None,
                unique_bytes=None,
                provenance=analysis.counts.provenance.value,
            )


def traffic_entry(profile: ExecutionProfile | None) -> TrafficEntry | None:
    """Bytes asked for and distinct ones, of the whole grid; None where addresses are not known."""
    if profile is None or profile.traffic is None:
        return None
    traffic = profile.traffic
    return TrafficEntry(
        read_bytes=traffic.read_bytes,
        read_unique_bytes=traffic.read_unique_bytes,
        written_bytes=traffic.written_bytes,
        written_unique_bytes=traffic.written_unique_bytes,
    )


def _reaches_memory(opcode: Opcode) -> bool:
    return opcode.kind in MEMORY_KINDS and opcode.space is not Space.CONSTANT
