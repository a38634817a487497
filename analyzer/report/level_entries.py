"""Levels of a kernel side by side as report entries, and where and why they differ."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from analyzer.report.analyze_schema import LevelDifferenceEntry, LevelEntry, LevelPlaceEntry
from analyzer.report.level_work import LINE_WORK, LevelName, LevelWork

_MAX_PLACES = 8
# What the compiler does between a level and the next one below. A guess from the quantity alone, and said to
# be one: the lines show where.
_USUAL_REASONS = {
    (LevelName.TTGIR, "mma_fma"): "blocks that a constant mask sets to zero are not computed below",
    (
        LevelName.TTGIR,
        "global_loaded_bytes",
    ): "the compiler moves loads to where they are used, or a box hangs over the edge of its tensor",
    (LevelName.TTGIR, "global_stored_bytes"): "a box hangs over the edge of its tensor",
    (
        LevelName.TTGIR,
        "shared_bytes",
    ): "changes of layout and reductions, which Triton lowers below TTGIR",
    (LevelName.TTGIR, "barriers"): "Triton adds barriers for shared memory below TTGIR",
    (
        LevelName.TTGIR,
        "xu_operations",
    ): "functions made of others, some with several ways through them",
    (LevelName.PTX, "mma_fma"): "ptxas leaves out products without use",
    (LevelName.PTX, "global_loaded_bytes"): "ptxas leaves out loads without use, or speculates some",
    (LevelName.PTX, "global_stored_bytes"): "ptxas joins or leaves out stores",
    (LevelName.PTX, "shared_bytes"): "ptxas joins accesses, leaves some out, or exchanges through shuffles",
    (LevelName.PTX, "barriers"): "ptxas leaves out barriers that nothing needs",
    (
        LevelName.PTX,
        "xu_operations",
    ): "ptxas takes a reciprocal once for several divisions, or expands a function",
}


def make_level_entries(levels: Sequence[LevelWork]) -> tuple[LevelEntry, ...]:
    """Return one entry for each level; its amounts are None where it could not be counted."""
    return tuple(
        LevelEntry(
            level=each.level.value,
            file=each.path,
            assumptions=each.assumptions,
            note=each.note,
            **(dict(zip(_NAMES, each.totals, strict=True)) if each.totals else {}),
        )
        for each in levels
    )


_NAMES = tuple(work.name.lower() for work in LINE_WORK)


def make_level_differences(levels: Sequence[LevelWork]) -> tuple[LevelDifferenceEntry, ...]:
    """Return what differs between each level and the next one that was counted, with its lines."""
    counted = [each for each in levels if each.totals is not None]
    return tuple(found for upper, lower in pairwise(counted) for found in _compare(upper, lower))


def _compare(upper: LevelWork, lower: LevelWork) -> Iterator[LevelDifferenceEntry]:
    """Yield the quantities that both levels know and that differ."""
    for column, name in enumerate(_NAMES):
        above, below = (each.totals[column] if each.totals else None for each in (upper, lower))
        if above is not None and below is not None and above != below:
            yield LevelDifferenceEntry(
                quantity=name,
                upper=upper.level.value,
                lower=lower.level.value,
                upper_amount=above,
                lower_amount=below,
                usual_reason=_USUAL_REASONS[upper.level, name],
                places=tuple(_find_places(upper, lower, column)),
            )


def _find_places(upper: LevelWork, lower: LevelWork, column: int) -> Iterator[LevelPlaceEntry]:
    """Yield the source lines that differ, those that differ most first."""
    amounts = [{line.place: line.amounts[column] for line in each.lines} for each in (upper, lower)]
    found = [
        (place, amounts[0].get(place, 0), amounts[1].get(place, 0)) for place in {**amounts[0], **amounts[1]}
    ]
    differing = sorted(
        (each for each in found if each[1] != each[2]), key=lambda each: -abs(each[1] - each[2])
    )
    for place, above, below in differing[:_MAX_PLACES]:
        yield LevelPlaceEntry(source=place, upper_amount=above, lower_amount=below)
