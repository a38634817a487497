"""Which CTAs of a grid are executed, and how many of the grid each stands for."""

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.boxes import AXES, Box, cta_number, cta_places
from analyzer.execution.evenness import Evenness
from analyzer.ir.launch import Dim3

IntArray = NDArray[np.int64]
IsBusy = Callable[[int], bool]

WHOLE_WARPS = 16384
MOST_WHOLE_WARPS = 131072
_SAMPLED = 256
_FEW_LAYERS = 8


class Sample(Struct, frozen=True, eq=False):
    """CTAs by linear number, and weights that sum to the grid.

    neighbours[axis][i]: place in `numbers` of the next CTA along an axis, -1 where none is needed;
    counts[axis][i]: CTAs along that axis that CTA i stands for, evenly placed.
    is_whole: every CTA; is_proven: the others run as those do, block for block and lane for lane, as long
    as `evenness` holds; has_even_accesses: and their memory accesses are those, moved evenly.
    """

    numbers: IntArray
    weights: NDArray[np.float64]
    neighbours: tuple[IntArray, ...]
    counts: tuple[IntArray, ...]
    is_whole: bool
    is_proven: bool
    has_even_accesses: bool
    evenness: Evenness | None = None
    boxes: tuple[Box, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing was seen, in CTAs that have run, that speaks against what is proven."""
        return self.evenness is None or self.evenness.holds


def whole_grid(grid: Dim3) -> Sample:
    """Every CTA."""
    return Sample(np.arange(grid.count, dtype=np.int64), np.ones(grid.count), (), (), True, True, True)


def first_ctas(grid: Dim3, n_ctas: int) -> Dim3:
    """About so many CTAs of a grid, the first ones: whole rows, and whole planes, where there are as many."""
    n_ctas = max(1, min(n_ctas, grid.count))
    if n_ctas < grid.x:
        return Dim3(n_ctas)
    rows = min(grid.y * grid.z, math.ceil(n_ctas / grid.x))
    if rows < grid.y:
        return Dim3(grid.x, rows)
    return Dim3(grid.x, grid.y, min(grid.z, math.ceil(rows / grid.y)))


def rows_of_grid(grid: Dim3, numbers: IntArray) -> tuple[int, int] | None:
    """Rows and columns of CTAs, where these are whole rows of the grid, more than one."""
    width = grid.x
    if width == 1 or len(numbers) % width or len(numbers) == width or numbers[0] % width:
        return None
    return len(numbers) // width, width


def scattered(grid: Dim3, n_ctas: int = _SAMPLED) -> Sample:
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
    return Sample(numbers, weights, (), (), False, False, False, notes=(note,))


def busy_strata(grid: Dim3, is_busy: IsBusy) -> list[Box] | None:
    """The grid as boxes of CTAs with work, and the rest; None where the last CTA along each axis has some.

    Work is taken to end along each axis at one place, which the CTAs on the axes tell.
    """
    ends = [_axis_number(grid, axis, grid.sizes[axis] - 1) for axis in range(AXES)]
    if all(is_busy(number) for number in sorted(set(ends))) or not is_busy(0):
        return None
    x, y, z = (_first_idle(grid, axis, is_busy) for axis in range(AXES))
    busy = [
        Box((a[0], b[0], c[0]), (a[1], b[1], c[1])) for a, b, c in product(_layers(x), _layers(y), _layers(z))
    ]
    idle = []
    if x < grid.x:
        idle.append(Box((x, 0, 0), (grid.x - 1, grid.y - 1, grid.z - 1)))
    if y < grid.y:
        idle.append(Box((0, y, 0), (x - 1, grid.y - 1, grid.z - 1)))
    if z < grid.z:
        idle.append(Box((0, 0, z), (x - 1, y - 1, grid.z - 1)))
    return busy + idle


def _first_idle(grid: Dim3, axis: int, is_busy: IsBusy) -> int:
    """Place along an axis behind the last CTA with work, on the edge of the grid."""
    low, high = 0, grid.sizes[axis]  # some work, none
    if high > 1 and is_busy(_axis_number(grid, axis, high - 1)):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if is_busy(_axis_number(grid, axis, middle)):
            low = middle
        else:
            high = middle
    return high


def _axis_number(grid: Dim3, axis: int, place: int) -> int:
    at = [0] * AXES
    at[axis] = place
    return cta_number(grid, (at[0], at[1], at[2]))


def _layers(extent: int) -> list[tuple[int, int]]:
    """One by one where they are few, since the last may have less work; else the last one apart."""
    if extent <= _FEW_LAYERS:
        return [(place, place) for place in range(extent)]
    return [(0, extent - 2), (extent - 1, extent - 1)]


def stratified(sample: Sample, grid: Dim3, boxes: list[Box]) -> Sample:
    """The same CTAs, weighted so that those of each box stand for it; a box without any gets its first."""
    x, y, z = cta_places(grid, sample.numbers)
    numbers, weights = [sample.numbers], [np.zeros(len(sample.numbers))]
    for box in boxes:
        inside = box.contains(x, y, z)
        if inside.any():
            weights[0][inside] = box.count / np.count_nonzero(inside)
        else:
            numbers.append(np.array([cta_number(grid, box.low)], dtype=np.int64))
            weights.append(np.array([float(box.count)]))
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return replace(sample, numbers=np.concatenate(numbers)[order], weights=np.concatenate(weights)[order])


def boxed(grid: Dim3, boxes: Sequence[Box], evenness: Evenness | None = None) -> Sample:
    """One CTA of each box, and its next one along each axis to see how addresses grow."""
    places: dict[int, int] = {}
    weights: list[float] = []

    def place(at: tuple[int, int, int], weight: float) -> int:
        number = cta_number(grid, at)
        if number not in places:
            places[number] = len(weights)
            weights.append(0.0)
        weights[places[number]] += weight
        return places[number]

    firsts = [place(box.low, float(box.count)) for box in boxes]
    beside = [[-1] * AXES for _ in boxes]
    for index, box in enumerate(boxes):
        for axis in range(AXES):
            if box.sizes[axis] > 1:
                at = list(box.low)
                at[axis] += box.stride[axis]
                beside[index][axis] = place((at[0], at[1], at[2]), 0.0)
    n = len(weights)
    neighbours = tuple(np.full(n, -1, dtype=np.int64) for _ in range(AXES))
    counts = tuple(np.ones(n, dtype=np.int64) for _ in range(AXES))
    for index, box in enumerate(boxes):
        for axis in range(AXES):
            neighbours[axis][firsts[index]] = beside[index][axis]
            counts[axis][firsts[index]] = box.sizes[axis]
    return Sample(
        numbers=np.array(list(places), dtype=np.int64),
        weights=np.array(weights),
        neighbours=neighbours,
        counts=counts,
        is_whole=False,
        is_proven=True,
        has_even_accesses=True,
        evenness=evenness,
        boxes=tuple(boxes),
    )
