"""Kernels are paired one to one, by name, normal name, then code, and alike on any order of the input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.comparison.kernel_matching import ComparedKernel, MatchReason, match_kernels
from analyzer.comparison.normal_names import list_name_forms, strip_file_hashes


def make_kernel(name: str, code: str = "", arch: str = "sm_90", digest: str = "") -> ComparedKernel:
    opcodes = code.split()
    mix = {each: opcodes.count(each) for each in set(opcodes)}
    return ComparedKernel(name, arch, digest or f"{code}{arch}", lambda: opcodes, lambda: mix)


LONG = "S2R IMAD ISETP EXIT LDC LDG LDG FFMA FFMA FADD STG STG EXIT"


@pytest.mark.parametrize(
    ("old", "new", "form"),
    [
        ("gemm", "gemm", 0),
        # hashes that nvcc makes of the path and the contents of a file
        (
            "_ZN34_GLOBAL__N__5c82b24c_4_a_cu__Z1fPf5scaleEPffi",
            "_ZN34_GLOBAL__N__4e371da2_4_b_cu__Z1fPf5scaleEPffi",
            0,
        ),
        ("_Z2stPf", "__nv_static_23__5c82b24c_4_a_cu__Z1fPf__Z2stPf", 0),
        ("gemm.constprop.0", "gemm", 0),
        ("matmul_0d1d2d3de", "matmul", 0),
        ("_ZN3cub16CUB_300100_SM_906reduceEPf", "_ZN3cub16CUB_300200_SM_906reduceEPf", 0),
        ("_Z4gemmPf", "_Z4gemmPfi", 1),  # a parameter more
        ("_Z4gemmILi2EEvPf", "_Z4gemmILi4EEvPf", 2),
        ("triton_poi_fused_add_3", "triton_poi_fused_add_17", 3),
    ],
)
def test_names_meet_in_a_form(old: str, new: str, form: int) -> None:
    olds, news = list_name_forms(old), list_name_forms(new)
    assert [a == b for a, b in zip(olds, news, strict=True)].index(True) == form


@pytest.mark.parametrize(
    "name", ["_ZN9999_GLOBAL__N__5c82b24cE", "__nv_static_99999999__x", "_INTERNAL_", "", "_"]
)
def test_damaged_names_stay(name: str) -> None:
    assert strip_file_hashes(name) or not name
    assert list_name_forms(name)


def test_architectures_and_overloads_find_their_own() -> None:
    old = [make_kernel("f", LONG, "sm_80"), make_kernel("f", LONG, "sm_90"), make_kernel("g<1>", LONG)]
    new = [
        make_kernel("f", LONG, "sm_90"),
        make_kernel("f", LONG, "sm_80"),
        make_kernel("g<1>", LONG + " NOP"),
    ]
    assert [(m.old, m.new, m.reason) for m in match_kernels(old, new)] == [
        (1, 0, MatchReason.NAME),
        (0, 1, MatchReason.NAME),
        (2, 2, MatchReason.NAME),
    ]


def test_templates_with_other_arguments_go_by_the_most_similar_code() -> None:
    more = " ".join([LONG, *["FFMA"] * 20])
    old = [make_kernel("_Z4gemmILi2EEvPf", LONG), make_kernel("_Z4gemmILi4EEvPf", more)]
    new = [make_kernel("_Z4gemmILi8EEvPf", more + " FMUL"), make_kernel("_Z4gemmILi1EEvPf", LONG + " FMUL")]
    assert {(m.old, m.new) for m in match_kernels(old, new)} == {(1, 0), (0, 1)}


def test_renamed_kernels_are_found_by_their_code() -> None:
    other = "S2R LDC ULDC HMMA HMMA LDSM LDSM HMMA HMMA BAR LDGSTS LDGSTS EXIT"
    old, new = (
        [make_kernel("a", LONG), make_kernel("b", other)],
        [make_kernel("x", other + " NOP"), make_kernel("y", LONG)],
    )
    by_new = {m.new: m for m in match_kernels(old, new)}
    assert (by_new[1].old, by_new[1].reason) == (0, MatchReason.CODE)
    assert (by_new[0].old, by_new[0].reason) == (1, MatchReason.SIMILAR_CODE)
    assert by_new[0].similarity > 0.9


def test_short_and_different_code_is_new() -> None:
    assert match_kernels([make_kernel("a", "S2R EXIT")], [make_kernel("b", "S2R NOP EXIT")]) == []
    assert match_kernels([make_kernel("a", LONG)], [make_kernel("b", "HMMA LDSM " * 8)]) == []


names = st.sampled_from(["a", "b", "_Z1fILi1EEvPf", "_Z1fILi2EEvPf", "k_1", "k_2"])
codes = st.lists(st.sampled_from(["FFMA", "LDG", "STG", "BAR", "HMMA"]), min_size=1, max_size=30).map(
    " ".join
)
kernels = st.lists(st.builds(make_kernel, names, codes, st.sampled_from(["sm_80", "sm_90"])), max_size=6)


@given(kernels, kernels)
@settings(max_examples=60, deadline=None)
def test_matches_are_one_to_one_and_symmetric_in_number(
    old: list[ComparedKernel], new: list[ComparedKernel]
) -> None:
    found = match_kernels(old, new)
    assert len({m.old for m in found}) == len({m.new for m in found}) == len(found)
    for name in {each.name for each in old} & {
        each.name for each in new
    }:  # none of a name is left on both sides
        left = [
            [k.name for i, k in enumerate(side) if i not in taken].count(name)
            for side, taken in ((old, {m.old for m in found}), (new, {m.new for m in found}))
        ]
        assert 0 in left


@given(kernels)
@settings(max_examples=40, deadline=None)
def test_a_side_matches_itself_by_equal_code(side: list[ComparedKernel]) -> None:
    found = match_kernels(side, list(reversed(side)))
    assert len(found) == len(side)
    for match in found:
        assert side[match.old].digest == list(reversed(side))[match.new].digest
