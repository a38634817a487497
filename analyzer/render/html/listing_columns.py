"""A listing as columns for the page's script: texts once each, indices to them, numbers of three digits.

The entries of 567 instructions take 249 KB as JSON; these columns take a fifth of that:

    {"texts": ["FFMA R0, R1, R2, R0", …], "text": [0, 1, 0, …], "address": [0, 16, 32, …], …}
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from analyzer.report.analyze_schema import ListingEntry

_Item = TypeVar("_Item", bound=Hashable)
_N_DIGITS = 3  # significant ones
_MIN_STALL_SHARE = 0.01  # of an instruction's own cycles


class ListingColumns(Struct, frozen=True, kw_only=True):
    """A listing of n instructions; each column has n entries, `stacks` two for each stall."""

    address: tuple[int, ...]
    texts: tuple[str, ...]
    text: tuple[int, ...]
    controls: tuple[str, ...]
    control: tuple[int, ...]
    pipes: tuple[str, ...]
    pipe: tuple[int, ...]
    stalls: tuple[str, ...]  # names; the columns `stall` and `stack` hold indices
    stall: tuple[int, ...]  # the largest one; -1: none
    stall_cycles: tuple[float, ...]  # per execution
    share: tuple[float, ...]  # of the launch's cycles
    stack: tuple[tuple[float, ...], ...]  # stall, cycles of the launch, stall, cycles, …
    producer: tuple[int, ...]  # row of the instruction that it waits for; -1: none
    places: tuple[str, ...]  # FILE:LINE
    place: tuple[int, ...]
    lines: tuple[str, ...]  # text of each place
    nests: tuple[tuple[int, ...], ...]  # headers of the loops around, the outermost first
    nest: tuple[int, ...]
    executed: tuple[float, ...]  # by one warp
    unknown: tuple[int, ...]  # rows whose opcodes are not known
    provenances: tuple[str, ...]
    provenance: tuple[int, ...]


class _Pool(Generic[_Item]):
    """Distinct items in the order in which they came."""

    def __init__(self, items: Iterable[_Item] = ()) -> None:
        self.indices: dict[_Item, int] = {item: index for index, item in enumerate(items)}

    def add(self, item: _Item) -> int:
        """Return the index of an item."""
        return self.indices.setdefault(item, len(self.indices))

    @property
    def items(self) -> tuple[_Item, ...]:
        return tuple(self.indices)


def make_listing_columns(entries: Sequence[ListingEntry]) -> ListingColumns:
    """Return the columns of a listing; shares of stalls below 1 % of an instruction are left out."""
    texts, controls, pipes, places, stalls, provenances = (_Pool[str]() for _ in range(6))
    nests = _Pool[tuple[int, ...]]()
    rows = {entry.address: row for row, entry in enumerate(entries)}
    lines = {entry.source: entry.source_text for entry in entries if entry.source_text}
    return ListingColumns(
        address=tuple(entry.address for entry in entries),
        text=tuple(texts.add(entry.instruction) for entry in entries),
        texts=texts.items,
        control=tuple(controls.add(entry.control) for entry in entries),
        controls=controls.items,
        pipe=tuple(pipes.add(entry.pipe) for entry in entries),
        pipes=pipes.items,
        stall=tuple(stalls.add(entry.stall) if entry.stall else -1 for entry in entries),
        stack=tuple(_make_stack(entry, stalls) for entry in entries),
        stalls=stalls.items,
        stall_cycles=tuple(round_digits(entry.stall_cycles) for entry in entries),
        share=tuple(round_digits(entry.share) for entry in entries),
        producer=tuple(-1 if entry.producer is None else rows.get(entry.producer, -1) for entry in entries),
        place=tuple(places.add(entry.source) for entry in entries),
        places=places.items,
        lines=tuple(lines.get(place, "") for place in places.items),
        nest=tuple(nests.add(entry.loops) for entry in entries),
        nests=nests.items,
        executed=tuple(round_digits(entry.executed_per_warp, 6) for entry in entries),
        unknown=tuple(row for row, entry in enumerate(entries) if not entry.known),
        provenance=tuple(provenances.add(entry.provenance) for entry in entries),
        provenances=provenances.items,
    )


def _make_stack(entry: ListingEntry, stalls: _Pool[str]) -> tuple[float, ...]:
    least = sum(entry.cpi_stack.values()) * _MIN_STALL_SHARE
    shown = [(stall, cycles) for stall, cycles in entry.cpi_stack.items() if cycles >= least > 0]
    return tuple(number for stall, cycles in shown for number in (stalls.add(stall), round_digits(cycles)))


def round_digits(value: float, n_digits: int = _N_DIGITS) -> float:
    """Return a number with so many significant digits, as an integer where it is one."""
    if not value or not math.isfinite(value):
        return 0
    rounded = round(value, n_digits - 1 - math.floor(math.log10(abs(value))))
    return int(rounded) if rounded == int(rounded) else rounded
