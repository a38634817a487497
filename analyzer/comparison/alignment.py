"""Alignment of two listings: which instruction of one side is which of the other.

Instructions are compared by shape, the text without numbers of registers, predicates, barriers and branch
targets, for another allocation of registers is no other code. The longest common subsequence of the shapes
(rapidfuzz: bit-parallel Indel distance, Hyyro 2004) is the first alignment; in each gap that is left,
instructions of one opcode are paired next, so that a load with another width or offset is a changed load:

    LDG.E R4, [R2.64]      LDG.E R8, [R6.64]        equal shape: paired
    FFMA R5, R4, R4, R1    IADD3 R7, R7, 0x4, RZ    added
    STG.E [R2.64], R5      FFMA R5, R8, R8, R1      paired with the FFMA of the old side
                           STG.E.64 [R6.64], R4     paired with the STG in the second pass
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from analyzer.report.analyze_schema import ListingEntry

_REGISTER = re.compile(r"(?<![A-Za-z0-9_.])(U?[RP]|SB|gsb|B)(?:\d+|Z|T)(?![A-Za-z0-9_])")
_LABEL = re.compile(r"`\([^()]*\)")
_REUSE = ".reuse"
_TARGET = re.compile(r"(?:0x[0-9a-f]+|@0x[0-9a-f]+|`\([^()]*\))$")
_OPCODE = re.compile(r"(?:@!?U?P\w+\s+)?([\w]+)([.\w]*)")
_BRANCHES = ("BRA", "BRX", "JMP", "CALL", "BSSY", "SSY", "RET", "LEPC")
# Bits of the table of the alignment: 256 MiB, some 46,000 instructions on both sides.
_MAX_TABLE_BITS = 1 << 31


class LineKind(StrEnum):
    """How a line of the alignment differs."""

    EQUAL = "equal"  # the same text and control code, targets of branches apart
    CHANGED = "changed"
    REMOVED = "removed"
    ADDED = "added"


class AlignedPair(Struct, frozen=True):
    """A line of the alignment: positions in the listings, None where a side has nothing."""

    old: int | None
    new: int | None


class Alignment(Struct, frozen=True):
    """Aligned listings of two kernels."""

    old: tuple[ListingEntry, ...]
    new: tuple[ListingEntry, ...]
    pairs: tuple[AlignedPair, ...]  # in the order of both sides

    def classify(self, pair: AlignedPair) -> LineKind:
        """Return how a line differs."""
        if pair.old is None:
            return LineKind.ADDED
        if pair.new is None:
            return LineKind.REMOVED
        old, new = self.old[pair.old], self.new[pair.new]
        same = drop_target(old.instruction) == drop_target(new.instruction) and old.control == new.control
        return LineKind.EQUAL if same else LineKind.CHANGED

    def list_matched(self) -> Iterator[tuple[int, int]]:
        """Yield the positions of instructions that both sides have."""
        for pair in self.pairs:
            if pair.old is not None and pair.new is not None:
                yield pair.old, pair.new

    def map_addresses(self) -> dict[int, int]:
        """Return the new address of each old one that was paired."""
        return {self.old[a].address: self.new[b].address for a, b in self.list_matched()}


def align_listings(old: tuple[ListingEntry, ...], new: tuple[ListingEntry, ...]) -> Alignment:
    """Align two listings; code that is too long for one table is aligned at its equal ends only."""
    pairs: list[AlignedPair] = []
    for part in _align([make_shape(e.instruction) for e in old], [make_shape(e.instruction) for e in new]):
        if isinstance(part, AlignedPair):
            pairs.append(part)
            continue
        (old_start, old_stop), (new_start, new_stop) = part
        names = [find_opcode_name(e.instruction) for e in old[old_start:old_stop]]
        new_names = [find_opcode_name(e.instruction) for e in new[new_start:new_stop]]
        for inner in _align(names, new_names):
            pairs += _shift(inner, old_start, new_start)
    return Alignment(old, new, tuple(pairs))


_Gap = tuple[tuple[int, int], tuple[int, int]]  # rows [start, stop) of both sides without partners


def _shift(part: "AlignedPair | _Gap", old_start: int, new_start: int) -> list[AlignedPair]:
    """Return the lines of a part of the second pass, with positions of the whole listings."""
    if isinstance(part, AlignedPair):
        return [AlignedPair((part.old or 0) + old_start, (part.new or 0) + new_start)]
    old, new = part
    return [
        *(AlignedPair(row + old_start, None) for row in range(*old)),
        *(AlignedPair(None, row + new_start) for row in range(*new)),
    ]


def _align(old: Sequence[str], new: Sequence[str]) -> "Iterator[AlignedPair | _Gap]":
    """Yield pairs of equal elements and the gaps between them, in order."""
    from rapidfuzz.distance import Indel

    n_equal = 0
    for a, b in zip(old, new, strict=False):
        if a != b:
            break
        n_equal += 1
    yield from (AlignedPair(row, row) for row in range(n_equal))
    old_rest, new_rest = old[n_equal:], new[n_equal:]
    if len(old_rest) * len(new_rest) > _MAX_TABLE_BITS:
        yield (n_equal, len(old)), (n_equal, len(new))
        return
    old_at = new_at = n_equal
    for block in Indel.opcodes(old_rest, new_rest):
        if block.tag != "equal":
            continue
        start, new_start = block.src_start + n_equal, block.dest_start + n_equal
        if start > old_at or new_start > new_at:
            yield (old_at, start), (new_at, new_start)
        length = block.src_end - block.src_start
        yield from (AlignedPair(start + row, new_start + row) for row in range(length))
        old_at, new_at = start + length, new_start + length
    if old_at < len(old) or new_at < len(new):
        yield (old_at, len(old)), (new_at, len(new))


@lru_cache(maxsize=1 << 16)
def make_shape(text: str) -> str:
    """Return an instruction text without numbers of registers and targets of branches.

    >>> make_shape("@!P0 IMAD.WIDE R2, R3.reuse, 0x4, R4")
    '@!P IMAD.WIDE R, R, 0x4, R'
    """
    return _REGISTER.sub(r"\1", drop_target(text).replace(_REUSE, ""))


@lru_cache(maxsize=1 << 16)
def drop_target(text: str) -> str:
    """Return an instruction text with `@` in place of the target of a branch, and of any label."""
    if find_opcode_name(text) in _BRANCHES:
        return _TARGET.sub("@", text)
    return _LABEL.sub("@", text) if "`(" in text else text


@lru_cache(maxsize=1 << 16)
def find_opcode_name(text: str) -> str:
    """Return the opcode of an instruction text without its modifiers and guard: `LDG` of `@P0 LDG.E ...`."""
    found = _OPCODE.match(text)
    return found[1] if found else text
