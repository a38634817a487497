"""Reductions at CTA barriers against an evaluation of the same kernels in numpy, thread by thread."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.ir.opcode import AddressSpace
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import Program, load

FOLDER = Path(__file__).parent / "13-barrier-results"
ARCHS = (75, 80, 90, 100, 120)


def count_mixed(t: np.ndarray, n: int) -> int:
    values = (t * 37 % 11)[t ^ 1]
    return int((t < (values & 1).sum()).sum() + (values % n != 0).sum())


def count_by_number(t: np.ndarray, n: int) -> int:
    return sum(min(64, 5 * number + 3) for number in range(len(t) // 64))


TRUTH: dict[str, Callable[[np.ndarray, int], int]] = {  # lanes that store, of threads t with argument n
    "counts": lambda t, n: int((t < (t % 4 == 1).sum()).sum()),
    "any": lambda t, n: len(t) * bool((t == n).any()),
    "all": lambda t, n: len(t) * bool((t < n).all()),
    "unrolled": lambda t, n: sum(int((t < (t % (k + 2) == 0).sum()).sum()) for k in range(4)),
    "looped": lambda t, n: n * int((t < (t % 4 == 1).sum()).sum()),
    "shrinking": lambda t, n: sum(int((t < (t + k < n).sum()).sum()) for k in range(n)),
    "through_shared": count_mixed,
    "early_exit": lambda t, n: int((t[t < n] < (t[t < n] % 3 != 0).sum()).sum()),
    "by_number": count_by_number,
}
CASES = [
    ("counts", 256, 0),
    ("counts", 200, 0),  # a warp with idle lanes
    ("any", 256, 300),
    ("any", 256, 255),
    ("all", 256, 255),
    ("all", 256, 256),
    ("unrolled", 256, 0),
    ("looped", 96, 5000),
    ("shrinking", 96, 300),
    ("through_shared", 256, 5),
    ("early_exit", 256, 77),
    ("early_exit", 256, 32),
    ("by_number", 512, 0),
]


@cache
def load_dump(arch: int) -> Program:
    return load(str(FOLDER / f"barriers_{arch}.txt"))


def execute(arch: int, name: str, block: int, *numbers: int, grid: int = 1) -> ExecutionProfile:
    kernel = next(k for k in load_dump(arch).kernels if k.name == name)
    arguments = tuple(Argument(place, number) for place, number in enumerate(numbers, 1))
    found = execute_kernel(kernel, Launch(grid=Dim3(grid), block=Dim3(block), arguments=arguments))
    assert found is not None
    return found.profile


def count_stored_lanes(profile: ExecutionProfile) -> int:
    """Count the lanes that store to global memory."""
    return sum(a.lanes for a in profile.accesses if a.is_store and a.space is AddressSpace.GLOBAL)


@pytest.mark.parametrize("arch", ARCHS)
def test_results_are_computed_over_the_cta(arch: int) -> None:
    for name, block, n in CASES:
        profile = execute(arch, name, block, *([n] if n else []))
        assert profile.provenance is Provenance.EXACT, (name, block, n)
        assert count_stored_lanes(profile) == TRUTH[name](np.arange(block), n), (name, block, n)


@pytest.mark.parametrize("arch", ARCHS)
def test_number_and_threads_of_a_barrier_may_be_packed_in_a_register(arch: int) -> None:
    profile = execute(arch, "packed", 256, 3, 256)
    assert (profile.provenance, count_stored_lanes(profile)) == (Provenance.EXACT, 52)


@pytest.mark.parametrize("arch", ARCHS)
def test_which_half_of_the_threads_meets_is_not_known(arch: int) -> None:
    profile = execute(arch, "packed", 256, 3, 128)
    assert profile.provenance is not Provenance.EXACT


@pytest.mark.parametrize("arch", ARCHS)
def test_boxes_of_ctas_have_the_results_of_each(arch: int) -> None:
    n_ctas, block, n = 100_000, 128, 100_000 * 128 - 1000
    profile = execute(arch, "of_grid", block, n, grid=n_ctas)
    each = np.clip(n - np.arange(n_ctas) * block, 0, block)
    assert (profile.provenance, count_stored_lanes(profile)) == (Provenance.EXACT, each.sum())


@pytest.mark.parametrize("arch", ARCHS)
def test_a_result_of_unknown_predicates_is_unknown(arch: int) -> None:
    profile = execute(arch, "of_data", 256)
    assert profile.provenance is not Provenance.EXACT
    assert any("LDG" in branch.origin for branch in profile.unknown_branches)
