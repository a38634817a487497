"""How the code of two kernels differs, in words: order, registers, scheduling, opcodes."""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from analyzer.comparison.alignment import Alignment, LineKind, drop_target, find_opcode_name, make_shape
from analyzer.comparison.wording import count_things

_MAX_NAMED = 4


class CodeChanges(Struct, frozen=True, kw_only=True):
    """Instructions by how they differ."""

    n_changed_lines: int  # lines of the alignment that are not equal
    n_removed: int
    n_added: int
    n_other_text: int  # partners with another text
    n_other_control: int  # partners with equal text and another control code
    is_reordered: bool  # both sides have the same instructions, registers apart
    added: tuple[tuple[str, int], ...]  # opcodes that one side has more of, new - old, the most first


def compare_code(alignment: Alignment) -> CodeChanges:
    """Count how two aligned listings differ."""
    kinds = Counter(alignment.classify(pair) for pair in alignment.pairs)
    n_other_text = n_other_control = 0
    for a, b in alignment.list_matched():
        old, new = alignment.old[a], alignment.new[b]
        if drop_target(old.instruction) != drop_target(new.instruction):
            n_other_text += 1
        elif old.control != new.control:
            n_other_control += 1
    old_shapes = Counter(make_shape(entry.instruction) for entry in alignment.old)
    new_shapes = Counter(make_shape(entry.instruction) for entry in alignment.new)
    added = Counter(find_opcode_name(entry.instruction) for entry in alignment.new)
    added.subtract(find_opcode_name(entry.instruction) for entry in alignment.old)
    n_removed, n_added = kinds[LineKind.REMOVED], kinds[LineKind.ADDED]
    return CodeChanges(
        n_changed_lines=n_removed + n_added + kinds[LineKind.CHANGED],
        n_removed=n_removed,
        n_added=n_added,
        n_other_text=n_other_text,
        n_other_control=n_other_control,
        is_reordered=old_shapes == new_shapes and bool(n_removed),
        added=tuple(
            sorted(((k, n) for k, n in added.items() if n), key=lambda each: (-abs(each[1]), each[0]))
        ),
    )


def describe_code(changes: CodeChanges) -> Iterator[str]:
    """Yield sentences on how the code differs."""
    if changes.is_reordered:
        yield f"the same instructions in another order: {count_things(changes.n_added, 'instruction')} moved"
    elif changes.n_removed or changes.n_added:
        named = ", ".join(f"{name} {n:+d}" for name, n in changes.added[:_MAX_NAMED])
        yield (
            f"{count_things(changes.n_added, 'instruction')} added, {changes.n_removed:,} removed"
            + (f" ({named})" if named else "")
        )
    if changes.n_other_text:
        yield f"{count_things(changes.n_other_text, 'instruction')} with other registers or operands"
    if changes.n_other_control:
        yield f"{count_things(changes.n_other_control, 'instruction')} with other control codes only"
