"""Operands of SASS instructions: one small frozen class for each shape that the tools print."""

import math
from enum import StrEnum

from msgspec import Struct


class RegisterFile(StrEnum):
    GENERAL = "R"
    UNIFORM = "UR"


class PredicateFile(StrEnum):
    GENERAL = "P"
    UNIFORM = "UP"


class Register(Struct, frozen=True):
    """`R5`, `-UR4`, `|R9|.reuse`, `R4.H0_H0`; index None is RZ or URZ, which reads zero."""

    file: RegisterFile
    index: int | None
    negated: bool = False
    absolute: bool = False
    inverted: bool = False
    suffixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        number = "Z" if self.index is None else str(self.index)
        return _decorated(self, f"{self.file.value}{number}")


class Predicate(Struct, frozen=True):
    """`P0`, `!UP3`; index None is PT or UPT, which is true."""

    file: PredicateFile
    index: int | None
    negated: bool = False

    def __str__(self) -> str:
        number = "T" if self.index is None else str(self.index)
        return f"{'!' if self.negated else ''}{self.file.value}{number}"


class PredicateSet(Struct, frozen=True):
    """The whole predicate file as one operand: `PR`, `UPR`."""

    file: PredicateFile

    def __str__(self) -> str:
        return f"{self.file.value}R"


class Immediate(Struct, frozen=True):
    """`0x7f`, `-1.5`, `+INF`; integers are ints."""

    value: int | float
    suffixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.value:
            case int():
                text = f"-{-self.value:#x}" if self.value < 0 else f"{self.value:#x}"
            case _:
                text = _float_text(self.value)
        return ".".join((text, *self.suffixes))


class Constant(Struct, frozen=True):
    """`c[0x0][0x210]`, `c[0x3][R9+0x8]`, `-c[0x0][UR4+0x30]`."""

    bank: int
    offset: int
    base: Register | None = None
    negated: bool = False
    absolute: bool = False
    inverted: bool = False
    suffixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        inner = _sum_text((self.base,), self.offset)
        return _decorated(self, f"c[{self.bank:#x}][{inner}]")


class Address(Struct, frozen=True):
    """`[R2.64+UR4+-0x10]`: registers that are added, then a byte offset."""

    bases: tuple[Register, ...]
    offset: int

    def __str__(self) -> str:
        return f"[{_sum_text(self.bases, self.offset)}]"


class Described(Struct, frozen=True):
    """An operand reached through a descriptor: `desc[UR4][R2.64]`, `gdesc[UR20].tnspB`, `tmem[UR4]`."""

    kind: str
    descriptor: Address
    address: Address | None = None
    suffixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        inner = "" if self.address is None else str(self.address)
        return ".".join((f"{self.kind}{self.descriptor}{inner}", *self.suffixes))


class Barrier(Struct, frozen=True):
    """Convergence barrier `B3`, scoreboard `SB0`, or warpgroup scoreboard `gsb0`."""

    file: str
    index: int

    def __str__(self) -> str:
        return f"{self.file}{self.index}"


class Special(Struct, frozen=True):
    """Special registers and words: `SR_TID.X`, `2D`, `Rpc.LO`."""

    name: str

    def __str__(self) -> str:
        return self.name


class Listed(Struct, frozen=True):
    """`{5,4,3}`: scoreboards that DEPBAR names."""

    values: tuple[int, ...]

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self.values)) + "}"


class Label(Struct, frozen=True):
    """A symbolic target or relocation of nvdisasm: `(.L_x_3)`, 32@lo((f + .L_x_0@srel))."""

    name: str

    def __str__(self) -> str:
        return self.name


class Unparsed(Struct, frozen=True):
    """Text that the grammar does not know; counted in the warnings."""

    text: str

    def __str__(self) -> str:
        return self.text


Operand = (
    Register
    | Predicate
    | PredicateSet
    | Immediate
    | Constant
    | Address
    | Described
    | Barrier
    | Special
    | Listed
    | Label
    | Unparsed
)


def _decorated(operand: Register | Constant, text: str) -> str:
    if operand.absolute:
        text = f"|{text}|"
    text = ".".join((text, *operand.suffixes))
    if operand.inverted:
        text = f"~{text}"
    return f"-{text}" if operand.negated else text


def _sum_text(bases: tuple[Register | None, ...], offset: int) -> str:
    terms = [str(base) for base in bases if base is not None]
    if offset or not terms:
        terms.append(f"-{-offset:#x}" if offset < 0 else f"{offset:#x}")
    return "+".join(terms)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "-QNAN" if math.copysign(1.0, value) < 0 else "+QNAN"
    if value in (float("inf"), float("-inf")):
        return "+INF" if value > 0 else "-INF"
    return repr(value)
