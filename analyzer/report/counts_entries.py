"""Execution counts as report entries."""

from collections.abc import Iterator

import numpy as np

from analyzer.execution.profile.execution_profile import BlockRange, ExecutionProfile
from analyzer.execution.profile.provenance import INEXACT_PROVENANCES, Provenance, find_worst_provenance
from analyzer.flow.cfg import BasicBlock
from analyzer.ir.module import INSTRUCTION_BYTES
from analyzer.ir.numbered_labels import make_label_renamer
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.report.analyze_schema import BlockEntry, CountsEntry, UnknownBranchEntry
from analyzer.report.kernel_analysis import KernelAnalysis
from analyzer.report.unknown_entries import measure_assumed_address_share


def make_counts_entry(analysis: KernelAnalysis) -> CountsEntry:
    """Return the executions of each block, with their provenance and assumptions."""
    counts, profile = analysis.counts, analysis.profile
    warps = count_grid_warps(analysis)
    instructions = analysis.instructions_per_warp
    executed: float | None = None if warps is None else instructions * warps
    if profile is not None:
        executed = profile.count_executed_instructions(tuple(len(block) for block in analysis.cfg.blocks))
    return CountsEntry(
        provenance=counts.provenance.value,
        assumed_share=_compute_assumed_share(analysis),
        assumed_time_share=_compute_assumed_time_share(analysis),
        addresses=find_address_provenance(profile).value,
        assumed_address_share=1.0 if profile is None else measure_assumed_address_share(profile),
        executed_warp_instructions=executed,
        instructions_per_warp=instructions,
        is_sample=profile is not None and profile.is_sample,
        looked_at_ctas=None if profile is None else profile.n_sampled_ctas,
        assumptions=(*analysis.launch.assumptions, *counts.assumptions),
        blocks=tuple(_make_block_entries(analysis, warps)),
        unknown_branches=_make_unknown_branch_entries(analysis),
    )


def find_address_provenance(profile: ExecutionProfile | None) -> Provenance:
    """Return the worst provenance of addresses; unknown without a profile, exact without requests."""
    if profile is None:
        return Provenance.UNKNOWN
    return find_worst_provenance(access.address_provenance for access in profile.accesses if access.requests)


def _mark_assumed_blocks(analysis: KernelAnalysis) -> list[bool]:
    """Return for each block whether its count is assumed or unknown."""
    profile = analysis.profile
    if profile is None:
        return [analysis.counts.provenance in INEXACT_PROVENANCES] * len(analysis.cfg.blocks)
    return [provenance in INEXACT_PROVENANCES for provenance in profile.block_provenance]


def _compute_assumed_share(analysis: KernelAnalysis) -> float:
    per_warp = analysis.counts.per_warp
    sizes = [n * len(block) for block, n in zip(analysis.cfg.blocks, per_warp, strict=True)]
    total = sum(sizes)
    assumed = sum(
        size for size, is_assumed in zip(sizes, _mark_assumed_blocks(analysis), strict=True) if is_assumed
    )
    return assumed / total if total else 0.0


def _compute_assumed_time_share(analysis: KernelAnalysis) -> float | None:
    """Return the share of a warp's own cycles on the first GPU that is in such blocks."""
    first = analysis.first_result
    if first is None:
        return None
    n_rows = analysis.cfg.blocks[-1].stop
    waits = 0.0 if first.timeline is None else first.timeline.waits.sum(axis=1)
    cycles = (first.model_input.execution_counts * (1.0 + waits))[:n_rows]
    assumed = np.array(_mark_assumed_blocks(analysis))[np.array(analysis.cfg.block_of)[:n_rows]]
    total = float(cycles.sum())
    return float(cycles[assumed].sum()) / total if total else 0.0


