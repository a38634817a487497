"""Samples of a grid: the CTAs to execute, and how many CTAs of the grid each represents.

- Exhaustive: every CTA.
- Boxes: one CTA of each box of equivalent CTAs, and its neighbor along each axis, of weight 0, which
  shows how addresses grow.
- Scattered: CTAs spread over the grid, which are assumed to represent the others. If the grid is larger than
  the work, it can be stratified into CTAs with work and CTAs that exit at once.

Invariant: weights sum to the number of CTAs of the grid.

Example: boxes of CTAs 0 to 7 and 8 to 9 give the CTAs 0, 8, 1, 9 with the weights 8, 2, 0, 0.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.profile.cta_boxes import N_AXES, CtaBox, delinearize_ctas, linearize_cta
from analyzer.execution.sampling.affinity_checks import AffinityChecks
from analyzer.ir.arrays import IntArray, make_read_only
from analyzer.ir.launch import Dim3

IsBusy = Callable[[int], bool]

MAX_EXHAUSTIVE_WARPS = 16384
HARD_MAX_EXHAUSTIVE_WARPS = 131072
_N_SCATTERED_CTAS = 256
_N_IDLE_CTAS = 8
_MAX_SINGLE_LAYERS = 8


class CtaSample(Struct, frozen=True, eq=False):
    """CTAs to execute, by linear number, with weights that sum to the grid."""

    cta_numbers: IntArray  # [n]
    weights: NDArray[np.float64]  # [n], CTAs of the grid that each represents
    neighbor_ctas: tuple[IntArray, ...]  # [axis][n], index of the next CTA along the axis, -1 if not needed
    box_counts: tuple[IntArray, ...]  # [axis][n], CTAs along the axis that each represents
    is_exhaustive: bool  # all CTAs of the grid
    # The others run as these do, block for block and lane for lane, as long as `affinity_checks` pass.
    is_proven: bool
    has_affine_accesses: bool  # and their addresses are affine functions of the CTA index
    affinity_checks: AffinityChecks | None = None
    boxes: tuple[CtaBox, ...] = ()  # boxes of CTAs that were proven equivalent
    notes: tuple[str, ...] = ()  # assumptions, for the report

    def __post_init__(self) -> None:
        make_read_only(self.cta_numbers, self.weights, *self.neighbor_ctas, *self.box_counts)

    @property
    def is_proof_intact(self) -> bool:
        """True unless the execution of the sample has contradicted the proof."""
        return self.affinity_checks is None or self.affinity_checks.all_passed


def make_exhaustive_sample(grid: Dim3) -> CtaSample:
    """Make a sample of every CTA."""
    return CtaSample(np.arange(grid.count, dtype=np.int64), np.ones(grid.count), (), (), True, True, True)


def make_grid_prefix(grid: Dim3, n_ctas: int) -> Dim3:
    """Return the size of a grid of about the first `n_ctas` CTAs, rounded up to whole rows and planes."""
    n_ctas = max(1, min(n_ctas, grid.count))
    if n_ctas < grid.x:
        return Dim3(n_ctas)
    rows = min(grid.y * grid.z, math.ceil(n_ctas / grid.x))
    if rows < grid.y:
        return Dim3(grid.x, rows)
    return Dim3(grid.x, grid.y, min(grid.z, math.ceil(rows / grid.y)))


def find_grid_rows(grid: Dim3, numbers: IntArray) -> tuple[int, int] | None:
    """Return the numbers of rows and columns if CTAs are several whole rows of the grid, else None."""
    width = grid.x
    if width == 1 or len(numbers) % width or len(numbers) == width or numbers[0] % width:
        return None
    return len(numbers) // width, width


def make_scattered_sample(grid: Dim3, n_ctas: int = _N_SCATTERED_CTAS) -> CtaSample:
    """Make a sample of CTAs spread over the grid, its first and last among them.

    Half of them are chosen; the other half mirrors them, at the same distance from the other end of the grid.
    So work that grows along an axis, as in causal attention, is neither over- nor underestimated.
    """
    total = grid.count
    spread = np.linspace(0, total // 2, n_ctas // 4).astype(np.int64)
    random = np.random.default_rng(total).integers(0, total, n_ctas // 2)
    half = np.concatenate([spread, random])
    numbers = np.unique(np.concatenate([half, total - 1 - half]))
    weights = np.full(len(numbers), (total - 2) / max(1, len(numbers) - 2))
    weights[[0, -1]] = 1.0
    note = f"{len(numbers):,} of {total:,} CTAs executed: the others are assumed to be like them"
    return CtaSample(numbers, weights, (), (), False, False, False, notes=(note,))


def make_working_sample(
    working: IntArray, idle: IntArray, grid: Dim3, n_ctas: int = _N_SCATTERED_CTAS
) -> CtaSample:
    """Make a sample of CTAs spread over those that have work, as if they were the grid, and few idle ones.

    working, idle: ascending linear numbers; where they are not the whole grid, they are assumed like it.
    """
    some = make_scattered_sample(Dim3(len(working)), n_ctas)
    few = np.unique(idle[np.linspace(0, len(idle) - 1, _N_IDLE_CTAS).astype(np.int64)])
    scale = grid.count / (len(working) + len(idle))
    numbers = np.concatenate([working[some.cta_numbers], few])
    weights = np.concatenate(
        [
            some.weights * (scale * len(working) / some.weights.sum()),
            np.full(len(few), scale * len(idle) / len(few)),
        ]
    )
    order = np.argsort(numbers)
    note = (
        f"{len(some.cta_numbers):,} of about {scale * len(working):,.0f} CTAs that have work executed, and "
        f"{len(few):,} of those that leave before any loop: the others are assumed to be like them"
    )
    return replace(some, cta_numbers=numbers[order], weights=weights[order], notes=(note,))


def find_busy_strata(grid: Dim3, is_busy: IsBusy) -> list[CtaBox] | None:
    """Split the grid into boxes of CTAs with and without work; None if the last CTA along each axis has work.

    Work is assumed to end at one position along each axis, which is found by bisection on the grid's edges.
    """
    ends = [_linearize_on_axis(grid, axis, grid.sizes[axis] - 1) for axis in range(N_AXES)]
    if all(is_busy(number) for number in sorted(set(ends))) or not is_busy(0):
        return None
    x, y, z = (_find_first_idle(grid, axis, is_busy) for axis in range(N_AXES))
    busy = [
        CtaBox((a[0], b[0], c[0]), (a[1], b[1], c[1]))
        for a, b, c in product(_split_layers(x), _split_layers(y), _split_layers(z))
    ]
    idle = []
    if x < grid.x:
        idle.append(CtaBox((x, 0, 0), (grid.x - 1, grid.y - 1, grid.z - 1)))
    if y < grid.y:
        idle.append(CtaBox((0, y, 0), (x - 1, grid.y - 1, grid.z - 1)))
    if z < grid.z:
        idle.append(CtaBox((0, 0, z), (x - 1, y - 1, grid.z - 1)))
    return busy + idle


def _find_first_idle(grid: Dim3, axis: int, is_busy: IsBusy) -> int:
    """Return the position after the last CTA with work along an edge of the grid."""
    low, high = 0, grid.sizes[axis]  # CTA `low` has work, CTA `high` has none
    if high > 1 and is_busy(_linearize_on_axis(grid, axis, high - 1)):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if is_busy(_linearize_on_axis(grid, axis, middle)):
            low = middle
        else:
            high = middle
    return high


def _linearize_on_axis(grid: Dim3, axis: int, place: int) -> int:
    at = [0] * N_AXES
    at[axis] = place
    return linearize_cta(grid, (at[0], at[1], at[2]))


def _split_layers(extent: int) -> list[tuple[int, int]]:
    """Split a range of layers: into single ones if they are few, else into the last one and the others.

    The last layer may have less work.
    """
    if extent <= _MAX_SINGLE_LAYERS:
        return [(place, place) for place in range(extent)]
    return [(0, extent - 2), (extent - 1, extent - 1)]


def stratify_sample(sample: CtaSample, grid: Dim3, boxes: list[CtaBox]) -> CtaSample:
    """Weight the CTAs of a sample so that those in each box represent it; add one to a box that has none."""
    x, y, z = delinearize_ctas(grid, sample.cta_numbers)
    numbers, weights = [sample.cta_numbers], [np.zeros(len(sample.cta_numbers))]
    for box in boxes:
        inside = box.contains(x, y, z)
        if inside.any():
            weights[0][inside] = box.n_ctas / np.count_nonzero(inside)
        else:
            numbers.append(np.array([linearize_cta(grid, box.low)], dtype=np.int64))
            weights.append(np.array([float(box.n_ctas)]))
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return replace(sample, cta_numbers=np.concatenate(numbers)[order], weights=np.concatenate(weights)[order])


def make_box_sample(
    grid: Dim3, boxes: Sequence[CtaBox], affinity_checks: AffinityChecks | None = None
) -> CtaSample:
    """Make a sample of the first CTA of each box and its neighbor along each axis."""
    places: dict[int, int] = {}
    weights: list[float] = []

    def place(at: tuple[int, int, int], weight: float) -> int:
        number = linearize_cta(grid, at)
        if number not in places:
            places[number] = len(weights)
            weights.append(0.0)
        weights[places[number]] += weight
        return places[number]

    firsts = [place(box.low, float(box.n_ctas)) for box in boxes]
    neighbor_index = [[-1] * N_AXES for _ in boxes]
    for index, box in enumerate(boxes):
        for axis in range(N_AXES):
            if box.sizes[axis] > 1:
                at = list(box.low)
                at[axis] += box.stride[axis]
                neighbor_index[index][axis] = place((at[0], at[1], at[2]), 0.0)
    n = len(weights)
    neighbor_ctas = tuple(np.full(n, -1, dtype=np.int64) for _ in range(N_AXES))
    box_counts = tuple(np.ones(n, dtype=np.int64) for _ in range(N_AXES))
    for index, box in enumerate(boxes):
        for axis in range(N_AXES):
            neighbor_ctas[axis][firsts[index]] = neighbor_index[index][axis]
            box_counts[axis][firsts[index]] = box.sizes[axis]
    return CtaSample(
        cta_numbers=np.array(list(places), dtype=np.int64),
        weights=np.array(weights),
        neighbor_ctas=neighbor_ctas,
        box_counts=box_counts,
        is_exhaustive=False,
        is_proven=True,
        has_affine_accesses=True,
        affinity_checks=affinity_checks,
        boxes=tuple(boxes),
    )
