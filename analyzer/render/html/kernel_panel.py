"""What the panel of one kernel shows, worked out from its report: the values of `kernel.html`."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from msgspec import Struct

from analyzer.render.count_provenance import make_counts_line, make_unknown_line
from analyzer.render.html.flow_graph import FlowGraph, make_flow_graph
from analyzer.render.html.formats import format_rate
from analyzer.render.number_format import format_provenance, format_waves
from analyzer.render.speed_of_light import format_speed_of_light
from analyzer.report.analyze_schema import (
    KernelReport,
    ListingEntry,
    LoopEntry,
    MemoryEntry,
    PredictionEntry,
)

_MAX_HOT_PLACES = 9
_MIN_STALL_SHARE = 0.002
_LABEL_SHARE, _LETTER_SHARE = 0.03, 0.011  # of a stack that a segment's name takes: its margins, a letter
_MAX_MEMORY_ROWS = 400
_MAX_LOOPS, _MAX_STACKS = 60, 16  # in the table of pressure; drawn by stall
_MIN_RESOURCE_SHARE = 0.03  # of the largest bound, below which a resource has no column
_INTERVAL_ROOM = 1.08  # of an axis over the end of its interval
_NO_RESOURCE = frozenset({"latency", "recurrence"})  # bounds that nothing is occupied by


class Bar(Struct, frozen=True, kw_only=True):
    """A share of a peak."""

    name: str
    share: float  # 0 to 1
    note: str = ""
    is_bound: bool = False


class BarGroup(Struct, frozen=True, kw_only=True):
    """Bars under one heading."""

    title: str
    bars: tuple[Bar, ...]


class Segment(Struct, frozen=True, kw_only=True):
    """A part of a stack; shares are those of the whole stack's width."""

    name: str
    cycles: float
    share: float
    start: float
    width: float
    is_labeled: bool


class PredictionPanel(Struct, frozen=True, kw_only=True):
    """One prediction: what the overview shows of it."""

    view: int  # index of GPU and model among those of the page
    entry: PredictionEntry
    headline: str
    waves: str
    own_interval: tuple[float, ...]  # low, time, high, as shares of a little more than the last
    interval: tuple[float, ...]  # the same as shares of the widest time of all predictions
    scale: float  # time over the longest one
    groups: tuple[BarGroup, ...]
    stack: tuple[Segment, ...]
    cycles_per_instruction: float | None


class HotPlace(Struct, frozen=True, kw_only=True):
    """An instruction, or all of a source line, that costs much."""

    address: int
    text: str
    place: str
    share: float
    stall: str
    n_instructions: int


class PressureRow(Struct, frozen=True, kw_only=True):
    """Cycles of each resource for an iteration of a loop, or for the kernel, and their shares."""

    loop: LoopEntry | None  # None: the kernel as a whole
    cycles: float
    cells: tuple[tuple[float, float], ...]  # cycles, share
    stack: tuple[Segment, ...]


class MemoryRow(Struct, frozen=True, kw_only=True):
    """A memory instruction with its requests and what they cost beyond the ideal."""

    entry: MemoryEntry
    mark: str  # before counts that are assumed or not known
    sectors: float | None  # per request
    ideal_sectors: float | None
    wavefronts: float | None
    ideal_wavefronts: float | None
    excess: float  # sectors or wavefronts of the grid beyond the ideal


class KernelPanel(Struct, frozen=True, kw_only=True):
    """Everything that the panel of a kernel shows."""

    index: int
    kernel: KernelReport
    predictions: tuple[PredictionPanel, ...]
    hot_places: tuple[HotPlace, ...]
    resources: tuple[str, ...]  # columns of the pressure table
    pressure: tuple[PressureRow, ...]
    stacked: tuple[PressureRow, ...]  # those whose stalls are drawn, the kernel last
    n_loops_left_out: int
    graph: FlowGraph | None
    memory: tuple[MemoryRow, ...]
    has_sources: bool  # of memory instructions
    n_memory_hidden: int  # instructions that no warp reaches, or beyond the most that are listed
    mix: tuple[tuple[str, int, float], ...]  # opcode, instructions, share of the most frequent
    counts: str  # where execution counts come from
    unknown: str  # what the prediction depends on and nobody gave, and the options that settle it


