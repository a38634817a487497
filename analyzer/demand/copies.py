"""Bytes that copy-engine instructions bring, from what arrivals at their mbarriers announce."""

from msgspec.structs import replace

from analyzer.demand.costs import FloatArray
from analyzer.execution.mbarriers import Rings
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopNest
from analyzer.ir.opcode import Semantics


def with_parts(rings: Rings, cfg: Cfg, nest: LoopNest, weights: FloatArray) -> Rings:
    """Rings that tell in which part of a loop's rounds what is predicated off at its ends is done.

    weights[n]: executions of each instruction.
    """
    uses = dict(rings.uses)
    for row, use in rings.uses.items():
        loop = nest.loop_of[cfg.block_of[row]]
        if loop is not None and use.odd_ends is not None and use.odd_ends.is_guarded:
            rounds = _rounds(cfg, nest.loops[loop], weights, each_time=use.odd_ends.every_time)
            uses[row] = replace(use, part=use.odd_ends.part(rounds))
    return replace(rings, uses=uses)


def copied_ahead_bytes(rings: Rings) -> float:
    """At least what lies in shared memory of a CTA where copies fill all the buffers of their rings."""
    most = [0.0] * len(rings.rings)
    filled = {use.ring for use in rings.uses.values() if use.meaning is Semantics.MBARRIER_COPY}
    for use in rings.uses.values():
        if use.ring in filled and use.meaning is Semantics.MBARRIER_ARRIVE:
            most[use.ring] = max(most[use.ring], use.expected_bytes * min(1.0, use.share))
    return sum(ring.barriers * n_bytes for ring, n_bytes in zip(rings.rings, most, strict=True))


def _rounds(cfg: Cfg, loop: Loop, weights: FloatArray, *, each_time: bool) -> float:
    """Of a warp through a loop, each time that it comes to it or in all."""
    rounds = float(weights[cfg.blocks[loop.header].start])
    outside = [block for block in cfg.predecessors[loop.header] if block not in loop.blocks]
    entries = sum(float(weights[cfg.blocks[block].start]) for block in outside)
    return rounds / entries if each_time and 0.0 < entries < rounds else rounds


def copied_bytes(rings: Rings, weights: FloatArray) -> dict[int, float]:
    """Bytes of one execution of each copy, by row: the copies at a ring share alike what is announced there.

    weights[n]: executions of each instruction. Copies at rings where nothing is announced are left out.
    """
    announced = [0.0] * len(rings.rings)
    copies = [0.0] * len(rings.rings)
    for row, use in rings.uses.items():
        if use.meaning is Semantics.MBARRIER_ARRIVE:
            announced[use.ring] += use.expected_bytes * use.share * use.part * float(weights[row])
        elif use.meaning is Semantics.MBARRIER_COPY:
            copies[use.ring] += use.share * use.part * float(weights[row])
    return {
        row: use.share * use.part * announced[use.ring] / copies[use.ring]
        for row, use in rings.uses.items()
        if use.meaning is Semantics.MBARRIER_COPY and copies[use.ring] and announced[use.ring]
    }
