"""Schema of `hwdb/isa/opcodes.toml` and `hwdb/isa/mma.toml`."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from analyzer.ir.opcode import AddressSpace, DataType, OpKind, Semantics
from analyzer.ir.scheduling import SchedClass, TensorRate


class ModifierOverrideRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that replace those of an opcode's row where its modifiers fulfil all conditions.

    Later overrides replace what earlier ones set. None leaves a field as it is.
    """

    # Conditions on the modifiers; an empty one always holds.
    has: tuple[str, ...] = ()  # all of these occur
    any: tuple[str, ...] = ()  # one of these occurs
    lacks: tuple[str, ...] = ()  # none of these occurs
    first: tuple[str, ...] = ()  # the first modifier is one of these
    last: tuple[str, ...] = ()  # the last modifier is one of these
    # Replacements, as in `OpcodeRow`.
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
    """One opcode: what it does, its scheduling class and the operands that it writes."""

    kind: OpKind
    sched: SchedClass
    # Roles of the leading operands that are written, in order: `r` a general or uniform register, `p` a
    # predicate, `m` a predicate that is read too; `?` after a letter: may be missing. All others are read.
    writes: str = "r"
    width: int = 1  # 32-bit registers of each register operand
    widths: tuple[int, ...] = ()  # the same by place among the operands that are not predicates
    width_bytes: int = 0  # bytes that one lane moves where no modifier says it (memory instructions)
    flops: int = 0  # floating-point or integer-dot operations of one lane; an FMA counts two
    space: AddressSpace | None = None
    semantics: Semantics | None = None  # what abstract execution does with it, None if nothing
    when: tuple[ModifierOverrideRow, ...] = ()


class OpcodeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file `hwdb/isa/opcodes.toml`."""

    schema: Literal["warplens/isa/1"]
    width_modifiers: Mapping[str, int]  # bytes that one lane moves, by modifier
    opcode: Mapping[str, OpcodeRow]  # by name without modifiers


class MmaFamilyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of matrix instructions, such as HMMA, with what holds where modifiers say nothing."""

    warps: int  # that execute one instruction together: 4 for a warpgroup
    default_input: DataType
    default_accumulator_bits: int
    k_bytes: int = 0  # of the inputs along k in one instruction, 0 where the modifiers give the shape
    in_bytes: bool = False  # each element takes a byte, so that FP4 runs at the rate of FP6


class MmaTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file `hwdb/isa/mma.toml`."""

    schema: Literal["warplens/mma/1"]
    shapes: Mapping[str, tuple[int, int, int]]  # (m, n, k) by modifier, such as `16816`
    types: Mapping[str, DataType]  # by modifier
    bits: Mapping[DataType, int]  # of one element
    rates: Mapping[DataType, TensorRate]  # tensor rate of products of this input type
    families: Mapping[str, MmaFamilyRow]  # by opcode name
