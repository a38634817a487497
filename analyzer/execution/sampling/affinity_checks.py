"""Checks, while CTAs that stand for others run, that logic operations keep what grows evenly even.

What only every fourth CTA would keep even (the alignment of rows of odd lengths), or every third (rows that
are read by threes), may be proven for every fourth or third: see `AffinityChecks.strides`.
"""

from functools import reduce
from math import lcm
from operator import or_

import numpy as np

from analyzer.execution.lowering.step import Step, Value
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.machine.register_state import RegisterView
from analyzer.execution.profile.cta_boxes import N_AXES, GridVector

_ALL_BITS = np.uint32(0xFFFFFFFF)
_MAX_STRIDE_DOUBLINGS = 5
MAX_STRIDE_CTAS = 64  # of CTAs that run alike, all axes together
_N_TRIED_CTAS = 4 * MAX_STRIDE_CTAS  # of CTAs for which a step is tried that rounds


class AffinityChecks:
    """`holds` until an operation is seen that neither passes its growing input's bits on nor stops them, or
    that rounds it unevenly.

    strides: so many CTAs apart along each axis all operations would have kept them even; None where that
    would have to be too many. What follows from words that were rounded unevenly is to be looked at in CTAs
    that are so far apart (`rounded`).
    """

    def __init__(self, steps: set[Step]) -> None:
        self.checked_steps = steps
        self.all_passed = True
        self.has_uneven_rounding = False
        self.affine_strides: GridVector | None = (1, 1, 1)

    def check_step(self, step: Step, words: list[Value], view: RegisterView, batch: CtaBatch) -> None:
        """Look at one operation of a group."""
        if step not in self.checked_steps or self.affine_strides is None or self.has_uneven_rounding:
            return
        if step.rounded_index is not None:
            self._check_rounding(step, words, view, batch)
            return
        for place, word in enumerate(words):
            varying_bits = _find_varying_bits(word, view, batch)
            if varying_bits is None:
                self.invalidate()
                return
            if any(varying_bits) and not _preserves_or_clears_bits(
                step, words, place, _mask_from_lowest_set_bit(*varying_bits)
            ):
                self.all_passed = False
                doublings = [_count_doublings(step, words, place, bits) for bits in varying_bits]
                self._widen_strides([None if times is None else 1 << times for times in doublings])

    def _check_rounding(self, step: Step, words: list[Value], view: RegisterView, batch: CtaBatch) -> None:
        strides = _find_rounding_strides(step, words, view, batch)
        if strides != [1] * N_AXES:
            self.all_passed, self.has_uneven_rounding = False, True
            self._widen_strides(strides)

    def invalidate(self) -> None:
        """Nothing can be proven of CTAs that stand for others, however far apart these are."""
        self.all_passed, self.affine_strides = False, None

    def _widen_strides(self, strides: list[int | None]) -> None:
        if self.affine_strides is None or None in strides:
            self.affine_strides = None
            return
        x, y, z = map(lcm, self.affine_strides, filter(None, strides))
        self.affine_strides = x, y, z


class AffinityCheckListener(ExecutionListener):
    """Checks the steps of one batch."""

    def __init__(self, checks: AffinityChecks, batch: CtaBatch) -> None:
        self.checks, self.batch = checks, batch

    def on_step(self, step: Step, words: list[Value], results: tuple[Value, ...], view: RegisterView) -> None:
        self.checks.check_step(step, words, view, self.batch)


def _find_rounding_strides(
    step: Step, words: list[Value], view: RegisterView, batch: CtaBatch
) -> list[int | None]:
    """How many CTAs apart along each axis a step rounds evenly, None where more than may be."""
    own = view.group.warp_indices
    rows = [view.to_warp_rows(word) for word in words]
    ctas, warps = np.divmod(own, batch.launch_shape.warps_per_cta)
    found: list[int | None] = []
    for beside in batch.neighbor_ctas:
        place = int((beside[ctas] >= 0).argmax())
        wanted = beside[ctas[place]] * batch.launch_shape.warps_per_cta + warps[place]
        other = int(np.searchsorted(own, wanted))
        if beside[ctas[place]] < 0:
            found.append(1)
        elif other == len(own) or own[other] != wanted:
            found.append(None)
        else:
            first = [row[place if len(row) > 1 else 0] for row in rows]
            moved = [row[other if len(row) > 1 else 0] for row in rows]
            found.append(_find_rounding_stride(step, first, moved))
    return found


def _find_rounding_stride(step: Step, first: list[Value], moved: list[Value]) -> int | None:
    """By how many turns of what its words grow by in one turn a step's result grows evenly."""
    multiples = np.arange(_N_TRIED_CTAS, dtype=np.uint32)[:, None]
    words = [
        word[None, :] if word.dtype == np.bool_ else word + (after - word) * multiples
        for word, after in zip(first, moved, strict=True)
    ]
    result = step.apply(*words)[step.rounded_index or 0]
    for stride in range(1, MAX_STRIDE_CTAS + 1):
        grown = result[stride:] - result[:-stride]
        if len(result) == 1 or bool((grown == grown[0]).all()):
            return stride
    return None


def _find_varying_bits(word: Value, view: RegisterView, batch: CtaBatch) -> list[int] | None:
    """Bits that change between neighbours along each axis; None where those do not run along."""
    rows = view.to_warp_rows(word)
    found = [0] * N_AXES
    if len(rows) == 1:
        return found
    own = view.group.warp_indices
    ctas, warps = np.divmod(own, batch.launch_shape.warps_per_cta)
    for axis, beside in enumerate(batch.neighbor_ctas):
        moves = beside[ctas] >= 0
        if not moves.any():
            continue
        wanted = beside[ctas[moves]] * batch.launch_shape.warps_per_cta + warps[moves]
        places = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
        if (own[places] != wanted).any():
            return None
        found[axis] = int(np.bitwise_or.reduce(rows[places] - rows[moves], axis=None))
    return found


def _mask_from_lowest_set_bit(*changed: int) -> int:
    """All bits from the lowest one on that changes."""
    bits = reduce(or_, changed)
    return (~((bits & -bits) - 1)) & int(_ALL_BITS) if bits else 0


def _count_doublings(step: Step, words: list[Value], place: int, varying_bits: int) -> int | None:
    """How often the distance between CTAs must be doubled for bits to pass or to be stopped."""
    for times in range(_MAX_STRIDE_DOUBLINGS + 1):
        bits = _mask_from_lowest_set_bit(varying_bits << times & int(_ALL_BITS))
        if not bits or _preserves_or_clears_bits(step, words, place, bits):
            return times
    return None


def _preserves_or_clears_bits(step: Step, words: list[Value], place: int, varying_bits: int) -> bool:
    """All moving bits of the input come out as they went in, or none of them comes out."""
    zeros, ones = list(words), list(words)
    zeros[place] = np.zeros((1, 1), dtype=np.uint32)
    ones[place] = np.full((1, 1), _ALL_BITS, dtype=np.uint32)
    bits = np.uint32(varying_bits)
    for off, on in zip(step.apply(*zeros), step.apply(*ones), strict=True):
        if off.dtype == np.bool_:
            continue
        stopped = not ((off ^ on) & bits).any()
        passed = not (off & bits).any() and bool(((on & bits) == bits).all())
        if not stopped and not passed:
            return False
    return True
