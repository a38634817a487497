"""Loops in loops, closed within the trial of the outer one, come to what executing each iteration does."""

from functools import cache

import pytest
from against_oracle import ARCHS, load_packed_dump
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_closing import said

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel

NESTS = (
    "plain",
    "stores",
    "triangle",
    "crossing",
    "diagonal",
    "modulo",
    "strides",
    "shared_tile",
    "leaves",
    "unknown",
)
Sizes = tuple[int, int, int]


@cache
def kernels(arch: int) -> dict[str, LoadedKernel]:
    return {kernel.name: kernel for kernel in load_packed_dump(f"nests_{arch}").kernels}


def executed(kernel: LoadedKernel, sizes: Sizes, *, closes: bool = True, n_ctas: int = 2) -> ExecutionProfile:
    arguments = (Pointer(), Pointer(), *sizes)
    launch = Launch(
        grid=Dim3(n_ctas),
        block=Dim3(64),
        dynamic_shared_bytes=0,
        arguments=tuple(Argument(place, value) for place, value in enumerate(arguments)),
    )
    found = execute_kernel(kernel, launch, closes_loops=closes)
    assert found is not None
    return found.profile


sizes = st.integers(0, 9)


@settings(max_examples=50, deadline=None)
@given(name=st.sampled_from(NESTS), arch=st.sampled_from(ARCHS), n=sizes, m=sizes, k=sizes)
@example(name="crossing", arch=90, n=12, m=9, k=3)
@example(name="leaves", arch=75, n=12, m=12, k=4)
def test_closing_nests_changes_nothing(name: str, arch: int, n: int, m: int, k: int) -> None:
    kernel = kernels(arch)[name]
    assert said(executed(kernel, (n, m, k))) == said(executed(kernel, (n, m, k), closes=False))


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("arch", ARCHS)
def test_closing_longer_nests_changes_nothing(name: str, arch: int) -> None:
    kernel = kernels(arch)[name]
    assert said(executed(kernel, (14, 25, 19))) == said(executed(kernel, (14, 25, 19), closes=False))


@pytest.mark.parametrize("arch", ARCHS)
def test_the_cost_of_a_nest_does_not_grow_with_its_trips(arch: int) -> None:
    profile = executed(kernels(arch)["plain"], (700, 900, 1000), n_ctas=3)
    assert profile.provenance is Provenance.EXACT
    innermost = max(profile.block_executions)
    assert innermost == 3 * 2 * 700 * 900 * 1000
    loads = [access for access in profile.accesses if not access.is_store]
    assert [access.requests for access in loads] == [innermost] * 2


@pytest.mark.parametrize("arch", ARCHS)
def test_distinct_bytes_of_a_nest_are_known(arch: int) -> None:
    profile = executed(kernels(arch)["plain"], (70, 90, 1000), n_ctas=3)
    loads = [access for access in profile.accesses if not access.is_store]
    # the first array is read once from end to end, by 192 threads side by side
    assert {access.unique_bytes for access in loads} == {4 * (70 * 90 * 1000 + 191), 4 * 1000}


def test_trials_in_vain_do_not_use_up_what_execution_may_take() -> None:
    """Loops of an outer one that parts the warps: no trial of it comes to an end."""
    launch = Launch(
        grid=Dim3(3125, 18),
        block=Dim3(8, 120),
        dynamic_shared_bytes=0,
        arguments=tuple(Argument(place, Pointer()) for place in range(3)),
    )
    found = execute_kernel(load_packed_dump("dedispersion_86").kernels[0], launch)
    assert found is not None
    assert found.profile.provenance is Provenance.EXACT
