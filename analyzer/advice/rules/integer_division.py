"""Integer divisions and remainders by values that the compiler does not know.

There is no instruction for them. For a / b the compiler computes 1 / b in floating point and corrects:

    I2F.U32.RP  MUFU.RCP  IADD3 +0xffffffe  F2I.U32.TRUNC      the reciprocal, on the XU
    IMAD  IMAD.HI                                              one step of Newton
    IMAD.HI  IMAD  ISETP  IADD3  IADD3  ISETP  IADD3           quotient and remainder, corrected twice
    SEL or @!P LOP3                                            for b = 0

A division is found by the first line, whose instructions feed each other, and followed from there through
integer arithmetic to the select for b = 0. The first two lines stand before the loop where b does not
change in it, and once for some divisions by the same b.

Divisions of 64 and of 16 bits are calls of a subroutine, a single block from I2F to RET.
"""

import numpy as np

from analyzer.advice.edited_rows import find_dead_rows, without_rows
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.ir.opcode import Opcode, OpKind, Semantics
from analyzer.models.arithmetic import is_int_to_float, is_reciprocal
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "integer-division"
ACTION = (
    "make the divisor a constant or a power of two, precompute its multiplicative inverse (multiply high and "
    "shift), or carry quotient and remainder along by additions"
)
_HIGH_MODIFIER = "HI"
_WIDE_MODIFIERS = frozenset({"U64", "S64"})
_WIDE_MULTIPLICATIONS = 4  # of 32 bits, for the high part of a product of 64
_MAX_DISTANCE = 120  # instructions from the reciprocal to the end of a division, others between them
_ARITHMETIC = frozenset(
    {
        Semantics.INT_ADD,
        Semantics.INT_MAD,
        Semantics.INT_COMPARE,
        Semantics.INT_ABSOLUTE,
        Semantics.MOVE,
        Semantics.LOGIC,
        Semantics.LOGIC_OF_TWO,
        Semantics.SELECT,
    }
)
_LOGIC = frozenset({Semantics.LOGIC, Semantics.LOGIC_OF_TWO})


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the instructions of divisions, most executed first."""
    model_input = result.model_input
    kernel, counts = model_input.kernel, model_input.execution_counts
    candidates = kernel.form_table.make_opcode_mask(_is_float_to_int)[kernel.opcode_ids]
    if not (candidates & (counts > 0)).any():
        return ()
    divisions = _find_divisions(model_input)
    rows = [row for division in divisions for row in division if counts[row] > 0]
    if not rows:
        return ()
    spent = sum(float(counts[row]) for row in rows) / max(1.0, float(counts.sum()))
    message = (
        f"integer division or remainder by a variable: {len(divisions)} in the code, {spent:.0%} of the "
        "executed instructions"
    )
    return tuple(Site(row, message) for row in sorted(set(rows), key=lambda row: (-float(counts[row]), row)))


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which a division is a multiplication and one more instruction."""
    model_input, rows = result.model_input, set(list_rows(sites))
    for division in _find_divisions(model_input):
        rows -= _choose_multiplication(model_input, division)
    removed = frozenset(rows)
    return Edit(
        without_rows(model_input, removed | find_dead_rows(model_input.cfg, removed)),
        note="a multiplication and one more instruction for each division, some more for 64 bits",
    )


def _choose_multiplication(model_input: ModelInput, division: frozenset[int]) -> frozenset[int]:
    """Return the instructions of a division that stay: its last multiplication, and the last one of all.

    In a subroutine of 64 bits four multiplications stay, which make up one of 64 bits.
    """
    kernel = model_input.kernel
    is_wide = any(_is_wide(kernel.find_opcode(row)) for row in division)
    multiplies = [row for row in sorted(division) if kernel.find_opcode(row).semantics is Semantics.INT_MAD]
    return frozenset([*multiplies[-_WIDE_MULTIPLICATIONS if is_wide else -1 :], max(division)])


