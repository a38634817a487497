"""Which CTAs of a grid are executed, and how many of the grid each stands for."""

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.profile.cta_boxes import N_AXES, CtaBox, delinearize_ctas, linearize_cta
from analyzer.execution.profile.execution_profile import make_read_only
from analyzer.execution.sampling.affinity_checks import AffinityChecks
from analyzer.ir.launch import Dim3

IntArray = NDArray[np.int64]
IsBusy = Callable[[int], bool]

MAX_EXHAUSTIVE_WARPS = 16384
HARD_MAX_EXHAUSTIVE_WARPS = 131072
_N_SCATTERED_CTAS = 256
_MAX_SINGLE_LAYERS = 8


class CtaSample(Struct, frozen=True, eq=False):
    """CTAs by linear number, and weights that sum to the grid.

    neighbours[axis][i]: place in `numbers` of the next CTA along an axis, -1 where none is needed;
    counts[axis][i]: CTAs along that axis that CTA i stands for, evenly placed.
    is_whole: every CTA; is_proven: the others run as those do, block for block and lane for lane, as long
    as `evenness` holds; has_even_accesses: and their memory accesses are those, moved evenly.
    """

    cta_numbers: IntArray
    weights: NDArray[np.float64]
    neighbor_ctas: tuple[IntArray, ...]
    box_counts: tuple[IntArray, ...]
    is_exhaustive: bool
    is_proven: bool
    has_affine_accesses: bool
    affinity_checks: AffinityChecks | None = None
    boxes: tuple[CtaBox, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        make_read_only(self.cta_numbers, self.weights, *self.neighbor_ctas, *self.box_counts)

    @property
    def is_proof_intact(self) -> bool:
        """Whether nothing was seen, in CTAs that have run, that speaks against what is proven."""
        return self.affinity_checks is None or self.affinity_checks.all_passed


def make_exhaustive_sample(grid: Dim3) -> CtaSample:
    """Every CTA."""
    return CtaSample(np.arange(grid.count, dtype=np.int64), np.ones(grid.count), (), (), True, True, True)


def make_grid_prefix(grid: Dim3, n_ctas: int) -> Dim3:
    """About so many CTAs of a grid, the first ones: whole rows, and whole planes, where there are as many."""
    n_ctas = max(1, min(n_ctas, grid.count))
    if n_ctas < grid.x:
        return Dim3(n_ctas)
    rows = min(grid.y * grid.z, math.ceil(n_ctas / grid.x))
    if rows < grid.y:
        return Dim3(grid.x, rows)
    return Dim3(grid.x, grid.y, min(grid.z, math.ceil(rows / grid.y)))


def find_grid_rows(grid: Dim3, numbers: IntArray) -> tuple[int, int] | None:
    """Rows and columns of CTAs, where these are whole rows of the grid, more than one."""
    width = grid.x
    if width == 1 or len(numbers) % width or len(numbers) == width or numbers[0] % width:
        return None
    return len(numbers) // width, width


def make_scattered_sample(grid: Dim3, n_ctas: int = _N_SCATTERED_CTAS) -> CtaSample:
    """CTAs spread over the grid, its first and last among them; nothing says that the others are alike.

    With each one goes the one that lies as far from the other end along all axes: what grows along an axis,
    as a causal attention's rows do, is neither over- nor underrated.
    """
    total = grid.count
    spread = np.linspace(0, total // 2, n_ctas // 4).astype(np.int64)
    random = np.random.default_rng(total).integers(0, total, n_ctas // 2)
    half = np.concatenate([spread, random])
    numbers = np.unique(np.concatenate([half, total - 1 - half]))
    weights = np.full(len(numbers), (total - 2) / max(1, len(numbers) - 2))
    weights[[0, -1]] = 1.0
    note = f"{len(numbers):,} of {total:,} CTAs executed: the others are taken to be like them"
    return CtaSample(numbers, weights, (), (), False, False, False, notes=(note,))


def find_busy_strata(grid: Dim3, is_busy: IsBusy) -> list[CtaBox] | None:
    """The grid as boxes of CTAs with work, and the rest; None where the last CTA along each axis has some.

    Work is taken to end along each axis at one place, which the CTAs on the axes tell.
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
    """Place along an axis behind the last CTA with work, on the edge of the grid."""
    low, high = 0, grid.sizes[axis]  # some work, none
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
    """One by one where they are few, since the last may have less work; else the last one apart."""
    if extent <= _MAX_SINGLE_LAYERS:
        return [(place, place) for place in range(extent)]
    return [(0, extent - 2), (extent - 1, extent - 1)]


def stratify_sample(sample: CtaSample, grid: Dim3, boxes: list[CtaBox]) -> CtaSample:
    """The same CTAs, weighted so that those of each box stand for it; a box without any gets its first."""
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
    """One CTA of each box, and its next one along each axis to see how addresses grow."""
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
    beside = [[-1] * N_AXES for _ in boxes]
    for index, box in enumerate(boxes):
        for axis in range(N_AXES):
            if box.sizes[axis] > 1:
                at = list(box.low)
                at[axis] += box.stride[axis]
                beside[index][axis] = place((at[0], at[1], at[2]), 0.0)
    n = len(weights)
    neighbours = tuple(np.full(n, -1, dtype=np.int64) for _ in range(N_AXES))
    counts = tuple(np.ones(n, dtype=np.int64) for _ in range(N_AXES))
    for index, box in enumerate(boxes):
        for axis in range(N_AXES):
            neighbours[axis][firsts[index]] = beside[index][axis]
            counts[axis][firsts[index]] = box.sizes[axis]
    return CtaSample(
        cta_numbers=np.array(list(places), dtype=np.int64),
        weights=np.array(weights),
        neighbor_ctas=neighbours,
        box_counts=counts,
        is_exhaustive=False,
        is_proven=True,
        has_affine_accesses=True,
        affinity_checks=affinity_checks,
        boxes=tuple(boxes),
    )