def make_kernel_panel(index: int, kernel: KernelReport, views: Mapping[tuple[str, str], int]) -> KernelPanel:
    """Return the panel of a kernel; views: index of each GPU and model of the page."""
    widest = max((entry.time_us_high for entry in kernel.predictions), default=0.0)
    rows = _make_memory_rows(kernel)
    most, unknown = max(kernel.mix.values(), default=1), make_unknown_line(kernel)
    resources = _list_resources(kernel)
    pressure = tuple(_make_pressure_rows(kernel, resources))
    return KernelPanel(
        index=index,
        kernel=kernel,
        predictions=tuple(
            _make_prediction_panel(kernel, entry, views[entry.gpu, entry.model], widest)
            for entry in kernel.predictions
        ),
        hot_places=_find_hot_places(kernel.listing),
        resources=resources,
        pressure=pressure,
        stacked=tuple(
            row for number, row in enumerate(pressure) if row.stack and (number < _MAX_STACKS or not row.loop)
        ),
        n_loops_left_out=max(0, len(kernel.loops) - _MAX_LOOPS),
        graph=make_flow_graph(kernel),
        memory=rows[:_MAX_MEMORY_ROWS],
        has_sources=any(row.entry.source for row in rows),
        n_memory_hidden=len(kernel.memory) - len(rows[:_MAX_MEMORY_ROWS]),
        mix=tuple((name, count, count / most) for name, count in kernel.mix.items()),
        counts=make_counts_line(kernel).plain,
        unknown="" if unknown is None else unknown.plain,
    )


def _make_prediction_panel(
    kernel: KernelReport, entry: PredictionEntry, view: int, widest_us: float
) -> PredictionPanel:
    times = (entry.time_us_low, entry.time_us, entry.time_us_high)
    longest = max(other.time_us for other in kernel.predictions)
    return PredictionPanel(
        view=view,
        entry=entry,
        headline=format_speed_of_light(entry).partition(": ")[2],
        waves=format_waves(entry.waves, entry.tail_share),
        own_interval=_divide(times, _INTERVAL_ROOM * max(times)),
        interval=_divide(times, widest_us),
        scale=entry.time_us / longest if longest else 0.0,
        groups=tuple(_make_bar_groups(entry)),
        stack=make_stack(entry.cpi_stack, entry.cycles),
        cycles_per_instruction=_compute_cpi(kernel, entry),
    )


def _divide(times_us: Sequence[float], total_us: float) -> tuple[float, ...]:
    return tuple(min(1.0, time / total_us) if total_us else 0.0 for time in times_us)


def _compute_cpi(kernel: KernelReport, entry: PredictionEntry) -> float | None:
    instructions = kernel.counts.instructions_per_warp * max(1.0, entry.waves)
    return entry.cycles / instructions if instructions else None


def make_stack(stack: Mapping[str, float], total: float) -> tuple[Segment, ...]:
    """Return the segments of a stack of cycles by stall; the smallest ones are one segment, `other`."""
    if total <= 0:
        return ()
    shown = {name: cycles for name, cycles in stack.items() if cycles >= total * _MIN_STALL_SHARE}
    rest = sum(stack.values()) - sum(shown.values())
    if rest > 0:
        shown["other"] = rest
    found, start = [], 0.0
    for name, cycles in shown.items():
        share = cycles / total
        found.append(
            Segment(
                name=name,
                cycles=cycles,
                share=share,
                start=start,
                width=share,
                is_labeled=share >= _LABEL_SHARE + _LETTER_SHARE * len(name),
            )
        )
        start += share
    return tuple(found)


def _make_bar_groups(entry: PredictionEntry) -> Iterable[BarGroup]:
    """Yield the peaks that the launch is held against: operations, bytes, pipes."""
    found = entry.speed_of_light
    if found is None:
        return
    compute = [
        Bar(
            name=f"{one.data_type} {one.unit}",
            share=one.peak_share or 0.0,
            note=_format_operations(one.operations_per_second, one.data_type),
        )
        for one in found.compute
        if one.peak_share is not None
    ]
    yield BarGroup(
        title="Operations",
        bars=(*compute, Bar(name="issue slots", share=found.issue_share)),
    )
    levels = [*([found.l1] if found.l1 is not None else []), *reversed(found.memory)]
    yield BarGroup(
        title="Memory",
        bars=tuple(
            Bar(
                name=level.level,
                share=level.peak_share,
                note=f"{level.gbps:,.0f} GB/s",
                is_bound=level.level == entry.bound,
            )
            for level in levels
        ),
    )
    known = {bar.name for bar in compute} | {level.level for level in levels} | {"issue"}
    busy = [
        Bar(name=name, share=min(1.0, cycles / entry.cycles), is_bound=name == entry.bound)
        for name, cycles in entry.bounds.items()
        if name not in known and name not in _NO_RESOURCE and entry.cycles
    ]
    if busy:
        yield BarGroup(title="Pipes busy", bars=tuple(busy))


