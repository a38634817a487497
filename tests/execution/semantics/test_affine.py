"""What each rule claims of results when inputs grow by a constant: checked along drawn lines."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.execution.lowering.step import AffineRule, ConstantRead, Step
from analyzer.isa.register_operands import PREDICATE_BASE

M = 1 << 32
STEPS = 7

TEXTS = """
IADD3 R0, R1, R2, R3
IADD3 R0, P0, PT, R1, R2, RZ
IADD3 R0, P0, PT, R1, -R2, RZ
IADD3 R0, P0, P1, -R1, R2, -R3
IADD3 R0, P0, R1, -0x400, RZ
IADD3.X R0, P0, P1, R1, ~R2, R3, P2, P3
IADD3.X R3, R5, R6, RZ, P0, !PT
UIADD3.64 UR6, UPT, UPT, UR8, 0x80, URZ
IADD.64 R4, -R6, R8
IADD.64 R4, R6, -0x400
IADD.64 R4, R6, R8
VIADD R10, R11, -UR4
IMAD R0, R1, R2, R3
IMAD R0, R1, -0x8, -R3
IMAD.MOV.U32 R4, RZ, RZ, R5
IMAD.IADD R5, R7, 0x1, -R10
IMAD.SHL.U32 R8, R4, 0x4, RZ
IMAD.X R6, R16, 0x1, ~R19, P0
IMAD.WIDE R2, R4, R5, R6
IMAD.WIDE R2, R4, -0x30, R6
IMAD.WIDE.U32 R2, R4, 0x4, -R6
IMAD.WIDE R2, R4, 0x4, R6
IMAD.WIDE.U32 R2, R4, 0x8, R6
IMAD.WIDE.U32.X R8, R3, R5, R10, P0
IMAD.HI R3, R8, 0x2aaaaaab, RZ
IMAD.HI R3, R8, -0x2aaaaaab, RZ
IMAD.HI.U32 R3, R8, -0x33333333, RZ
LEA R2, R5, -R3, 0x4
LEA R2, -R5, R3, 0x4
LEA R2, P0, R5, R6, 0x2
LEA R2, P0, R5, -R6, 0x3
LEA R2, P0, -R5, R6, 0x2
LEA R2, P0, R5, R6, 0x0
LEA.HI R3, R4, R2, R6, 0x5
LEA.HI R11, P0, R8, -R27, RZ, 0x1e
LEA.HI.SX32 R3, R4, -R8, 0x1b
LEA.HI.X R3, R6, UR7, R5, 0x2, P0
LEA.HI.X.SX32 R11, R9, R29, 0x1, P4
IMNMX R0, R1, R2, PT
VIMNMX.U32 R0, R1, R2, P0
VIMNMX3 R34, R34, R35, R36, !PT
IMNMX.S64 PT, PT, R6, R2, R4, PT, !PT
VIADDMNMX R8, R13, -R18, R3, !PT
VIADDMNMX.U32 R0, R5, R8, R2, PT
IABS R0, R1
LOP3.LUT R9, R1, R2, R3, 0x1e, !PT
LOP3.LUT R9, R1, 0xf0, RZ, 0xc0, !PT
SHF.L.U32 R7, R0, 0x3, RZ
SHF.L.U32 R7, R0, R1, RZ
SHF.L.U64.HI R3, R2, 0x3, R5
SHF.L.U64.HI R3, R2, 0x23, R5
SHF.L.U64.HI R3, R2, 0x1d, RZ
SHF.R.U32.HI R8, RZ, 0x4, R0
SHF.R.S32.HI R8, RZ, 0x1f, R0
SHF.R.U64 R8, R2, 0x6, R3
SHF.R.S64 R8, R2, 0x26, R3
SHF.R.U32.HI R8, RZ, R1, R0
SHR R10, R0, 0x5
PRMT R9, R0, 0x7610, R5
PRMT R9, R0, 0x7632, R5
PRMT R9, R0, 0x3210, R5
SGXT.U32 R6, R6, 0x4
SGXT R6, R6, 0x4
ISETP.GE.AND P0, P1, R0, R7, PT
ISETP.LT.U32.OR P0, PT, R0, R7, P3
ISETP.EQ.AND P0, PT, R0, R7, PT
ISETP.NE.U32.XOR P0, PT, R0, 0x400, P1
ISETP.GT.S64.AND P0, PT, R2, R4, PT
ISETP.EQ.U64.AND P0, PT, R2, R4, PT
ISETP.GE.AND.EX P0, PT, R5, R4, PT, P1
ISETP.EQ.AND.EX P0, PT, R5, R4, PT, P1
ISETP.NE.U32.AND.EX P0, PT, R5, R4, PT, P1
MOV R0, R6
MOV.64 R6, R8
SEL R12, R19, R20, !P2
SEL.64 R4, R6, R8, P0
POPC R5, R6
FLO.U32 R5, R6
R2P PR, R4, 0x7f
""".strip().splitlines()


def numbers(result: np.ndarray) -> list[int]:
    return [int(x) for x in np.broadcast_to(result, (STEPS, 1))[:, 0]]


def is_linear(values: list[int], modulus: int = M) -> bool:
    return len({(b - a) % modulus for a, b in pairwise(values)}) <= 1


def is_monotone(values: list[int]) -> bool:
    """As unsigned or as signed numbers."""
    signed = [x - M if M // 2 <= x < M else x for x in values]
    return any(v == sorted(v) or v == sorted(v, reverse=True) for v in (values, signed))


def line(data: st.DataObject, varies: bool) -> list[int]:
    """Words that grow evenly and wrap neither as unsigned nor as signed numbers."""
    half = data.draw(st.sampled_from((0, M // 2)))
    near_edge = st.integers(0, 300) | st.integers(M // 2 - 300, M // 2 - 1) | st.integers(1000, 1050)
    places = near_edge | st.integers(0, M // 2 - 1)
    first, last = data.draw(places), data.draw(places)
    if data.draw(st.booleans()):
        last = min(M // 2 - 1, first + data.draw(st.integers(0, 40)))
    growth = int((last - first) / (STEPS - 1)) if varies else 0
    return [half + first + growth * t for t in range(STEPS)]


def draw_inputs(data: st.DataObject, step: Step) -> tuple[list[np.ndarray], list[bool]]:
    fixed: set[int] = set()
    if step.affine_rule in (AffineRule.PRODUCT, AffineRule.PAIR_LINEAR) and all(step.factors):
        fixed = set(step.factors[data.draw(st.integers(0, 1))])
    inputs, varying = [], []
    drawn: dict[Any, np.ndarray] = {}
    for place, read in enumerate(step.reads):
        assert not isinstance(read, ConstantRead)
        varies = place not in fixed and data.draw(st.booleans())
        if isinstance(read, int) and read >= PREDICATE_BASE:
            value = np.full((STEPS, 1), data.draw(st.booleans()), dtype=np.bool_)
            varies = False
        else:
            value = np.array(line(data, varies), dtype=np.uint32)[:, None]
        if read in drawn and place not in fixed:
            value = drawn[read]
        drawn[read] = value
        inputs.append(value)
        varying.append(varies)
    return inputs, varying


@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=25)
@given(data=st.data())
def test_the_rule_holds(harness: Any, text: str, data: st.DataObject) -> None:
    step = harness.step(text)
    inputs, _ = draw_inputs(data, step)
    results = [numbers(result) for result in step.apply(*inputs)]
    are_bits = [result.dtype == np.bool_ for result in step.apply(*inputs)]
    match step.affine_rule:
        case AffineRule.LINEAR | AffineRule.PRODUCT:
            for values, is_bit in zip(results, are_bits, strict=True):
                assert is_monotone(values) if is_bit else is_linear(values)
        case AffineRule.PAIR_LINEAR:
            low, high = results
            assert is_linear([a + M * b for a, b in zip(low, high, strict=True)], M * M)
        case AffineRule.MONOTONE | AffineRule.PIECEWISE_LINEAR:
            check_watched(step, inputs, results, are_bits)
        case AffineRule.BITWISE:
            check_bitwise(step, inputs, data)
        case AffineRule.UNKNOWN:
            pass


def check_watched(
    step: Step, inputs: list[np.ndarray], results: list[list[int]], are_bits: list[bool]
) -> None:
    watched = (
        results if step.compute_invariants is None else [numbers(w) for w in step.compute_invariants(*inputs)]
    )
    assert all(is_monotone(values) for values in watched)
    keys = list(zip(*watched, strict=True))
    start = 0
    for stop in range(1, STEPS + 1):
        if stop < STEPS and keys[stop] == keys[start]:
            continue
        for values, is_bit in zip(results, are_bits, strict=True):
            run = values[start:stop]
            if step.affine_rule is AffineRule.MONOTONE:
                assert len(set(run)) == 1
            else:
                assert is_monotone(run) if is_bit else is_linear(run)
        start = stop


def check_bitwise(step: Step, inputs: list[np.ndarray], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(inputs) - 1))
    bit = np.uint32(1 << data.draw(st.integers(0, 31)))
    before = step.apply(*inputs)[0]
    flipped = [x ^ bit if i == place else x for i, x in enumerate(inputs)]
    assert not ((before ^ step.apply(*flipped)[0]) & ~bit).any()


FIXED = ("IMAD.HI.U32 R3, R8, R5, RZ", "SHF.R.U32.HI R8, RZ, R1, R0", "POPC R5, R6", "SGXT R6, R6, 0x4",
         "SHFL.BFLY PT, R0, R1, 0x10, 0x1f", "VOTE.ANY R0, PT, P1", "S2R R0, SR_TID.X", "I2F R0, R2",
         "FADD R0, R1, R2", "LDC R4, c[0x3][R9]", "LOP3.LUT P0, RZ, R1, 0x7, RZ, 0xc0, !PT",
         "IMAD.WIDE.U32 R10, P0, R8, R3, R10")  # fmt: skip


@pytest.mark.parametrize("text", FIXED)
def test_nothing_is_claimed(harness: Any, text: str) -> None:
    assert harness.step(text).affine_rule is AffineRule.UNKNOWN
