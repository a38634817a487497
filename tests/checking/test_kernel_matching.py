"""Which kernel of a baseline is which kernel of the inputs."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.checking.kernel_matching import Matching, match_kernels
from analyzer.report.baseline_schema import BaselineKernel


def kernel(name: str = "f", **changes: object) -> BaselineKernel:
    facts: dict[str, object] = {
        "name": name,
        "input": "a.cubin",
        "architecture": "sm_90",
        "launch": "1024/256",
        "launch_digest": "L",
        "code": f"code of {name}",
        "metrics": {"instructions": 100, "registers": 32},
        "gpus": {},
    }
    return BaselineKernel(**(facts | changes))  # type: ignore[arg-type]


def names_of(
    matching: Matching, old: list[BaselineKernel], new: list[BaselineKernel]
) -> set[tuple[str, str]]:
    return {(old[a].name, new[b].name) for a, b in matching.pairs}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"code": "other"},
        {"name": "g"},
        {"input": "b.cubin"},
        {"input": "b.cubin", "code": "other"},
        {"launch": "1024/512"},
    ],
)
def test_one_change_leaves_the_kernel_itself(changes: dict[str, object]) -> None:
    old, new = [kernel("f"), kernel("other")], [kernel("other"), kernel("f", code="code of f")]
    new[1] = kernel(**({"name": "f", "code": "code of f"} | changes))  # type: ignore[arg-type]
    matching = match_kernels(old, new)
    assert matching.pairs == ((1, 0), (0, 1))
    assert not matching.added
    assert not matching.removed


def test_hashes_in_names_are_no_names() -> None:
    old = [kernel("_ZN34_GLOBAL__N__5c82b24c_4_a_cu__Z1fPf5scaleEPffi", code="1")]
    new = [kernel("_ZN34_GLOBAL__N__aaaaaaaa_4_a_cu__Z1fPf5scaleEPffi", code="2")]
    assert match_kernels(old, new).pairs == ((0, 0),)


def test_other_template_arguments_are_another_kernel() -> None:
    matching = match_kernels([kernel("_Z1fIfEvPT_", code="1")], [kernel("_Z1fIdEvPT_", code="2")])
    assert (matching.pairs, matching.added, matching.removed) == ((), (0,), (0,))


def test_a_new_launch_is_new_and_another_launch_has_moved() -> None:
    old = [kernel(launch_digest="L")]
    both = match_kernels(old, [kernel(launch_digest="L"), kernel(launch_digest="M")])
    assert (both.pairs, both.added, both.moved_launches) == (((0, 0),), (1,), ())
    other = match_kernels(old, [kernel(launch_digest="M")])
    assert (other.pairs, other.moved_launches) == ((), ((0, 0),))


def test_an_architecture_more_is_new_and_another_one_has_moved() -> None:
    old = [kernel(architecture="sm_80")]
    both = match_kernels(old, [kernel(architecture="sm_80"), kernel(architecture="sm_90", code="x")])
    assert (both.pairs, both.added) == (((0, 0),), (1,))
    other = match_kernels(old, [kernel(architecture="sm_90", code="x")])
    assert (other.pairs, other.moved_architectures) == ((), ((0, 0),))


def test_versions_of_a_name_are_paired_by_size() -> None:
    old = [kernel(code=f"old {n}", metrics={"instructions": n}) for n in (100, 400, 200)]
    new = [kernel(code=f"new {n}", metrics={"instructions": n}) for n in (210, 390)]
    matching = match_kernels(old, new)
    assert matching.pairs == ((2, 0), (1, 1))
    assert matching.removed == (0,)


_KERNELS = st.lists(
    st.builds(
        kernel,
        st.sampled_from("fgh"),
        input=st.sampled_from(["a", "b"]),
        code=st.sampled_from("1234"),
        launch_digest=st.sampled_from("LM"),
        architecture=st.sampled_from(["sm_80", "sm_90"]),
    ),
    max_size=8,
    unique_by=lambda one: one.key,
)


@given(_KERNELS, _KERNELS, st.randoms(use_true_random=False))
def test_every_kernel_has_one_place_whatever_the_order(
    old: list[BaselineKernel], new: list[BaselineKernel], rng: random.Random
) -> None:
    matching = match_kernels(old, new)
    paired = (*matching.pairs, *matching.moved_launches, *matching.moved_architectures)
    assert sorted([a for a, _ in paired] + list(matching.removed)) == list(range(len(old)))
    assert sorted([b for _, b in paired] + list(matching.added)) == list(range(len(new)))
    if {one.key for one in old} == {one.key for one in new}:
        assert all(old[a].key == new[b].key for a, b in matching.pairs)
    mixed = rng.sample(new, len(new))
    other = match_kernels(old, mixed)
    sizes = [len(part) for part in (matching.pairs, matching.added, matching.removed)]
    assert [len(part) for part in (other.pairs, other.added, other.removed)] == sizes


def test_many_versions_of_a_name_take_no_square_of_time() -> None:
    old = [kernel(code=f"o{n}", metrics={"instructions": n}) for n in range(2000)]
    new = [kernel(code=f"n{n}", metrics={"instructions": n}) for n in range(2000)]
    assert len(match_kernels(old, new).pairs) == 2000
