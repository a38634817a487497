"""Checks that comparisons, carries and roundings of affine words are monotone over a box of CTAs.

A word that grows by d from one CTA to the next is v + d * t modulo 2^32. A comparison of it is monotone in t
as long as the word does not wrap around, neither as a signed nor as an unsigned number. The first CTA of a
box and its neighbor along each axis give v and d. Where a word wraps within the box, the step is evaluated
for all of the box's CTAs: its results must be the same in all of them (of a rounding, grow evenly).

    bx * 256 + tx < n        v = tx, d = 256: no wrap in a box of 1,000 CTAs, so corners decide
    bx * 2654435761 < 2^31   wraps at nearly every CTA: true and false alternate, the box is no proof
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.register_state import RegisterView
from analyzer.execution.profile.cta_boxes import N_AXES
from analyzer.ir.arrays import BoolArray, IntArray
from analyzer.isa.register_operands import PREDICATE_BASE

_SIGN_BIT = 1 << 31
_WORD_RANGE = 1 << 32
_MAX_EVALUATED_LANES = 1 << 20
_MAX_PRODUCT_READS = 2  # a product with an addend is an address, whose words are read together


def needs_wrap_check(step: Step) -> bool:
    """Return whether a step's results are decided by comparing, carrying or rounding its inputs."""
    decides = any(slot >= PREDICATE_BASE for slot in step.writes) or step.compute_invariants is not None
    return decides or step.rounded_index is not None or _is_plain_product(step)


def _is_plain_product(step: Step) -> bool:
    """Return whether a step gives both words of a product, of which code may read the upper one alone."""
    is_pair = step.affine_rule is AffineRule.PAIR_LINEAR and len(step.writes) > 1
    return is_pair and step.quotient_index is None and len(step.reads) <= _MAX_PRODUCT_READS


class _Growth(Struct, frozen=True, eq=False):
    """A word of all warps of a group, and its growth from CTA to CTA of a box; rows are those warps."""

    word: Value  # [n_row, n_lane]
    by_axis: IntArray  # [axis, n_row, n_lane], signed


def is_monotone_in_boxes(
    step: Step, words: list[Value], results: tuple[Value, ...], view: RegisterView, batch: CtaBatch
) -> bool:
    """Return whether a step's results in the executed CTAs of each box tell those in all of its CTAs."""
    steps = _count_steps(view, batch)
    if steps is None:
        return False
    if not steps.any():
        return True
    if _is_plain_product(step):
        low = _measure_growth(results[0], view, batch)
        return low is not None and not (_find_unsigned_wraps(low, steps) & view.group.mask).any()
    growths = [None if word.dtype == np.bool_ else _measure_growth(word, view, batch) for word in words]
    if any(growth is None for growth, word in zip(growths, words, strict=True) if word.dtype != np.bool_):
        return False
    wraps = np.zeros(view.group.mask.shape, dtype=np.bool_)
    for growth in growths:
        if growth is not None and growth.by_axis.any():
            wraps |= _find_unsigned_wraps(growth, steps) | _find_signed_wraps(growth, steps)
    rows = np.flatnonzero((wraps & view.group.mask).any(axis=1))
    return all(_is_even_over_box(step, words, growths, view, int(row), steps[:, row]) for row in rows)


def _count_steps(view: RegisterView, batch: CtaBatch) -> IntArray | None:
    """Return the CTAs of its box beyond the first that each warp stands for, [axis, n_row]."""
    ctas = view.group.warp_indices // batch.launch_shape.warps_per_cta
    if not batch.box_counts:
        return None
    return np.stack([counts[ctas] - 1 for counts in batch.box_counts])


