"""What-if for a terminal: one row for each setting, then what the time follows."""

from rich.console import Console, RenderableType
from rich.text import Text

from analyzer.render.tables import Column, Fit, make_table, numbers
from analyzer.report.report import PredictionEntry
from analyzer.report.whatif import PointEntry, WhatIfKernel, WhatIfReport

_STALL_COLUMNS = 4
_MOST_FIGURES = 12


def print_whatif(report: WhatIfReport, console: Console) -> None:
    """All kernels, each with its settings and elasticities."""
    for index, kernel in enumerate(report.kernels):
        if index:
            console.print()
        console.print(
            Text.assemble(
                "kernel ", (kernel.demangled, "bold"), f"   {report.gpu_name}   model {report.model}"
            )
        )
        console.print(_points(kernel))
        for point in kernel.points:
            if point.refused:
                console.print(Text(f"refused at {_name(point.set)}: {point.refused}", style="red"))
        if kernel.elasticity:
            console.print(_elasticities(report, kernel))


def _points(kernel: WhatIfKernel) -> RenderableType:
    """Cycles, time against the GPU as it is, and the stalls that matter anywhere."""
    reached = [(_name(point.set), point.prediction) for point in kernel.points if point.prediction]
    entries = [("as it is", kernel.base), *reached]
    stalls = _stalls([entry for _, entry in entries])
    rows = [
        (
            name,
            f"{entry.cycles:,.0f}",
            f"{entry.time_us:,.2f}",
            "" if entry is kernel.base else f"{entry.time_us / kernel.base.time_us - 1:+.1%}",
            entry.bound,
            *(f"{entry.cpi_stack.get(stall, 0.0):,.0f}" for stall in stalls),
        )
        for name, entry in entries
    ]
    keys = {key for point in kernel.points for key in point.set}
    if len(keys) == 1:
        rows = [(name.rpartition("=")[2], *cells) for name, *cells in rows]
    columns = [
        Column(keys.pop() if len(keys) == 1 else "set", Fit.WHOLE),
        *numbers("cycles", "time us", "time"),
        Column("bound", Fit.WHOLE),
        *numbers(*stalls),
    ]
    return make_table(columns, rows)


def _stalls(entries: list[PredictionEntry]) -> list[str]:
    """Those with most cycles at any setting."""
    most: dict[str, float] = {}
    for entry in entries:
        for stall, cycles in entry.cpi_stack.items():
            most[stall] = max(most.get(stall, 0.0), cycles)
    return sorted(most, key=lambda stall: -most[stall])[:_STALL_COLUMNS]


def _name(values: dict[str, float]) -> str:
    return "\n".join(f"{key}={value:g}" for key, value in values.items())


def _elasticities(report: WhatIfReport, kernel: WhatIfKernel) -> RenderableType:
    """How time follows each figure: what ten per cent more of it would do."""
    shown = list(kernel.elasticity.items())[:_MOST_FIGURES]
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
    rest = len(kernel.elasticity) - len(shown)
    if rest:
        rows.append((f"{rest} more figures", "", "", "", ""))
    columns = [
        Column("figure", Fit.WHOLE),
        *numbers("now"),
        Column("basis", Fit.WHOLE),
        *numbers("elasticity", "time, +10 %"),
    ]
    return make_table(columns, rows, title="what the time follows (d log time / d log figure)")


def point_name(point: PointEntry) -> str:
    """The settings of a point, one a line."""
    return _name(point.set)
