"""Checks, while CTAs that stand for others run, that logic operations keep what grows evenly even.

What only every fourth CTA would keep even (the alignment of rows of odd lengths) may be proven for every
fourth: see `Evenness.strides`.
"""

from functools import reduce
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


class Evenness:
    """`holds` until an operation is seen that neither passes its growing input's bits on nor stops them.

    strides: so many CTAs apart along each axis all operations would have kept them even; None where that
    would have to be too many.
    """

    def __init__(self, steps: set[Step]) -> None:
        self.steps = steps
        self.holds = True
        self.strides: Place | None = (1, 1, 1)

    def check(self, step: Step, words: list[Value], view: View, batch: "Batch") -> None:
        """Look at one logic operation of a group."""
        if step not in self.steps or self.strides is None:
            return
        for place, word in enumerate(words):
            moving = _moving_bits(word, view, batch)
            if moving is None:
                self.give_up()
                return
            if any(moving) and not _passes(step, words, place, _from_lowest(*moving)):
                self.holds = False
                self._widen([_doublings(step, words, place, bits) for bits in moving])

    def give_up(self) -> None:
        """Nothing can be proven of CTAs that stand for others, however far apart these are."""
        self.holds, self.strides = False, None

    def _widen(self, doublings: list[int | None]) -> None:
        if self.strides is None or None in doublings:
            self.strides = None
            return
        more = [1 << times for times in doublings if times is not None]
        x, y, z = map(max, self.strides, more)
        self.strides = x, y, z


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
