"""Instructions as report entries, with what they cost and what they wait for."""

import numpy as np
from msgspec import Struct

from analyzer.isa.control_bits import decode_control
from analyzer.models.base import Stall
from analyzer.models.verdict import Verdict
from analyzer.report.analysis import KernelAnalysis
from analyzer.report.report import ListingEntry

_SCOREBOARDS = frozenset({Stall.SHORT_SCOREBOARD, Stall.LONG_SCOREBOARD})


class _Cost(Struct, frozen=True):
    """Cycles of the launch by stall; stall_cycles: beyond issue, per execution; producer: the row waited for
    where that costs most, -1 for none.
    """

    stack: dict[Stall, float]
    share: float = 0.0
    stall_cycles: float = 0.0
    stall: str = ""
    producer: int = -1


def listing_entries(analysis: KernelAnalysis) -> tuple[ListingEntry, ...]:
    """One entry per instruction of the code, padding left out."""
    kernel, first = analysis.kernel, analysis.first
    situation = first.situation if first else None
    profile, block_of = analysis.profile, analysis.cfg.block_of
    n = analysis.cfg.blocks[-1].stop
    weights = situation.weights if situation else np.zeros(len(kernel))
    entries = []
    for row in range(n):
        opcode = kernel.opcode(row)
        cost = _cost(first, row) if first else _Cost({})
        figures = situation.arch.sched.get(opcode.sched) if situation else None
        word = None if kernel.control_words is None else int(kernel.control_words[row])
        entries.append(
            ListingEntry(
                address=int(kernel.addresses[row]),
                instruction=kernel.form(row).text,
                pipe=figures.pipe.value if figures else "",
                known=opcode.known,
                control="" if word is None else str(decode_control(word)),
                executed_per_warp=float(weights[row]),
                executed_warps=None if profile is None else int(profile.block_warps[block_of[row]]),
                provenance=(
                    analysis.counts.provenance if profile is None else profile.block_provenance[block_of[row]]
                ).value,
                stall_cycles=cost.stall_cycles,
                stall=cost.stall,
                share=cost.share,
                cpi_stack={stall.value: cycles for stall, cycles in cost.stack.items()},
                producer=int(kernel.addresses[cost.producer]) if cost.producer >= 0 else None,
                source=str(kernel.origin(row) or ""),
            )
        )
    return tuple(entries)


def _cost(verdict: Verdict, row: int) -> _Cost:
    """What a model charges one instruction."""
    stack = verdict.stalls.stack_of([row])
    total, issued = sum(stack.values()), stack.get(Stall.SELECTED, 0.0)
    if not total or not issued:
        return _Cost(stack)
    waits = [stall for stall in stack if stall is not Stall.SELECTED]
    return _Cost(
        stack=stack,
        share=total / verdict.prediction.cycles,
        stall_cycles=(total - issued) / issued,
        stall=waits[0].value if waits else "",
        producer=int(verdict.walk.producer[row]) if waits and waits[0] in _SCOREBOARDS else -1,
    )
