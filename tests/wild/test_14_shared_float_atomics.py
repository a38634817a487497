"""Loops that retry an atomic: one trip for each lane of a warp that meets others on the address."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from analyzer.execution.acceleration.exchange_turns import find_first_of_each_address
from analyzer.execution.lowering.retry_loops import is_exchange
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.pipeline.analysis import analyze
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import Program, load

FOLDER = Path(__file__).parent / "14-shared-float-atomics"
ARCHS = (75, 90, 100)
WARPS = 8
TRUTH = {  # trips of each warp, and lanes that try in all of them
    "distinct": (1, 32),
    "pairs": (2, 32 + 16),
    "one_word": (32, 33 * 16),
    "halves": (2, 32 + 16),  # two of a word
    "maximum": (1, 32),
    "own_locks": (1, 32),
}


@cache
def dump(arch: int) -> Program:
    return load(str(FOLDER / f"atomics.sm_{arch}.sass"))


def executed(arch: int, name: str) -> ExecutionProfile:
    (kernel,) = (one for one in dump(arch).kernels if one.kernel.name == name)
    found = execute_kernel(kernel, Launch(grid=Dim3(1), block=Dim3(32 * WARPS)))
    assert found is not None
    return found.profile


def exchanges(arch: int, name: str) -> list[MemoryAccess]:
    """Accesses of the atomics that loops retry."""
    (loaded,) = (one for one in dump(arch).kernels if one.kernel.name == name)
    return [one for one in executed(arch, name).accesses if is_exchange(loaded.kernel.find_opcode(one.row))]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", TRUTH)
def test_lanes_that_meet_take_turns(name: str, arch: int) -> None:
    trips, lanes = TRUTH[name]
    first = exchanges(arch, name)[0]
    assert (first.requests, first.lanes) == (WARPS * trips, WARPS * lanes)
    assert executed(arch, name).provenance is Provenance.ASSUMED


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("name", "lanes"), [("own_locks", 32 * WARPS), ("spin_lock", 1)])
def test_who_has_a_lock_does_what_it_guards(name: str, lanes: int, arch: int) -> None:
    stores = [access for access in executed(arch, name).accesses if access.is_store]
    assert [access.lanes for access in stores] == [lanes]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_lock_that_is_free_is_not_waited_for(arch: int) -> None:
    tried = [access.requests for access in exchanges(arch, "spin_lock")]
    assert tried == [1, 1]  # to take it and to give it back; none in the loop that waits


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("distinct", "1 trip: an atomic that is retried succeeds at once, as no other warp interferes"),
        ("pairs", "up to 2 trips: lanes that meet on an address take turns, no other warp interferes"),
    ],
)
def test_the_report_says_what_was_assumed(name: str, said: str) -> None:
    launch = Launch(grid=Dim3(1), block=Dim3(256))
    (kernel,) = analyze(dump(90), "h100", options=Options(kernels=(name,), launch=launch)).kernels
    assert said in [branch.rule for branch in kernel.counts.unknown_branches]


def test_without_a_launch_it_is_one_trip_too() -> None:
    (kernel,) = analyze(dump(90), "h100", options=Options(kernels=("distinct",))).kernels
    assert [loop.trip_count for loop in kernel.loops] == [1]


def test_a_user_s_trips_go_before() -> None:
    from analyzer.execution.static_counts.block_counts import TripCountRule

    (branch,) = (
        analyze(
            dump(90),
            "h100",
            options=Options(kernels=("distinct",), launch=Launch(grid=Dim3(1), block=Dim3(256))),
        )
        .kernels[0]
        .counts.unknown_branches
    )
    header = int(branch.settle.rpartition("--trip ")[2].partition("=")[0], 16)
    (loaded,) = (one for one in dump(90).kernels if one.kernel.name == "distinct")
    found = execute_kernel(
        loaded, Launch(grid=Dim3(1), block=Dim3(256)), trips=(TripCountRule(5, address=header),)
    )
    assert found is not None
    rows = [one for one in found.profile.accesses if is_exchange(loaded.kernel.find_opcode(one.row))]
    assert rows[0].requests == 5 * WARPS


def test_the_first_lane_of_each_address() -> None:
    addresses = np.tile(np.array([4, 4, 8, 4] + [100 + i for i in range(28)], np.uint64), (2, 1))
    mask = np.ones((2, 32), dtype=bool)
    mask[1, 0] = False
    first, most = find_first_of_each_address(addresses, mask)
    assert np.flatnonzero(~first[0]).tolist() == [1, 3]
    assert np.flatnonzero(~first[1]).tolist() == [0, 3]
    assert most == 3
