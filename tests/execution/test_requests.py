"""Sectors and shared-memory passes: against the plain definitions, and patterns whose cost is known."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.execution.footprint.lane_patterns import compress_addresses
from analyzer.execution.footprint.request_cost import (
    count_atomic_wavefronts,
    count_global_wavefronts,
    count_matrix_wavefronts,
    count_same_word_lanes,
    count_sectors,
    count_shared_wavefronts,
)

LANE = np.arange(32, dtype=np.uint64)
ALL = np.ones((1, 32), np.bool_)
WIDTHS = st.sampled_from([1, 2, 4, 8, 16])

COSTS = (
    count_sectors,
    count_shared_wavefronts,
    count_global_wavefronts,
    count_atomic_wavefronts,
    count_matrix_wavefronts,
    count_same_word_lanes,
)

Lanes = list[int | None]  # addresses of one warp, None in inactive lanes


def slow_sectors(lanes: Lanes, width: int) -> int:
    return len({(a + i) % 2**64 // 32 for a in lanes if a is not None for i in range(width)})


def slow_passes(lanes: Lanes, width: int) -> int:
    """Passes of lanes that go together: distinct words of the busiest bank."""
    banks = defaultdict(set)
    for address in lanes:
        for i in range(width if address is not None else 0):
            assert address is not None
            word = (address + i) // 4
            banks[word % 32].add(word)
    return max((len(words) for words in banks.values()), default=0)


def slow_shared(lanes: Lanes, width: int) -> int:
    if width <= 4:
        return slow_passes(lanes, width)
    span = 32 if width == 8 else 16
    total = 0
    for start in range(0, 32, span):
        part = lanes[start : start + span]
        if any(
            all(a is None or part[i ^ d] is None or part[i ^ d] == a for i, a in enumerate(part))
            for d in (1, 2)
        ):
            total += slow_passes(part, width)
        else:
            total += slow_passes(part[: span // 2], width) + slow_passes(part[span // 2 :], width)
    return total


def slow_global(lanes: Lanes, width: int) -> int:
    span = {8: 16, 16: 8}.get(width, 32)
    return sum(slow_passes(lanes[start : start + span], width) for start in range(0, 32, span))


def slow_atomic(lanes: Lanes, width: int) -> int:
    span = {4: 32, 8: 16}[width]
    total = 0
    for start in range(0, 32, span):
        loads: dict[int, int] = defaultdict(int)
        for address in lanes[start : start + span]:
            if address is not None:
                loads[address // 4 % 32] += 1
        total += max(loads.values(), default=0)
    return total


def slow_matrix(lanes: Lanes, n_matrices: int) -> int:
    return sum(slow_passes(lanes[8 * i : 8 * i + 8], 16) for i in range(n_matrices))


@st.composite
def warps(draw: st.DrawFn, *, align: int = 1, bases: int = 1 << 20) -> list[Lanes]:
    """A few warps that share patterns, masks and bases more often than chance would have it."""
    factor = draw(st.sampled_from([0, 1, 2, 4, 8, 12, 16, 32, 64, 128, 132, 144]))
    patterns = [[i * factor for i in range(32)], [i // 2 * factor for i in range(32)], [0] * 32]
    patterns += [[(i ^ 5) * factor for i in range(32)], [i % 4 * 16 for i in range(32)]]
    patterns.append(draw(st.lists(st.integers(-600, 600), min_size=32, max_size=32)))
    masks = [[True] * 32, [i < 16 for i in range(32)], [i % 2 == 0 for i in range(32)], [False] * 32]
    masks.append(draw(st.lists(st.booleans(), min_size=32, max_size=32)))
    rows = st.tuples(st.integers(1000, bases), st.sampled_from(patterns), st.sampled_from(masks))
    return [
        [(base + offset) // align * align if on else None for offset, on in zip(pattern, mask, strict=True)]
        for base, pattern, mask in draw(st.lists(rows, min_size=1, max_size=8))
    ]


def arrays(rows: list[Lanes], garbage: int = 7) -> tuple[Any, Any]:
    addresses = [[garbage if a is None else a % 2**64 for a in lanes] for lanes in rows]
    return np.array(addresses, np.uint64), np.array([[a is not None for a in lanes] for lanes in rows])


@given(warps(), WIDTHS, st.integers(0, 2**64 - 1))
def test_sectors_are_those_of_the_definition(rows: list[Lanes], width: int, garbage: int) -> None:
    counts = count_sectors(*arrays(rows, garbage), width)
    assert counts.dtype == np.int64
    assert counts.tolist() == [slow_sectors(lanes, width) for lanes in rows]


@given(st.data(), WIDTHS)
def test_passes_are_those_of_the_definition(data: st.DataObject, width: int) -> None:
    rows = data.draw(warps(align=data.draw(st.sampled_from([1, width, 16]))))
    addresses, active = arrays(rows)
    wanted = [slow_shared(lanes, width) for lanes in rows]
    assert count_shared_wavefronts(addresses, active, width).tolist() == wanted
    assert count_shared_wavefronts(addresses.astype(np.uint32), active, width).tolist() == wanted


@given(st.data(), WIDTHS)
def test_passes_of_the_l1_are_those_of_the_definition(data: st.DataObject, width: int) -> None:
    rows = data.draw(warps(align=data.draw(st.sampled_from([1, width, 16]))))
    assert count_global_wavefronts(*arrays(rows), width).tolist() == [
        slow_global(lanes, width) for lanes in rows
    ]


@given(warps(align=8), st.sampled_from([4, 8]))
def test_atomic_passes_are_those_of_the_definition(rows: list[Lanes], width: int) -> None:
    assert count_atomic_wavefronts(*arrays(rows), width).tolist() == [
        slow_atomic(lanes, width) for lanes in rows
    ]


@given(warps(align=8), st.sampled_from([4, 8]))
def test_lanes_on_a_word_are_those_of_the_busiest(rows: list[Lanes], width: int) -> None:
    busiest = [max(Counter(a for a in lanes if a is not None).values(), default=0) for lanes in rows]
    assert count_same_word_lanes(*arrays(rows), width).tolist() == busiest


@given(warps(align=16), st.sampled_from([1, 2, 4]))
def test_matrix_passes_are_those_of_the_definition(rows: list[Lanes], n_matrices: int) -> None:
    wanted = [slow_matrix(lanes, n_matrices) for lanes in rows]
    assert count_matrix_wavefronts(*arrays(rows), n_matrices).tolist() == wanted


@given(warps())
def test_patterns_give_back_every_active_address(rows: list[Lanes]) -> None:
    addresses, active = arrays(rows)
    patterns = compress_addresses(addresses, active)
    back = patterns.bases[:, None] + patterns.offsets[patterns.pattern_ids].view(np.uint64)
    assert (patterns.active[patterns.pattern_ids] == active).all()
    assert (back[active] == addresses[active]).all()


@pytest.mark.parametrize("shape", [(5, 32), (5, 1), (1, 32), (1, 1)])
@pytest.mark.parametrize("mask_shape", [(5, 32), (5, 1), (1, 32), (1, 1)])
def test_shapes_broadcast(shape: tuple[int, int], mask_shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    addresses = rng.integers(0, 4096, shape).astype(np.uint64) * np.uint64(16)
    active = rng.random(mask_shape) < 0.7
    full, mask = np.broadcast_arrays(addresses, active, np.zeros((1, 32)))[:2]
    for cost in COSTS:
        assert cost(addresses, active, 4).tolist() == cost(full.copy(), mask.copy(), 4).tolist()
        assert len(cost(addresses, active, 4)) == max(shape[0], mask_shape[0])


def test_no_warps_cost_nothing() -> None:
    nobody = np.zeros((0, 32), np.uint64)
    for cost in COSTS:
        assert cost(nobody, ALL, 4).tolist() == []


@pytest.mark.parametrize(
    ("step", "width", "sectors"),
    [
        (4, 4, 4),
        (8, 8, 8),
        (16, 16, 16),
        (8, 4, 8),
        (32, 4, 32),
        (128, 4, 32),
        (0, 4, 1),
        (1, 1, 1),
        (2, 2, 2),
    ],
)
def test_sectors_of_a_strided_warp(step: int, width: int, sectors: int) -> None:
    assert count_sectors(np.uint64(4096) + LANE * np.uint64(step), ALL, width).tolist() == [sectors]


@pytest.mark.parametrize(("shift", "sectors"), [(0, 4), (4, 5), (28, 5), (30, 5), (32, 4)])
def test_a_shifted_warp_touches_one_more_sector(shift: int, sectors: int) -> None:
    assert count_sectors(LANE * np.uint64(4) + np.uint64(shift), ALL, 4).tolist() == [sectors]


@pytest.mark.parametrize("base", [2**63 - 64, 2**63, 2**64 - 128])
def test_sectors_at_the_end_of_the_address_space(base: int) -> None:
    assert count_sectors(np.uint64(base) + LANE * np.uint64(4), ALL, 4).tolist() == [4]


def test_half_a_warp_asks_for_half_the_sectors() -> None:
    halves = np.array(
        [[i < 16 for i in range(32)], [i >= 16 for i in range(32)], [i % 2 == 0 for i in range(32)]]
    )
    assert count_sectors(LANE * np.uint64(4), halves, 4).tolist() == [2, 2, 4]


@pytest.mark.parametrize("words", range(1, 34))
def test_conflicts_of_strided_words(words: int) -> None:
    wanted = np.gcd(words, 32)
    assert count_shared_wavefronts(LANE * np.uint64(4 * words), ALL, 4).tolist() == [wanted]


@pytest.mark.parametrize(("width", "passes"), [(4, 1), (8, 2), (16, 4)])
def test_coalesced_vectors_take_a_pass_per_128_bytes(width: int, passes: int) -> None:
    assert count_shared_wavefronts(LANE * np.uint64(width), ALL, width).tolist() == [passes]


@pytest.mark.parametrize(("width", "passes"), [(4, 1), (8, 1), (16, 2)])
def test_one_address_in_all_lanes(width: int, passes: int) -> None:
    assert count_shared_wavefronts(np.zeros((1, 1), np.uint32), ALL, width).tolist() == [passes]


def test_pairs_of_equal_lanes_merge_and_others_do_not() -> None:
    """The case of NVIDIA's forum: few words are not enough, neighbours must ask for the same ones."""
    by_four, by_pair, by_second = (
        LANE % 4 * np.uint64(16),
        LANE // 2 % 4 * np.uint64(16),
        (LANE & 1) * np.uint64(16),
    )
    rows = np.stack([by_four, by_pair, by_second])
    assert count_shared_wavefronts(rows, ALL, 16).tolist() == [4, 2, 2]


