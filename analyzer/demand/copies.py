"""Bytes that copy-engine instructions bring, from what arrivals at their mbarriers announce."""

from analyzer.demand.costs import FloatArray
from analyzer.execution.mbarriers import Rings
from analyzer.ir.opcode import Semantics


def copied_bytes(rings: Rings, weights: FloatArray) -> dict[int, float]:
    """Bytes of one execution of each copy, by row: the copies at a ring share alike what is announced there.

    weights[n]: executions of each instruction. Copies at rings where nothing is announced are left out.
    """
    announced = [0.0] * len(rings.rings)
    copies = [0.0] * len(rings.rings)
    for row, use in rings.uses.items():
        if use.meaning is Semantics.MBARRIER_ARRIVE:
            announced[use.ring] += use.expected_bytes * use.share * float(weights[row])
        elif use.meaning is Semantics.MBARRIER_COPY:
            copies[use.ring] += use.share * float(weights[row])
    return {
        row: use.share * announced[use.ring] / copies[use.ring]
        for row, use in rings.uses.items()
        if use.meaning is Semantics.MBARRIER_COPY and copies[use.ring] and announced[use.ring]
    }
