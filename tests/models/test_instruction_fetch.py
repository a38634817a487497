"""Instruction caches of an SM: what its warps share, and where they compete."""

from pathlib import Path

import pytest
from kernel_launches import KernelLaunch, make_model_input
from paths import format_dump

from analyzer.models.predictors.sm import predict
from analyzer.models.sm.instruction_fetch import (
    FetchParameters,
    InstructionCache,
    find_entered_lines,
)

PARAMETERS = FetchParameters(
    sm_lines=16,
    shared_sets=4,
    shared_ways=2,
    line_cycles=12.0,
    miss_lines=8,
    miss_cycles=400.0,
)


def walk(cache: InstructionCache, lines: range, begin: float, cycles_per_line: float = 5.0) -> float:
    """Return when a warp is through these lines."""
    time = begin
    for line in lines:
        time = cache.fetch((line,), time) + cycles_per_line
    return time


def test_a_second_warp_finds_what_the_first_one_brought() -> None:
    cache = InstructionCache(PARAMETERS)
    first = walk(cache, range(12), 0.0)
    assert first >= 11 * PARAMETERS.line_cycles
    assert walk(cache, range(12), first) == first + 12 * 5.0


def test_the_cache_drops_what_is_least_recently_used() -> None:
    cache = InstructionCache(PARAMETERS)
    walk(cache, range(40), 0.0)
    begin = 10_000.0
    assert cache.fetch((38, 39), begin) == begin
    assert cache.fetch((0, 20), begin) > begin


def test_code_is_fetched_ahead_while_a_warp_waits_for_something_else() -> None:
    cache = InstructionCache(PARAMETERS)
    time = cache.fetch((0,), 0.0)
    later = time + 200.0
    assert cache.fetch((1,), later) == later
    assert cache.fetch((2,), later) == later


def test_warps_that_lie_apart_compete() -> None:
    """Four warps at places of their own get a line in the time that the way needs for four."""
    alone, shared = InstructionCache(PARAMETERS), InstructionCache(PARAMETERS)
    one = walk(alone, range(16), 0.0, 0.0) / 16
    times = [0.0] * 4
    for step in range(16):
        for warp in range(4):
            times[warp] = shared.fetch((16 * warp + step,), times[warp])
    assert max(times) / 16 > 1.8 * one
    assert max(times) / 16 == pytest.approx(4 * PARAMETERS.line_cycles, rel=0.15)


def test_what_the_shared_cache_lacks_comes_in_pieces() -> None:
    cache = InstructionCache(PARAMETERS)
    begin = cache.fetch((1000,), 0.0)
    assert begin == PARAMETERS.miss_cycles
    assert cache.fetch(range(1001, 1008), begin) == begin
    assert cache.fetch((1008,), begin) == begin + PARAMETERS.miss_cycles


def test_code_a_little_too_long_for_the_shared_cache_loses_one_set_of_it() -> None:
    cache = InstructionCache(PARAMETERS)
    n_pieces = PARAMETERS.shared_sets * PARAMETERS.shared_ways + 1
    lines = range(n_pieces * PARAMETERS.miss_lines)
    begin = walk(cache, lines, walk(cache, lines, 0.0))

    def wait_for(piece: int) -> float:
        return cache.fetch((piece * PARAMETERS.miss_lines,), begin + 10_000.0 * piece) - 10_000.0 * piece

    lost = [piece for piece in range(n_pieces) if wait_for(piece) >= begin + PARAMETERS.miss_cycles]
    assert lost == list(range(0, n_pieces, PARAMETERS.shared_sets))


@pytest.mark.parametrize(("rows", "previous", "expected"), [
    ((0, 3), -1, (0,)),
    ((4, 7), 3, ()),  # the line of the row before
    ((8, 20), 7, (1, 2)),
    ((4, 7), 90, (0,)),  # from elsewhere
])  # fmt: skip
def test_a_step_enters_lines(rows: tuple[int, int], previous: int, expected: tuple[int, ...]) -> None:
    assert find_entered_lines(*rows, previous) == expected


def test_long_code_takes_longer_than_the_same_work_in_short_code(tmp_path: Path) -> None:
    """An H100 took 45 to 56 cycles for a line of a loop of 160 KB, 13 of one of 16 KB."""

    def time_of(n_rows: int) -> float:
        path = tmp_path / f"{n_rows}.sass"
        lines = [f"FFMA R{10 + n % 16}, R{2 + n % 4}, R7, R{10 + n % 16}" for n in range(n_rows)]
        path.write_text(format_dump("sm_90", *lines, "EXIT"))
        launched = KernelLaunch(
            path, "kernel", "h100-sxm", (132 * 4,), (32,), dynamic_shared_bytes=200_000
        )  # one CTA an SM, four after each other
        return predict(make_model_input(launched)).prediction.cycles

    assert time_of(10_000) > 2.0 * 5 * time_of(2_000)
