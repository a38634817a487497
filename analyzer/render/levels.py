"""Levels of a kernel side by side: what Triton IR, PTX and SASS do in one launch, and where they differ."""

from rich.console import Group, RenderableType
from rich.text import Text

from analyzer.render.tables import Column, ColumnFit, make_number_columns, make_table
from analyzer.report.analyze_schema import KernelReport, LevelDifferenceEntry, LevelEntry
from analyzer.text.source import shorten_source

_QUANTITIES = {
    "mma_fma": "MMA multiply-adds",
    "global_loaded_bytes": "global bytes loaded",
    "global_stored_bytes": "global bytes stored",
    "shared_bytes": "shared bytes",
    "barriers": "barriers",
    "xu_operations": "transcendental operations",
}
_MAX_SHOWN_PLACES = 3


def make_level_table(kernel: KernelReport) -> RenderableType:
    """Return a table with a column for each level that was counted, and the lines that differ under it."""
    counted = [each for each in kernel.levels if not each.note]
    if not kernel.levels:
        return Text("levels: the launch is not known, so nothing can be compared: give --grid and arguments")
    parts: list[RenderableType] = [
        Text(f"levels of the launch ({_list_files(kernel.levels)})", style="italic")
    ]
    rows = [
        (label, *(_format(getattr(each, name)) for each in counted)) for name, label in _QUANTITIES.items()
    ]
    columns = [Column("", ColumnFit.WRAP), *make_number_columns(*(each.level for each in counted))]
    parts.append(make_table(columns, rows))
    if len(counted) < 2:
        parts.append(
            Text("  nothing to compare with: NAME.ttgir and NAME.ptx are looked for beside the input")
        )
    elif not kernel.level_differences:
        parts.append(Text("  all levels agree where all are known"))
    parts += [Text(f"  {each.level}: {each.note}") for each in kernel.levels if each.note]
    parts += [_describe(each) for each in kernel.level_differences]
    parts += [Text(f"  {each.level}: {assumption}") for each in counted for assumption in each.assumptions]
    return Group(*parts, Text(""))


def _list_files(levels: tuple[LevelEntry, ...]) -> str:
    return ", ".join(f"{each.level}: {shorten_source(each.file)}" for each in levels)


def _format(amount: int | None) -> str:
    return "?" if amount is None else f"{amount:,}"


def _describe(difference: LevelDifferenceEntry) -> Text:
    label = _QUANTITIES[difference.quantity]
    text = Text(
        f"  {label}: {difference.upper} {difference.upper_amount:,}, {difference.lower} "
        f"{difference.lower_amount:,}; usually: {difference.usual_reason}"
    )
    for place in difference.places[:_MAX_SHOWN_PLACES]:
        where = shorten_source(place.source) or "no line"
        text.append(f"\n    {where}: {place.upper_amount:,} and {place.lower_amount:,}")
    if len(difference.places) > _MAX_SHOWN_PLACES:
        text.append(f"\n    and {len(difference.places) - _MAX_SHOWN_PLACES} more lines")
    return text