def _format_operations(per_second: float, data_type: str) -> str:
    return f"{format_rate(per_second)}{'OP' if data_type.startswith('INT') else 'FLOP'}/s"


def _find_hot_places(listing: Sequence[ListingEntry]) -> tuple[HotPlace, ...]:
    """Return the source lines that cost most, the instructions where no lines are known."""
    groups: dict[str, list[ListingEntry]] = {}
    for entry in listing:
        groups.setdefault(entry.source or f"@{entry.address}", []).append(entry)
    ranked = sorted(groups.values(), key=lambda group: -sum(entry.share for entry in group))
    return tuple(_make_hot_place(group) for group in ranked[:_MAX_HOT_PLACES] if any(e.share for e in group))


def _make_hot_place(group: Sequence[ListingEntry]) -> HotPlace:
    worst = max(group, key=lambda entry: entry.share)
    text = next((entry.source_text for entry in group if entry.source_text), "") or worst.instruction
    return HotPlace(
        address=worst.address,
        text=text.strip(),
        place=PurePath(worst.source).name or f"0x{worst.address:04x}",
        share=sum(entry.share for entry in group),
        stall=worst.stall,
        n_instructions=len(group),
    )


def _list_resources(kernel: KernelReport) -> tuple[str, ...]:
    """Return the resources that any loop or the kernel needs, by the largest share of a bound."""
    shares: dict[str, float] = {}
    bounds = [loop.bounds for loop in kernel.loops] + [entry.bounds for entry in kernel.predictions[:1]]
    for one in bounds:
        most = max(one.values(), default=0.0)
        for name, cycles in one.items():
            if name not in _NO_RESOURCE and most:
                shares[name] = max(shares.get(name, 0.0), cycles / most)
    shown = [name for name, share in shares.items() if share >= _MIN_RESOURCE_SHARE]
    return tuple(sorted(shown, key=lambda name: (-shares[name], name)))


def _make_pressure_rows(kernel: KernelReport, resources: Sequence[str]) -> Iterable[PressureRow]:
    for loop in kernel.loops[:_MAX_LOOPS]:
        cycles = loop.cycles_per_iteration or 0.0
        yield PressureRow(
            loop=loop,
            cycles=cycles,
            cells=tuple(_make_cells(loop.bounds, resources, cycles)),
            stack=make_stack(loop.launch_stack, sum(loop.launch_stack.values())),
        )
    for entry in kernel.predictions[:1]:
        yield PressureRow(
            loop=None,
            cycles=entry.cycles,
            cells=tuple(_make_cells(entry.bounds, resources, entry.cycles)),
            stack=make_stack(entry.cpi_stack, entry.cycles),
        )


def _make_cells(
    bounds: Mapping[str, float], resources: Sequence[str], total: float
) -> Iterable[tuple[float, float]]:
    for name in resources:
        cycles = bounds.get(name, 0.0)
        yield cycles, cycles / total if total else 0.0


def _make_memory_rows(kernel: KernelReport) -> tuple[MemoryRow, ...]:
    """Return the instructions that some warp reaches, those that cost most beyond the ideal first."""
    starts = [block.start for block in kernel.counts.blocks]
    marks = ["", *(format_provenance(block.provenance) for block in kernel.counts.blocks)]
    rows = [
        _make_memory_row(entry, marks[bisect_right(starts, entry.address)])
        for entry in kernel.memory
        if entry.requests or entry.requests_per_warp
    ]
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                -row.excess,
                -(row.entry.requests or row.entry.requests_per_warp),
                row.entry.address,
            ),
        )
    )


def _make_memory_row(entry: MemoryEntry, mark: str) -> MemoryRow:
    def divide(amount: float | None, requests: float | None) -> float | None:
        return amount / requests if amount is not None and requests else None

    excess = [
        amount - ideal
        for amount, ideal in (
            (entry.sectors, entry.ideal_sectors),
            (entry.wavefronts, entry.ideal_wavefronts),
        )
        if amount is not None and ideal is not None
    ]
    return MemoryRow(
        entry=entry,
        mark=mark,
        sectors=divide(entry.sectors, entry.requests) if entry.space != "shared" else None,
        ideal_sectors=divide(entry.ideal_sectors, entry.requests),
        wavefronts=divide(entry.wavefronts, entry.wavefront_requests),
        ideal_wavefronts=divide(entry.ideal_wavefronts, entry.wavefront_requests),
        excess=max(excess, default=0.0),
    )
