"""Execution counts as report entries."""

from collections.abc import Iterator

import numpy as np

from analyzer.execution.profile import BlockPart
from analyzer.execution.provenance import Provenance
from analyzer.flow.cfg import Block
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.program import INSTRUCTION_BYTES
from analyzer.report.analysis import KernelAnalysis
from analyzer.report.report import BlockEntry, CountsEntry, UnknownBranchEntry

_NOT_KNOWN = (Provenance.ASSUMED, Provenance.UNKNOWN)


def count_entries(analysis: KernelAnalysis) -> CountsEntry:
    """Executions of each block, and what they rest on."""
    counts, profile = analysis.counts, analysis.profile
    warps = grid_warps(analysis)
    instructions = analysis.instructions_per_warp
    executed: float | None = None if warps is None else instructions * warps
    if profile is not None:
        executed = profile.executed_instructions(tuple(len(block) for block in analysis.cfg.blocks))
    return CountsEntry(
        provenance=counts.provenance.value,
        assumed_share=_assumed_share(analysis),
        assumed_time_share=_assumed_time_share(analysis),
        executed_warp_instructions=executed,
        instructions_per_warp=instructions,
        looked_at_ctas=None if profile is None else profile.looked_at_ctas,
        assumptions=counts.assumptions,
        blocks=tuple(_blocks(analysis, warps)),
        unknown_branches=_unknown_branches(analysis),
    )


def _is_assumed(analysis: KernelAnalysis) -> list[bool]:
    """Whether the count of each block is assumed or unknown."""
    profile = analysis.profile
    if profile is None:
        return [analysis.counts.provenance in _NOT_KNOWN] * len(analysis.cfg.blocks)
    return [provenance in _NOT_KNOWN for provenance in profile.block_provenance]


def _assumed_share(analysis: KernelAnalysis) -> float:
    per_warp = analysis.counts.per_warp
    sizes = [n * len(block) for block, n in zip(analysis.cfg.blocks, per_warp, strict=True)]
    total = sum(sizes)
    assumed = sum(size for size, is_assumed in zip(sizes, _is_assumed(analysis), strict=True) if is_assumed)
    return assumed / total if total else 0.0


def _assumed_time_share(analysis: KernelAnalysis) -> float | None:
    """Share of a warp's own cycles, by its walk on the first GPU."""
    first = analysis.first
    if first is None:
        return None
    n_rows = analysis.cfg.blocks[-1].stop
    cycles = (first.situation.weights * (1.0 + first.walk.waits.sum(axis=1)))[:n_rows]
    assumed = np.array(_is_assumed(analysis))[np.array(analysis.cfg.block_of)[:n_rows]]
    total = float(cycles.sum())
    return float(cycles[assumed].sum()) / total if total else 0.0


def _blocks(analysis: KernelAnalysis, warps: int | None) -> Iterator[BlockEntry]:
    """Blocks in address order; one whose parts run unequally often gives an entry for each part."""
    parts: dict[int, list[BlockPart]] = {}
    for part in analysis.profile.parts if analysis.profile else ():
        parts.setdefault(part.block, []).append(part)
    for block in analysis.cfg.blocks:
        followers = tuple(analysis.cfg.blocks[s].start for s in analysis.cfg.successors[block.index])
        pieces = parts.get(block.index) or [_whole_block(analysis, block, warps)]
        for place, piece in enumerate(pieces):
            is_last = place + 1 == len(pieces)
            yield _block_entry(analysis, piece, followers if is_last else (piece.stop,), warps)


def _whole_block(analysis: KernelAnalysis, block: Block, warps: int | None) -> BlockPart:
    profile = analysis.profile
    if profile is not None:
        executed, lanes = int(profile.block_warps[block.index]), int(profile.block_lanes[block.index])
        return BlockPart(block.index, block.start, block.stop, executed, lanes)
    executed = round(analysis.counts.per_warp[block.index] * (warps or 0))
    return BlockPart(block.index, block.start, block.stop, executed, 0)


def _block_entry(
    analysis: KernelAnalysis, part: BlockPart, followers: tuple[int, ...], warps: int | None
) -> BlockEntry:
    counts, profile = analysis.counts, analysis.profile
    addresses = analysis.kernel.addresses
    per_warp = counts.per_warp[part.block]
    executed: float | None = None if warps is None else per_warp * warps
    provenance = counts.provenance
    if profile is not None:
        executed, per_warp = part.warps, part.warps / max(1, profile.n_warps)
        provenance = profile.block_provenance[part.block]
    return BlockEntry(
        start=int(addresses[part.start]),
        end=int(addresses[part.stop - 1]) + INSTRUCTION_BYTES,
        successors=tuple(int(addresses[row]) for row in followers),
        executed_warps=executed,
        executed_per_warp=per_warp,
        active_lanes=None if profile is None else part.lanes,
        provenance=provenance.value,
    )


def grid_warps(analysis: KernelAnalysis) -> int | None:
    """Warps of the launch; None where it is not known."""
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
