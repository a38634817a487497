"""Comparisons, selects, moves between files, constants."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

M = 1 << 32


def s(x: int) -> int:
    return x - M if x >= M // 2 else x


def pair(low: int, high: int) -> int:
    return low + M * high


def s64(low: int, high: int) -> int:
    return low + M * s(high)


COMPARES: dict[str, Callable[[int, int], bool]] = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}
CASES: list[tuple[str, Callable[..., dict[str, int]]]] = [
    ("ISETP.GE.AND P0, PT, R0, R7, PT", lambda R0, R7: {"P0": s(R0) >= s(R7)}),
    ("ISETP.GE.AND P0, P1, R0, R7, PT", lambda R0, R7: {"P0": s(R0) >= s(R7), "P1": s(R0) < s(R7)}),
    ("ISETP.GE.U32.OR P0, PT, R0, R7, !P3", lambda R0, R7, P3: {"P0": R0 >= R7 or not P3}),
    ("ISETP.LT.AND P0, P1, R0, R7, P3", lambda R0, R7, P3: {"P0": s(R0) < s(R7) and P3, "P1": s(R0) >= s(R7) and P3}),
    ("UISETP.EQ.XOR UP1, UPT, UR20, 0x3, !UP0", lambda UR20, UP0: {"UP1": (UR20 == 3) ^ (not UP0)}),
    ("ISETP.NE.AND P0, PT, R2, -0x3, PT", lambda R2: {"P0": R2 != M - 3}),
    ("ISETP.NE.AND P6, PT, RZ, c[0x0][0x198], PT", lambda c0_0x198: {"P6": c0_0x198 != 0}),
    ("ISETP.GE.S64.AND P0, PT, R6, UR6, PT", lambda R6, R7, UR6, UR7: {"P0": s64(R6, R7) >= s64(UR6, UR7)}),
    ("ISETP.GT.U64.AND P0, PT, R4, 0x3, PT", lambda R4, R5: {"P0": pair(R4, R5) > 3}),
    ("ISETP.NE.S64.AND P1, PT, R2, -0x1, PT", lambda R2, R3: {"P1": s64(R2, R3) != -1}),
    ("ISETP.GT.AND.EX P0, PT, R4, -0x1, PT, P0", lambda R4, P0: {"P0": s(R4) > -1 or (s(R4) == -1 and P0)}),
    ("PSETP.AND.OR P0, P2, !P0, P4, P1", lambda P0, P4, P1: {"P0": (not P0 and P4) or P1, "P2": (not (not P0 and P4)) or P1}),
    ("PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x8", lambda UP0: {"P0": UP0}),
    ("PLOP3.LUT P2, PT, P2, P4, PT, 0xa2, 0x0", lambda P2, P4: {"P2": P2 or not P4}),
    ("PLOP3.LUT P0, PT, PT, PT, PT, 0x8, 0x0", lambda: {"P0": False}),
    ("P2R R75, PR, RZ, 0x48", lambda P3, P6: {"R75": 8 * P3 + 64 * P6}),
    ("UP2UR UR8, UPR, URZ, 0x4", lambda UP2: {"UR8": 4 * UP2}),
    ("R2P PR, R38, 0x6", lambda R38: {"P1": R38 >> 1 & 1, "P2": R38 >> 2 & 1}),
    ("R2P PR, R78.B2, 0x41", lambda R78: {"P0": R78 >> 16 & 1, "P6": R78 >> 22 & 1}),
    # moves
    ("MOV R0, R6", lambda R6: {"R0": R6}),
    ("MOV R1, c[0x0][0x28]", lambda c0_0x28: {"R1": c0_0x28}),
    ("MOV R4, 0x400", lambda: {"R4": 0x400}),
    ("MOV.SPILL R2, UR39", lambda UR39: {"R2": UR39}),
    ("MOV.64 R6, UR6", lambda UR6, UR7: {"R6": UR6, "R7": UR7}),
    ("UMOV.64 UR4, 0x3bf921fb54442d19", lambda: {"UR4": 0x54442D19, "UR5": 0x3BF921FB}),
    ("MOV.64 R18, RZ", lambda: {"R18": 0, "R19": 0}),
    ("SEL R12, R19, 0x7f, !P2", lambda R19, P2: {"R12": 0x7F if P2 else R19}),
    ("SEL R9, RZ, 0x1, !P0", lambda P0: {"R9": P0}),
    ("SEL R9, 0x1, RZ, P0", lambda P0: {"R9": P0}),
    ("SEL R9, RZ, 0x1, P0", lambda P0: {"R9": not P0}),
    ("SEL.64 R4, R6, -0x1, P0", lambda R6, R7, P0: {"R4": R6 if P0 else M - 1, "R5": R7 if P0 else M - 1}),
    ("USEL UR5, URZ, UR5, !UP0", lambda UR5, UP0: {"UR5": UR5 if UP0 else 0}),
    ("HFMA2.MMA R3, -RZ, RZ, 0, 2.384185791015625e-07", lambda: {"R3": 4}),
    ("HFMA2 R7, -RZ, RZ, 1, -0.0 ", lambda: {"R7": 0x3C008000}),
    ("HFMA2.BF16_V2 R7, -RZ, RZ, 1, 0", lambda: {"R7": 0x3F800000}),
    ("CS2R R28, SRZ", lambda: {"R28": 0, "R29": 0}),
    ("CS2R.32 R23, SR_CgaSize", lambda SR_CgaSize: {"R23": SR_CgaSize}),
    ("S2R R2, SR_LTMASK", lambda SR_LTMASK: {"R2": SR_LTMASK}),
    ("LDC R4, c[0x0][RZ]", lambda c0_0x0: {"R4": c0_0x0}),
    ("LDC.64 R2, c[0x3][R9+0x8]", lambda c3_R9_0x8, c3_R9_0xc: {"R2": c3_R9_0x8, "R3": c3_R9_0xc}),
    ("LDCU.128 UR24, c[0x0][0x3b0]", lambda c0_0x3b0, c0_0x3b4, c0_0x3b8, c0_0x3bc: {"UR24": c0_0x3b0, "UR25": c0_0x3b4, "UR26": c0_0x3b8, "UR27": c0_0x3bc}),
    ("ULDC.U8 UR6, c[0x0][0x25a]", lambda c0_0x258: {"UR6": c0_0x258 >> 16 & 255}),
    ("LDC.S8 R2, c[0x0][0x1a8]", lambda c0_0x1a8: {"R2": (c0_0x1a8 & 255 ^ 128) - 128}),
    ("LDC.U16 R2, c[0x3][R5]", lambda c3_R5_0x0: {"R2": c3_R5_0x0 & 0xFFFF}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reference"), CASES, ids=[text for text, _ in CASES])
@settings(max_examples=12)
@given(data=st.data())
def test_against_integers(harness: Any, text: str, reference: Any, data: st.DataObject) -> None:
    harness.check(text, reference, data)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("name", COMPARES)
@given(words=st.lists(st.sampled_from((0, 1, 2, M // 2 - 1, M // 2, M - 1)), min_size=4, max_size=4))
def test_two_halves_compare_as_one_number(harness: Any, name: str, signed: bool, words: list[int]) -> None:
    """The low comparison handed to .EX is the comparison of the 64-bit numbers."""
    values = {f"R{i}": np.array([[word]], dtype=np.uint32) for i, word in enumerate(words)}
    low = harness.run(f"ISETP.{name}.U32.AND P1, PT, R0, R2, PT", values)["P1"]
    kind = "" if signed else ".U32"
    high = harness.run(f"ISETP.{name}{kind}.AND.EX P0, PT, R1, R3, PT, P1", {**values, "P1": low})["P0"]
    number = s64 if signed else pair
    assert bool(high[0, 0]) == COMPARES[name](number(words[0], words[1]), number(words[2], words[3]))


@given(words=st.lists(st.integers(0, M - 1) | st.sampled_from((0, 1, M - 1)), min_size=4, max_size=4))
def test_two_halves_subtract_as_one_number(harness: Any, words: list[int]) -> None:
    values = {f"R{i}": np.array([[word]], dtype=np.uint32) for i, word in enumerate(words)}
    low = harness.run("IADD3 R4, P0, PT, R0, -R2, RZ", values)
    high = harness.run("IADD3.X R5, PT, PT, R1, ~R3, RZ, P0, !PT", {**values, **low})
    found = pair(int(low["R4"][0, 0]), int(high["R5"][0, 0]))
    assert found == (pair(words[0], words[1]) - pair(words[2], words[3])) % (M * M)


@given(words=st.lists(st.integers(0, M - 1) | st.sampled_from((0, 1, M - 1)), min_size=6, max_size=6))
def test_three_pairs_subtract_as_one_number(harness: Any, words: list[int]) -> None:
    values = {f"R{i}": np.array([[word]], dtype=np.uint32) for i, word in enumerate(words)}
    low = harness.run("IADD3 R8, P0, P1, -R0, R2, -R4", values)
    high = harness.run("IADD3.X R9, ~R1, R3, ~R5, P0, P1", {**values, **low})
    found = pair(int(low["R8"][0, 0]), int(high["R9"][0, 0]))
    a, b, c = (pair(words[i], words[i + 1]) for i in (0, 2, 4))
    assert found == (b - a - c) % (M * M)
