"""Constants of PTX and expressions of them.

An expression may hold names: a symbol or register plus a number is an address. Integers have 64 bits; values
from -2**63 to 2**64-1 are kept as they are, others wrap.
"""

import re
import struct
from collections.abc import Callable

from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxImmediate,
    PtxOperand,
    PtxPair,
    PtxRegister,
    PtxSymbol,
)

_MAX_DIGITS = 80  # a binary number of 64 bits has 66 characters with its prefix
_WORD_BITS = 64
_FLOAT_BITS = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)U?")
_DECIMAL = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")


class PtxSyntaxError(Exception):
    """A part of a statement that is not PTX."""

    def __init__(self, message: str, *, offset: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset  # in the text that was being read, in characters
        self.text = text  # the faulty word, where the offset is not known


class PtxElementError(PtxSyntaxError):
    """An element of an array, `a[2]`, whose address needs the size of the elements."""


def parse_number(text: str) -> int | float:
    """Return the value of a constant: `16`, `0x10`, `0b1`, `017`, `16U`, `1.5`, `0f3F800000`.

    Raises PtxSyntaxError if it is none, or has more than 64 bits.
    """
    if len(text) <= _MAX_DIGITS:
        if match := _INTEGER.fullmatch(text):
            return _parse_integer(match[1], text)
        if match := _FLOAT_BITS.fullmatch(text):
            bits = bytes.fromhex(match[1] or match[2])
            value: float = struct.unpack(">f" if match[1] else ">d", bits)[0]
            return value
        if _DECIMAL.fullmatch(text):
            return float(text)
    raise PtxSyntaxError("this is not a constant", text=text)


def _parse_integer(digits: str, text: str) -> int:
    is_octal = digits[0] == "0" and digits.isdecimal()
    value = int(digits, 8) if is_octal else int(digits, 0)
    if value.bit_length() > _WORD_BITS:
        raise PtxSyntaxError("a constant of more than 64 bits", text=text)
    return value


def _wrap(value: int) -> int:
    return value if -(1 << 63) <= value < 1 << _WORD_BITS else value & ((1 << _WORD_BITS) - 1)


def _divide(first: int, second: int) -> int:
    """Divide as C does, which rounds toward 0."""
    if second == 0:
        raise PtxSyntaxError("a division by zero")
    quotient = abs(first) // abs(second)
    return quotient if (first < 0) == (second < 0) else -quotient


_INTEGER_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "<<": lambda a, b: a << (b & (_WORD_BITS - 1)),
    ">>": lambda a, b: a >> (b & (_WORD_BITS - 1)),
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
}
_NUMBER_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def apply_binary(operator: str, first: PtxOperand, second: PtxOperand) -> PtxOperand:
    """Return a binary operation of an expression: a constant, an address, or a pair of destinations.

    Raises PtxSyntaxError if the operands do not allow it.
    """
    if isinstance(first, PtxImmediate) and isinstance(second, PtxImmediate):
        return PtxImmediate(_calculate(operator, first.value, second.value))
    if operator == "|" and isinstance(first, PtxRegister) and isinstance(second, PtxRegister):
        return PtxPair(first, second)
    if operator == "+" and isinstance(first, PtxImmediate):
        first, second = second, first
    if operator in "+-" and isinstance(second, PtxImmediate) and isinstance(second.value, int):
        return _add_offset(first, second.value if operator == "+" else -second.value)
    raise PtxSyntaxError(f"these operands of `{operator}` are no constants")


def _calculate(operator: str, first: float, second: float) -> int | float:
    if isinstance(first, int) and isinstance(second, int) and operator in _INTEGER_OPERATIONS:
        return _wrap(_INTEGER_OPERATIONS[operator](first, second))
    if operator not in _NUMBER_OPERATIONS:
        if operator == "/" and second != 0:
            return first / second
        raise PtxSyntaxError(f"`{operator}` needs integers")
    value = _NUMBER_OPERATIONS[operator](first, second)
    return _wrap(value) if isinstance(value, int) else value


def _add_offset(base: PtxOperand, offset: int) -> PtxOperand:
    """Return base + offset; a register and an offset are an address, where no brackets stand a `PtxSum`."""
    if isinstance(base, PtxSymbol):
        return PtxSymbol(base.name, _wrap(base.offset + offset), base.is_generic)
    if isinstance(base, PtxRegister) and not base.is_negated and not base.is_minus:
        return PtxAddress(base, offset)
    if isinstance(base, PtxAddress):
        return PtxAddress(base.base, _wrap(base.offset + offset))
    raise PtxSyntaxError("an offset to what is no address")


def apply_unary(operator: str, operand: PtxOperand) -> PtxOperand:
    """Return a unary operation; `!` and `-` negate a register, all others need constants.

    Raises PtxSyntaxError if the operand does not allow it.
    """
    if operator == "!" and isinstance(operand, PtxRegister):
        return PtxRegister(operand.name, not operand.is_negated, part=operand.part)
    if operator == "-" and isinstance(operand, PtxRegister) and not operand.is_minus:
        return PtxRegister(operand.name, is_minus=True, part=operand.part)
    if not isinstance(operand, PtxImmediate):
        raise PtxSyntaxError(f"`{operator}` needs a constant")
    value = operand.value
    if operator == "!":
        return PtxImmediate(int(not value))
    if operator == "~":
        if isinstance(value, float):
            raise PtxSyntaxError("`~` needs an integer")
        return PtxImmediate(_wrap(~value))
    return PtxImmediate(-value) if operator == "-" else operand


def apply_cast(type_name: str, operand: PtxOperand) -> PtxOperand:
    """Return a constant as a signed or unsigned integer of 64 bits: `(.s64) x`, `(.u64) x`."""
    if not isinstance(operand, PtxImmediate) or isinstance(operand.value, float):
        raise PtxSyntaxError("a cast needs an integer")
    value = operand.value & ((1 << _WORD_BITS) - 1)
    if type_name == ".s64" and value >> (_WORD_BITS - 1):
        value -= 1 << _WORD_BITS
    return PtxImmediate(value)
