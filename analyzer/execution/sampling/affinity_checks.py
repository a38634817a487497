"""Checks that bitwise and rounding operations keep values affine in the CTA's index.

A box of CTAs is represented by a few of them if all values that control flow and addresses depend on are
affine in the CTA's index. A bitwise operation or a rounding one (a shift to the right, a division) keeps them
so only for some inputs. While CTAs that represent others run, each such operation is checked:

1. A bitwise operation must pass on all bits that change between neighbor CTAs, or none of them.
2. The result of a rounding operation must grow by the same amount from each CTA to the next.

3. The inputs of a step that compares, carries or rounds must not wrap around 2^32 within the box; if they do,
   its results must be even nevertheless (`wrap_checks`).

What does not hold from one CTA to the next may hold from each fourth to the next (alignment of rows of odd
lengths), or each third (rows that are read in threes): see `AffinityChecks.affine_strides`.
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
from analyzer.execution.sampling.wrap_checks import is_monotone_in_boxes

_ALL_BITS = np.uint32(0xFFFFFFFF)
_MAX_STRIDE_DOUBLINGS = 5
MAX_STRIDE_CTAS = 64  # between equivalent CTAs, product over all axes
_N_TRIED_CTAS = 4 * MAX_STRIDE_CTAS  # in a row, for which a rounding step is tried


class AffinityChecks:
    """Results of the checks of some steps."""

    def __init__(self, steps: set[Step], monotone_steps: set[Step] | None = None) -> None:
        self.checked_steps, self.monotone_steps = steps, monotone_steps or set()
        self.all_passed = True
        # A word was rounded unevenly: what follows from it is to be checked between CTAs further apart.
        self.has_uneven_rounding = False
        # CTAs apart along each axis for which all steps would have passed; None if there are none so far.
        self.affine_strides: GridVector | None = (1, 1, 1)

    def check_step(self, step: Step, words: list[Value], view: RegisterView, batch: CtaBatch) -> None:
        """Check one step of a group."""
        if step not in self.checked_steps or self.affine_strides is None or self.has_uneven_rounding:
            return
        if step.rounded_index is not None:
            self._check_rounding(step, words, view, batch)
            return
        for place, word in enumerate(words):
            varying_bits = _find_varying_bits(word, view, batch)
            if varying_bits is None:
                self.reject_proof()
                return
            if any(varying_bits) and not _preserves_or_clears_bits(
                step, words, place, _mask_from_lowest_set_bit(*varying_bits)
            ):
                self.all_passed = False
                doublings = [_count_doublings(step, words, place, bits) for bits in varying_bits]
                self._widen_strides([None if times is None else 1 << times for times in doublings])

    def _check_rounding(self, step: Step, words: list[Value], view: RegisterView, batch: CtaBatch) -> None:
        """Check that a rounding step grows evenly from CTA to CTA."""
        strides = _find_rounding_strides(step, words, view, batch)
        if strides != [1] * N_AXES:
            self.all_passed, self.has_uneven_rounding = False, True
            self._widen_strides(strides)

    def reject_proof(self) -> None:
        """Record that nothing can be proven, however far apart CTAs are."""
        self.all_passed, self.affine_strides = False, None

    def _widen_strides(self, strides: list[int | None]) -> None:
        """Combine with the strides for which one more step passes; None for none."""
        if self.affine_strides is None or None in strides:
            self.affine_strides = None
            return
        x, y, z = map(lcm, self.affine_strides, filter(None, strides))
        self.affine_strides = x, y, z


class AffinityCheckListener(ExecutionListener):
    """Checks the steps of a batch while it runs."""

    def __init__(self, checks: AffinityChecks, batch: CtaBatch) -> None:
        self.checks, self.batch = checks, batch

    def on_step(self, step: Step, words: list[Value], results: tuple[Value, ...], view: RegisterView) -> None:
        if (
            step in self.checks.monotone_steps
            and self.checks.all_passed
            and not is_monotone_in_boxes(step, words, results, view, self.batch)
        ):
            self.checks.reject_proof()
        self.checks.check_step(step, words, view, self.batch)


def _find_rounding_strides(
    step: Step, words: list[Value], view: RegisterView, batch: CtaBatch
) -> list[int | None]:
    """Return how many CTAs apart along each axis a step rounds evenly, None if further than allowed."""
    own = view.group.warp_indices
    rows = [view.to_warp_rows(word) for word in words]
    ctas, warps = np.divmod(own, batch.launch_shape.warps_per_cta)
    found: list[int | None] = []
    for neighbors in batch.neighbor_ctas:
        place = int((neighbors[ctas] >= 0).argmax())
        wanted = neighbors[ctas[place]] * batch.launch_shape.warps_per_cta + warps[place]
        other = int(np.searchsorted(own, wanted))
        if neighbors[ctas[place]] < 0:
            found.append(1)
        elif other == len(own) or own[other] != wanted:
            found.append(None)
        else:
            first = [row[place if len(row) > 1 else 0] for row in rows]
            moved = [row[other if len(row) > 1 else 0] for row in rows]
            found.append(_find_rounding_stride(step, first, moved))
    return found


def _find_rounding_stride(step: Step, first: list[Value], moved: list[Value]) -> int | None:
    """Return the smallest number of CTAs over which a step's result grows evenly, None if too many.

    first, moved: inputs in a CTA and in the next one, between which they grow evenly.
    """
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
    """Return the bits that change between neighbor CTAs along each axis; None if these do not run too."""
    rows = view.to_warp_rows(word)
    found = [0] * N_AXES
    if len(rows) == 1:
        return found
    own = view.group.warp_indices
    ctas, warps = np.divmod(own, batch.launch_shape.warps_per_cta)
    for axis, neighbors in enumerate(batch.neighbor_ctas):
        moves = neighbors[ctas] >= 0
        if not moves.any():
            continue
        wanted = neighbors[ctas[moves]] * batch.launch_shape.warps_per_cta + warps[moves]
        places = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
        if (own[places] != wanted).any():
            return None
        found[axis] = int(np.bitwise_or.reduce(rows[places] - rows[moves], axis=None))
    return found


def _mask_from_lowest_set_bit(*changed: int) -> int:
    """Return all bits from the lowest changed one on."""
    bits = reduce(or_, changed)
    return (~((bits & -bits) - 1)) & int(_ALL_BITS) if bits else 0


def _count_doublings(step: Step, words: list[Value], place: int, varying_bits: int) -> int | None:
    """Return how often to double the distance between CTAs until a step passes on or clears all bits."""
    for times in range(_MAX_STRIDE_DOUBLINGS + 1):
        bits = _mask_from_lowest_set_bit(varying_bits << times & int(_ALL_BITS))
        if not bits or _preserves_or_clears_bits(step, words, place, bits):
            return times
    return None


def _preserves_or_clears_bits(step: Step, words: list[Value], place: int, varying_bits: int) -> bool:
    """Return whether all varying bits of the input come out unchanged, or none of them comes out."""
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
