"""Rules that every instruction and every kernel of any reader satisfies, as a table.

A reader that breaks one hands wrong code to the packages behind it: a register that is read at another
width than it is written, a branch to nowhere. `verify_kernel` is run over dumps of real compilers and over
PTX lowered here.

    IMAD.WIDE R3, R4, 0x4, R6     pair-alignment: the pair R3 begins at an odd register
"""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from analyzer.ir.module import INSTRUCTION_BYTES, InstructionForm, Kernel
from analyzer.ir.opcode import CONTROL_FLOW_KINDS, MEMORY_KINDS, AddressSpace, OpKind
from analyzer.ir.operand import (
    ConstantBankOperand,
    Immediate,
    Label,
    Predicate,
    PredicateFileOperand,
    Register,
    RegisterFile,
    UnparsedOperand,
)
from analyzer.isa.register_operands import (
    N_REGISTER_UNITS,
    PREDICATE_BASE,
    find_defs_and_uses,
)

_MAX_GENERAL, _MAX_UNIFORM, _MAX_PREDICATE = 254, 126, 6
_WORD_BYTES = 4
_MAX_ALIGNED_WORDS = 4
_ENDING_KINDS = frozenset({OpKind.EXIT, OpKind.RETURN, OpKind.BRANCH, OpKind.BRANCH_INDIRECT, OpKind.NOP})
_UNTARGETED_KINDS = frozenset({OpKind.EXIT, OpKind.RETURN, OpKind.BRANCH_INDIRECT, OpKind.CONVERGENCE_WAIT,
                               OpKind.CONVERGENCE_BREAK, OpKind.WARP_SYNC, OpKind.CALL})  # fmt: skip


class Violation(Struct, frozen=True):
    """One broken rule."""

    rule: str
    row: int  # of the kernel, -1 where it is of no instruction
    text: str
    message: str


FormRule = Callable[[InstructionForm], str | None]
KernelRule = Callable[[Kernel], Iterator[tuple[int, str]]]


def _check_parsed(form: InstructionForm) -> str | None:
    broken = next((o for o in form.operands if isinstance(o, UnparsedOperand)), None)
    return None if broken is None else f"operand {broken.text} is not of the grammar"


def _check_guard(form: InstructionForm) -> str | None:
    if form.guard is not None and not isinstance(form.guard, Predicate):
        return "the guard is no predicate"
    return None


def _check_registers(form: InstructionForm) -> str | None:
    for operand in (*form.operands, form.guard):
        match operand:
            case Register(file=file, index=int(index)):
                most = _MAX_GENERAL if file is RegisterFile.GENERAL else _MAX_UNIFORM
                if index > most:
                    return f"{operand} is no register"
            case Predicate(index=int(index)) if index > _MAX_PREDICATE:
                return f"{operand} is no predicate"
            case _:
                pass
    return None


def _check_units(form: InstructionForm) -> str | None:
    if not isinstance(form.guard, Predicate | None):
        return None  # another rule says so
    for unit in (*form.defs, *form.uses):
        if not 0 <= unit < N_REGISTER_UNITS:
            return f"unit {unit} is out of range"
    found = find_defs_and_uses(form.opcode, form.guard, form.operands)
    return None if found == (form.defs, form.uses) else "defs and uses are not those of the operands"


def _check_results(form: InstructionForm) -> str | None:
    """A result is written as it stands: without a sign."""
    for operand in form.operands[: _count_results(form)]:
        if isinstance(operand, Register) and (
            operand.is_negated or operand.is_inverted or operand.is_absolute
        ):
            return f"the result {operand} has a sign"
        if isinstance(operand, Predicate) and operand.is_negated:
            return f"the result {operand} is negated"
    return None


def _count_results(form: InstructionForm) -> int:
    """Return how many leading operands are results: those whose units are among the defs."""
    count = 0
    pattern = form.opcode.destination_pattern.replace("m", "r")
    letters = [letter for letter in pattern if letter in "rp"]
    for letter, operand in zip(letters, form.operands, strict=False):
        kind = Register if letter == "r" else (Predicate, PredicateFileOperand)
        if not isinstance(operand, kind):
            break
        count += 1
    return count


def _check_required_result(form: InstructionForm) -> str | None:
    pattern = form.opcode.destination_pattern
    if not form.opcode.is_known or not pattern or "?" in pattern[1:2]:
        return None
    first = form.operands[0] if form.operands else None
    wanted = Register if pattern[0] == "r" else (Predicate, PredicateFileOperand, Register)
    return None if isinstance(first, wanted) else f"{form.opcode.name} has no result"


