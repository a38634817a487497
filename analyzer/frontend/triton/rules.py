"""How an operation's pretty form reads: names of keywords, order of operands, how types of results follow.

An operation reads without a rule too; a rule makes what it reads to equal to what its generic form reads to.
"""

from enum import Enum, auto

from msgspec import Struct


class Derivation(Enum):
    """How the types of results follow from the types that the pretty form lists."""

    LISTED = auto()  # those after the arrow, else the listed ones in order, else all of the only one
    FIRST = auto()  # all have the first type
    LAST = auto()
    BOOLEAN = auto()  # i1 in the shape of the first
    POINTEE = auto()  # what the pointers of the first operand point to
    TOKEN = auto()  # a token of asynchronous operations, whatever is listed
    SECOND_TOKEN = auto()  # those after the arrow, and a token as the second
    CARRY = auto()  # the first, and i1 of its shape


class OperandOrder(Enum):
    """How the operands of the definition follow from those of the pretty form."""

    SAME = auto()
    BARRIER_FIRST = (
        auto()
    )  # the last three are result, barrier, predicate; the definition has the barrier first
    STORE = auto()  # source, destination, token, predicate; the definition has the source third
    DESCRIPTOR_STORE = auto()  # descriptor, coordinates, source; the definition has the source second
    SCALED = auto()  # each factor is followed by its scale; the definition has the scales last
    MMA = auto()  # each barrier is followed by its predicate; the definition has all predicates last
    SCALED_MMA = auto()


class Enumeration(Struct, frozen=True):
    """An attribute that is a number in dictionaries and a word in the pretty form."""

    attribute: str
    names: tuple[str, ...]
    first: int = 0  # the number of the first name

    def find_name(self, number: int) -> str | None:
        """Return the name of a number, None if it has none."""
        index = number - self.first
        return self.names[index] if 0 <= index < len(self.names) else None


class OperationRule(Struct, frozen=True):
    """How to read an operation."""

    derivation: Derivation = Derivation.LISTED
    keywords: tuple[str, ...] = ()  # attributes that keywords without a name give, in order
    strings: tuple[str, ...] = ()  # attributes that strings give, in order
    numbers: str = ""  # attribute that numbers give
    symbol: str = "symbol"  # attribute that a symbol gives
    renamed: tuple[
        tuple[str, str], ...
    ] = ()  # keywords of the pretty form, and the names of their attributes
    enumerations: tuple[Enumeration, ...] = ()
    defaults: tuple[
        tuple[str, str], ...
    ] = ()  # words of attributes that say nothing; the pretty form has none
    operand_order: OperandOrder = OperandOrder.SAME
    keeps_segments: bool = False  # the sizes of groups of operands are an attribute
    implicit_terminator: str = ""  # of regions, which the pretty form leaves out
    elided_type: str = ""  # what stands before `<` in types that begin with it


DEFAULT_RULE = OperationRule()