@pytest.mark.parametrize(
    ("step", "width", "passes"),
    [
        (4, 4, 1),
        (16, 4, 4),  # one lane in four reads bank 0
        (4 * 4110, 4, 2),  # rows of 4,110 floats: 32 lines, but only pairs of them share a bank
        (4 * 4096, 4, 32),
        (8, 8, 2),
        (16, 16, 4),
        (32, 16, 8),
        (0, 4, 1),
        (0, 8, 2),  # phases do not merge, as those of shared memory do
        (0, 16, 4),
    ],
)
def test_loads_of_lines_take_turns_at_banks(step: int, width: int, passes: int) -> None:
    assert count_global_wavefronts(LANE * np.uint64(step), ALL, width).tolist() == [passes]


@pytest.mark.parametrize(("pitch_words", "passes"), [(32, 32), (33, 1), (34, 2), (36, 4), (40, 8)])
def test_a_column_of_a_padded_tile(pitch_words: int, passes: int) -> None:
    """Reading a column of a 32 x 32 transpose tile."""
    column = LANE * np.uint64(4 * pitch_words)
    assert count_shared_wavefronts(column + np.uint64(20), ALL, 4).tolist() == [passes]


def test_half_a_warp_of_vectors_takes_half_the_passes() -> None:
    lower = np.arange(32)[None, :] < 16
    assert count_shared_wavefronts(LANE * np.uint64(8), lower, 8).tolist() == [1]
    assert count_shared_wavefronts(LANE * np.uint64(16), lower, 16).tolist() == [2]
    assert count_shared_wavefronts(LANE * np.uint64(16), ~lower & False, 16).tolist() == [0]


