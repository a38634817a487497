"""Sums, products, shift-and-add, minima: each against plain integers."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

M = 1 << 32
MAX = M - 1


def s(x: int) -> int:
    return x - M if x >= M // 2 else x


def pair(low: int, high: int) -> int:
    return low + M * high


def s64(x: int) -> int:
    x %= M * M
    return x - M * M if x >= M * M // 2 else x


def halves(low: str, high: str, x: int) -> dict[str, int]:
    return {low: x % M, high: x // M % M}


def carried(name: str, bit: str, total: int) -> dict[str, int]:
    return {name: total % M, bit: total // M > 0}


def minus(x: int) -> int:
    """What the adder sees of a negated word."""
    return M - x


def flip(x: int) -> int:
    return MAX - x


CASES: list[tuple[str, Callable[..., dict[str, int]]]] = [
    ("IADD3 R0, R1, R2, R3", lambda R1, R2, R3: {"R0": R1 + R2 + R3}),
    ("IADD3 R5, R14, R7, RZ", lambda R14, R7: {"R5": R14 + R7}),
    ("IADD3 R0, PT, PT, -R1, R2, -R3", lambda R1, R2, R3: {"R0": R2 - R1 - R3}),
    ("IADD3 R0, -R1, RZ, -R3", lambda R1, R3: {"R0": -R1 - R3}),
    ("IADD3 R0, -R1, -R2, -R3", lambda R1, R2, R3: {"R0": -R1 - R2 - R3}),
    ("IADD3 R0, R1, 0x7ffffff0, RZ", lambda R1: {"R0": R1 + 0x7FFFFFF0}),
    ("IADD3 R0, -R1, -0x2, R0", lambda R1, R0: {"R0": R0 - R1 - 2}),
    ("IADD3 R0, RZ, RZ, RZ", lambda: {"R0": 0}),
    ("IADD3 R0, R1, c[0x0][0x210], RZ", lambda R1, c0_0x210: {"R0": R1 + c0_0x210}),
    ("IADD3 R0, R1, -c[0x0][0x210], RZ", lambda R1, c0_0x210: {"R0": R1 - c0_0x210}),
    ("IADD3 R0, R1, ~UR4, RZ", lambda R1, UR4: {"R0": R1 - UR4 - 1}),
    ("IADD3 R5, P0, PT, R14, R7, RZ", lambda R14, R7: carried("R5", "P0", R14 + R7)),
    ("IADD3 R5, P0, R14, 0xffffffff, RZ", lambda R14: carried("R5", "P0", R14 + MAX)),
    ("IADD3 R0, P0, PT, R1, -R2, RZ", lambda R1, R2: carried("R0", "P0", R1 + minus(R2))),
    ("IADD3 R0, P1, -R2, R1, RZ", lambda R1, R2: carried("R0", "P1", R1 + minus(R2))),
    ("IADD3 R0, P0, RZ, -R2, RZ", lambda R2: carried("R0", "P0", minus(R2))),
    ("IADD3 R0, P0, -R2, 0x5, RZ", lambda R2: carried("R0", "P0", minus(R2) + 5)),
    ("IADD3 R0, P0, R2, -RZ, RZ", lambda R2: carried("R0", "P0", R2 + M)),
    ("IADD3 RZ, P0, PT, R7, R8, RZ", lambda R7, R8: {"P0": R7 + R8 >= M}),
    (
        "IADD3 R8, P0, P1, R8, R6, R4",
        lambda R8, R6, R4: {
            "R8": R8 + R6 + R4,
            "P0": R8 + R6 + R4 >= M,
            "P1": R8 + R6 + R4 >= 2 * M,
        },
    ),
    (
        "IADD3 R8, P0, P1, -R8, R4, -R6",
        lambda R8, R6, R4: {
            "R8": R4 - R8 - R6,
            "P0": minus(R8) + minus(R6) + R4 >= M,
            "P1": minus(R8) + minus(R6) + R4 >= 2 * M,
        },
    ),
    ("IADD3.X R19, R5, R6, RZ, P0, !PT", lambda R5, R6, P0: {"R19": R5 + R6 + P0}),
    ("IADD3.X R3, PT, PT, RZ, RZ, RZ, P0, !PT", lambda P0: {"R3": P0}),
    ("IADD3.X R3, RZ, RZ, RZ, P0, P1", lambda P0, P1: {"R3": P0 + P1}),
    ("IADD3.X R9, ~R9, R5, ~R7, P0, P1", lambda R9, R5, R7, P0, P1: {"R9": flip(R9) + R5 + flip(R7) + P0 + P1}),
    ("IADD3.X R10, PT, PT, R10, -0x1, RZ, !P1, !PT", lambda R10, P1: {"R10": R10 - 1 + (not P1)}),
    ("IADD3.X R12, P1, R4, UR8, RZ, PT, !PT", lambda R4, UR8: carried("R12", "P1", R4 + UR8 + 1)),
    (
        "IADD3.X R12, P1, P2, R4, ~UR8, RZ, P0, P3",
        lambda R4, UR8, P0, P3: {
            "R12": R4 + flip(UR8) + P0 + P3,
            "P1": R4 + flip(UR8) + P0 + P3 >= M,
            "P2": R4 + flip(UR8) + P0 + P3 >= 2 * M,
        },
    ),
    ("UIADD3 UR4, UP0, UPT, -UR4, UR8, URZ", lambda UR4, UR8: carried("UR4", "UP0", minus(UR4) + UR8)),
    ("UIADD3.X UR5, UPT, UPT, UR11, ~UR13, URZ, UP1, !UPT", lambda UR11, UR13, UP1: {"UR5": UR11 + flip(UR13) + UP1}),
    (
        "UIADD3.64 UR6, UPT, UPT, UR8, 0x80, URZ",
        lambda UR8, UR9: halves("UR6", "UR7", pair(UR8, UR9) + 0x80),
    ),
    ("IADD R0, R1, -R2", lambda R1, R2: {"R0": R1 - R2}),
    ("IADD R0, -R1, RZ", lambda R1: {"R0": -R1}),
    ("IADD32I R0, R1, -0x20", lambda R1: {"R0": R1 - 32}),
    ("IADD.64 R4, R2, -0x80000000", lambda R2, R3: halves("R4", "R5", pair(R2, R3) - M // 2)),
    ("IADD.64 R4, -R6, UR8", lambda R6, R7, UR8, UR9: halves("R4", "R5", pair(UR8, UR9) - pair(R6, R7))),
    ("IADD.64 R4, RZ, RZ", lambda: {"R4": 0, "R5": 0}),
    ("IADD.64 R4, R6, R8", lambda R6, R7, R8, R9: halves("R4", "R5", pair(R8, R9) + pair(R6, R7))),
    ("IADD.64 R4, -c[0x0][0x8], ~R6", lambda c0_0x8, c0_0xc, R6, R7: halves("R4", "R5", -1 - pair(R6, R7) - pair(c0_0x8, c0_0xc))),
    ("VIADD R10, R11, -UR4", lambda R11, UR4: {"R10": R11 - UR4}),
    # products
    ("IMAD R0, R1, R2, R3", lambda R1, R2, R3: {"R0": R1 * R2 + R3}),
    ("IMAD R0, R1, R2, -R3", lambda R1, R2, R3: {"R0": R1 * R2 - R3}),
    ("IMAD R0, -R1, R2, R3", lambda R1, R2, R3: {"R0": R3 - R1 * R2}),
    ("IMAD R0, R1, -0x8, R3", lambda R1, R3: {"R0": R3 - 8 * R1}),
    ("IMAD R41, R40, R3, -0x440", lambda R40, R3: {"R41": R40 * R3 - 0x440}),
    ("IMAD R5, R14, -0x2, -R5", lambda R14, R5: {"R5": -2 * R14 - R5}),
    ("IMAD R3, R19, c[0x0][0x178], RZ", lambda R19, c0_0x178: {"R3": R19 * c0_0x178}),
    ("IMAD.MOV R4, RZ, RZ, -R5", lambda R5: {"R4": -R5}),
    ("IMAD.MOV.U32 R23, RZ, RZ, -0x40800000", lambda: {"R23": M - 0x40800000}),
    ("IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28]", lambda c0_0x28: {"R1": c0_0x28}),
    ("IMAD.IADD R5, R7, 0x1, -R10", lambda R7, R10: {"R5": R7 - R10}),
    ("IMAD.SHL.U32 R8, R4, 0x4, RZ", lambda R4: {"R8": R4 * 4}),
    ("IMAD.U32 R44, R43, 0x20, R0", lambda R43, R0: {"R44": 32 * R43 + R0}),
    ("IMAD.U32 R0, RZ, RZ, UR8", lambda UR8: {"R0": UR8}),
    ("IMAD.X R6, R16, 0x1, R19, P0", lambda R16, R19, P0: {"R6": R16 + R19 + P0}),
    ("IMAD.X R3, RZ, RZ, ~R3, P0", lambda R3, P0: {"R3": flip(R3) + P0}),
    ("IMAD.X R8, RZ, RZ, -0x1, P2", lambda P2: {"R8": MAX + P2}),
    ("IMAD.WIDE R2, R4, R5, R6", lambda R4, R5, R6, R7: halves("R2", "R3", s(R4) * s(R5) + pair(R6, R7))),
    ("IMAD.WIDE R2, R4, 0x8, R6", lambda R4, R6, R7: halves("R2", "R3", s(R4) * 8 + pair(R6, R7))),
    ("IMAD.WIDE R2, R4, 0x1, R6", lambda R4, R6, R7: halves("R2", "R3", s(R4) + pair(R6, R7))),
    ("IMAD.WIDE.U32 R2, R4, 0x1, UR6", lambda R4, UR6, UR7: halves("R2", "R3", R4 + pair(UR6, UR7))),
    ("IMAD.WIDE.U32 R2, R4, 0x80, RZ", lambda R4: halves("R2", "R3", R4 * 128)),
    ("IMAD.WIDE R2, R4, -0x80000000, R6", lambda R4, R6, R7: halves("R2", "R3", s(R4) * -(2**31) + pair(R6, R7))),
    ("IMAD.WIDE R2, R4, -0x3, RZ", lambda R4: halves("R2", "R3", s(R4) * -3)),
    ("IMAD.WIDE R2, R4, 0x4, -R6", lambda R4, R6, R7: halves("R2", "R3", s(R4) * 4 - pair(R6, R7))),
    (
        "IMAD.WIDE R2, R4, R5, c[0x0][0x168]",
        lambda R4, R5, c0_0x168, c0_0x16c: halves("R2", "R3", s(R4) * s(R5) + pair(c0_0x168, c0_0x16c)),
    ),
    ("IMAD.WIDE.U32 R2, R5, -0x7f7f7f7f, RZ", lambda R5: halves("R2", "R3", R5 * (M - 0x7F7F7F7F))),
    ("IMAD.WIDE.U32 R2, R4, UR5, R6", lambda R4, UR5, R6, R7: halves("R2", "R3", R4 * UR5 + pair(R6, R7))),
    (
        "IMAD.WIDE.U32 R8, P0, R2, R5, R6",
        lambda R2, R5, R6, R7: {
            **halves("R8", "R9", R2 * R5 + pair(R6, R7)),
            "P0": R2 * R5 + pair(R6, R7) >= M * M,
        },
    ),
    (
        "IMAD.WIDE.U32.X R8, R3, R5, R10, P0",
        lambda R3, R5, R10, R11, P0: halves("R8", "R9", R3 * R5 + pair(R10, R11) + P0),
    ),
    ("IMAD.HI R3, R8, 0x2aaaaaab, RZ", lambda R8: {"R3": s(R8) * 0x2AAAAAAB // M}),
    ("IMAD.HI.U32 R5, R5, R3, R4", lambda R5, R3, R4: {"R5": (R5 * R3 + pair(R4, R5)) // M}),
    (
        "IMAD.HI.U32 R10, P1, R9, R13, R10",
        lambda R9, R13, R10, R11: {
            "R10": (R9 * R13 + pair(R10, R11)) // M,
            "P1": R9 * R13 + pair(R10, R11) >= M * M,
        },
    ),
    ("UIMAD UR4, UR5, -0x8, UR4", lambda UR5, UR4: {"UR4": UR4 - 8 * UR5}),
    ("UIMAD.WIDE UR8, UR20, 0xc, UR26", lambda UR20, UR26, UR27: halves("UR8", "UR9", s(UR20) * 12 + pair(UR26, UR27))),
    (
        "IDP.4A.S8.U8 R9, R0, R5, R8",
        lambda R0, R5, R8: {
            "R9": R8 + sum(((R0 >> k & 255) ^ 128) * (R5 >> k & 255) - 128 * (R5 >> k & 255) for k in (0, 8, 16, 24))
        },
    ),
    # shift and add
    ("LEA R2, R5, R3, 0x2", lambda R5, R3: {"R2": 4 * R5 + R3}),
    ("LEA R9, R8, -R7, 0x3", lambda R8, R7: {"R9": 8 * R8 - R7}),
    ("LEA R7, -R11, RZ, 0x1", lambda R11: {"R7": -2 * R11}),
    ("LEA R7, -R11, R3, 0x4", lambda R11, R3: {"R7": R3 - 16 * R11}),
    ("LEA R5, R9, RZ, 0xc", lambda R9: {"R5": R9 << 12}),
    ("LEA R2, P0, R5, UR6, 0x2", lambda R5, UR6: carried("R2", "P0", 4 * R5 % M + UR6)),
    ("LEA R2, P0, R5, -R6, 0x0", lambda R5, R6: carried("R2", "P0", R5 + minus(R6))),
    ("LEA R2, P0, -R5, R6, 0x2", lambda R5, R6: carried("R2", "P0", R6 + minus(4 * R5 % M))),
    ("LEA.HI R3, R4, R2, RZ, 0x5", lambda R4, R2: {"R3": (R4 >> 27) + R2}),
    ("LEA.HI R3, R4, R2, R6, 0x5", lambda R4, R2, R6: {"R3": (pair(R4, R6) << 5) // M + R2}),
    ("LEA.HI R11, P0, R8, -R27, RZ, 0x1e", lambda R8, R27: carried("R11", "P0", (R8 >> 2) + minus(R27))),
    ("LEA.HI R11, P0, R8, R27, R5, 0x3", lambda R8, R27, R5: carried("R11", "P0", pair(R8, R5) * 8 // M % M + R27)),
    ("LEA.HI.SX32 R3, R4, -R8, 0x1b", lambda R4, R8: {"R3": (s(R4) >> 5) - R8}),
    ("LEA.HI.X R3, R6, UR7, R5, 0x2, P0", lambda R6, UR7, R5, P0: {"R3": pair(R6, R5) * 4 // M + UR7 + P0}),
    ("LEA.HI.X R3, R6, R7, RZ, 0x1e, P0", lambda R6, R7, P0: {"R3": (R6 >> 2) + R7 + P0}),
    ("LEA.HI.X.SX32 R11, R9, R29, 0x1, P4", lambda R9, R29, P4: {"R11": (s(R9) >> 31) + R29 + P4}),
    ("LEA.HI.X.SX32 R3, R0, c[0x0][0x18c], 0x2, P0", lambda R0, c0_0x18c, P0: {"R3": (s(R0) >> 30) + c0_0x18c + P0}),
    ("ULEA UR4, UR5, UR6, 0x18", lambda UR5, UR6: {"UR4": (UR5 << 24) + UR6}),
    ("ISCADD R0, -R6, c[0x0][0x180], 0x3", lambda R6, c0_0x180: {"R0": c0_0x180 - 8 * R6}),
    # minima
    ("IMNMX R0, R1, R2, PT", lambda R1, R2: {"R0": min(s(R1), s(R2))}),
    ("IMNMX R0, R1, R2, !PT", lambda R1, R2: {"R0": max(s(R1), s(R2))}),
    ("IMNMX.U32 R0, R1, 0x100, P0", lambda R1, P0: {"R0": min(R1, 256) if P0 else max(R1, 256)}),
    ("VIMNMX R11, PT, PT, R3, 0x8, PT", lambda R3: {"R11": min(s(R3), 8)}),
    ("VIMNMX.S32 R2, R0, R5, !PT", lambda R0, R5: {"R2": max(s(R0), s(R5))}),
    ("VIMNMX3 R34, R34, R35, R36, !PT", lambda R34, R35, R36: {"R34": max(s(R34), s(R35), s(R36))}),
    ("VIMNMX3.U32 R12, R12, R13, R14, PT", lambda R12, R13, R14: {"R12": min(R12, R13, R14)}),
    ("UVIMNMX.U32 UR6, UR4, 0x7fffffff, UPT", lambda UR4: {"UR6": min(UR4, 0x7FFFFFFF)}),
    (
        "IMNMX.U64 PT, PT, R6, R2, R4, PT, !PT",
        lambda R2, R3, R4, R5: halves("R6", "R7", min(pair(R2, R3), pair(R4, R5))),
    ),
    (
        "IMNMX.S64 PT, PT, R6, R2, R4, !PT, !PT",
        lambda R2, R3, R4, R5: halves("R6", "R7", max(s64(pair(R2, R3)), s64(pair(R4, R5)))),
    ),
    ("VIADDMNMX R8, R13, -R18, 0x200, !PT", lambda R13, R18: {"R8": max(s((R13 - R18) % M), 512)}),
    ("VIADDMNMX.U32 R0, R5, R8, R2, PT", lambda R5, R8, R2: {"R0": min((R5 + R8) % M, R2)}),
    ("VABSDIFF R9, R0, R5, R8", lambda R0, R5, R8: {"R9": abs(s(R0) - s(R5)) + R8}),
    ("VABSDIFF.U32 R9, R0, 0x7, RZ", lambda R0: {"R9": abs(R0 - 7)}),
    ("IABS R0, R1", lambda R1: {"R0": abs(s(R1))}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reference"), CASES, ids=[text for text, _ in CASES])
@settings(max_examples=12)
@given(data=st.data())
def test_against_integers(harness: Any, text: str, reference: Any, data: st.DataObject) -> None:
    harness.check(text, reference, data)
