"""Why a value is in doubt: it is one of several that the same launch may bring."""

from enum import StrEnum

from msgspec import Struct


class DoubtKind(StrEnum):
    """What decides which of the values an instruction brings."""

    UNORDERED = "unordered"  # a store of another warp, which may come before a load or after it
    DISPUTED = "disputed"  # stores of different values to the word that it loads, in no fixed order
    APPROXIMATE = "approximate"  # the last bits of a function's approximation


class Doubt(Struct, frozen=True):
    """Why the value that an instruction brings is in doubt."""

    kind: DoubtKind
    row: int  # of the store; of the instruction itself where it approximates
