"""Bytes that copy-engine instructions bring, from what arrivals at their mbarriers announce."""

from collections.abc import Container, Mapping
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.costs import FloatArray
from analyzer.execution.box_pitches import box_volume
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.rings import Rings
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopNest
from analyzer.ir.opcode import Semantics

LINE_BYTES = 128
# Of a box (cuTensorMapEncodeTiled): rows are of so many units of so many bytes, since an axis has at most 256
# elements.
_ROW_UNIT, _ROW_UNITS = 16, range(1, 129)
_ELEMENT_BYTES = (1, 2, 4, 8)
_ROUNDING = 0.01


class CopiedBox(Struct, frozen=True):
    """What one execution of a copy brings: rows of so many bytes, each at a multiple of them."""

    n_bytes: float
    row_bytes: int

    @property
    def sector_bytes(self) -> float:
        """Of the whole sectors in which its rows lie."""
        return self._units(SECTOR_BYTES) * SECTOR_BYTES

    @property
    def lines(self) -> float:
        """Requests to the L2: one for each line of each row."""
        return self._units(LINE_BYTES)

    def _units(self, unit: int) -> float:
        return self.n_bytes / self.row_bytes * max(1.0, self.row_bytes / unit)


def copied_boxes(rings: Rings, copied: Mapping[int, float]) -> dict[int, CopiedBox]:
    """The boxes of copies of which only the bytes are known, by row.

    copied: bytes of one execution. Boxes of a tensor are taken to lie side by side: then they are as far
    apart along an axis as they are long, and what their bytes leave for the innermost axis is a row. Left out
    are copies of which that is not told along some other axis, or is at odds with the innermost one.
    """
    found: dict[int, CopiedBox] = {}
    for row, n_bytes in copied.items():
        inner, *others = rings.pitches.get(row, (0,))
        row_bytes = n_bytes / prod(others) if others and all(others) else 0.0
        if _is_one_of(row_bytes / _ROW_UNIT, _ROW_UNITS) and (
            not inner or _is_one_of(row_bytes / inner, _ELEMENT_BYTES)
        ):
            found[row] = CopiedBox(n_bytes, _ROW_UNIT * round(row_bytes / _ROW_UNIT))
    return found


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
    """Of a warp through a loop, each time that it comes to it or in all; of those that come to it, where
    fewer do: once each, as far as is known.
    """
    rounds = float(weights[cfg.blocks[loop.header].start])
    outside = [block for block in cfg.predecessors[loop.header] if block not in loop.blocks]
    entries = sum(float(weights[cfg.blocks[block].start]) for block in outside)
    return rounds / entries if 0.0 < entries < (rounds if each_time else 1.0) else rounds


def copied_bytes(rings: Rings, weights: FloatArray) -> dict[int, float]:
    """Bytes of one execution of each copy, by row: the copies at a ring share what is announced there, by
    the volume of their boxes where that is told of all of them, else alike.

    weights[n]: executions of each instruction. Copies at rings where nothing is announced are left out. What
    goes to several CTAs of a cluster comes to each from all of them.
    """
    announced = [0.0] * len(rings.rings)
    copies: list[dict[int, float]] = [{} for _ in rings.rings]
    for row, use in rings.uses.items():
        times = use.share * use.part * float(weights[row])
        if use.meaning is Semantics.MBARRIER_ARRIVE:
            announced[use.ring] += use.expected_bytes * times
        elif use.meaning is Semantics.MBARRIER_COPY:
            copies[use.ring][row] = times * use.n_ctas
    found: dict[int, float] = {}
    for n_bytes, times_of in zip(announced, copies, strict=True):
        sizes = _volumes(rings, n_bytes, times_of)
        whole = sum(sizes[row] * times for row, times in times_of.items())
        for row in times_of if whole and n_bytes else ():
            use = rings.uses[row]
            found[row] = use.share * use.part * n_bytes * sizes[row] / whole
    return found


def _volumes(rings: Rings, n_bytes: float, times_of: Mapping[int, float]) -> dict[int, float]:
    """Of the boxes of some copies that bring so many bytes, in one unit; such that all come to as much in
    each CTA where they are not told.

    times_of: how often each of them comes to a CTA.
    """
    boxes = {row: rings.pitches.get(row, (0, 0)) for row in times_of}
    volumes = {row: box_volume(pitches) for row, pitches in boxes.items()}
    found = {row: float(volume) for row, volume in volumes.items() if volume is not None}
    inner = {bool(pitches[0]) for pitches in boxes.values()}
    whole = sum(volume * times_of[row] for row, volume in found.items())
    is_told = inner == {False} or (
        inner == {True} and whole > 0 and _is_one_of(n_bytes / whole, _ELEMENT_BYTES)
    )
    if is_told and len(found) == len(boxes):
        return found
    return {row: 1.0 / rings.uses[row].n_ctas for row in times_of}


def _is_one_of(number: float, known: Container[int]) -> bool:
    """But for what counts in the mean leave over."""
    return round(number) in known and abs(number / round(number) - 1.0) < _ROUNDING
