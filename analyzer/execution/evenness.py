"""Checks, while CTAs that stand for others run, that logic operations keep what grows evenly even."""

from typing import TYPE_CHECKING

import numpy as np

from analyzer.execution.lanes import View
from analyzer.execution.step import Step, Value

if TYPE_CHECKING:
    from analyzer.execution.warps import Batch

_ALL = np.uint32(0xFFFFFFFF)


class Evenness:
    """`holds` until an operation is seen that neither passes its growing input's bits on nor stops them."""

    def __init__(self, steps: set[Step]) -> None:
        self.steps = steps
        self.holds = True

    def check(self, step: Step, words: list[Value], view: View, batch: "Batch") -> None:
        """Look at one logic operation of a group."""
        if step not in self.steps or not self.holds:
            return
        for place, word in enumerate(words):
            moving = _moving_bits(word, view, batch)
            if moving is None:
                self.holds = False
            elif moving:
                self.holds = self.holds and _passes(step, words, place, moving)


def _moving_bits(word: Value, view: View, batch: "Batch") -> int | None:
    """Bits from the lowest on that changes between neighbours; None where those do not run along."""
    rows = view.flat(word)
    if len(rows) == 1:
        return 0
    own = view.group.rows
    ctas, warps = np.divmod(own, batch.shape.warps_per_cta)
    changed = np.uint32(0)
    for beside in batch.neighbours:
        moves = beside[ctas] >= 0
        if not moves.any():
            continue
        wanted = beside[ctas[moves]] * batch.shape.warps_per_cta + warps[moves]
        places = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
        if (own[places] != wanted).any():
            return None
        changed |= np.bitwise_or.reduce(rows[places] - rows[moves], axis=None)
    bits = int(changed)
    return (~((bits & -bits) - 1)) & int(_ALL) if bits else 0


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