@pytest.mark.parametrize(
    ("pitch", "swizzle", "passes"),
    [(16, 0, 4), (64, 0, 16), (64, 3, 4), (128, 0, 32), (128, 7, 4), (144, 0, 4), (80, 0, 4)],
)
def test_rows_of_matrices(pitch: int, swizzle: int, passes: int) -> None:
    """Four 8 x 8 matrices of 16-bit numbers, one below the other: packed, in plain, swizzled, padded tiles."""
    row = np.arange(32)
    chunk = row // (128 // pitch if swizzle else 1) & swizzle  # 64-byte rows swizzle in pairs
    addresses = (row * pitch + 16 * chunk).astype(np.uint64)
    assert count_matrix_wavefronts(addresses, ALL, 4).tolist() == [passes]
    assert count_matrix_wavefronts(addresses, ALL, 1).tolist() == [passes // 4]


@pytest.mark.parametrize(("pitch", "passes"), [(32, 8), (64, 16), (128, 32), (144, 4)])
def test_matrices_side_by_side_share_no_pass(pitch: int, passes: int) -> None:
    """As Nsight Compute counts on a B300: two matrices below each other, two more beside them."""
    lane = np.arange(32)
    addresses = (lane % 16 * pitch + lane // 16 * 16).astype(np.uint64)
    assert count_matrix_wavefronts(addresses, ALL, 4).tolist() == [passes]


def test_lanes_on_one_word_go_one_by_one_in_an_atomic() -> None:
    rows = np.stack([LANE * np.uint64(4), LANE * np.uint64(0), LANE % 8 * np.uint64(4), LANE * np.uint64(8)])
    assert count_atomic_wavefronts(rows, ALL, 4).tolist() == [1, 32, 4, 2]


def test_many_warps_with_few_patterns() -> None:
    """Past the size where rows are looked at in chunks, with a boundary pattern and a stray row."""
    rng = np.random.default_rng(3)
    addresses = rng.integers(0, 2**40, (9000, 1)).astype(np.uint64) * np.uint64(4) + LANE * np.uint64(4)
    active = np.ones((9000, 32), np.bool_)
    active[::9, 11:] = False
    addresses[4321] = rng.integers(0, 2**30, 32)
    picked = [0, 1, 9, 4321, 8999]
    rows: list[Lanes] = [
        [int(a) if on else None for a, on in zip(addresses[i], active[i], strict=True)] for i in picked
    ]
    assert len(compress_addresses(addresses, active).offsets) == 3
    assert count_sectors(addresses, active, 4)[picked].tolist() == [slow_sectors(r, 4) for r in rows]
    assert count_shared_wavefronts(addresses, active, 4)[picked].tolist() == [slow_shared(r, 4) for r in rows]


def test_unrelated_rows() -> None:
    rng = np.random.default_rng(4)
    addresses = rng.integers(0, 2**14, (5000, 32)).astype(np.uint64)
    active = rng.random((5000, 32)) < 0.5
    wanted = [
        slow_sectors([int(a) if on else None for a, on in zip(*row, strict=True)], 8)
        for row in zip(addresses[:200], active[:200], strict=True)
    ]
    assert count_sectors(addresses, active, 8)[:200].tolist() == wanted