def _measure_growth(word: Value, view: RegisterView, batch: CtaBatch) -> _Growth | None:
    """Return a word's growth to the next CTA along each axis; None if that CTA does not run too."""
    own, n_warps = view.group.warp_indices, batch.launch_shape.warps_per_cta
    rows = np.broadcast_to(view.to_warp_rows(word), (len(own), np.shape(word)[-1]))
    growth = np.zeros((N_AXES, *rows.shape), dtype=np.int64)
    if len(view.to_warp_rows(word)) == 1:
        return _Growth(rows, growth)
    ctas, warps = np.divmod(own, n_warps)
    for axis, neighbors in enumerate(batch.neighbor_ctas):
        moves = neighbors[ctas] >= 0
        if not moves.any():
            continue
        wanted = neighbors[ctas[moves]] * n_warps + warps[moves]
        places = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
        if (own[places] != wanted).any():
            return None
        growth[axis, moves] = (rows[places] - rows[moves]).view(np.int32)
    return _Growth(rows, growth)


def _find_unsigned_wraps(growth: _Growth, steps: IntArray) -> BoolArray:
    """Return the lanes whose word leaves the range of an unsigned number within the box, [n_row, n_lane]."""
    low, high = _find_range(growth.word.astype(np.int64), growth, steps)
    found: BoolArray = (low < 0) | (high >= _WORD_RANGE)
    return found


def _find_signed_wraps(growth: _Growth, steps: IntArray) -> BoolArray:
    """Return the same for signed numbers."""
    low, high = _find_range(np.ascontiguousarray(growth.word).view(np.int32).astype(np.int64), growth, steps)
    found: BoolArray = (low < -_SIGN_BIT) | (high >= _SIGN_BIT)
    return found


def _find_range(first: IntArray, growth: _Growth, steps: IntArray) -> tuple[IntArray, IntArray]:
    """Return the least and the largest number over the box."""
    moved = growth.by_axis * steps[:, :, None]
    return first + np.minimum(moved, 0).sum(axis=0), first + np.maximum(moved, 0).sum(axis=0)


def _is_even_over_box(
    step: Step,
    words: list[Value],
    growths: list[_Growth | None],
    view: RegisterView,
    row: int,
    steps: IntArray,
) -> bool:
    """Evaluate a step for all CTAs that one warp stands for; return whether its results are even.

    row: of the warp in the group; steps: CTAs beyond the first along each axis, [axis].
    """
    mask = view.group.mask[row]
    sizes = steps + 1
    if step.uses_active_mask or int(sizes.prod()) * len(mask) > _MAX_EVALUATED_LANES:
        return False
    at = np.indices(tuple(sizes.tolist())).reshape(N_AXES, -1)  # [axis, n_cta]
    moved = list(_iterate_box_words(words, growths, view, row, at))
    results = step.apply(*moved)
    decided = [value for value in results if value.dtype == np.bool_]
    if step.compute_invariants is not None:
        decided += step.compute_invariants(*moved)
    if not all(_is_same_in_rows(value, mask) for value in decided):
        return False
    if step.rounded_index is None or results[step.rounded_index].dtype == np.bool_:
        return True
    rounded = np.broadcast_to(results[step.rounded_index], (at.shape[1], len(mask)))
    firsts = [
        int(sizes[axis + 1 :].prod()) for axis in range(N_AXES)
    ]  # index of the next CTA along each axis
    grown = [
        rounded[first] - rounded[0] if steps[axis] else rounded[0] * 0 for axis, first in enumerate(firsts)
    ]
    expected = rounded[0] + sum(
        at[axis].astype(np.uint32)[:, None] * each[None, :] for axis, each in enumerate(grown)
    )
    return bool(((rounded == expected) | ~mask).all())


def _iterate_box_words(
    words: list[Value], growths: list[_Growth | None], view: RegisterView, row: int, at: IntArray
) -> Iterator[Value]:
    """Yield each word of one warp in all CTAs of its box, [n_cta, n_lane]."""
    for word, growth in zip(words, growths, strict=True):
        if growth is None:
            rows = view.to_warp_rows(word)
            yield rows[row if len(rows) > 1 else 0][None, :]
        else:
            moved = np.einsum("ac,al->cl", at, growth.by_axis[:, row])
            yield (growth.word[row].astype(np.int64) + moved).astype(np.uint32)


def _is_same_in_rows(value: Value, mask: BoolArray) -> bool:
    """Return whether a value is the same in all rows, in active lanes."""
    return bool(((value == value[:1]) | ~mask).all())