def _find_divisions(model_input: ModelInput) -> list[frozenset[int]]:
    """Return the rows of each division.

    Divisions by the same value share its reciprocal, which belongs to the first of them.
    """
    kernel, chains = model_input.kernel, find_def_use_chains(model_input.cfg)
    counts = model_input.execution_counts
    candidates = kernel.form_table.make_opcode_mask(_is_float_to_int)[kernel.opcode_ids]
    found, known = _find_subroutines(model_input), set[int]()
    in_subroutines = frozenset[int]().union(*found)
    for row in np.flatnonzero(candidates & (counts > 0)).tolist():
        reciprocal = set() if row in in_subroutines else _find_reciprocal(model_input, chains, row)
        if not reciprocal:
            continue
        steps = _find_newton_steps(model_input, chains, row)
        for start in sorted(_find_high_products(model_input, chains, steps) - steps - known):
            quotient = _follow_quotient(model_input, start)
            if quotient:
                found.append(frozenset(quotient | reciprocal | steps))
                known.add(start)
                reciprocal, steps = set(), set()
    return found


def _find_subroutines(model_input: ModelInput) -> list[frozenset[int]]:
    """Return the instructions of subroutines that divide: a block from I2F to RET with a reciprocal in it."""
    kernel, found = model_input.kernel, []
    for block in model_input.cfg.blocks:
        rows = range(block.start, block.stop)
        if not rows or not model_input.execution_counts[block.start]:
            continue
        opcodes = [kernel.find_opcode(row) for row in rows]
        wanted = (is_int_to_float, is_reciprocal, _is_float_to_int)
        if opcodes[-1].kind is OpKind.RETURN and all(any(map(one, opcodes)) for one in wanted):
            found.append(frozenset(rows[:-1]))
    return found


def _find_reciprocal(model_input: ModelInput, chains: DefUseChains, row: int) -> set[int]:
    """Return the instructions that make up the reciprocal of an integer, up to its conversion; else none."""
    found = {row}
    for wanted in (_is_addition, is_reciprocal, is_int_to_float):
        feeding = {
            one
            for last in found
            for one in chains.producers(last)
            if wanted(model_input.kernel.find_opcode(one)) and one not in found
        }
        if not feeding:
            return set()
        found |= feeding
    return found


def _find_newton_steps(model_input: ModelInput, chains: DefUseChains, row: int) -> set[int]:
    """Return the integer arithmetic from a reciprocal to its correction, a high product."""
    kernel = model_input.kernel
    found, work = set[int](), [row]
    while work:
        for one in chains.consumers(work.pop()):
            opcode = kernel.find_opcode(one)
            if one in found or opcode.semantics not in _ARITHMETIC or abs(one - row) > _MAX_DISTANCE:
                continue
            found.add(one)
            if _HIGH_MODIFIER not in opcode.modifiers:
                work.append(one)
    return found


def _find_high_products(model_input: ModelInput, chains: DefUseChains, steps: set[int]) -> set[int]:
    """Return the high products of a corrected reciprocal and a dividend, each the start of a quotient."""
    kernel = model_input.kernel
    return {
        one
        for row in steps
        if _HIGH_MODIFIER in kernel.find_opcode(row).modifiers
        for one in chains.consumers(row)
        if _HIGH_MODIFIER in kernel.find_opcode(one).modifiers
    }


def _follow_quotient(model_input: ModelInput, start: int) -> set[int]:
    """Return the integer arithmetic of a quotient, up to the select for a divisor of zero; else none.

    The select is an instruction of that kind, or a guarded one that overwrites the result. Instructions are
    taken in address order: what lies between belongs to the division if it reads what that has written.
    """
    kernel = model_input.kernel
    found = {start}
    written = set(kernel.decode_form(start).defs)
    for one in range(start + 1, min(start + 1 + _MAX_DISTANCE, model_input.cfg.blocks[-1].stop)):
        form = kernel.decode_form(one)
        is_arithmetic, reads = form.opcode.semantics in _ARITHMETIC, not written.isdisjoint(form.uses)
        overwrites = form.opcode.semantics in _LOGIC and not form.is_unconditional
        is_end = reads and form.opcode.semantics is Semantics.SELECT
        if is_end or (overwrites and not written.isdisjoint(form.defs)):
            return found | {one}
        if reads and is_arithmetic:
            found.add(one)
            written.update(form.defs)
        elif form.is_unconditional:
            written.difference_update(form.defs)
    return set()


def _is_wide(opcode: Opcode) -> bool:
    return is_int_to_float(opcode) and not _WIDE_MODIFIERS.isdisjoint(opcode.modifiers)


def _is_float_to_int(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.FLOAT_TO_INT


def _is_addition(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.INT_ADD
