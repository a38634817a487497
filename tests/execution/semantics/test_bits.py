"""Logic, shifts, bytes and bits of a word."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

M = 1 << 32


def s(x: int) -> int:
    return x - M if x >= M // 2 else x


def by_table(table: int, a: int, b: int, c: int, bits: int = 32) -> int:
    """Bit by bit, the entry that three bits name."""
    return sum((table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(bits))


def extended(x: int, width: int) -> int:
    x &= (1 << width) - 1
    return x - (1 << width) if width and x >> width - 1 else x


def permuted(low: int, selector: int, high: int) -> int:
    pool = [*low.to_bytes(4, "little"), *high.to_bytes(4, "little")]
    out = []
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = pool[nibble & 7]
        out.append((255 if byte >= 128 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def reversed_bits(x: int) -> int:
    return int(f"{x:032b}"[::-1], 2)


def up(low: int, high: int, amount: int) -> int:
    """Upper word of a pair shifted left."""
    return ((low + M * high) << amount) // M % M


CASES: list[tuple[str, Callable[..., dict[str, int]]]] = [
    ("LOP3.LUT R2, R0, 0x1, RZ, 0xc0, !PT", lambda R0: {"R2": R0 & 1}),
    ("LOP3.LUT R3, RZ, R10, RZ, 0x33, !PT", lambda R10: {"R3": ~R10}),
    ("LOP3.LUT R9, R1, R2, R3, 0x1e, !PT", lambda R1, R2, R3: {"R9": R1 ^ (R2 | R3)}),
    ("LOP3.LUT R9, ~R1, R2, R3, 0x80, !PT", lambda R1, R2, R3: {"R9": ~R1 & R2 & R3}),
    ("LOP3.LUT P0, RZ, R15, 0x7fffffff, R0, 0xc8, !PT", lambda R15, R0: {"P0": by_table(0xC8, R15, 0x7FFFFFFF, R0) != 0}),
    ("LOP3.LUT P1, R4, R5, 0x3, RZ, 0xc0, !PT", lambda R5: {"R4": R5 & 3, "P1": R5 & 3 != 0}),
    ("LOP3.LUT P0, RZ, R19, R3, RZ, 0xfc, P0", lambda R19, R3, P0: {"P0": R19 | R3 != 0 or P0}),
    ("LOP3.LUT P0, RZ, R19, R3, RZ, 0xc0, PT", lambda R19, R3: {"P0": 1}),
    ("LOP3.PAND.LUT P0, RZ, R19, R3, RZ, 0xc0, P2", lambda R19, R3, P2: {"P0": R19 & R3 != 0 and P2}),
    ("ULOP3.LUT UR4, UR20, 0x7ffffff8, URZ, 0xc0, !UPT", lambda UR20: {"UR4": UR20 & 0x7FFFFFF8}),
    ("LOP32I.AND R3, R0, 0xffffffe0", lambda R0: {"R3": R0 & ~31}),
    ("LOP.PASS_B R16, RZ, ~R2", lambda R2: {"R16": ~R2}),
    ("LOP.XOR R11, R0, c[0x0][0x16c]", lambda R0, c0_0x16c: {"R11": R0 ^ c0_0x16c}),
    # shifts
    ("SHF.L.U32 R7, R0, 0x3, RZ", lambda R0: {"R7": R0 << 3}),
    ("SHF.L.U32 R7, R0, R1, RZ", lambda R0, R1: {"R7": R0 << min(R1, 32)}),
    ("SHF.L.U32 R58, RZ, 0x1f, RZ", lambda: {"R58": 0}),
    ("SHF.L.U32.HI R9, R6, R2, R0", lambda R6, R2, R0: {"R9": up(R6, R0, min(R2, 32))}),
    ("SHF.L.U32.HI R9, R6, 0x2, R0", lambda R6, R0: {"R9": up(R6, R0, 2)}),
    ("SHF.L.W.U32.HI R9, R5, R2, R5", lambda R5, R2: {"R9": up(R5, R5, R2 % 32)}),
    ("SHF.L.U64.HI R3, R2, 0x1, R3", lambda R2, R3: {"R3": up(R2, R3, 1)}),
    ("SHF.L.U64.HI R3, R2, 0x28, R3", lambda R2: {"R3": up(R2, 0, 40)}),
    ("SHF.L.U64.HI R3, R2, 0x1d, RZ", lambda R2: {"R3": R2 >> 3}),
    ("SHF.L.U64.HI R3, R2, R5, R3", lambda R2, R5, R3: {"R3": up(R2, R3, min(R5, 64))}),
    ("SHF.R.U32.HI R8, RZ, 0x1, R0", lambda R0: {"R8": R0 >> 1}),
    ("SHF.R.U32.HI R8, RZ, R1, R0", lambda R1, R0: {"R8": R0 >> min(R1, 32)}),
    ("SHF.R.S32.HI R0, RZ, 0x1f, R7", lambda R7: {"R0": s(R7) >> 31}),
    ("SHF.R.S32.HI R0, RZ, UR5, R7", lambda UR5, R7: {"R0": s(R7) >> min(UR5, 31)}),
    ("SHF.R.U32 R9, R0, R8, R5", lambda R0, R8, R5: {"R9": (R0 + M * R5) >> min(R8, 32)}),
    ("SHF.R.W.U32 R9, R0, R8, R5", lambda R0, R8, R5: {"R9": (R0 + M * R5) >> R8 % 32}),
    ("SHF.R.U64 R8, R2, 0x6, R3", lambda R2, R3: {"R8": (R2 + M * R3) >> 6}),
    ("SHF.R.U64 R8, R2, 0x26, R3", lambda R3: {"R8": R3 >> 6}),
    ("SHF.R.U64 R3, R2, 0x3, RZ", lambda R2: {"R3": R2 >> 3}),
    ("SHF.R.U64 R8, R2, R5, R3", lambda R2, R5, R3: {"R8": (R2 + M * R3) >> min(R5, 64)}),
    ("SHF.R.S64 R8, R2, R5, R3", lambda R2, R5, R3: {"R8": (R2 + M * s(R3)) >> min(R5, 64)}),
    ("SHF.R.S64 R8, RZ, 0x1e, R9", lambda R9: {"R8": M * s(R9) >> 30}),
    ("USHF.R.S32.HI UR5, URZ, 0x6, UR5", lambda UR5: {"UR5": s(UR5) >> 6}),
    ("SHL R2, R3, R4", lambda R3, R4: {"R2": R3 << min(R4, 32)}),
    ("SHL.W R2, R3, R4", lambda R3, R4: {"R2": R3 << R4 % 32}),
    ("SHR R10, R0, 0x1f", lambda R0: {"R10": s(R0) >> 31}),
    ("SHR.U32 R30, R30, R24", lambda R30, R24: {"R30": R30 >> min(R24, 32)}),
    # bytes and bits
    ("PRMT R9, R0, R8, R5", lambda R0, R8, R5: {"R9": permuted(R0, R8, R5)}),
    *((f"PRMT R9, R0, {sel:#x}, R5", lambda R0=0, R5=0, sel=sel: {"R9": permuted(R0, sel, R5)})
      for sel in (0x7632, 0x5410, 0x7610, 0x3210, 0x7654, 0x9910, 0x8880, 0x654, 0xBA98, 0xFEDC, 0x4D2)),
    ("PRMT R19, RZ, 0x5410, RZ", lambda: {"R19": 0}),
    ("PRMT R17, R4, 0x9910, RZ", lambda R4: {"R17": permuted(R4, 0x9910, 0)}),
    ("UPRMT UR5, UR11, 0x654, UR5", lambda UR11, UR5: {"UR5": permuted(UR11, 0x654, UR5)}),
    ("BMSK R9, R2, R5", lambda R2, R5: {"R9": ((1 << min(R5, 32)) - 1) << min(R2, 32)}),
    ("BMSK.W R9, R2, R5", lambda R2, R5: {"R9": ((1 << R5 % 32) - 1) << R2 % 32}),
    ("UBMSK UR6, URZ, 0x4", lambda: {"UR6": 15}),
    ("SGXT R2, R3, 0x8", lambda R3: {"R2": extended(R3, 8)}),
    ("SGXT R2, R3, R4", lambda R3, R4: {"R2": extended(R3, min(R4, 32))}),
    ("SGXT.W R2, R3, R4", lambda R3, R4: {"R2": extended(R3, R4 % 32)}),
    ("SGXT.U32 R6, R6, 0x4", lambda R6: {"R6": R6 % 16}),
    ("SGXT.W.U32 R9, R2, R5", lambda R2, R5: {"R9": R2 % (1 << R5 % 32)}),
    ("FLO.U32 R4, R5", lambda R5: {"R4": R5.bit_length() - 1}),
    ("FLO.U32.SH R4, R5", lambda R5: {"R4": 32 - R5.bit_length() if R5 else -1}),
    ("FLO R4, R5", lambda R5: {"R4": (R5 if R5 < M // 2 else M - 1 - R5).bit_length() - 1}),
    ("UFLO.U32 UR7, UR6", lambda UR6: {"UR7": UR6.bit_length() - 1}),
    ("POPC R5, UR6", lambda UR6: {"R5": bin(UR6).count("1")}),
    ("POPC R5, ~R6", lambda R6: {"R5": 32 - bin(R6).count("1")}),
    ("BREV R0, R1", lambda R1: {"R0": reversed_bits(R1)}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reference"), CASES, ids=[text for text, _ in CASES])
@settings(max_examples=12)
@given(data=st.data())
def test_against_integers(harness: Any, text: str, reference: Any, data: st.DataObject) -> None:
    harness.check(text, reference, data)


@settings(max_examples=256)
@given(table=st.integers(0, 255), data=st.data())
def test_every_table_of_words(harness: Any, table: int, data: st.DataObject) -> None:
    values = [data.draw(st.sampled_from(("R1", "RZ", "-0x1", "0xff00"))) for _ in range(3)]
    names = ["R1", "R2", "R3"]
    places = [names[i] if value == "R1" else value for i, value in enumerate(values)]
    fixed = {"RZ": 0, "-0x1": M - 1, "0xff00": 0xFF00}

    def reference(**words: int) -> dict[str, int]:
        inputs = [words.get(place, fixed.get(place, 0)) for place in places]
        return {"R9": by_table(table, *inputs)}

    harness.check(f"LOP3.LUT R9, {', '.join(places)}, {table:#x}, !PT", reference, data)


@given(tables=st.tuples(st.integers(0, 255), st.integers(0, 255)), data=st.data())
def test_every_table_of_predicates(harness: Any, tables: tuple[int, int], data: st.DataObject) -> None:
    places = [data.draw(st.sampled_from((f"P{i}", f"!P{i}", "PT", "!PT"))) for i in range(3)]

    def reference(**bits: bool) -> dict[str, int]:
        plain = {"PT": True, **bits}
        a, b, c = (plain.get(p.lstrip("!"), False) ^ p.startswith("!") for p in places)
        return {"P4": by_table(tables[0], a, b, c, 1), "P5": by_table(tables[1], a, b, c, 1)}

    text = f"PLOP3.LUT P4, P5, {', '.join(places)}, {tables[0]:#x}, {tables[1]:#x}"
    harness.check(text, reference, data)
