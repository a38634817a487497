"""The representative warp: clusters that anybody would see, and the same answer every time."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analyzer.baselines.representative_warp import assign_sub_cores, find_representative_warp


def test_one_warp_stands_for_itself() -> None:
    assert find_representative_warp([[3.0, 4.0]]) == 0


def test_equal_warps_are_represented_by_the_first_without_scikit_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    assert find_representative_warp(np.ones((1000, 7))) == 0
    assert find_representative_warp([[1, 2], [5, 5], [5, 5]]) == 1
    assert find_representative_warp([[1, 2], [5, 5]], weights=[10, 3]) == 0


def test_missing_scikit_learn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from analyzer.text.errors import UsageError

    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(UsageError, match="scikit-learn"):
        find_representative_warp([[1, 2], [5, 5], [9, 9]])


def test_no_warp_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one warp"):
        find_representative_warp(np.zeros((0, 3)))


def test_medoid_of_the_largest_cluster() -> None:
    pytest.importorskip("sklearn")
    loaders = [[10, 100 + d] for d in (0, 1, 2)]
    workers = [[1000 + d, 5] for d in (-8, -2, 0, 3, 9)]
    assert find_representative_warp([*loaders, *workers]) == len(loaders) + 2


def test_weights_decide_which_cluster_is_largest() -> None:
    pytest.importorskip("sklearn")
    use = [[10, 100], [11, 100], [12, 100], [1000, 5], [1001, 5]]
    assert find_representative_warp(use) in (0, 1, 2)
    assert find_representative_warp(use, weights=[1, 1, 1, 50, 49]) == 3


def test_pipes_count_alike_however_large_their_numbers_are() -> None:
    """Two groups that differ in a pipe with small numbers only."""
    pytest.importorskip("sklearn")
    use = [[1e6 + d, 1] for d in range(3)] + [[1e6 + d, 9] for d in range(5)]
    assert find_representative_warp(use) in (4, 5, 6)


def test_without_structure_all_are_one_cluster() -> None:
    """Evenly spread warps: the middle one is nearest to all."""
    pytest.importorskip("sklearn")
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    ring = 100 + np.stack((np.cos(angles), np.sin(angles)), axis=1) * 50
    assert find_representative_warp([*ring.tolist(), [100.0, 100.0]]) == 12


@settings(max_examples=8)  # each clusters several times
@given(
    arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=st.integers(0, 5)),
    st.integers(0, 1 << 30),
)
def test_answer_is_a_row_and_the_same_each_time(use: np.ndarray, seed: int) -> None:
    pytest.importorskip("sklearn")
    chosen = find_representative_warp(use)
    assert 0 <= chosen < len(use)
    assert find_representative_warp(use.copy()) == chosen
    weights = np.ones(len(use))
    assert find_representative_warp(use, weights) == chosen
    assert chosen == min(i for i in range(len(use)) if (use[i] == use[chosen]).all())


def test_sub_core_is_the_warp_modulo_four() -> None:
    assert assign_sub_cores([0, 1, 5, 7]).tolist() == [0, 1, 1, 3]
