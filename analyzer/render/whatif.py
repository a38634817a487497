"""What-if for a terminal: one row for each setting, then what the time follows."""

from msgspec import Struct
from rich.console import Console, RenderableType
from rich.text import Text

from analyzer.render.tables import Column, Fit, make_table, numbers
from analyzer.report.report import PredictionEntry
from analyzer.report.whatif import WhatIfKernel, WhatIfReport

_STALL_COLUMNS = 8
_NUMBER_CELLS = 11
_FIXED_CELLS = 4 * _NUMBER_CELLS  # cycles, time, its change, and what stands between columns
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
        console.print(_points(kernel, console.width))
        for point in kernel.points:
            if point.refused:
                values = "  ".join(f"{key}={value:g}" for key, value in point.set.items())
                console.print(Text(f"refused at {values}: {point.refused}", style="red"))
        if kernel.elasticity:
            console.print(_elasticities(report, kernel))


class Named(Struct, frozen=True):
    """A prediction under the name of its settings."""

    name: str
    entry: PredictionEntry


def heading(kernel: WhatIfKernel) -> str:
    """What the names of `named_predictions` are values of: the one figure that is set, else all that are."""
    keys = {key for point in kernel.points for key in point.set}
    return keys.pop() if len(keys) == 1 else "set"


def named_predictions(kernel: WhatIfKernel) -> tuple[Named, ...]:
    """The GPU as it is and every point, the settings of each one a line."""
    is_single = heading(kernel) != "set"
    found = [Named("as it is", kernel.base)]
    for point in kernel.points:
        if point.prediction is not None:
            parts = (f"{value:g}" if is_single else f"{key}={value:g}" for key, value in point.set.items())
            found.append(Named("\n".join(parts), point.prediction))
    return tuple(found)


def _points(kernel: WhatIfKernel, width: int) -> RenderableType:
    """Cycles, time against the GPU as it is, and as many of the stalls that matter as there is room for."""
    named = named_predictions(kernel)
    names = (heading(kernel), *(line for one in named for line in one.name.splitlines()))
    taken = max(map(len, names)) + max(len(one.entry.bound) for one in named) + _FIXED_CELLS
    stalls = []
    for stall in _stalls([one.entry for one in named]):
        taken += max(len(stall), _NUMBER_CELLS) + 1
        if taken <= width:
            stalls.append(stall)
    rows = [
        (
            one.name,
            f"{one.entry.cycles:,.0f}",
            f"{one.entry.time_us:,.2f}",
            "" if one.entry is kernel.base else f"{one.entry.time_us / kernel.base.time_us - 1:+.1%}",
            one.entry.bound,
            *(f"{one.entry.cpi_stack.get(stall, 0.0):,.0f}" for stall in stalls),
        )
        for one in named
    ]
    columns = [
        Column(heading(kernel), Fit.WHOLE),
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
