"""Branches on data that ordinary numbers settle."""

from pathlib import Path

import pytest
from paths import format_dump

import analyzer
from analyzer.ir.launch import Dim3, Launch

ORDINARY, HALF = "numbers are seldom huge, tiny or equal", "half of the warps take it"


@pytest.mark.parametrize(
    ("compare", "guard", "way"),
    [
        pytest.param("FSETP.GE.AND P0, PT, |R4|, 105615, PT", "!P0", f"taken: {ORDINARY}", id="sine"),
        pytest.param(
            "FSETP.GE.AND P0, PT, |R4|, 105615, PT", "P0", f"not taken: {ORDINARY}", id="its slow path"
        ),
        pytest.param("FSETP.NEU.AND P0, PT, |R4|, +INF , PT", "P0", f"taken: {ORDINARY}", id="finite"),
        pytest.param("FSETP.LT.AND P1, P0, |R4|, 1e-30, PT", "P0", f"taken: {ORDINARY}", id="not tiny"),
        pytest.param("FSETP.EQ.AND P0, PT, R4, 1, PT", "P0", f"not taken: {ORDINARY}", id="one"),
        pytest.param("FSETP.NEU.AND P0, PT, R4, R4, PT", "P0", f"not taken: {ORDINARY}", id="no number"),
        pytest.param("FSETP.NEU.AND P0, PT, R4, R5, PT", "P0", f"taken: {ORDINARY}", id="unlike numbers"),
        pytest.param("FSETP.EQ.AND P0, PT, R4, 1, P1", "P0", f"not taken: {ORDINARY}", id="and what else"),
        pytest.param("FSETP.EQ.OR P0, PT, R4, 1, P1", "P0", HALF, id="or what else"),
        pytest.param("FSETP.GT.AND P0, PT, R4, RZ, PT", "P0", HALF, id="sign"),
        pytest.param("FSETP.LT.AND P0, PT, R4, R5, PT", "P0", HALF, id="order"),
        pytest.param("@P1 FSETP.EQ.AND P0, PT, R4, 1, PT", "P0", HALF, id="perhaps not compared"),
        pytest.param("ISETP.EQ.AND P0, PT, R4, 0x1, PT", "P0", HALF, id="whole number"),
    ],
)
def test_ordinary_numbers_say_which_way(tmp_path: Path, compare: str, guard: str, way: str) -> None:
    code = (
        "S2R R0, SR_TID.X",
        "IMAD.WIDE R2, R0, 0x4, RZ",
        "LDG.E.64 R4, [R2.64]",
        "FSETP.GT.AND P1, PT, R5, RZ, PT",
        compare,
        "NOP",
        f"@{guard} BRA 0x90",
        "FADD R4, R4, R4",
        "FADD R4, R4, R4",
        "STG.E [R2.64], R4",
        "FADD R4, R4, R4",
        "STG.E [R2.64+0x100], R4",
        "EXIT",
    )
    assert rules_of(tmp_path, *code) == [way]


def test_comparisons_are_found_in_blocks_before(tmp_path: Path) -> None:
    """A cosine behind a sine of the same angle."""
    code = (
        "S2R R0, SR_TID.X",
        "IMAD.WIDE R2, R0, 0x4, RZ",
        "LDG.E R4, [R2.64]",
        "FSETP.GE.AND P0, PT, |R4|, 105615, PT",
        "@!P0 BRA 0x60",
        "FADD R4, R4, R4",
        "FADD R4, R4, R4",
        "@!P0 BRA 0x90",
        "FADD R4, R4, R4",
        "STG.E [R2.64], R4",
        "FADD R4, R4, R4",
        "STG.E [R2.64+0x100], R4",
        "EXIT",
    )
    assert rules_of(tmp_path, *code) == [f"taken: {ORDINARY}"] * 2


def rules_of(folder: Path, *code: str) -> list[str]:
    """What is assumed of each branch."""
    listing = folder / "kernel.sass"
    listing.write_text(format_dump("sm_80", *code))
    launch = Launch(grid=Dim3(1), block=Dim3(64))
    report = analyzer.analyze(str(listing), "a100", options=analyzer.Options(launch=launch))
    notes = report.kernels[0].counts.assumptions
    return [note.split(": ", 1)[1].split("; it depends")[0] for note in notes if note.startswith("branch at")]
