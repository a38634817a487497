"""Words in local memory: where more registers are live than there are, as ptxas does it.

Where too many words are live, those groups go to the stack whose intervals are long for how often they are
accessed (Chaitin's cost over degree, weighted by the depth of loops). Each read loads its word first, each
write stores it afterwards; the stack pointer is R1, as in SASS, so that the executor follows the slots like
registers.

    FADD G1, G0, G2        G0 spilled to slot 8:      LDL G9, [R1+0x8]
                                                      FADD G1, G9, G2
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.ptx.virtual_code import (
    ConstantRef,
    MemoryRef,
    VirtualBlock,
    VirtualCode,
    VirtualInstruction,
    VirtualOperand,
    WordRef,
    list_word_refs,
)

_LOOP_WEIGHT = 10.0
_MAX_DEPTH = 4
_MIN_SPAN = 16  # instructions; a shorter interval would not free its register
_MAX_WORDS = 4  # of a group that is spilled before others
_SIZES = {1: "", 2: ".64", 4: ".128"}


class GroupSpan(Struct, frozen=True):
    """Where a group is live, in instructions, and what accessing it costs."""

    group: int
    start: int
    stop: int
    n_words: int


def find_block_weights(blocks: Sequence[VirtualBlock]) -> list[float]:
    """Return how often each block is taken to run: ten times for each loop around it, by back edges."""
    depths = [0] * len(blocks)
    for index, block in enumerate(blocks):
        for target in block.successors:
            if target <= index:
                for inner in range(target, index + 1):
                    depths[inner] += 1
    return [_LOOP_WEIGHT ** min(depth, _MAX_DEPTH) for depth in depths]


def choose_spills(code: VirtualCode, spans: Sequence[GroupSpan], limit: int) -> list[int]:
    """Choose groups so that at most `limit` words are live anywhere, as far as that is possible."""
    costs, fixed = _find_costs(code)
    length = max((span.stop for span in spans), default=0) + 1
    live = [0] * (length + 1)
    for span in spans:
        live[span.start] += span.n_words
        live[span.stop] -= span.n_words
    for position in range(1, length + 1):
        live[position] += live[position - 1]
    candidates = sorted(
        (span for span in spans if span.stop - span.start >= _MIN_SPAN),
        key=lambda span: (
            span.group in fixed,  # accumulators last
            costs.get(span.group, 0.0) / ((span.stop - span.start) * span.n_words),
        ),
    )
    chosen = []
    for span in candidates:
        own = range(span.start, span.stop)
        if max(live[span.start : span.stop], default=0) <= limit:
            continue
        chosen.append(span.group)
        for position in own:
            live[position] -= span.n_words
    return chosen


def _find_costs(code: VirtualCode) -> tuple[dict[int, float], set[int]]:
    """Return the weighted accesses of each group, and the groups that had better stay in registers."""
    costs: dict[int, float] = {}
    fixed: set[int] = set()
    for block, weight in zip(code.blocks, find_block_weights(code.blocks), strict=True):
        for instruction in block.code:
            for operand in instruction.operands:
                for ref in list_word_refs(operand):
                    costs[ref.group] = costs.get(ref.group, 0.0) + weight
                    if instruction.keeps_defs or ref.n_words > _MAX_WORDS or ref.n_words == 3:
                        fixed.add(ref.group)
    return costs, fixed


def spill_groups(code: VirtualCode, groups: Sequence[int], first_slot: int) -> int:
    """Move groups to the stack, from a byte offset on; return the offset after them."""
    slots, position = {}, first_slot
    for group in groups:
        size = 4 * code.group_sizes[group]
        step = min(16, 1 << (size - 1).bit_length())
        position = -(-position // step) * step
        slots[group] = position
        position += size
    for block in code.blocks:
        block.code = [part for each in block.code for part in _rewrite(code, each, slots)]
    return position


def _rewrite(
    code: VirtualCode, instruction: VirtualInstruction, slots: dict[int, int]
) -> Iterator[VirtualInstruction]:
    named = {ref.group for operand in instruction.operands for ref in list_word_refs(operand)}
    if named.isdisjoint(slots):
        yield instruction
        return
    before: list[VirtualInstruction] = []
    after: list[VirtualInstruction] = []
    operands: list[VirtualOperand] = []
    accumulators: dict[WordRef, WordRef] = {}  # read and written in place
    for position, operand in enumerate(instruction.operands):
        is_def = position < instruction.n_defs and isinstance(operand, WordRef)
        refs = [ref for ref in list_word_refs(operand) if ref.group in slots]
        if not refs:
            operands.append(operand)
            continue
        known = accumulators.get(refs[0])
        fresh = known or WordRef(code.add_group(refs[0].n_words), 0, refs[0].n_words)
        if instruction.keeps_defs:
            accumulators[refs[0]] = fresh
        operands.append(_replace_base(operand, fresh))
        for part, offset in _split(fresh, slots[refs[0].group] + 4 * refs[0].word):
            (after if is_def else before).append(_make_access(instruction, part, offset, is_store=is_def))
    yield from before
    yield replace(instruction, operands=tuple(operands))
    yield from after


def _replace_base(operand: VirtualOperand, fresh: WordRef) -> VirtualOperand:
    match operand:
        case WordRef():
            return replace(operand, group=fresh.group, word=0)
        case MemoryRef(base=WordRef() as base) | ConstantRef(base=WordRef() as base):
            return replace(operand, base=replace(base, group=fresh.group, word=0))
        case _:
            return operand


def _split(ref: WordRef, offset: int) -> Iterator[tuple[WordRef, int]]:
    """Yield the parts of an access that are aligned."""
    size = 4 * ref.n_words
    if ref.n_words in _SIZES and offset % size == 0:
        yield ref, offset
        return
    step = 4 if ref.n_words % 4 == 0 and offset % 16 == 0 else 1
    for word in range(0, ref.n_words, step):
        yield WordRef(ref.group, ref.word + word, step), offset + 4 * word


def _make_access(
    instruction: VirtualInstruction, ref: WordRef, offset: int, *, is_store: bool
) -> VirtualInstruction:
    place = f"[R1+{offset:#x}]" if offset else "[R1]"
    size = _SIZES[ref.n_words]
    return VirtualInstruction(
        mnemonic=("STL" if is_store else "LDL") + size,
        operands=(place, ref) if is_store else (ref, place),
        n_defs=0 if is_store else 1,
        guard=instruction.guard if is_store else None,
        line=instruction.line,
        source_line=instruction.source_line,
        has_effect=is_store,
    )
