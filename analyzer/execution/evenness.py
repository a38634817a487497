"""Checks, while CTAs that stand for others run, that logic operations keep what grows evenly even.

What only every fourth CTA would keep even (the alignment of rows of odd lengths), or every third (rows that
are read by threes), may be proven for every fourth or third: see `Evenness.strides`.
"""

from functools import reduce
from math import lcm
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from analyzer.execution.boxes import AXES, Place
from analyzer.execution.lanes import View
from analyzer.execution.step import Step, Value

if TYPE_CHECKING:
    from analyzer.execution.warps import Batch

_ALL = np.uint32(0xFFFFFFFF)
_MOST_DOUBLINGS = 5
MOST_STRIDE = 64  # of CTAs that run alike, all axes together
_TURNS = 4 * MOST_STRIDE  # of CTAs for which a step is tried that rounds


class Evenness:
    """`holds` until an operation is seen that neither passes its growing input's bits on nor stops them, or
    that rounds it unevenly.

    strides: so many CTAs apart along each axis all operations would have kept them even; None where that
    would have to be too many. What follows from words that were rounded unevenly is to be looked at in CTAs
    that are so far apart (`rounded`).
    """

    def __init__(self, steps: set[Step]) -> None:
        self.steps = steps
        self.holds = True
        self.rounded = False
        self.strides: Place | None = (1, 1, 1)

    def check(self, step: Step, words: list[Value], view: View, batch: "Batch") -> None:
        """Look at one operation of a group."""
        if step not in self.steps or self.strides is None or self.rounded:
            return
        if step.rounded is not None:
            self._check_rounding(step, words, view, batch)
            return
        for place, word in enumerate(words):
            moving = _moving_bits(word, view, batch)
            if moving is None:
                self.give_up()
                return
            if any(moving) and not _passes(step, words, place, _from_lowest(*moving)):
                self.holds = False
                doublings = [_doublings(step, words, place, bits) for bits in moving]
                self._widen([None if times is None else 1 << times for times in doublings])

    def _check_rounding(self, step: Step, words: list[Value], view: View, batch: "Batch") -> None:
        strides = _rounding_strides(step, words, view, batch)
        if strides != [1] * AXES:
            self.holds, self.rounded = False, True
            self._widen(strides)

    def give_up(self) -> None:
        """Nothing can be proven of CTAs that stand for others, however far apart these are."""
        self.holds, self.strides = False, None

    def _widen(self, strides: list[int | None]) -> None:
        if self.strides is None or None in strides:
            self.strides = None
            return
        x, y, z = map(lcm, self.strides, filter(None, strides))
        self.strides = x, y, z


def _rounding_strides(step: Step, words: list[Value], view: View, batch: "Batch") -> list[int | None]:
    """How many CTAs apart along each axis a step rounds evenly, None where more than may be."""
    own = view.group.rows
    rows = [view.flat(word) for word in words]
    ctas, warps = np.divmod(own, batch.shape.warps_per_cta)
    found: list[int | None] = []
    for beside in batch.neighbours:
        place = int((beside[ctas] >= 0).argmax())
        wanted = beside[ctas[place]] * batch.shape.warps_per_cta + warps[place]
        other = int(np.searchsorted(own, wanted))
        if beside[ctas[place]] < 0:
            found.append(1)
        elif other == len(own) or own[other] != wanted:
            found.append(None)
        else:
            first = [row[place if len(row) > 1 else 0] for row in rows]
            moved = [row[other if len(row) > 1 else 0] for row in rows]
            found.append(_rounding_stride(step, first, moved))
    return found


def _rounding_stride(step: Step, first: list[Value], moved: list[Value]) -> int | None:
    """By how many turns of what its words grow by in one turn a step's result grows evenly."""
    turns = np.arange(_TURNS, dtype=np.uint32)[:, None]
    words = [
        word[None, :] if word.dtype == np.bool_ else word + (after - word) * turns
        for word, after in zip(first, moved, strict=True)
    ]
    result = step.apply(*words)[step.rounded or 0]
    for stride in range(1, MOST_STRIDE + 1):
        grown = result[stride:] - result[:-stride]
        if len(result) == 1 or bool((grown == grown[0]).all()):
            return stride
    return None


def _moving_bits(word: Value, view: View, batch: "Batch") -> list[int] | None:
    """Bits that change between neighbours along each axis; None where those do not run along."""
    rows = view.flat(word)
    found = [0] * AXES
    if len(rows) == 1:
        return found
    own = view.group.rows
    ctas, warps = np.divmod(own, batch.shape.warps_per_cta)
    for axis, beside in enumerate(batch.neighbours):
        moves = beside[ctas] >= 0
        if not moves.any():
            continue
        wanted = beside[ctas[moves]] * batch.shape.warps_per_cta + warps[moves]
        places = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
        if (own[places] != wanted).any():
            return None
        found[axis] = int(np.bitwise_or.reduce(rows[places] - rows[moves], axis=None))
    return found


def _from_lowest(*changed: int) -> int:
    """All bits from the lowest one on that changes."""
    bits = reduce(or_, changed)
    return (~((bits & -bits) - 1)) & int(_ALL) if bits else 0


def _doublings(step: Step, words: list[Value], place: int, moving: int) -> int | None:
    """How often the distance between CTAs must be doubled for bits to pass or to be stopped."""
    for times in range(_MOST_DOUBLINGS + 1):
        bits = _from_lowest(moving << times & int(_ALL))
        if not bits or _passes(step, words, place, bits):
            return times
    return None


def _passes(step: Step, words: list[Value], place: int, moving: int) -> bool:
    """All moving bits of the input come out as they went in, or none of them comes out."""
    zeros, ones = list(words), list(words)
    zeros[place] = np.zeros((1, 1), dtype=np.uint32)
    ones[place] = np.full((1, 1), _ALL, dtype=np.uint32)
    bits = np.uint32(moving)
    for off, on in zip(step.apply(*zeros), step.apply(*ones), strict=True):
        if off.dtype == np.bool_:
            continue
        stopped = not ((off ^ on) & bits).any()
        passed = not (off & bits).any() and bool(((on & bits) == bits).all())
        if not stopped and not passed:
            return False
    return True
