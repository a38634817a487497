"""The text of a what-if: one row for each point, then the elasticities."""

from msgspec import Struct
from rich.console import Console, RenderableType
from rich.text import Text

from analyzer.render.number_format import format_tail
from analyzer.render.tables import Column, ColumnFit, make_number_columns, make_table
from analyzer.report.analyze_schema import Effect, PredictionEntry
from analyzer.report.whatif_schema import WhatIfKernel, WhatIfReport

_MAX_STALL_COLUMNS = 8
_NUMBER_CELLS = 11
_FIXED_CELLS = 4 * _NUMBER_CELLS  # cycles, time, its change, and what stands between columns
_MAX_SHOWN_FIGURES = 12


def print_whatif(report: WhatIfReport, console: Console) -> None:
    """Print all kernels, each with its points and elasticities."""
    for index, kernel in enumerate(report.kernels):
        if index:
            console.print()
        console.print(
            Text.assemble(
                "kernel ", (kernel.demangled, "bold"), f"   {report.gpu_name}   model {report.model}"
            )
        )
        console.print(_make_point_table(kernel, console.width))
        for point in kernel.points:
            if point.refused:
                values = "  ".join(f"{key}={value:g}" for key, value in point.set.items())
                console.print(Text(f"refused at {values}: {point.refused}", style="red"))
        if kernel.elasticity or kernel.elasticity_of_others:
            console.print(_make_elasticity_table(report, kernel))
        elif kernel.elasticity is not None:
            console.print(Text("no figure has an effect beyond the resolution of the model"))
    if report.notes:
        console.print()
    for note in report.notes:
        console.print(Text(f"  - {note}"))


class NamedPrediction(Struct, frozen=True):
    """A prediction with a name made of its settings."""

    name: str
    prediction: PredictionEntry


def make_heading(kernel: WhatIfKernel) -> str:
    """Return the figure that the names of `list_named_predictions` are values of; `set` for several."""
    keys = {key for point in kernel.points for key in point.set}
    return keys.pop() if len(keys) == 1 else "set"


def list_named_predictions(kernel: WhatIfKernel) -> tuple[NamedPrediction, ...]:
    """Return the GPU as it is and every point; names have one line per setting."""
    is_single = make_heading(kernel) != "set"
    found = [NamedPrediction("as it is", kernel.base)]
    for point in kernel.points:
        if point.prediction is not None:
            parts = (f"{value:g}" if is_single else f"{key}={value:g}" for key, value in point.set.items())
            found.append(NamedPrediction("\n".join(parts), point.prediction))
    return tuple(found)


def _make_point_table(kernel: WhatIfKernel, width: int) -> RenderableType:
    """Return the table of points: cycles, time, its change, and as many stalls as there is room for."""
    named = list_named_predictions(kernel)
    effects = [None, *(point.effect for point in kernel.points if point.prediction is not None)]
    bounds = [one.prediction.bound + format_tail(one.prediction.tail_share) for one in named]
    names = (make_heading(kernel), *(line for one in named for line in one.name.splitlines()))
    taken = max(map(len, names)) + max(len(bound) for bound in bounds) + _FIXED_CELLS
    stalls = []
    for stall in _choose_stalls([one.prediction for one in named]):
        taken += max(len(stall), _NUMBER_CELLS) + 1
        if taken <= width:
            stalls.append(stall)
    rows = [
        (
            one.name,
            f"{one.prediction.cycles:,.0f}",
            f"{one.prediction.time_us:,.2f}",
            _format_change(one.prediction.time_us / kernel.base.time_us - 1, effect),
            bound,
            *(f"{one.prediction.cpi_stack.get(stall, 0.0):,.0f}" for stall in stalls),
        )
        for one, effect, bound in zip(named, effects, bounds, strict=True)
    ]
    columns = [
        Column(make_heading(kernel), ColumnFit.WRAP, min_width=28),
        *make_number_columns("cycles", "time us", "time"),
        Column("bound", ColumnFit.WRAP, min_width=7),
        *make_number_columns(*stalls),
    ]
    return make_table(columns, rows)


def _format_change(change: float, effect: Effect | None) -> str:
    """Return a relative change of time, `no effect` where noise of the model can make as much."""
    if effect is None:
        return ""
    return "no effect" if effect is Effect.NONE else f"{change:+.1%}"


def _choose_stalls(entries: list[PredictionEntry]) -> list[str]:
    """Return the stalls with most cycles at any point."""
    most: dict[str, float] = {}
    for entry in entries:
        for stall, cycles in entry.cpi_stack.items():
            most[stall] = max(most.get(stall, 0.0), cycles)
    return sorted(most, key=lambda stall: -most[stall])[:_MAX_STALL_COLUMNS]


def _make_elasticity_table(report: WhatIfReport, kernel: WhatIfKernel) -> RenderableType:
    """Return the table of elasticities, with the change of time for ten per cent more of each figure."""
    found = kernel.elasticity or {}
    shown = list(found.items())[:_MAX_SHOWN_FIGURES]
    rows = [
        (
            key,
            f"{report.figures[key].value:,g}",
            report.figures[key].basis,
            f"{elasticity:+.3f}",
            f"{1.1**elasticity - 1:+.1%}",
        )
        for key, elasticity in shown
    ]
    if rest := len(found) - len(shown):
        rows.append((f"{rest} more figures", "", "", "", ""))
    for name, elasticity in kernel.elasticity_of_others.items():
        rows.append((f"{name}, better", "", "", f"{-elasticity:+.3f}", f"{1.1**-elasticity - 1:+.1%}"))
    columns = [
        Column("figure", ColumnFit.WRAP, min_width=32),
        *make_number_columns("now"),
        Column("basis", ColumnFit.NO_WRAP, drop_rank=1),
        *make_number_columns("elasticity", "time, +10 %"),
    ]
    return make_table(columns, rows, title="what the time follows (d log time / d log figure)")
