"""Execution of real kernels comes to the closed forms of their algorithms, to the last digit."""

import pytest
from exactness import CASES, Case, run_case


@pytest.mark.parametrize("case", sorted(CASES, key=lambda case: case.path), ids=str)
def test_closed_forms(case: Case) -> None:
    assert run_case(case).failed == []
