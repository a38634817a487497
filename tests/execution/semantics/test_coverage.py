"""Which instructions get a step, which must not, and that steps agree with the operand roles."""

from functools import cache
from typing import Any

import pytest
from paths import list_sass_dumps, read_module

from analyzer.execution.lowering.semantics import compile_step
from analyzer.execution.lowering.semantics.dispatch import STEP_COMPILERS
from analyzer.execution.lowering.step import ConstantRead, Step
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import BULK_WRITE_SEMANTICS, MBARRIER_SEMANTICS, OpKind, Semantics
from analyzer.isa.opcode_table import load_opcode_table

FOLLOWED_KINDS = frozenset(
    {
        OpKind.INTEGER,
        OpKind.PREDICATE,
        OpKind.MOVE,
        OpKind.VOTE,
        OpKind.SHUFFLE,
        OpKind.SPECIAL_REGISTER,
        OpKind.CONVERT,
    }
)
# Packed half floats, a reduction of floats, convergence registers, which the machine itself keeps, and what
# time it is, which the library's barriers ask while they wait.
NOT_FOLLOWED = {"F2FP", "CREDUX", "BMOV", "CS2R"}
ELSEWHERE = {
    Semantics.WAIT_SCOREBOARD,
    Semantics.WAIT_WARPGROUP,
    Semantics.SLEEP,
    Semantics.NEXT_CTA,
    Semantics.BARRIER_REDUCTION,
    Semantics.MEMORY_FENCE,
    Semantics.TRAP,
    *MBARRIER_SEMANTICS,
    *BULK_WRITE_SEMANTICS,
}


@cache
def compiled_forms() -> tuple[tuple[InstructionForm, Step | None], ...]:
    """Every distinct text of the shipped dumps."""
    forms = {}
    for path in list_sass_dumps():
        form_table = read_module(path).form_table
        for text_id, text in enumerate(form_table.texts):
            if text not in forms:
                forms[text] = form_table.decode_form(text_id)
    return tuple((form, compile_step(form)) for form in forms.values())


def test_the_integer_slice_of_the_shipped_dumps_is_followed() -> None:
    missing = {
        form.opcode.name
        for form, step in compiled_forms()
        if step is None and form.opcode.kind in FOLLOWED_KINDS
    }
    assert missing == NOT_FOLLOWED


def test_steps_agree_with_operand_roles() -> None:
    for form, step in compiled_forms():
        if step is None:
            continue
        written = {number for number in step.writes if number >= 0}
        read = {number for number in step.reads if isinstance(number, int)}
        read |= {r.base for r in step.reads if isinstance(r, ConstantRead) and r.base is not None}
        assert read <= set(form.uses), form.text
        if form.opcode.semantics is Semantics.WORD_TO_PREDICATES:  # the mask keeps some as they are
            assert written <= set(form.defs), form.text
        else:
            assert written == set(form.defs), form.text


def test_every_semantics_of_the_table_has_a_compiler() -> None:
    rows = load_opcode_table().opcode.values()
    named = {each.semantics for row in rows for each in (row, *row.when) if each.semantics is not None}
    assert named - ELSEWHERE == set(STEP_COMPILERS)


REFUSED = """
IADD.X R5, R2, R3
IADD R9.CC, R9, R4
IADD3.X R5, R2, R3, R4
IADD3.X R5, -R2, R3, R4, P0, !PT
IADD3 R0, P0, R1, R2, R3
IADD3 R0, P0, PT, -R1, -R2, RZ
IADD3.RS R3, R3, R4, R6
IADD3 R0, R1.H0_H0, R2, RZ
IADD3 R0, |R1|, R2, RZ
IADD3 R0, R1, 1.5, RZ
IADD3 R0, R1, c[UR4][0x10], RZ
IMAD R0, P0, R1, R2, R3
IMAD.X R6, R16, 0x1, R19
IMAD.WIDE R2, -R4, R5, R6
IMAD.WIDE R2, P0, R4, R5, R6
IMAD.HI.U32.X R2, R4, R5, R6, P0
LEA.HI.X R13, R13, R15, R16, 0x1
LEA.X R13, R13, R15, 0x1, P0
LEA R13, P0, -R13, -R15, 0x1
LEA R13, R13, R15, 0x20
IDP.2A.LO.S16.S8 R9, R0, R5, R8
VIMNMX R11, P0, PT, R3, 0x8, PT
VIMNMX.S32.RELU R9, R9, R8, !PT
VIMNMX.U16x2 R9, R9, R8, !PT
VIADDMNMX.RELU R9, R0, R5, R8, !PT
ISETP.GE.X.AND P0, PT, R6, RZ, PT
ISETP.GE.AND P0, PT, R6, -R5, PT
ISETP.AND P0, PT, R6, R5, PT
ISETP.GE.AND P0, PT, R6, R5, PT, P0
ISETP.GE.AND.EX P0, PT, R6, R5, PT
LOP3.LUT R0, R1, R2, R3, 0xc0
LOP3.LUT R0, R1, R2, R3, 0x1c0, !PT
LOP.AND.NZ P1, RZ, R0, 0xf
SHF.L.U64 R36, R39, 0x2, R36
SHF.L R36, R39, 0x2, R36
PRMT.F4E R0, R1, 0x1, R2
POPC R0, R1, R2
P2R R75, PR, R75, 0x7f
P2R.B1 R75, PR, RZ, 0x7f
R2P PR, R4, 0xff
CS2R R2, SR_CLOCKLO
HFMA2 R12, R12, R23, -RZ
HFMA2 R7, -RZ, RZ, +QNAN , 0
LDC.64.U8 R2, c[0x0][0x160]
LDC.IL R2, c[0x0][0x160]
LDC R2, c[UR4][0x160]
CREDUX.MAX.F32 UR7, R6
VOTE R0, PT, P1
SHFL R0, R1, 0x1, 0x1f
MUFU.TANH R11, R7
FMUL.D2 R6, R5, R6
FSEL R6, R5, +QNAN , P0
F2I.F16 R0, R1
I2F.F16 R0, R1
F2F.F16.F32 R0, R1
LEPC R8
BMOV.32.CLEAR RZ, B0
FFMA2 R4, R6, R8, R10
ZZADD R0, R1, R2
""".strip().splitlines()


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_understood_is_refused(harness: Any, text: str) -> None:
    """An unknown result is better than a wrong one."""
    assert harness.refuses(text)
