"""Alignments keep the order of both sides, leave nothing out, and pair what is the same but for registers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.comparison.alignment import LineKind, align_listings, make_shape
from analyzer.report.analyze_schema import ListingEntry


def make_listing(texts: list[str]) -> tuple[ListingEntry, ...]:
    return tuple(
        ListingEntry(
            address=16 * row,
            instruction=text,
            pipe="",
            known=True,
            control="[B------:R-:W-:-:S01]",
            executed_per_warp=1.0,
            executed_warps=1,
            provenance="exact",
            stall_cycles=0.0,
            stall="",
            share=0.0,
            cpi_stack={},
            producer=None,
            source="",
        )
        for row, text in enumerate(texts)
    )


def align(old: list[str], new: list[str]) -> list[tuple[str, int | None, int | None]]:
    alignment = align_listings(make_listing(old), make_listing(new))
    return [(alignment.classify(pair).value, pair.old, pair.new) for pair in alignment.pairs]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("@!P0 IMAD.WIDE R2, R3.reuse, 0x4, R4", "@!P IMAD.WIDE R, R, 0x4, R"),
        ("@P1 BRA `(.L_x_17)", "@P BRA @"),
        ("BRA 0x120", "BRA @"),
        ("BSSY.RECONVERGENT B0, `(.L_x_2)", "BSSY.RECONVERGENT B, @"),
        ("LDG.E R4, desc[UR4][R2.64+0x10]", "LDG.E R, desc[UR][R.64+0x10]"),
        ("IADD3 R1, R1, -0x10, RZ", "IADD3 R, R, -0x10, R"),
        ("S2R R0, SR_TID.X", "S2R R, SR_TID.X"),
        ("FFMA R5, -R4, c[0x0][0x160], R1", "FFMA R, -R, c[0x0][0x160], R"),
    ],
)
def test_shapes_drop_registers_and_targets(text: str, shape: str) -> None:
    assert make_shape(text) == shape


def test_another_allocation_of_registers_is_paired() -> None:
    assert align(["LDG.E R4, [R2.64]", "FADD R5, R4, 1"], ["LDG.E R8, [R2.64]", "FADD R9, R8, 1"]) == [
        ("changed", 0, 0),
        ("changed", 1, 1),
    ]


def test_a_wider_load_is_a_changed_load() -> None:
    old = ["S2R R0, SR_TID.X", "LDG.E R4, [R2.64]", "EXIT"]
    new = ["S2R R0, SR_TID.X", "IADD3 R2, R2, 0x4, RZ", "LDG.E.64 R4, [R2.64]", "EXIT"]
    assert align(old, new) == [("equal", 0, 0), ("added", None, 1), ("changed", 1, 2), ("equal", 2, 3)]


def test_empty_sides() -> None:
    assert align([], []) == []
    assert align([], ["EXIT"]) == [("added", None, 0)]
    assert align(["EXIT"], []) == [("removed", 0, None)]


texts = st.lists(
    st.sampled_from(
        [
            "FFMA R1, R2, R3, R4",
            "FFMA R5, R2, R3, R1",
            "LDG.E R4, [R2.64]",
            "LDG.E.64 R4, [R2.64]",
            "BAR.SYNC 0x0",
        ]
    ),
    max_size=20,
)


@given(texts, texts)
@settings(max_examples=100, deadline=None)
def test_alignments_are_complete_and_in_order(old: list[str], new: list[str]) -> None:
    found = align(old, new)
    assert [a for _, a, _ in found if a is not None] == list(range(len(old)))
    assert [b for _, _, b in found if b is not None] == list(range(len(new)))
    for kind, a, b in found:
        if a is not None and b is not None:
            assert old[a].split(".")[0].split()[0] == new[b].split(".")[0].split()[0]
            assert (kind == LineKind.EQUAL) == (old[a] == new[b])


@given(texts)
@settings(max_examples=30, deadline=None)
def test_equal_listings_are_equal_line_by_line(listing: list[str]) -> None:
    assert {kind for kind, _, _ in align(listing, listing)} <= {"equal"}
