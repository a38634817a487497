"""Instructions moved down to their first use, where too many words are live.

LLVM computes addresses and masks of many accesses before the first of them; ptxas computes them late. An
arithmetic instruction goes to just before the first that reads its result, if all readers stand in its block,
nothing in between writes what it reads, and fewer words live longer for it than shorter.

    IMAD.WIDE G5, G1, 0x2, G0      one of many addresses: 2 words live until the store, G1 and G0 live anyway
    …
    STG [G5], G9                   the product goes here
"""

from msgspec import Struct, field

from analyzer.frontend.ptx.register_allocation import Numbering, find_live_outs, list_defs, list_uses
from analyzer.frontend.ptx.virtual_code import VirtualBlock, VirtualCode, VirtualInstruction
from analyzer.ir.opcode import ARITHMETIC_KINDS, OpKind
from analyzer.isa.opcode_table import resolve_opcode

_MOVABLE_KINDS = ARITHMETIC_KINDS | {OpKind.MOVE}


class _Places(Struct):
    """Where a word is written and read in a block, by row."""

    writes: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    last: int = -1  # a read that has moved down


def sink_instructions(code: VirtualCode) -> None:
    """Move instructions down in all blocks."""
    numbering = Numbering.of(code)
    for block, live in zip(code.blocks, find_live_outs(code, numbering), strict=True):
        _sink_in_block(block, live, numbering)


def _sink_in_block(block: VirtualBlock, live: int, numbering: Numbering) -> None:
    defs = [list_defs(instruction, numbering) for instruction in block.code]
    uses = [list_uses(instruction, numbering) for instruction in block.code]
    places: dict[int, _Places] = {}
    for row, (written, read) in enumerate(zip(defs, uses, strict=True)):
        for number in written:
            places.setdefault(number, _Places()).writes.append(row)
        for number in read:
            places.setdefault(number, _Places()).reads.append(row)
    targets = list(range(len(block.code)))  # the row before which each instruction goes
    for row in range(len(block.code) - 1, -1, -1):
        readers = _find_readers(block.code[row], row, defs[row], places, live)
        if not readers:
            continue
        place = min(targets[reader] for reader in readers)
        if _may_move(uses[row], row, place, places, live, len(defs[row])):
            targets[row] = place
            for number in uses[row]:  # they live until there now
                places[number].last = max(places[number].last, place)
    # Instructions that go to one place keep their order, and stand before the one that is there.
    order = sorted(range(len(targets)), key=lambda row: (targets[row], row))
    block.code = [block.code[row] for row in order]


def _find_readers(
    instruction: VirtualInstruction, row: int, written: list[int], places: dict[int, _Places], live: int
) -> set[int]:
    """Return the rows that read results; none where it must not move, or is read elsewhere too."""
    if instruction.has_effect or instruction.guard is not None or instruction.keeps_defs or not written:
        return set()
    if resolve_opcode(instruction.mnemonic).kind not in _MOVABLE_KINDS:
        return set()
    readers: set[int] = set()
    for number in written:
        if live >> number & 1 or places[number].writes != [row]:
            return set()
        readers.update(places[number].reads)
    return readers if readers and min(readers) > row else set()


def _may_move(
    read: list[int], row: int, place: int, places: dict[int, _Places], live: int, n_written: int
) -> bool:
    """Return whether the sources have their values at the new place, and it is no loss to keep them."""
    if place <= row + 1:
        return False
    n_longer = 0
    for number in set(read):
        if any(row < write < place for write in places[number].writes):
            return False
        n_longer += not live >> number & 1 and max(places[number].last, *places[number].reads) <= row
    return n_longer < n_written
