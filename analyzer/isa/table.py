"""Opcode names and modifiers to `Opcode` values, by the rows of `hwdb/isa/opcodes.toml`."""

import re
from functools import cache

import msgspec
import tomli

from analyzer.ir.machine import WARP_LANES, SchedClass
from analyzer.ir.opcode import Opcode, OpKind, Space
from analyzer.isa.mma import mma_shape
from analyzer.isa.schema import OpcodeFile, OpcodeRow, WhenRow
from analyzer.resources import data_root

_SIZED_KINDS = frozenset(
    {OpKind.LOAD, OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION, OpKind.ASYNC_COPY, OpKind.TEXTURE}
)
_REGISTER_BYTES = 4
_TENSOR_ROWS = re.compile(r"(\d+)dp(\d+)bit")
_REPEAT = re.compile(r"x(\d+)")
_UNKNOWN = OpcodeRow(kind=OpKind.UNKNOWN, sched=SchedClass.UNKNOWN, writes="r?")


@cache
def opcode_table() -> OpcodeFile:
    """The shipped opcode table."""
    text = (data_root("hwdb") / "isa" / "opcodes.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomli.loads(text), OpcodeFile)


@cache
def resolve(mnemonic: str) -> Opcode:
    """The opcode that `mnemonic` (`LDG.E.128`) names; an unlisted one gets the conservative class."""
    name, *words = mnemonic.split(".")
    modifiers = tuple(words)
    listed = opcode_table().opcode.get(name)
    row = _UNKNOWN if listed is None else _specialize(listed, modifiers)
    return Opcode(
        name=name,
        modifiers=modifiers,
        kind=row.kind,
        sched=row.sched,
        writes=row.writes,
        width=row.width,
        widths=row.widths,
        width_bytes=_width_bytes(row, modifiers),
        flops=row.flops,
        space=row.space,
        mma=mma_shape(name, modifiers) if row.kind is OpKind.MMA else None,
        semantics=row.semantics,
        known=listed is not None,
    )


def _specialize(row: OpcodeRow, modifiers: tuple[str, ...]) -> OpcodeRow:
    for rule in row.when:
        if _fits(rule, modifiers):
            changes = {field: value for field in _OVERRIDES if (value := getattr(rule, field)) is not None}
            if rule.width is not None:
                changes.setdefault("widths", ())
            row = msgspec.structs.replace(row, **changes)
    return row


_OVERRIDES = ("kind", "sched", "writes", "width", "widths", "width_bytes", "flops", "space", "semantics")


def _fits(rule: WhenRow, modifiers: tuple[str, ...]) -> bool:
    present = set(modifiers)
    return (
        present.issuperset(rule.has)
        and (not rule.any or not present.isdisjoint(rule.any))
        and present.isdisjoint(rule.lacks)
        and (not rule.first or modifiers[:1] in {(word,) for word in rule.first})
        and (not rule.last or modifiers[-1:] in {(word,) for word in rule.last})
    )


def tensor_memory_registers(modifiers: tuple[str, ...]) -> int:
    """Registers of LDTM and STTM: repeats times bits of a row, halved for 16 rows (PTX, tcgen05.ld)."""
    repeat, factor = 1, 1.0
    for word in modifiers:
        if match := _REPEAT.fullmatch(word):
            repeat = int(match[1])
        elif match := _TENSOR_ROWS.fullmatch(word):
            factor = int(match[1]) * int(match[2]) / (WARP_LANES * _REGISTER_BYTES * 8)
    return max(1, int(repeat * factor))


def _width_bytes(row: OpcodeRow, modifiers: tuple[str, ...]) -> int:
    if row.kind not in _SIZED_KINDS:
        return 0
    if row.space is Space.TENSOR:
        return _REGISTER_BYTES * tensor_memory_registers(modifiers)
    widths = opcode_table().width_modifiers
    sizes = [widths[word] for word in modifiers if word in widths]
    return sizes[-1] if sizes else row.width_bytes
