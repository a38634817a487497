"""The text of a check: kernels that changed, worst first, what trips the gate, and how to accept it."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from analyzer.render.number_format import format_count
from analyzer.render.tables import Column, ColumnFit, FittedTable, shorten_middle
from analyzer.render.warnings import print_warnings
from analyzer.report.check_schema import (
    CheckedKernel,
    CheckedMetric,
    CheckReport,
    Level,
    Outcome,
    Violation,
)
from analyzer.report.diff_schema import KernelStatus
from analyzer.text.source import shorten_source

_MAX_ROWS = 60
_MAX_VIOLATIONS = 60
_MAX_NAME_CHARS = 80
_MAX_SHOWN_EVIDENCE = 3
_SHOWN_METRICS = ("cycles", "registers", "spill_bytes")
_MIN_SHOWN_CHANGE = 0.005
_SAME = "[=]"
_NO_FIGURE = ""
_STYLES = {
    Outcome.REGRESSED: "red",
    Outcome.OVER_BUDGET: "red",
    Outcome.IMPROVED: "green",
    Outcome.ADDED: "cyan",
    Outcome.REMOVED: "cyan",
    Outcome.PASSED: "",
}
_LEVEL_STYLES = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "dim"}


def print_check(report: CheckReport, console: Console) -> None:
    """Print a table of the kernels that are not as in the baseline, the violations and the totals."""
    changed = [kernel for kernel in report.kernels if not _is_plain(kernel)]
    if changed:
        console.print(_make_table(report, changed))
    violations = [each for each in report.violations if each.level is not Level.NOTE]
    for violation in violations[:_MAX_VIOLATIONS]:
        console.print(
            Text(_format_violation(violation), style=_LEVEL_STYLES[violation.level]), soft_wrap=True
        )
    if len(violations) > _MAX_VIOLATIONS:
        console.print(Text(f"and {len(violations) - _MAX_VIOLATIONS:,} more: --format json has all"))
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"), soft_wrap=True)
    print_warnings(report.warnings, console)
    console.print(Text(_format_totals(report), style="bold"), soft_wrap=True)


def _is_plain(kernel: CheckedKernel) -> bool:
    """Return whether a kernel passed and nothing of it moved that is worth a row."""
    if kernel.outcome is not Outcome.PASSED or kernel.status is KernelStatus.RENAMED:
        return False
    shown = (each for each in kernel.metrics if each.metric in _SHOWN_METRICS and each.baseline is not None)
    return not any(abs(each.change or 0.0) >= _MIN_SHOWN_CHANGE for each in shown)


def _make_table(report: CheckReport, changed: Sequence[CheckedKernel]) -> FittedTable:
    has_gpus = len(report.gpus) > 1
    rows, styles = [], []
    marks = _list_marks(report)
    for kernel in changed[:_MAX_ROWS]:
        name = shorten_middle(kernel.demangled, _MAX_NAME_CHARS)
        for row in _make_rows(kernel, name + marks.get(id(kernel), ""), has_gpus=has_gpus):
            rows.append(row)
            styles.append(_STYLES[kernel.outcome])
    others = len(report.kernels) - len(changed[:_MAX_ROWS])
    n_moved = sum(kernel.status is KernelStatus.CHANGED for kernel in report.kernels if _is_plain(kernel))
    if others:
        note = f", {n_moved:,} with other code" if n_moved else ""
        is_same = report.baseline and len(changed) <= _MAX_ROWS
        figures = (_SAME, "", _SAME, _SAME) if is_same else ("", "", "", "")
        rows.append((*figures, f"[{others:,} other{'s' if others > 1 else ''}{note}]", "", "", ""))
        styles.append("dim")
    columns = [
        Column("cycles"),
        Column("", drop_rank=2),
        Column("regs"),
        Column("spill"),
        Column("kernel", ColumnFit.WRAP, min_width=16),
        Column("GPU", ColumnFit.NO_WRAP),
        Column("", ColumnFit.WRAP, min_width=10),
        Column("why", ColumnFit.WRAP, min_width=20, drop_rank=3),
    ]
    kept = [index for index, column in enumerate(columns) if has_gpus or column.name != "GPU"]
    return FittedTable(
        [columns[index] for index in kept],
        [[row[index] for index in kept] for row in rows],
        has_rule=False,
        row_styles=styles,
    )


def _list_marks(report: CheckReport) -> dict[int, str]:
    """Return, by identity, what tells a kernel from others of its name: architecture, input, launch."""
    by_name: dict[str, list[CheckedKernel]] = {}
    for kernel in report.kernels:
        by_name.setdefault(kernel.demangled, []).append(kernel)
    marks: dict[int, str] = {}
    for kernels in by_name.values():
        if len(kernels) == 1:
            continue
        facts = [(one.architecture, f"in {one.input}", _format_grid(one)) for one in kernels]
        telling = [at for at in range(len(facts[0])) if len({each[at] for each in facts}) > 1]
        for kernel, each in zip(kernels, facts, strict=True):
            marks[id(kernel)] = "".join(f" {each[at]}" for at in telling)
    return marks


def _format_grid(kernel: CheckedKernel) -> str:
    """Return `grid 132x1x1`; "" where it is not known."""
    grid = None if kernel.launch is None else kernel.launch.grid
    return "" if grid is None else f"grid {'x'.join(map(str, grid))}"


def _make_rows(kernel: CheckedKernel, name: str, *, has_gpus: bool) -> Iterator[tuple[str, ...]]:
    """Yield a row for each GPU on which the cycles moved, the worst first, and one at least."""
    cycles = sorted(
        (
            each
            for each in kernel.metrics
            if each.metric == "cycles" and not each.limit.startswith(("<", ">"))
        ),
        key=lambda each: (-(each.change or 0.0), each.gpu),
    )
    shown = [each for each in cycles if each.change] if has_gpus else cycles[:1]
    registers, spills = (_format_difference(_find(kernel, name)) for name in ("registers", "spill_bytes"))
    about = (registers, f"{spills} B" if spills and spills != _SAME else spills)
    verdict, why = _format_verdict(kernel), "; ".join(kernel.evidence[:_MAX_SHOWN_EVIDENCE])
    entries: list[CheckedMetric | None] = [*(shown or cycles[:1])]
    for each in entries or [None]:
        share, difference = _format_change(each)
        yield (share, difference, *about, name, each.gpu if each else "", verdict, why)
        about, name, verdict, why = ("", ""), "", "", ""


def _find(kernel: CheckedKernel, metric: str) -> CheckedMetric | None:
    return next((each for each in kernel.metrics if each.metric == metric), None)


def _format_change(entry: CheckedMetric | None) -> tuple[str, str]:
    """Return the relative and the absolute change of the cycles; of a new kernel the cycles themselves."""
    if entry is None or entry.value is None:
        return (_NO_FIGURE, "" if entry is None else "lost")
    if entry.baseline is None:
        return (_NO_FIGURE, format_count(entry.value))
    difference = entry.value - entry.baseline
    if not difference:
        return (_SAME, "")
    sign = "-" if difference < 0 else "+"
    share = "" if entry.change is None else f"{entry.change * 100:+.1f} %"
    return (share, f"{sign}{format_count(abs(difference))}")


def _format_difference(entry: CheckedMetric | None) -> str:
    """Return `+16`, `[=]`, or the figure itself where the baseline has none."""
    if entry is None or entry.value is None:
        return _NO_FIGURE
    if entry.baseline is None:
        return f"{entry.value:,g}"
    difference = entry.value - entry.baseline
    return f"{difference:+,g}" if difference else _SAME


def _format_verdict(kernel: CheckedKernel) -> str:
    """Return `FAIL > +5 %`, `improved`, `new`."""
    match kernel.outcome:
        case Outcome.REGRESSED | Outcome.OVER_BUDGET:
            failed = (Outcome.REGRESSED, Outcome.OVER_BUDGET)
            limits = dict.fromkeys(_format_limit(each) for each in kernel.metrics if each.outcome in failed)
            return "FAIL " + (", ".join(limits) or "forbidden")
        case Outcome.IMPROVED:
            return "improved"
        case Outcome.ADDED:
            return "new"
        case Outcome.REMOVED:
            return "removed"
        case _:
            return "renamed" if kernel.status is KernelStatus.RENAMED else "ok"


def _format_limit(entry: CheckedMetric) -> str:
    """Return the limit that a figure is beyond, with the figure's name where it is not the cycles."""
    name = "" if entry.metric == "cycles" else f"{entry.metric} "
    if not entry.limit:
        return f"{name}not known any more"
    if entry.outcome is Outcome.OVER_BUDGET:
        side, _, amount = entry.limit.partition(" ")
        return f"{entry.metric} {'>' if side == '<=' else '<'} {amount}"
    return f"{name}{'<' if entry.limit.startswith('-') else '>'} {entry.limit.lstrip('+')}"


def _format_violation(violation: Violation) -> str:
    place = f"{shorten_source(violation.source) if violation.source else violation.input}: "
    return f"{place}{violation.level.value}: {violation.message} [{violation.rule}]"


def _format_totals(report: CheckReport) -> str:
    """Return `1 regression, 1 improvement, 1 new      accept: warplens check --update`."""
    totals = report.totals
    parts = [
        f"{count:,} {one if count == 1 else many}"
        for count, one, many in (
            (totals.regressed, "regression", "regressions"),
            (totals.over_budget, "kernel over budget", "kernels over budget"),
            (totals.improved, "improvement", "improvements"),
            (totals.added, "new", "new"),
            (totals.removed, "removed", "removed"),
        )
        if count
    ]
    if totals.passed or not parts:
        parts.append(f"{totals.passed:,} passed")
    if report.updated:
        parts[-1] += f"      written: {report.baseline}"
    elif report.accept:
        parts[-1] += f"      accept: {report.accept}"
    return ", ".join(parts)
