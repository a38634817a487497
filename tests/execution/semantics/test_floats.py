"""Floating point against exact fractions, and the integer division that ptxas builds from it."""

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

M = 1 << 32
finite = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**50), max_value=2.0**50)


def bits(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def number(word: int) -> float:
    return struct.unpack("<f", struct.pack("<I", word))[0]


def word(x: int) -> np.ndarray:
    return np.array([[x % M]], dtype=np.uint32)


def s(x: int) -> int:
    return x - M if x >= M // 2 else x


def neighbours(x: Fraction) -> tuple[float, float]:
    """The singles at or below, and at or above an exact number."""
    near = np.float32(float(x))
    below = near if Fraction(float(near)) <= x else np.nextafter(near, np.float32(-np.inf))
    above = near if Fraction(float(near)) >= x else np.nextafter(near, np.float32(np.inf))
    return float(below), float(above)


def rounded(x: Fraction, mode: str) -> float:
    below, above = neighbours(x)
    if mode == "RM" or (mode == "RZ" and x > 0):
        return below
    if mode in ("RP", "RZ"):
        return above
    low, high = x - Fraction(below), Fraction(above) - x
    if low == high:
        return below if bits(below) % 2 == 0 else above
    return below if low < high else above


@pytest.mark.parametrize("mode", ["", ".RZ", ".RM", ".RP"])
@given(a=finite, b=finite, c=finite)
def test_sums_and_products_are_rounded_once(harness: Any, mode: str, a: float, b: float, c: float) -> None:
    values = {"R1": word(bits(a)), "R2": word(bits(b)), "R3": word(bits(c))}
    exact = {
        f"FADD{mode} R0, R1, -R2": Fraction(a) - Fraction(b),
        f"FMUL{mode} R0, R1, R2": Fraction(a) * Fraction(b),
        f"FFMA{mode} R0, R1, R2, R3": Fraction(a) * Fraction(b) + Fraction(c),
    }
    for text, wanted in exact.items():
        if wanted and abs(wanted) < Fraction(1, 10**30):
            continue
        found = number(int(harness.run(text, values)["R0"][0, 0]))
        assert found == rounded(wanted, mode.lstrip(".") or "RN"), text


INT_TO_FLOAT = [
    ("I2F R0, R2", lambda low, high: s(low)),
    ("I2FP.F32.U32 R0, R2", lambda low, high: low),
    ("I2F.S16 R0, R2", lambda low, high: (low & 0xFFFF ^ 0x8000) - 0x8000),
    ("I2F.U8 R0, R2.B3", lambda low, high: low >> 24),
    ("I2F.U64 R0, R2", lambda low, high: low + M * high),
    ("I2F.S64 R0, R2", lambda low, high: low + M * s(high)),
]


@pytest.mark.parametrize("mode", ["", ".RP", ".RZ", ".RM"])
@pytest.mark.parametrize(("text", "meaning"), INT_TO_FLOAT, ids=[t for t, _ in INT_TO_FLOAT])
@settings(max_examples=25)
@given(low=st.integers(0, M - 1), high=st.integers(0, M - 1) | st.sampled_from((0, M - 1)))
def test_integers_become_floats(
    harness: Any, mode: str, text: str, meaning: Callable[[int, int], int], low: int, high: int
) -> None:
    mnemonic, rest = text.split(" ", 1)
    result = harness.run(f"{mnemonic}{mode} {rest}", {"R2": word(low), "R3": word(high)})["R0"]
    assert number(int(result[0, 0])) == rounded(Fraction(meaning(low, high)), mode.lstrip(".") or "RN")


@given(low=st.integers(0, M - 1), high=st.integers(0, M - 1))
def test_integers_become_doubles(harness: Any, low: int, high: int) -> None:
    results = harness.run("I2F.F64.S64 R4, R2", {"R2": word(low), "R3": word(high)})
    found = struct.unpack("<d", struct.pack("<II", int(results["R4"][0, 0]), int(results["R5"][0, 0])))[0]
    assert found == float(low + M * s(high))


FLOAT_TO_INT = [
    ("F2I.TRUNC.NTZ R0, R2", math.trunc, -(M // 2), M // 2 - 1, 0),
    ("F2I.NTZ R0, R2", round, -(M // 2), M // 2 - 1, 0),
    ("F2I.FTZ.U32.TRUNC.NTZ R0, R2", math.trunc, 0, M - 1, 0),
    ("F2I.FLOOR.NTZ R0, R2", math.floor, -(M // 2), M // 2 - 1, 0),
    ("F2I.U32.CEIL.NTZ R0, R2", math.ceil, 0, M - 1, 0),
    ("F2I.S8.NTZ R0, R2", round, -128, 127, 0),
    ("F2I.U64.TRUNC R0, R2", math.trunc, 0, M * M - 1, M * M // 2),
    ("F2I.S64.TRUNC R0, R2", math.trunc, -(M * M // 2), M * M // 2 - 1, M * M // 2),
]


@pytest.mark.parametrize(
    ("text", "whole", "low", "high", "nan"), FLOAT_TO_INT, ids=[t[0] for t in FLOAT_TO_INT]
)
@given(x=st.floats(width=32))
def test_floats_become_integers(
    harness: Any, text: str, whole: Callable[[float], int], low: int, high: int, nan: int, x: float
) -> None:
    if math.isnan(x):
        wanted = nan
    elif math.isinf(x):
        wanted = high if x > 0 else low
    else:
        wanted = min(max(whole(x), low), high)
    results = harness.run(text, {"R2": word(bits(x))})
    found = sum(int(results[f"R{i}"][0, 0]) << 32 * i for i in range(len(results)))
    assert found == wanted % M ** len(results)


ORDERED = {
    "LT": lambda a, b: a < b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a < b or a > b,
    "GEU": lambda a, b: not a < b,
    "NEU": lambda a, b: a != b,
    "NAN": lambda a, b: a != a or b != b,
}


@pytest.mark.parametrize("name", ORDERED)
@given(a=st.floats(width=32), b=st.floats(width=32))
def test_comparisons_of_floats(harness: Any, name: str, a: float, b: float) -> None:
    values = {"R1": word(bits(a)), "R2": word(bits(b))}
    results = harness.run(f"FSETP.{name}.AND P0, P1, |R1|, -R2, PT", values)
    wanted = ORDERED[name](abs(a), -b)
    assert (bool(results["P0"][0, 0]), bool(results["P1"][0, 0])) == (wanted, not wanted)
    assert int(harness.run(f"FSET.BF.{name}.AND R3, R1, R1, !PT", values)["R3"][0, 0]) == 0
    assert int(harness.run("FSEL R3, -R1, R2, PT", values)["R3"][0, 0]) == bits(a) ^ 1 << 31


@given(a=finite, b=finite)
def test_minima_of_floats(harness: Any, a: float, b: float) -> None:
    values = {"R1": word(bits(a)), "R2": word(bits(b))}
    assert number(int(harness.run("FMNMX R0, R1, R2, PT", values)["R0"][0, 0])) == min(a, b)
    assert number(int(harness.run("FMNMX3 R0, R1, -INF , R2, !PT", values)["R0"][0, 0])) == max(a, b)


@given(x=finite)
def test_whole_floats(harness: Any, x: float) -> None:
    values = {"R1": word(bits(x))}
    for mode, whole in (("", round), (".FLOOR", math.floor), (".CEIL", math.ceil), (".TRUNC", math.trunc)):
        found = number(int(harness.run(f"FRND{mode} R0, R1", values)["R0"][0, 0]))
        assert found == whole(x)


def halves(x: float) -> tuple[np.ndarray, np.ndarray]:
    low, high = struct.unpack("<II", struct.pack("<d", x))
    return word(low), word(high)


def joined(results: dict[str, np.ndarray], low: str, high: str) -> float:
    return struct.unpack("<d", struct.pack("<II", int(results[low][0, 0]), int(results[high][0, 0])))[0]


doubles = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e60, max_value=1e60).filter(
    lambda x: x == 0 or abs(x) > 1e-60
)


@given(a=doubles, b=doubles, c=doubles)
def test_doubles(harness: Any, a: float, b: float, c: float) -> None:
    values: dict[str, np.ndarray] = {}
    for place, x in zip((2, 4, 6), (a, b, c), strict=True):
        values[f"R{place}"], values[f"R{place + 1}"] = halves(x)
    assert joined(harness.run("DADD R0, R2, -R4", values), "R0", "R1") == a - b
    assert joined(harness.run("DMUL R0, R2, 1.5", values), "R0", "R1") == a * 1.5
    assert joined(harness.run("DMNMX R0, R2, R4, PT", values), "R0", "R1") == min(a, b)
    assert bool(harness.run("DSETP.GEU.AND P0, PT, |R2|, R4, PT", values)["P0"][0, 0]) == (abs(a) >= b)
    fused = joined(harness.run("DFMA R0, R2, R4, R6", values), "R0", "R1")
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert abs(Fraction(fused) - exact) <= abs(exact) * Fraction(1, 2**52)
    narrow = harness.run("F2F.F32.F64 R0, R2", values)["R0"]
    assert np.float32(number(int(narrow[0, 0]))) == np.float32(np.clip(a, -3e38, 3e38)) or abs(a) > 3e38


@given(a=finite)
def test_double_of_a_single(harness: Any, a: float) -> None:
    assert joined(harness.run("F2F.F64.F32 R0, R2", {"R2": word(bits(a))}), "R0", "R1") == a


@given(x=st.floats(width=32, min_value=2.0**-60, max_value=2.0**60))
def test_functions_are_close(harness: Any, x: float) -> None:
    wanted = {"RCP": 1 / x, "RSQ": x**-0.5, "SQRT": x**0.5, "LG2": math.log2(x)}
    for name, exact in wanted.items():
        found = number(int(harness.run(f"MUFU.{name} R0, R1", {"R1": word(bits(x))})["R0"][0, 0]))
        assert math.isclose(found, exact, rel_tol=1e-6, abs_tol=1e-6)


@given(x=st.floats(min_value=2.0**-60, max_value=2.0**60))
def test_upper_words_of_doubles_are_close(harness: Any, x: float) -> None:
    for name, exact in {"RCP64H": 1 / x, "RSQ64H": x**-0.5}.items():
        upper = harness.run(f"MUFU.{name} R0, R1", {"R1": halves(x)[1]})["R0"]
        found = struct.unpack("<d", struct.pack("<II", 0, int(upper[0, 0])))[0]
        assert math.isclose(found, exact, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "slow"),
    [(1.0, 3.0, False), (1e10, 7.0, False), (0.0, 3.0, True), (1.0, 0.0, True), (1.0, math.inf, True),
     (1e38, 1e-38, True), (1.0, 3e38, True), (1e-38, 3.0, True)],
)  # fmt: skip
def test_division_check(harness: Any, a: float, b: float, slow: bool) -> None:
    values = {"R0": word(bits(a)), "R3": word(bits(b))}
    assert bool(harness.run("FCHK P0, R0, R3", values)["P0"][0, 0]) == slow


UNSIGNED_DIVISION = (  # quotient R2 and remainder R5 of R10 by R11, as ptxas writes it
    "I2F.U32.RP R4, R11",
    "MUFU.RCP R4, R4",
    "IADD3 R2, R4, 0xffffffe, RZ",
    "F2I.FTZ.U32.TRUNC.NTZ R3, R2",
    "IMAD.MOV.U32 R2, RZ, RZ, RZ",
    "IMAD.MOV R5, RZ, RZ, -R3",
    "IMAD R5, R5, R11, RZ",
    "IMAD.HI.U32 R3, R3, R5, R2",
    "IMAD.HI.U32 R2, R3, R10, RZ",
    "IMAD.MOV R5, RZ, RZ, -R2",
    "IMAD R5, R11, R5, R10",
    "ISETP.GE.U32.AND P0, PT, R5, R11, PT",
    "@P0 IMAD.IADD R5, R5, 0x1, -R11",
    "@P0 VIADD R2, R2, 0x1",
    "ISETP.GE.U32.AND P1, PT, R5, R11, PT",
    "@P1 VIADD R2, R2, 0x1",
    "@P1 IMAD.IADD R5, R5, 0x1, -R11",
)


@settings(max_examples=200)
@given(
    a=st.integers(0, M - 1) | st.integers(0, 5000) | st.just(M - 1),
    b=st.integers(1, M - 1) | st.integers(1, 300) | st.sampled_from((1, M - 1, M // 2)),
)
def test_division_of_integers(harness: Any, a: int, b: int) -> None:
    values = {"R10": word(a), "R11": word(b)}
    for text in UNSIGNED_DIVISION:
        if text.startswith("@"):
            guard, text = text.split(" ", 1)
            if not values[guard[1:]][0, 0]:
                continue
        values.update(harness.run(text, values))
    assert (int(values["R2"][0, 0]), int(values["R5"][0, 0])) == divmod(a, b)
