"""Execution of kernels with hard control flow against an interpreter that shares nothing with it.

Counts of each block by warp and lane, and of each memory instruction requests, lanes and distinct bytes, must
be equal; what is called exact must be so whatever unknown memory holds.
"""

from collections.abc import Iterator

import pytest
from against_oracle import (
    ARCHS,
    find_differences,
    find_kernel,
    make_seeded_launch,
    run_machine,
    run_oracle,
    sum_block_counts,
)
from launches import LAUNCHES

from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel

BUFFERED = ("csr", "collatz", "bytes", "doubtful_call")
# `switches` jumps to blocks that the graph of a dump without its tables does not know, and on sm_75 the way
# that BRA.CONV takes depends on who has ended before
UNSETTLED = {"switches": ARCHS, "sync_exit": (75,)}


def cases() -> Iterator[tuple[int, str]]:
    for arch in ARCHS:
        for name in LAUNCHES:
            if arch not in UNSETTLED.get(name, ()) and name != "in_place":
                yield arch, name


@pytest.mark.parametrize(("arch", "name"), list(cases()))
def test_counts_are_those_of_the_oracle(arch: int, name: str) -> None:
    for seed in range(2 if arch == 90 else 1):
        launch = make_seeded_launch(name, seed)
        assert find_differences(arch, launch, run_machine(arch, launch), run_oracle(arch, launch)) == []


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", BUFFERED)
def test_what_is_exact_without_buffers_is_so_whatever_they_hold(arch: int, name: str) -> None:
    # Calls that nobody can follow go on until the steps are used up.
    n_seeds, step_limit = (1, 10_000) if name == "doubtful_call" else (3, 100_000)
    for seed in range(n_seeds):
        launch = make_seeded_launch(name, seed)
        profile = run_machine(arch, launch, with_buffers=False, step_limit=step_limit)
        assert profile.provenance is not Provenance.EXACT
        assert any("LDG" in branch.origin for branch in profile.unknown_branches)
        truth = sum_block_counts(arch, name, run_oracle(arch, launch))
        for place, known in enumerate(profile.block_provenance):
            if known is Provenance.EXACT:
                got = (int(profile.block_executions[place]), int(profile.block_active_lanes[place]))
                assert got == truth[place], f"{launch}: block {place}"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_buffer_that_is_stored_to_is_not_known_any_more(arch: int) -> None:
    """The last store depends on what others have stored where it reads."""
    profile = run_machine(arch, make_seeded_launch("in_place", 0))
    assert profile.accesses[-1].is_store
    assert profile.accesses[-1].provenance is not Provenance.EXACT


@pytest.mark.parametrize("arch", ARCHS)
def test_a_table_branch_without_its_table_says_so(arch: int) -> None:
    launch = make_seeded_launch("switches", 2)
    profile = run_machine(arch, launch)
    if find_differences(arch, launch, profile, run_oracle(arch, launch)):
        assert profile.provenance is not Provenance.EXACT
        assert profile.unknown_branches


RUNAWAYS = {
    "endless": (Pointer(), Pointer()),
    "never_changed": (Pointer(), 3),
    "bottomless": (Pointer(), 3),
    "endless_walk": (Pointer(), 1013904223),
}
NO_END = ("has no end", "words of the stack", "steps were not enough")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", RUNAWAYS)
@pytest.mark.parametrize("grid", [1, 64])
def test_what_has_no_end_is_stopped_and_says_so(arch: int, name: str, grid: int) -> None:
    arguments = tuple(Argument(place, value) for place, value in enumerate(RUNAWAYS[name]))
    launch = Launch(grid=Dim3(grid), block=Dim3(64), arguments=arguments)
    found = execute_kernel(find_kernel(arch, name), launch, step_limit=4000)
    assert found is not None
    assert found.profile.provenance is Provenance.UNKNOWN
    said = [text for text in found.profile.assumptions if "counts are of what ran until then" in text]
    assert len(said) == 1
    assert any(reason in said[0] for reason in NO_END)
    if name in ("endless", "never_changed"):  # seen without any limit
        assert "has no end" in said[0]


@pytest.mark.parametrize("arch", ARCHS)
def test_more_steps_find_the_end(arch: int) -> None:
    launch = make_seeded_launch("collatz", 5)
    assert run_machine(arch, launch, step_limit=20).provenance is Provenance.UNKNOWN
    assert run_machine(arch, launch).provenance is Provenance.EXACT
