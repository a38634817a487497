"""Operands of SASS instructions: one frozen class for each syntax that the tools print."""

import math
import re
from enum import StrEnum

from msgspec import Struct


class RegisterFile(StrEnum):
    """General (per lane) and uniform (per warp) registers."""

    GENERAL = "R"
    UNIFORM = "UR"


class PredicateFile(StrEnum):
    """Predicates per lane and per warp."""

    GENERAL = "P"
    UNIFORM = "UP"


class Register(Struct, frozen=True):
    """A register: `R5`, `-UR4`, `|R9|.reuse`, `R4.H0_H0`."""

    file: RegisterFile
    index: int | None  # None is RZ or URZ, which reads as zero
    is_negated: bool = False
    is_absolute: bool = False
    is_inverted: bool = False
    suffixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        number = "Z" if self.index is None else str(self.index)
        return _add_modifiers(self, f"{self.file.value}{number}")


class Predicate(Struct, frozen=True):
    """A predicate: `P0`, `!UP3`."""

    file: PredicateFile
    index: int | None  # None is PT or UPT, which is true
    is_negated: bool = False

    def __str__(self) -> str:
        number = "T" if self.index is None else str(self.index)
        return f"{'!' if self.is_negated else ''}{self.file.value}{number}"


class PredicateFileOperand(Struct, frozen=True):
    """The whole predicate file as one operand: `PR`, `UPR`."""

    file: PredicateFile

    def __str__(self) -> str:
        return f"{self.file.value}R"


class Immediate(Struct, frozen=True):
    """An immediate: `0x7f`, `-1.5`, `+INF`."""

    value: int | float
    suffixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.value:
            case int():
                text = f"-{-self.value:#x}" if self.value < 0 else f"{self.value:#x}"
            case _:
                text = _format_float(self.value)
        return ".".join((text, *self.suffixes))


class ConstantBankOperand(Struct, frozen=True):
    """A word of a constant bank: `c[0x0][0x210]`, `c[0x3][R9+0x8]`, `-c[0x0][UR4+0x30]`."""

    bank: int  # -1 if a register selects the bank
    offset: int  # in bytes
    base: Register | None = None
    is_negated: bool = False
    is_absolute: bool = False
    is_inverted: bool = False
    suffixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        inner = _format_sum((self.base,), self.offset)
        return _add_modifiers(self, f"c[{self.bank:#x}][{inner}]")


class Address(Struct, frozen=True):
    """A memory address: `[R2.64+UR4+-0x10]`, the sum of registers and a byte offset."""

    bases: tuple[Register, ...]
    offset: int

    def __str__(self) -> str:
        return f"[{_format_sum(self.bases, self.offset)}]"


class DescriptorOperand(Struct, frozen=True):
    """An operand accessed through a descriptor: `desc[UR4][R2.64]`, `gdesc[UR20].tnspB`, `tmem[UR4]`."""

    kind: str  # `desc`, `gdesc`, `tmem`
    descriptor: Address
    address: Address | None = None
    suffixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        inner = "" if self.address is None else str(self.address)
        return ".".join((f"{self.kind}{self.descriptor}{inner}", *self.suffixes))


class BarrierRegister(Struct, frozen=True):
    """A convergence barrier `B3`, scoreboard `SB0`, or warpgroup scoreboard `gsb0`."""

    file: str  # `B`, `SB`, `gsb`
    index: int

    def __str__(self) -> str:
        return f"{self.file}{self.index}"


class SpecialOperand(Struct, frozen=True):
    """A special register or keyword: `SR_TID.X`, `2D`, `Rpc.LO`."""

    name: str

    def __str__(self) -> str:
        return self.name


class ScoreboardList(Struct, frozen=True):
    """The scoreboards that DEPBAR names: `{5,4,3}`."""

    scoreboards: tuple[int, ...]

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self.scoreboards)) + "}"


class SymbolWord(Struct, frozen=True):
    """Half of the address `symbol + addend`, which the loader sets."""

    symbol: str
    addend: int
    is_high: bool


# places in code, such as 32@lo((f + .L_x_0@srel)), have no such form
_DATA_ADDRESS = re.compile(r"32@(lo|hi)\((?:([\w.$]+)|\(([\w.$]+) \+ (0x[0-9a-f]+)\))\)")


class Label(Struct, frozen=True):
    """A symbolic target or relocation that nvdisasm prints: `(.L_x_3)`, 32@lo((f + .L_x_0@srel))."""

    name: str

    @property
    def symbol(self) -> str:
        """Name of the place that `(NAME) stands for; the text itself for a relocation."""
        return self.name[2:-1] if self.name.startswith("`(") else self.name

    @property
    def data_address(self) -> "SymbolWord | None":
        """Word of the address of a variable, 32@lo(table) or 32@hi((table + 0x10)); None for other labels."""
        match = _DATA_ADDRESS.fullmatch(self.name)
        if match is None:
            return None
        half, symbol, folded_symbol, addend = match.groups()
        return SymbolWord(symbol or folded_symbol, int(addend or "0", 16), is_high=half == "hi")

    def __str__(self) -> str:
        return self.name


class UnparsedOperand(Struct, frozen=True):
    """Text that the grammar rejects; a warning counts it."""

    text: str

    def __str__(self) -> str:
        return self.text


Operand = (
    Register
    | Predicate
    | PredicateFileOperand
    | Immediate
    | ConstantBankOperand
    | Address
    | DescriptorOperand
    | BarrierRegister
    | SpecialOperand
    | ScoreboardList
    | Label
    | UnparsedOperand
)


def _add_modifiers(operand: Register | ConstantBankOperand, text: str) -> str:
    if operand.is_absolute:
        text = f"|{text}|"
    text = ".".join((text, *operand.suffixes))
    if operand.is_inverted:
        text = f"~{text}"
    return f"-{text}" if operand.is_negated else text


def _format_sum(bases: tuple[Register | None, ...], offset: int) -> str:
    terms = [str(base) for base in bases if base is not None]
    if offset or not terms:
        terms.append(f"-{-offset:#x}" if offset < 0 else f"{offset:#x}")
    return "+".join(terms)


def _format_float(value: float) -> str:
    if math.isnan(value):
        return "-QNAN" if math.copysign(1.0, value) < 0 else "+QNAN"
    if value in (float("inf"), float("-inf")):
        return "+INF" if value > 0 else "-INF"
    return repr(value)


def get_address(operand: Operand) -> Address | None:
    """Return the address that an operand is or that its descriptor goes with, None for others."""
    match operand:
        case Address():
            return operand
        case DescriptorOperand(address=Address() as address):
            return address
        case _:
            return None