def _check_alignment(form: InstructionForm) -> str | None:
    """Data of 8 bytes begin at an even register, of 16 at a multiple of four."""
    opcode = form.opcode
    if opcode.kind not in MEMORY_KINDS or opcode.space is AddressSpace.TENSOR or opcode.mma_shape:
        return None
    n_words = min(opcode.width_bytes // _WORD_BYTES, _MAX_ALIGNED_WORDS)
    if n_words not in (2, 4) or opcode.kind not in (OpKind.LOAD, OpKind.STORE):
        return None
    for operand in form.operands:
        if isinstance(operand, Register) and operand.index is not None and operand.index % n_words:
            return f"{n_words} words begin at {operand}"
    return None


def _check_access_width(form: InstructionForm) -> str | None:
    opcode = form.opcode
    if opcode.kind is not OpKind.LOAD or opcode.space in (AddressSpace.TENSOR, AddressSpace.CONSTANT):
        return None
    words = [unit for unit in form.defs if unit < PREDICATE_BASE]
    wanted = max(1, opcode.width_bytes // _WORD_BYTES)
    has_result = any(isinstance(o, Register) and o.index is not None for o in form.operands[:2])
    if has_result and words and len(words) != wanted:
        return f"{len(words)} registers for {opcode.width_bytes} bytes"
    return None


def _check_constants(form: InstructionForm) -> str | None:
    for operand in form.operands:
        if isinstance(operand, ConstantBankOperand) and operand.base is None and operand.offset < 0:
            return f"{operand} is before the bank"
        if isinstance(operand, Immediate) and isinstance(operand.value, int) and abs(operand.value) >> 64:
            return f"{operand} has more than 64 bits"
    return None


def _check_columns(kernel: Kernel) -> Iterator[tuple[int, str]]:
    n = len(kernel)
    for name in ("addresses", "control_words", "source_line_ids", "ptx_lines"):
        column = getattr(kernel, name)
        if column is not None and len(column) != n:
            yield -1, f"{name} has {len(column)} rows, not {n}"


def _check_addresses(kernel: Kernel) -> Iterator[tuple[int, str]]:
    steps = np.diff(kernel.addresses)
    for row in np.flatnonzero((steps <= 0) | (steps % INSTRUCTION_BYTES != 0)).tolist():
        yield row + 1, f"address {int(kernel.addresses[row + 1]):#x} does not follow"


def _check_targets(kernel: Kernel) -> Iterator[tuple[int, str]]:
    """A branch names an instruction of the kernel."""
    known, labels = set(kernel.addresses.tolist()), dict(kernel.labels)
    for row in range(len(kernel)):
        opcode = kernel.find_opcode(row)
        if opcode.kind not in CONTROL_FLOW_KINDS or opcode.kind in _UNTARGETED_KINDS:
            continue
        form = kernel.decode_form(row)
        last = form.operands[-1] if form.operands else None
        address = labels.get(last.symbol) if isinstance(last, Label) else getattr(last, "value", None)
        if address not in known:
            yield row, f"the target {last} is no instruction"


def _check_end(kernel: Kernel) -> Iterator[tuple[int, str]]:
    """Control does not run out of the code."""
    last = len(kernel) - 1
    if not kernel.is_excerpt and kernel.find_opcode(last).kind not in _ENDING_KINDS:
        yield last, "control runs past the last instruction"


def _check_labels(kernel: Kernel) -> Iterator[tuple[int, str]]:
    end = int(kernel.addresses[-1]) + INSTRUCTION_BYTES
    known = {*kernel.addresses.tolist(), end}
    for name, address in kernel.labels:
        if address not in known:
            yield -1, f"the label {name} is at no instruction"


FORM_RULES: dict[str, FormRule] = {
    "operands-parsed": _check_parsed,
    "guard-is-predicate": _check_guard,
    "registers-exist": _check_registers,
    "units-in-range": _check_units,
    "results-unsigned": _check_results,
    "result-present": _check_required_result,
    "pair-alignment": _check_alignment,
    "access-width": _check_access_width,
    "constants-in-range": _check_constants,
}
KERNEL_RULES: dict[str, KernelRule] = {
    "columns-equal": _check_columns,
    "addresses-ascend": _check_addresses,
    "targets-exist": _check_targets,
    "control-ends": _check_end,
    "labels-exist": _check_labels,
}


def verify_form(form: InstructionForm) -> list[tuple[str, str]]:
    """Return the rules that an instruction breaks, each with what is wrong."""
    found = ((name, rule(form)) for name, rule in FORM_RULES.items())
    return [(name, message) for name, message in found if message is not None]


def verify_kernel(kernel: Kernel) -> list[Violation]:
    """Return all broken rules of a kernel and its instructions; each distinct text is checked once."""
    found = []
    rows: dict[int, int] = {}
    for row, text_id in enumerate(kernel.text_ids.tolist()):
        rows.setdefault(text_id, row)
    for row in rows.values():
        form = kernel.decode_form(row)
        found += [Violation(name, row, form.text, message) for name, message in verify_form(form)]
    for name, rule in KERNEL_RULES.items():
        for row, message in rule(kernel):
            text = kernel.decode_form(row).text if row >= 0 else ""
            found.append(Violation(name, row, text, message))
    return found
