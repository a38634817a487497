"""Resolves a mnemonic to an `Opcode` by the rows of `hwdb/isa/opcodes.toml`.

The name selects a row. Each override of the row whose modifiers match then replaces some of its fields, later
ones after earlier ones. A name without a row gets the conservative class `unknown`.

    IMAD.WIDE.U32      row IMAD, override for WIDE: class int_mul_wide, register pairs as result and addend
"""

import re
from functools import cache

import msgspec
import tomli

from analyzer.ir.opcode import AddressSpace, Opcode, OpKind
from analyzer.ir.scheduling import WARP_SIZE, SchedClass
from analyzer.isa.mma_shapes import find_mma_shape
from analyzer.isa.schema import ModifierOverrideRow, OpcodeRow, OpcodeTable
from analyzer.resources import find_data_folder

_WIDTH_MODIFIER_KINDS = frozenset(
    {OpKind.LOAD, OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION, OpKind.ASYNC_COPY, OpKind.TEXTURE}
)
_REGISTER_BYTES = 4
_TENSOR_MEMORY_SHAPE = re.compile(r"(\d+)dp(\d+)bit")
_TENSOR_MEMORY_REPEAT = re.compile(r"x(\d+)")
_UNKNOWN_OPCODE_ROW = OpcodeRow(kind=OpKind.UNKNOWN, sched=SchedClass.UNKNOWN, writes="r?")


@cache
def load_opcode_table() -> OpcodeTable:
    """Load the shipped opcode table."""
    text = (find_data_folder("hwdb") / "isa" / "opcodes.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomli.loads(text), OpcodeTable)


@cache
def resolve_opcode(mnemonic: str) -> Opcode:
    """Return the opcode of a mnemonic such as `LDG.E.128`; an unlisted one gets the conservative class."""
    name, *words = mnemonic.split(".")
    modifiers = tuple(words)
    listed = load_opcode_table().opcode.get(name)
    row = _UNKNOWN_OPCODE_ROW if listed is None else _apply_overrides(listed, modifiers)
    return Opcode(
        name=name,
        modifiers=modifiers,
        kind=row.kind,
        sched_class=row.sched,
        destination_pattern=row.writes,
        operand_registers=row.width,
        registers_by_operand=row.widths,
        width_bytes=_find_width_bytes(row, modifiers),
        flops=row.flops,
        space=row.space,
        mma_shape=find_mma_shape(name, modifiers) if row.kind is OpKind.MMA else None,
        semantics=row.semantics,
        is_known=listed is not None,
    )


def _apply_overrides(row: OpcodeRow, modifiers: tuple[str, ...]) -> OpcodeRow:
    """Return the row with the fields of all overrides that match; a new width drops the row's widths."""
    for rule in row.when:
        if _is_match(rule, modifiers):
            changes = {
                field: value for field in _OVERRIDABLE_FIELDS if (value := getattr(rule, field)) is not None
            }
            if rule.width is not None:
                changes.setdefault("widths", ())
            row = msgspec.structs.replace(row, **changes)
    return row


_OVERRIDABLE_FIELDS = (
    "kind",
    "sched",
    "writes",
    "width",
    "widths",
    "width_bytes",
    "flops",
    "space",
    "semantics",
)


def _is_match(rule: ModifierOverrideRow, modifiers: tuple[str, ...]) -> bool:
    present = set(modifiers)
    return (
        present.issuperset(rule.has)
        and (not rule.any or not present.isdisjoint(rule.any))
        and present.isdisjoint(rule.lacks)
        and (not rule.first or modifiers[:1] in {(word,) for word in rule.first})
        and (not rule.last or modifiers[-1:] in {(word,) for word in rule.last})
    )


def count_tensor_memory_registers(modifiers: tuple[str, ...]) -> int:
    """Return the registers of each lane that LDTM and STTM move (PTX ISA, tcgen05.ld).

    That is the bits of one repeat (rows times bits of a row) over the bits of a warp's registers, times the
    repeats: `16dp256bit` with `x4` moves 16.
    """
    repeat, factor = 1, 1.0
    for word in modifiers:
        if match := _TENSOR_MEMORY_REPEAT.fullmatch(word):
            repeat = int(match[1])
        elif match := _TENSOR_MEMORY_SHAPE.fullmatch(word):
            factor = int(match[1]) * int(match[2]) / (WARP_SIZE * _REGISTER_BYTES * 8)
    return max(1, int(repeat * factor))


def _find_width_bytes(row: OpcodeRow, modifiers: tuple[str, ...]) -> int:
    """Return the bytes that each lane moves: by the last width modifier, else the row's default."""
    if row.kind not in _WIDTH_MODIFIER_KINDS:
        return 0
    if row.space is AddressSpace.TENSOR:
        return _REGISTER_BYTES * count_tensor_memory_registers(modifiers)
    widths = load_opcode_table().width_modifiers
    sizes = [widths[word] for word in modifiers if word in widths]
    return sizes[-1] if sizes else row.width_bytes
