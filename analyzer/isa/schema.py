"""Shape of `hwdb/isa/opcodes.toml` and `hwdb/isa/mma.toml`."""

from typing import Literal

import msgspec

from analyzer.ir.opcode import AddressSpace, DataType, OpKind, Semantics
from analyzer.ir.scheduling import SchedClass, TensorRate


class ModifierOverrideRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Overrides for an opcode whose modifiers fit: all of `has`, one of `any`, none of `lacks`,
    the first modifier one of `first`, the last one of `last`. Later rows win.
    """

    has: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    kind: OpKind | None = None
    sched: SchedClass | None = None
    writes: str | None = None
    width: int | None = None
    widths: tuple[int, ...] | None = None
    width_bytes: int | None = None
    flops: int | None = None
    space: AddressSpace | None = None
    semantics: Semantics | None = None


class OpcodeRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One opcode.

    writes: roles of the leading operands that are written, one letter each, in order:
    `r` a register (general or uniform), `p` a predicate, `p?` a predicate that may be missing,
    `r?` likewise, `m` a predicate that is read too; every later operand is read. Empty for what writes
    no register.
    width: 32-bit registers of each general or uniform register operand; widths: the same by
    position among operands that are not predicates.
    width_bytes: bytes that one lane moves where modifiers say nothing (memory instructions).
    flops: floating-point (or integer dot) operations of one lane, an FMA counting two.
    semantics: what static analysis must understand of the opcode, where it must.
    """

    kind: OpKind
    sched: SchedClass
    writes: str = "r"
    width: int = 1
    widths: tuple[int, ...] = ()
    width_bytes: int = 0
    flops: int = 0
    space: AddressSpace | None = None
    semantics: Semantics | None = None
    when: tuple[ModifierOverrideRow, ...] = ()


class OpcodeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """hwdb/isa/opcodes.toml."""

    schema: Literal["warplens/isa/1"]
    width_modifiers: dict[str, int]
    opcode: dict[str, OpcodeRow]


class MmaFamilyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of matrix instructions: where its shape is printed and what it defaults to.

    in_bytes: each number takes a byte, however narrow it is, and so the time of one of six bits at least.
    """

    warps: int
    default_input: DataType
    default_accumulator_bits: int
    k_bytes: int = 0
    in_bytes: bool = False


class MmaTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """hwdb/isa/mma.toml: fused shape words, element types and the product rate they run at."""

    schema: Literal["warplens/mma/1"]
    shapes: dict[str, tuple[int, int, int]]
    types: dict[str, DataType]
    bits: dict[DataType, int]
    rates: dict[DataType, TensorRate]
    families: dict[str, MmaFamilyRow]
