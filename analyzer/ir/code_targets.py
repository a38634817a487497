"""Which instructions name addresses of code, pass control on, or are padding behind a function."""

from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.opcode import CONTROL_FLOW_KINDS, Opcode, OpKind
from analyzer.ir.operand import Immediate, Label, Predicate, Register, RegisterFile


def names_code_address(opcode: Opcode) -> bool:
    """Return whether an operand may be an address of code."""
    return opcode.kind in CONTROL_FLOW_KINDS or opcode.name == "LEPC"


def is_call(opcode: Opcode) -> bool:
    """Return whether an instruction calls a function."""
    return opcode.kind is OpKind.CALL


def is_direct_call(form: InstructionForm) -> bool:
    """Return whether a call names its callee, as `CALL.REL.NOINC 0x370` and CALL.ABS.NOINC `(f) do.

    With a register before it, the address is only the base that the register counts from.
    """
    is_named = "REL" in form.opcode.modifiers or isinstance(form.operands[0], Label)
    return len(form.operands) == 1 and is_named


def _has_absolute_target(form: InstructionForm) -> bool:
    """Return whether the last operand is an address; RET and indirect calls print an offset there."""
    kind = form.opcode.kind
    if kind in (OpKind.RETURN, OpKind.BRANCH_INDIRECT):
        return False
    if kind is OpKind.CALL:
        return is_direct_call(form)
    return kind is not OpKind.WARP_SYNC or len(form.operands) > 1


def find_named_target(form: InstructionForm) -> Immediate | Label | None:
    """Return the operand that names an instruction of the code by its address or label, None without one."""
    if not _has_absolute_target(form):
        return None
    for operand in reversed(form.operands):
        if isinstance(operand, Label) or (isinstance(operand, Immediate) and isinstance(operand.value, int)):
            return operand
    return None


# Branches on the state of the warp's lanes; sm_75 prints them without an operand.
_LANE_MASK_MODIFIERS = frozenset({"DIV", "CONV"})


def _is_conditional(form: InstructionForm) -> bool:
    """Return whether a branch can fall through.

    `@P0 BRA`, `BRA P1, t`, `BRA.U UP0, t` and `BRA.DIV UR4, t` can; a plain or `@PT` branch cannot.
    """
    if not form.is_unconditional or not _LANE_MASK_MODIFIERS.isdisjoint(form.opcode.modifiers):
        return True
    for operand in form.operands:
        match operand:
            case Predicate(index=index, is_negated=negated):
                if index is not None or negated:
                    return True
            case Register(file=RegisterFile.UNIFORM):
                return True
            case _:
                continue
    return False


def never_falls_through(form: InstructionForm) -> bool:
    """Return whether control never passes to the next instruction."""
    match form.opcode.kind:
        case OpKind.BRANCH:
            return not _is_conditional(form)
        case OpKind.BRANCH_INDIRECT | OpKind.RETURN | OpKind.EXIT:
            return form.is_unconditional
        case _:
            return False


def _is_nop(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.NOP


def find_code_end(kernel: Kernel) -> int:
    """Return the row after the last one that is not padding: the branch to itself and the NOPs after it."""
    is_nop = kernel.form_table.make_opcode_mask(_is_nop)
    ids = kernel.opcode_ids
    stop = len(kernel)
    while stop > 1 and is_nop[ids[stop - 1]]:
        stop -= 1
    if stop > 1 and _is_self_branch(kernel, stop - 1) and _always_leaves(kernel, stop - 2):
        return stop - 1
    return len(kernel) if stop <= 1 else stop


def _always_leaves(kernel: Kernel, row: int) -> bool:
    """Return whether control never passes to the next row; a trap is assumed to return."""
    return kernel.find_opcode(row).kind in CONTROL_FLOW_KINDS and never_falls_through(kernel.decode_form(row))


def _is_self_branch(kernel: Kernel, row: int) -> bool:
    if kernel.find_opcode(row).kind is not OpKind.BRANCH:
        return False
    form = kernel.decode_form(row)
    if not form.is_unconditional or len(form.operands) != 1:
        return False
    match form.operands[0]:
        case Immediate(value=value):
            return value == int(kernel.addresses[row])
        case Label() as label:
            return (label.symbol, int(kernel.addresses[row])) in kernel.labels
        case _:
            return False
