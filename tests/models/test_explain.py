"""Why models part: every stall has its reason."""

from itertools import permutations

import pytest
from kernel_launches import KernelLaunch, make_model_input
from paths import TRACES

from analyzer.models.interface import Stall
from analyzer.models.model_comparison import DIFFERENCE_REASON_BY_STALL, compare_results
from analyzer.models.registry import find_model

NAMES = ("sm", "steady", "amali")


@pytest.mark.parametrize("kernel", ["matmul_tiled", "saxpy"])
def test_models_that_part_are_explained_stall_by_stall(kernel: str) -> None:
    """Code that waits for register banks too, which `sm` alone charges."""
    path = TRACES / "cuda" / "sm_80" / "report16.sass"
    situation = make_model_input(KernelLaunch(path, kernel, "a100", (64, 64), (32, 32), ("3=2048",)))
    verdicts = {name: find_model(name)(situation) for name in NAMES}
    for one, other in permutations(NAMES, 2):
        found = compare_results(verdicts[one], verdicts[other])
        assert found
        assert all(difference.reason for difference in found)


def test_no_stall_is_without_a_reason() -> None:
    assert set(DIFFERENCE_REASON_BY_STALL) == set(Stall)