def _make_block_entries(analysis: KernelAnalysis, warps: int | None) -> Iterator[BlockEntry]:
    """Yield blocks in address order; one whose parts have different counts gives an entry for each part."""
    parts: dict[int, list[BlockRange]] = {}
    for part in analysis.profile.block_parts if analysis.profile else ():
        parts.setdefault(part.block, []).append(part)
    for block in analysis.cfg.blocks:
        followers = tuple(analysis.cfg.blocks[s].start for s in analysis.cfg.successors[block.index])
        pieces = parts.get(block.index) or [_make_whole_block_part(analysis, block, warps)]
        for index, piece in enumerate(pieces):
            is_last = index + 1 == len(pieces)
            yield _make_block_entry(analysis, piece, followers if is_last else (piece.stop,), warps)


def _make_whole_block_part(analysis: KernelAnalysis, block: BasicBlock, warps: int | None) -> BlockRange:
    profile = analysis.profile
    if profile is not None:
        executed, lanes = (
            int(profile.block_executions[block.index]),
            int(profile.block_active_lanes[block.index]),
        )
        return BlockRange(block.index, block.start, block.stop, executed, lanes)
    executed = round(analysis.counts.per_warp[block.index] * (warps or 0))
    return BlockRange(block.index, block.start, block.stop, executed, 0)


def _make_block_entry(
    analysis: KernelAnalysis, part: BlockRange, followers: tuple[int, ...], warps: int | None
) -> BlockEntry:
    counts, profile = analysis.counts, analysis.profile
    addresses = analysis.kernel.addresses
    per_warp = counts.per_warp[part.block]
    executed: float | None = None if warps is None else per_warp * warps
    provenance = counts.provenance
    if profile is not None:
        executed, per_warp = part.executions, part.executions / max(1, profile.n_warps)
        provenance = profile.block_provenance[part.block]
    return BlockEntry(
        start=int(addresses[part.start]),
        end=int(addresses[part.stop - 1]) + INSTRUCTION_BYTES,
        successors=tuple(int(addresses[row]) for row in followers),
        executed_warps=executed,
        executed_per_warp=per_warp,
        active_lanes=None if profile is None else part.active_lanes,
        provenance=provenance.value,
    )


def count_grid_warps(analysis: KernelAnalysis) -> int | None:
    """Return the number of warps of the launch; None where it is not known."""
    grid, block = analysis.launch.grid, analysis.launch.block
    if grid is None or block is None:
        return None
    return grid.count * -(-block.count // WARP_SIZE)


def _make_unknown_branch_entries(analysis: KernelAnalysis) -> tuple[UnknownBranchEntry, ...]:
    profile, kernel = analysis.profile, analysis.kernel
    if profile is None:
        return _make_unknown_exit_entries(analysis)
    rename = make_label_renamer(kernel)
    return tuple(
        UnknownBranchEntry(
            address=int(kernel.addresses[branch.row]),
            instruction=rename(kernel.decode_form(branch.row).text),
            origin=branch.origin,
            share=branch.instruction_share,
            settle=branch.hint,
            rule=branch.rule,
        )
        for branch in profile.unknown_branches
    )


def _make_unknown_exit_entries(analysis: KernelAnalysis) -> tuple[UnknownBranchEntry, ...]:
    """Return the exits of loops whose trips are assumed; `share` is that of the loop."""
    kernel, cfg = analysis.kernel, analysis.cfg
    rename = make_label_renamer(kernel)
    found = []
    for trip in analysis.counts.trips:
        if trip.provenance is Provenance.EXACT:
            continue
        loop = analysis.loop_forest.loops[trip.loop]
        exits = loop.exit_edges or ((loop.latches[0], loop.header),)
        row = cfg.blocks[exits[0][0]].stop - 1
        header = int(kernel.addresses[cfg.blocks[loop.header].start])
        found.append(
            UnknownBranchEntry(
                address=int(kernel.addresses[row]),
                instruction=rename(kernel.decode_form(row).text),
                origin=str(kernel.find_source_line(row) or ""),
                share=analysis.compute_instruction_share(loop),
                settle=f"--trip {header:#x}=N",
                rule=f"{trip.count:g} trips {trip.reason}",
            )
        )
    return tuple(found)
