"""Instructions as report entries, with what they cost and what they wait for."""

import numpy as np

from analyzer.isa.control_bits import decode_control
from analyzer.models.walk import N_CAUSES, STALL_OF, Cause
from analyzer.report.analysis import KernelAnalysis
from analyzer.report.report import ListingEntry


def listing_entries(analysis: KernelAnalysis) -> tuple[ListingEntry, ...]:
    """One entry per instruction of the code, padding left out."""
    kernel, first = analysis.kernel, analysis.first
    situation = first.situation if first else None
    walk = first.walk if first else None
    profile, block_of = analysis.profile, analysis.cfg.block_of
    n = analysis.cfg.blocks[-1].stop
    weights = situation.weights if situation else np.zeros(len(kernel))
    entries = []
    for row in range(n):
        opcode = kernel.opcode(row)
        waits = walk.waits[row] if walk else np.zeros(N_CAUSES)
        producer = int(walk.producer[row]) if walk else -1
        worst = int(np.argmax(waits))
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
                stall_cycles=float(waits.sum()),
                stall=STALL_OF[Cause(worst)].value if waits[worst] > 0 else "",
                producer=int(kernel.addresses[producer]) if producer >= 0 else None,
                source=str(kernel.origin(row) or ""),
            )
        )
    return tuple(entries)
