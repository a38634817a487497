"""Instructions as report entries, with their cost and the instruction that they wait for."""

from collections.abc import Mapping

import numpy as np
from msgspec import UNSET, Struct

from analyzer.isa.control_encoding import decode_control_code
from analyzer.models.interface import Stall
from analyzer.models.model_result import ModelResult
from analyzer.report.analyze_schema import ListingEntry
from analyzer.report.kernel_analysis import KernelAnalysis
from analyzer.text.source_files import SourceFiles

_SCOREBOARDS = frozenset({Stall.SHORT_SCOREBOARD, Stall.LONG_SCOREBOARD})


class _InstructionCost(Struct, frozen=True):
    """Cost of one instruction."""

    stack: Mapping[Stall, float]  # cycles of the launch
    share: float = 0.0  # of the launch's cycles
    stall_cycles: float = 0.0  # beyond issue, per execution
    stall: str = ""  # the largest one
    producer: int = -1  # row of the instruction that a scoreboard stall waits for; -1: none


def make_listing_entries(
    analysis: KernelAnalysis, source_files: SourceFiles | None = None
) -> tuple[ListingEntry, ...]:
    """Return one entry per instruction of the code, without padding.

    source_files: where the text of source lines is looked for; None: nowhere.
    """
    kernel, first = analysis.kernel, analysis.first_result
    model_input = first.model_input if first else None
    profile, block_of = analysis.profile, analysis.cfg.block_of
    n = analysis.cfg.blocks[-1].stop
    weights = model_input.execution_counts if model_input else np.zeros(len(kernel))
    loops_by_block = _list_loops_by_block(analysis)
    entries = []
    for row in range(n):
        opcode = kernel.find_opcode(row)
        cost = _compute_cost(first, row) if first else _InstructionCost({})
        figures = model_input.arch.sched.get(opcode.sched_class) if model_input else None
        source = kernel.find_source_line(row)
        word = None if kernel.control_words is None else int(kernel.control_words[row])
        entries.append(
            ListingEntry(
                address=int(kernel.addresses[row]),
                instruction=kernel.decode_form(row).text,
                pipe=figures.pipe.value if figures else "",
                known=opcode.is_known,
                control="" if word is None else str(decode_control_code(word)),
                executed_per_warp=float(weights[row]),
                executed_warps=None if profile is None else int(profile.block_executions[block_of[row]]),
                provenance=(
                    analysis.counts.provenance if profile is None else profile.block_provenance[block_of[row]]
                ).value,
                stall_cycles=cost.stall_cycles,
                stall=cost.stall,
                share=cost.share,
                cpi_stack={stall.value: cycles for stall, cycles in cost.stack.items()},
                producer=int(kernel.addresses[cost.producer]) if cost.producer >= 0 else None,
                source=kernel.find_source_place(row),
                source_text=""
                if source is None or source_files is None
                else source_files.find_line(source.file, source.line),
                loops=loops_by_block[block_of[row]],
                ptx_line=kernel.find_ptx_line(row) or UNSET,
            )
        )
    return tuple(entries)


def _list_loops_by_block(analysis: KernelAnalysis) -> list[tuple[int, ...]]:
    """Return, for each block, the header addresses of the loops around it, the outermost first."""
    found: list[tuple[int, ...]] = [()] * len(analysis.cfg.blocks)
    for loop in sorted(analysis.loop_forest.loops, key=lambda one: one.depth):
        header = int(analysis.kernel.addresses[analysis.cfg.blocks[loop.header].start])
        for block in loop.blocks:
            found[block] = (*found[block], header)
    return found


def _compute_cost(result: ModelResult, row: int) -> _InstructionCost:
    """Return the cost that a model gives one instruction."""
    if result.stalls is None:
        return _InstructionCost({})
    stack = result.stalls.sum_rows_by_stall([row])
    total, issued = sum(stack.values()), stack.get(Stall.SELECTED, 0.0)
    if not total or not issued:
        return _InstructionCost(stack)
    waits = [stall for stall in stack if stall is not Stall.SELECTED]
    return _InstructionCost(
        stack=stack,
        share=total / result.prediction.cycles,
        stall_cycles=(total - issued) / issued,
        stall=waits[0].value if waits else "",
        producer=_find_producer(result, row) if waits and waits[0] in _SCOREBOARDS else -1,
    )


def _find_producer(result: ModelResult, row: int) -> int:
    return -1 if result.timeline is None else int(result.timeline.producers[row])
