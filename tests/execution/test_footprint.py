"""Distinct bytes touched: against sets of bytes, and closed forms where sets would not fit in memory."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.execution.footprint.footprint import Footprint, Stride, count_union_bytes, count_union_sectors

LANE = np.arange(32, dtype=np.uint64)
ALL = np.ones((1, 32), np.bool_)
HEAP = 0x7F00_0000_0000

Access = tuple[Any, Any, int, tuple[Stride, ...]]


def slow_bytes(access: Access) -> set[int]:
    addresses, active, width, strides = access
    n_warps = len(addresses)
    steps = [np.broadcast_to(np.asarray(stride.step), (n_warps, 32)) for stride in strides]
    counts = [np.broadcast_to(np.asarray(stride.count), n_warps) for stride in strides]
    touched: set[int] = set()
    for w, lane in zip(*np.nonzero(np.broadcast_to(active, (n_warps, 32))), strict=True):
        turns = itertools.product(*(range(int(count[w])) for count in counts))
        for turn in turns:
            moved = sum(t * int(step[w, lane]) for t, step in zip(turn, steps, strict=True))
            start = int(addresses[w, lane]) + moved
            touched.update(range(start, start + width))
    return touched


def held_bytes(footprint: Footprint) -> set[int]:
    intervals = footprint.to_intervals()
    assert intervals is not None
    starts, stops = intervals
    assert (starts < stops).all()
    assert (starts[1:] > stops[:-1]).all()
    return {byte for a, b in zip(starts.tolist(), stops.tolist(), strict=True) for byte in range(a, b)}


@st.composite
def step_of(draw: st.DrawFn, n_warps: int) -> Any:
    kind = draw(st.sampled_from(["number", "number", "number", "warp", "lane", "one lane row"]))
    if kind == "number":
        return draw(st.sampled_from([-128, -64, -3, 0, 1, 4, 16, 64, 96, 128, 256, 300, 1024]))
    shape = {"warp": (n_warps, 1), "lane": (n_warps, 32), "one lane row": (1, 32)}[kind]
    seed = draw(st.integers(0, 2**32 - 1))
    return np.random.default_rng(seed).integers(-60, 60, shape)


@st.composite
def accesses(draw: st.DrawFn, origin: int = 1 << 20) -> Access:
    n_warps = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pitch = draw(st.sampled_from([1, 4, 64, 128, 512]))
    bases = rng.integers(0, draw(st.sampled_from([1, 4, 16, 60])), (n_warps, 1)) * pitch
    regular = (
        np.arange(32) % draw(st.sampled_from([4, 8, 32])) * draw(st.sampled_from([0, 1, 4, 8, 16, 64, 100]))
    )
    scattered = rng.integers(-300, 300, (n_warps, 32))
    offsets = scattered if draw(st.booleans()) and draw(st.booleans()) else regular[None, :]
    density = draw(st.sampled_from([1.0, 1.0, 0.5, 0.05]))
    active = rng.random((draw(st.sampled_from([1, n_warps])), 32)) < density
    strides = []
    for _ in range(draw(st.integers(0, 3))):
        fixed = draw(st.sampled_from([0, 1, 2, 3, 5, 8, 8]))
        count: Any = fixed if draw(st.booleans()) else rng.integers(0, 7, n_warps)
        strides.append(Stride(draw(step_of(n_warps)), count))
    addresses = np.uint64(origin) + (bases + offsets).astype(np.uint64)
    return addresses, active, draw(st.sampled_from([1, 2, 4, 8, 16])), tuple(strides)


@given(st.lists(accesses(), max_size=4))
def test_footprint_is_the_set_of_bytes(parts: list[Access]) -> None:
    footprint = Footprint()
    for part in parts:
        footprint.add(*part)
    wanted = set().union(*map(slow_bytes, parts))
    assert footprint.count_unique_bytes() == len(wanted)
    assert held_bytes(footprint) == wanted


@given(accesses(origin=2**63 - 300))
def test_addresses_beyond_the_signed_range(access: Access) -> None:
    footprint = Footprint()
    footprint.add(*access)
    assert footprint.count_unique_bytes() == len(slow_bytes(access))
    assert held_bytes(footprint) == slow_bytes(access)


@given(st.lists(accesses(), min_size=1, max_size=3), st.integers(1, 40))
def test_a_limit_gives_up_but_never_lies(parts: list[Access], limit: int) -> None:
    footprint = Footprint(limit)
    for part in parts:
        footprint.add(*part)
    wanted = set().union(*map(slow_bytes, parts))
    assert footprint.count_unique_bytes() in (None, len(wanted))
    intervals = footprint.to_intervals()
    assert intervals is None or int((intervals[1] - intervals[0]).sum()) == len(wanted)


@given(accesses(), accesses(), accesses())
def test_union_of_footprints(a: Access, b: Access, c: Access) -> None:
    footprints = []
    for parts in ([a, b], [c], []):
        footprints.append(Footprint())
        for part in parts:
            footprints[-1].add(*part)
    wanted = slow_bytes(a) | slow_bytes(b) | slow_bytes(c)
    assert count_union_bytes(footprints) == len(wanted)
    assert count_union_sectors(footprints) == len({byte // 32 for byte in wanted})
    assert footprints[1].count_unique_bytes() == len(slow_bytes(c))
    footprints[1].merge(footprints[0])
    assert footprints[1].count_unique_bytes() == len(wanted)
    assert footprints[0].count_unique_bytes() == len(slow_bytes(a) | slow_bytes(b))


def test_nothing_touched() -> None:
    footprint = Footprint()
    footprint.add(np.zeros((0, 32), np.uint64), ALL, 4, (Stride(4, 7),))
    footprint.add(LANE[None], ~ALL, 4)
    footprint.add(LANE[None], ALL, 4, (Stride(4, 0),))
    assert footprint.count_unique_bytes() == 0
    assert held_bytes(footprint) == set()
    assert count_union_bytes([]) == count_union_sectors([]) == 0


@pytest.mark.parametrize("step", [0, 4, -4, 128, -128, 100])
@pytest.mark.parametrize("count", [1, 2, 10**6])
def test_a_coalesced_warp_that_walks(step: int, count: int) -> None:
    footprint = Footprint()
    footprint.add(np.uint64(HEAP) + LANE * np.uint64(4), ALL, 4, (Stride(step, count),))
    assert footprint.count_unique_bytes() == 128 + abs(step) * (count - 1)


@pytest.mark.parametrize("step", [129, 4096, -4096])
def test_a_warp_that_leaves_gaps_is_counted_and_not_unrolled(step: int) -> None:
    footprint = Footprint(max_intervals=100)
    footprint.add(np.uint64(HEAP) + LANE * np.uint64(4), ALL, 4, (Stride(step, 10**6),))
    assert footprint.count_unique_bytes() == 128 * 10**6
    assert footprint.to_intervals() is None


def test_a_grid_stride_loop() -> None:
    """8,000 warps side by side, then all of them a grid further on, a million times."""
    bases = np.uint64(HEAP) + np.arange(8000, dtype=np.uint64)[:, None] * np.uint64(128)
    for gap in (0, 64):
        footprint = Footprint(max_intervals=8000)
        footprint.add(bases + LANE * np.uint64(4), ALL, 4, (Stride(8000 * 128 + gap, 10**6),))
        assert footprint.count_unique_bytes() == 8000 * 128 * 10**6


def test_columns_of_a_matrix() -> None:
    """Lanes one row apart, the loop 32 rows further, warps side by side: the matrix, element by element."""
    bases = np.uint64(HEAP) + np.arange(1024, dtype=np.uint64)[:, None] * np.uint64(4)
    footprint = Footprint(max_intervals=1024)
    footprint.add(bases + LANE * np.uint64(4096), ALL, 4, (Stride(32 * 4096, 1000),))
    assert footprint.count_unique_bytes() == 32_000 * 4096
    assert len((footprint.to_intervals() or ((),))[0]) == 1


def test_two_nested_strides_fill_a_plane() -> None:
    footprint = Footprint(max_intervals=10)
    strides = (Stride(1 << 20, 1000), Stride(128, 8192))
    footprint.add(np.uint64(HEAP) + LANE * np.uint64(4), ALL, 4, strides)
    assert footprint.count_unique_bytes() == (1 << 20) * 1000


def test_rows_that_overlap_alike_are_unrolled_once() -> None:
    """Lanes 6 bytes apart in a loop of 64 bytes a turn: no closed form, but every row is like the first."""
    rows = np.uint64(HEAP) + np.arange(8192, dtype=np.uint64)[:, None] * np.uint64(16384)
    whole, one = Footprint(max_intervals=10_000), Footprint()
    whole.add(rows + LANE * np.uint64(6), ALL, 2, (Stride(64, 128),))
    one.add(rows[:1] + LANE * np.uint64(6), ALL, 2, (Stride(64, 128),))
    touched = {6 * lane + 64 * turn + byte for lane in range(32) for turn in range(128) for byte in range(2)}
    assert one.count_unique_bytes() == len(touched)
    assert whole.count_unique_bytes() == 8192 * len(touched)


def test_warps_that_loop_unequally_often() -> None:
    """Causal attention: warp w reads the first w + 1 blocks of one array."""
    counts = np.arange(4096)
    footprint = Footprint()
    footprint.add(
        np.full((4096, 1), HEAP, np.uint64) + LANE * np.uint64(16), ALL, 16, (Stride(512, counts + 1),)
    )
    assert footprint.count_unique_bytes() == 512 * 4096


def test_strides_of_single_lanes() -> None:
    footprint = Footprint()
    steps = np.arange(32)[None, :] * 1000
    footprint.add(np.uint64(HEAP) + LANE[None] * np.uint64(10**6), ALL, 4, (Stride(steps, 5),))
    assert footprint.count_unique_bytes() == 4 + 31 * 5 * 4


@pytest.mark.parametrize("cube", [1024, 4096])
def test_gemm_reads_its_matrices_once(cube: int) -> None:
    """128 x 128 tiles, 32 deep, of half precision: A by rows, B by rows, 16 bytes a lane."""
    n_tiles = cube // 128
    tile_m, tile_n, warp = (axis.ravel()[:, None] for axis in np.mgrid[:n_tiles, :n_tiles, :8])
    thread = warp * 32 + np.arange(32)
    reads, prologue = Footprint(), Footprint()
    for half in range(2):
        a = HEAP + ((tile_m * 128 + thread // 4 + 64 * half) * cube + thread % 4 * 8) * 2
        b = 2 * HEAP + ((thread // 16 + 16 * half) * cube + tile_n * 128 + thread % 16 * 8) * 2
        prologue.add(a.astype(np.uint64), ALL, 16)
        reads.add(a.astype(np.uint64) + np.uint64(64), ALL, 16, (Stride(64, cube // 32 - 1),))
        reads.add(b.astype(np.uint64), ALL, 16, (Stride(32 * cube * 2, cube // 32),))
    assert count_union_bytes([reads, prologue]) == 2 * cube * cube * 2
    assert prologue.count_unique_bytes() == cube * 64


@pytest.mark.parametrize("edge", [100, 1000, 4096])
def test_a_stencil_reads_a_cube_but_for_its_edges(edge: int) -> None:
    """Seven neighbours of what is inside, pieces as rows are and far more of them than are held."""
    footprint = Footprint(max_intervals=1000)
    inside = (Stride(4 * edge, edge - 2), Stride(4 * edge * edge, edge - 2))
    first = HEAP + 4 * (edge * edge + edge + 1)
    row = first + 4 * np.minimum(np.arange(-(-(edge - 2) // 32) * 32), edge - 3).reshape(-1, 32)
    for moved in (0, 1, -1, edge, -edge, edge * edge, -edge * edge):
        footprint.add((row + 4 * moved).astype(np.uint64), ALL, 4, inside)
    assert footprint.count_unique_bytes() == 4 * ((edge - 2) ** 3 + 6 * (edge - 2) ** 2)


def test_sectors_that_two_pieces_lie_in_count_once() -> None:
    """Rows of 4100 bytes, of which every eighth begins with a sector, and the first and last words of each."""
    ends = [Footprint(), Footprint()]
    for footprint, place in zip(ends, (0, 4096), strict=True):
        footprint.add(np.array([[HEAP + place]], np.uint64), ALL[:, :1], 4, (Stride(4100, 8000),))
    assert [count_union_sectors([footprint]) for footprint in ends] == [8000, 8000]
    assert count_union_bytes(ends) == 64_000
    assert count_union_sectors(ends) == 16_000 - 7000  # a row's last word and the next one's first


def test_more_pieces_than_are_joined_are_sorted_at_once() -> None:
    """Eight bytes beyond each tile of 32 words, of rows of which neighbours share two: 522,000 pieces."""
    side, tiles = 4096, 128
    rims = [Footprint(), Footprint()]
    for footprint, moved in zip(rims, (-4, 0), strict=True):
        for row in range(34):
            at = HEAP + side * 4 * (row + 1) + 128 + moved
            strides = (Stride(128, tiles - 3), Stride(32 * side * 4, tiles - 2))
            footprint.add(np.array([[at], [at + 4]], np.uint64), ALL[:, :1], 4, strides)
    rows = 32 * (tiles - 2) + 2
    assert [rim.count_unique_bytes() for rim in rims] == [8 * rows * (tiles - 3)] * 2
    assert count_union_bytes(rims) == 12 * rows * (tiles - 3)


def test_runs_that_lie_evenly_are_one_that_repeats_once_more() -> None:
    """Words 16 bytes apart, of the first warps of a row one by one: no lane reads before the row begins."""
    footprint, rows = Footprint(), Stride(1 << 18, 4096)
    for warp in range(8):
        lanes = np.uint64(HEAP + 512 * warp) + LANE * np.uint64(16)
        footprint.add(lanes, ALL if warp else LANE[None] > 0, 4, (rows, Stride(1 << 13, 2)))
    more = np.uint64(HEAP + (1 << 14)) + LANE * np.uint64(16)
    footprint.add(more, ALL, 4, (rows, Stride(512, 100)))
    assert footprint.count_unique_bytes() == 4 * 4096 * (2 * 255 + 3200)


def test_too_many_intervals_are_not_unrolled() -> None:
    """Steps that differ from warp to warp and interleave have no closed form here."""
    bases = np.full((2000, 1), HEAP, np.uint64)
    steps = (np.arange(2000)[:, None] * 2 + 1) * 8
    footprint = Footprint(max_intervals=100_000)
    footprint.add(bases, ALL, 4, (Stride(steps, 1000),))
    assert footprint.count_unique_bytes() is None
    assert footprint.to_intervals() is None


def test_garbage_addresses_are_no_footprint() -> None:
    footprint = Footprint()
    footprint.add(np.array([[0], [2**64 - 64]], np.uint64), ALL, 4)
    assert footprint.count_unique_bytes() is None
