"""Grids whose CTAs wait for each other, share rows that words name, or loop as words say."""

import pytest
from against_oracle import load_packed_dump

from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import Program

BLOCK = 128
READERS = 8


@pytest.fixture(name="loaded", scope="module")
def loaded_fixture() -> Program:
    return load_packed_dump("decode_90")


def profile_of(loaded: Program, name: str, grid: Dim3, *arguments: str) -> ExecutionProfile:
    given = tuple(parse_argument(f"{place}={value}") for place, value in enumerate(arguments))
    launch = Launch(grid=grid, block=Dim3(BLOCK), dynamic_shared_bytes=0, arguments=given)
    found = execute_kernel(loaded[name], launch)
    assert found is not None
    return found.profile


@pytest.mark.parametrize("flags", ["zeros", "fill:0", "ptr"])
@pytest.mark.parametrize("n_ctas", [64, 1 << 18])
def test_who_waits_is_let_go_on_whatever_memory_held_before(loaded: Program, n_ctas: int, flags: str) -> None:
    profile = profile_of(loaded, "look_back", Dim3(n_ctas), "ptr", "ptr", flags, "ptr")
    assert profile.provenance is Provenance.ASSUMED
    written = sum(access.bytes for access in profile.accesses if access.is_store)
    assert written >= n_ctas * BLOCK * 4


def distinct_share(profile: ExecutionProfile) -> float:
    """Of what is read of rows that words name."""
    rows = [access for access in profile.accesses if access.is_indirect]
    return sum(access.gathered_bytes or access.bytes for access in rows) / sum(
        access.bytes for access in rows
    )


def test_neighbours_tell_how_often_rows_are_read_where_others_were_executed(loaded: Program) -> None:
    """The grid has more warps than are executed one by one, and CTAs that do not run alike."""
    few, many = (
        profile_of(loaded, "ragged_pages", Dim3(READERS, n_pages), "ptr", "ptr", "ptr")
        for n_pages in (1 << 6, 1 << 15)
    )
    whole, sampled = map(distinct_share, (few, many))
    assert whole < 2 / READERS
    assert sampled == pytest.approx(whole, rel=0.1)
    assert few.n_sampled_ctas == READERS << 6
    assert many.n_sampled_ctas < READERS << 6


def test_a_loop_is_entered_though_another_one_comes_behind_it(loaded: Program) -> None:
    profile = profile_of(loaded, "two_loops", Dim3(64), "ptr", "ptr", "ptr", "5")
    by_loop = [int(access.requests) for access in profile.accesses if not access.is_store and access.requests]
    assert max(by_loop) >= 4 * profile.n_warps
