"""Instructions of PTX with operands or modifiers missing, too many or of a wrong kind: unknown, never an error."""

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace
from paths import ROOT

from analyzer.frontend.module_reader import read_module
from analyzer.frontend.ptx import lowering_table
from analyzer.frontend.ptx.lowering_context import LoweringContext
from analyzer.frontend.ptx.statements import PtxImmediate, PtxInstruction, PtxOperand
from analyzer.frontend.ptx_reader import PtxOptions

FILES = sorted(
    path
    for folder in ("bench/fuzz_seeds", "traces/levels", "tests/wild")
    for path in (ROOT / folder).rglob("*.ptx")
)


@cache
def collect_instructions() -> tuple[tuple[LoweringContext, PtxInstruction], ...]:
    """Return one instruction of each form in the shipped PTX, with the function that it stands in."""
    found: dict[object, tuple[LoweringContext, PtxInstruction]] = {}
    lower = lowering_table.lower_instruction

    def collect(ctx: LoweringContext, instruction: PtxInstruction) -> None:
        kinds = tuple(type(operand).__name__ for operand in instruction.operands)
        found.setdefault((instruction.name, instruction.modifiers, kinds), (ctx, instruction))
        lower(ctx, instruction)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analyzer.frontend.ptx.lowering.lower_instruction", collect)
        for path in FILES:
            arch = "sm_100a" if "sm_100" in path.parts else "sm_90a"
            read_module(str(path), ptx=PtxOptions(arch=arch, is_virtual=True))
    return tuple(found.values())


def list_kinds() -> list[PtxOperand]:
    """Return an operand of each kind."""
    operands = [operand for _, each in collect_instructions() for operand in each.operands]
    numbers = (0, -1, 1 << 31, 1 << 70, 1.5, -0.0, 1e300, math.inf, math.nan)
    return [*map(PtxImmediate, numbers), *{type(operand): operand for operand in operands}.values()]


def damage(instruction: PtxInstruction) -> Iterator[PtxInstruction]:
    """Yield the instruction without, with more and with other operands, and the same of its modifiers."""
    operands, words = instruction.operands, instruction.modifiers
    yield replace(instruction, operands=())
    yield replace(instruction, operands=operands * 2)
    yield replace(instruction, modifiers=())
    for place in range(len(operands)):
        before, after = operands[:place], operands[place + 1 :]
        yield replace(instruction, operands=(*before, *after))
        for other in list_kinds():
            yield replace(instruction, operands=(*before, other, *after))
    for place in range(len(words)):
        for other_words in ((), ("zzz",)):
            yield replace(instruction, modifiers=(*words[:place], *other_words, *words[place + 1 :]))


def test_damaged_instructions_are_unknown_or_lowered() -> None:
    forms = collect_instructions()
    assert len(forms) > 150
    n_unknown = 0
    for ctx, instruction in forms:
        for each in damage(instruction):
            before = sum(count for _, count in ctx.unknown.values())
            lowering_table.lower_instruction(ctx, each)
            n_unknown += sum(count for _, count in ctx.unknown.values()) > before
    assert n_unknown > 1000


def test_an_empty_modifier_makes_an_unknown_instruction(tmp_path: Path) -> None:
    whole = (ROOT / "bench/fuzz_seeds/scale.ptx").read_text()
    damaged = tmp_path / "k.ptx"
    damaged.write_text(whole.replace("setp.", "setp..", 1))
    (kernel,) = read_module(str(damaged), ptx=PtxOptions(arch="sm_90", is_virtual=True)).kernels
    assert any(text.startswith("PTX_SETP.") for text in kernel.form_table.texts)
