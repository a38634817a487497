"""What each operation's pretty form leaves out: the names of keywords, and how types of results follow.

An operation reads without a rule too; a rule makes its types and attributes those of the generic form.
"""

from enum import Enum, auto

from msgspec import Struct


class Derivation(Enum):
    """How the types of results follow from the types that the pretty form lists."""

    LISTED = auto()  # those after the arrow, else the listed ones in order, else all of the only one
    FIRST = auto()  # all have the first type
    LAST = auto()
    BOOLEAN = auto()  # i1 in the shape of the first
    POINTEE = auto()  # what the pointers of the first type point to
    TOKEN = auto()  # a token of asynchronous copies
    CARRY = auto()  # the first, and i1 of its shape
    INDEX = auto()
    NONE = auto()


class OperationRule(Struct, frozen=True):
    """How to read the pretty form of an operation."""

    derivation: Derivation = Derivation.LISTED
    keywords: tuple[str, ...] = ()  # attributes that keywords without a name give, in order
    strings: tuple[str, ...] = ()  # attributes that strings give
    numbers: str = ""  # attribute that numbers in brackets give


DEFAULT_RULE = OperationRule()
