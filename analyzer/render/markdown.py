"""Reports as GitHub's markdown, for summaries of workflow runs and comments: a table, and folded details.

Names and evidence come from the input and are escaped; what goes beyond GitHub's limit is left out and
counted.
"""

from collections.abc import Iterator

from analyzer.render.markdown_text import (
    FoldedSection,
    MarkdownTable,
    escape_name,
    escape_prose,
    format_document,
)
from analyzer.render.number_format import format_percent
from analyzer.render.problems import FindingsReport, format_change
from analyzer.report.analyze_schema import KernelReport, PredictionEntry, Report, WarningEntry
from analyzer.report.check_schema import CheckedKernel, CheckedMetric, CheckReport, Outcome
from analyzer.report.diff_schema import DiffReport, KernelDiff, KernelStatus, MetricChange, Verdict

_MAX_EVIDENCE = 20  # of a kernel
_MAX_WARNINGS = 10
_MAX_NOTES = 10
_COLUMN_METRICS = {"registers": "registers", "spill_bytes": "spill B"}  # of diff, by metric


def render_markdown(report: FindingsReport) -> str:
    """Return the report as markdown of less than 65,536 characters."""
    match report:
        case CheckReport():
            return _render_check(report)
        case DiffReport():
            return _render_diff(report)
        case _:
            return _render_analyze(report)


def _render_check(report: CheckReport) -> str:
    changed = [kernel for kernel in report.kernels if kernel.outcome is not Outcome.PASSED]
    table = MarkdownTable(
        ("outcome", "kernel", "figure", "GPU", "baseline", "now", "change", "limit"),
        [row for kernel in changed for row in _make_check_rows(kernel)],
        frozenset({"baseline", "now", "change", "limit"}),
    )
    sections = [
        FoldedSection(
            f"{kernel.outcome.value}: {escape_name(kernel.demangled)}", _list_evidence(kernel.evidence)
        )
        for kernel in changed
        if kernel.evidence
    ]
    head = f"### warplens check: {_count_outcomes(report)}\n"
    if report.updated:
        head += f"\nThe baseline {escape_name(report.baseline)} was written.\n"
    accept = f"Accept: {escape_name(report.accept)}\n" if report.accept and not report.updated else ""
    foot = _format_notes(report.notes, report.warnings) + accept
    return format_document(head, table, sections, foot, "`warplens check --format json` has them")


def _count_outcomes(report: CheckReport) -> str:
    """Return `1 regression, 2 improvements`, or `passed`."""
    totals = report.totals
    counts = (
        (totals.regressed, "regression"),
        (totals.over_budget, "over budget"),
        (totals.improved, "improvement"),
        (totals.added, "new"),
        (totals.removed, "removed"),
    )
    words = [f"{n:,} {_inflect(n, what)}" for n, what in counts if n]
    passed = f"{totals.passed:,} of {totals.kernels:,} kernels as before"
    verdict = "passed" if report.is_clean else "failed"
    return f"{verdict}: {', '.join([*words, passed])}"


def _inflect(n: int, what: str) -> str:
    return f"{what}s" if n > 1 and what.endswith(("regression", "improvement")) else what


def _make_check_rows(kernel: CheckedKernel) -> Iterator[tuple[str, ...]]:
    """Yield a row for each figure that is beyond its limit; of other kernels one row with the outcome."""
    notable = [metric for metric in kernel.metrics if metric.outcome is not Outcome.PASSED]
    if not notable or kernel.outcome in (Outcome.ADDED, Outcome.REMOVED):
        over = [metric for metric in notable if metric.outcome is Outcome.OVER_BUDGET]
        yield (kernel.outcome.value, escape_name(kernel.demangled), "", "", "", "", "", "")
        notable = over
    for metric in notable:
        yield _make_metric_row(kernel, metric)


def _make_metric_row(kernel: CheckedKernel, metric: CheckedMetric) -> tuple[str, ...]:
    is_bad = metric.outcome in (Outcome.REGRESSED, Outcome.OVER_BUDGET)
    return (
        f"**{metric.outcome.value}**" if is_bad else metric.outcome.value,
        escape_name(kernel.demangled),
        escape_prose(metric.metric),
        escape_prose(metric.gpu),
        _format_figure(metric.baseline),
        _format_figure(metric.value),
        _format_change(metric.change),
        escape_prose(metric.limit),
    )


def _render_diff(report: DiffReport) -> str:
    changed = [kernel for kernel in report.kernels if kernel.verdict is not Verdict.UNCHANGED]
    table = MarkdownTable(
        ("verdict", "kernel", "cycles", *_COLUMN_METRICS.values(), "why"),
        [_make_diff_row(kernel) for kernel in changed],
        frozenset({"cycles", *_COLUMN_METRICS.values()}),
    )
    sections = [
        FoldedSection(
            f"{kernel.verdict.value}: {escape_name(kernel.demangled or kernel.old_demangled)}",
            (*_list_changes(kernel.changes), *_list_evidence(kernel.evidence)),
        )
        for kernel in changed
        if kernel.changes or kernel.evidence
    ]
    counts = [
        f"{n:,} {verdict.value}"
        for verdict in (Verdict.SIGNIFICANT, Verdict.UNCLEAR, Verdict.BENIGN, Verdict.UNCHANGED)
        if (n := sum(kernel.verdict is verdict for kernel in report.kernels))
    ]
    head = f"### warplens diff: {', '.join(counts) or 'no kernels'}\n"
    for total in report.totals:
        if total.cycles_change is not None:
            change, gpu = format_change(total.cycles_change), escape_prose(total.gpu_name)
            kernels = f"{total.kernels:,} kernel{'' if total.kernels == 1 else 's'}"
            head += f"\n{gpu}: {change} cycles over {kernels}, each launched once.\n"
    foot = _format_notes(report.notes, report.warnings)
    return format_document(head, table, sections, foot, "`warplens diff --format json` has them")


def _make_diff_row(kernel: KernelDiff) -> tuple[str, ...]:
    name = escape_name(kernel.demangled or kernel.old_demangled)
    if kernel.status is KernelStatus.RENAMED:
        name += f" (was {escape_name(kernel.old_demangled)})"
    verdict = kernel.verdict.value
    shown = f"**{verdict}**" if kernel.verdict is Verdict.SIGNIFICANT else verdict
    if kernel.status in (KernelStatus.NEW, KernelStatus.REMOVED):
        shown = kernel.status.value
    figures = {change.metric: change for change in kernel.changes if not change.gpu}
    return (
        shown,
        name,
        _format_change(kernel.cycles_change),
        *(_format_step(figures.get(metric)) for metric in _COLUMN_METRICS),
        escape_prose(kernel.evidence[0], 200) if kernel.evidence else "",
    )


def _format_step(change: MetricChange | None) -> str:
    return "" if change is None else f"{_format_figure(change.old)} → {_format_figure(change.new)}"


def _list_changes(changes: tuple[MetricChange, ...]) -> Iterator[str]:
    if changes:
        yield "| figure | GPU | old | new | change |"
        yield "| :--- | :--- | ---: | ---: | ---: |"
    for change in changes:
        cells = (
            escape_prose(change.metric),
            escape_prose(change.gpu),
            _format_figure(change.old),
            _format_figure(change.new),
            _format_change(change.change),
        )
        yield f"| {' | '.join(cells)} |"
    if changes:
        yield ""


def _list_evidence(evidence: tuple[str, ...]) -> tuple[str, ...]:
    shown = tuple(f"- {escape_prose(text)}" for text in evidence[:_MAX_EVIDENCE])
    more = len(evidence) - len(shown)
    return (*shown, *([f"- and {more:,} more"] if more > 0 else []))


def _render_analyze(report: Report) -> str:
    table = MarkdownTable(
        ("kernel", "GPU", "cycles", "time us", "bound", "occupancy", "registers", "spill B"),
        [row for kernel in report.kernels for row in _make_analyze_rows(kernel)],
        frozenset({"cycles", "time us", "occupancy", "registers", "spill B"}),
    )
    sections = [
        FoldedSection(
            f"advice: {escape_name(kernel.demangled)}",
            tuple(
                f"- **{escape_prose(advice.rule)}** ({max(0.0, advice.gain_share):.1%}"
                f"{', ' + escape_name(advice.source) if advice.source else ''}): "
                f"{escape_prose(advice.finding)}; {escape_prose(advice.action)}"
                for advice in kernel.advice
            ),
        )
        for kernel in report.kernels
        if kernel.advice
    ]
    count = len(report.kernels)
    head = f"### warplens analyze: {count:,} kernel{'' if count == 1 else 's'}\n"
    foot = _format_notes((), report.warnings)
    return format_document(head, table, sections, foot, "`warplens analyze --format json` has them")


def _make_analyze_rows(kernel: KernelReport) -> Iterator[tuple[str, ...]]:
    name = escape_name(kernel.demangled)
    static = (_format_figure(kernel.registers), f"{kernel.spill_bytes:,}")
    for prediction in kernel.predictions:
        yield (name, *_make_prediction_cells(prediction), *static)
    for refusal in kernel.refused:
        yield (name, escape_prose(refusal.gpu_name), "", "", escape_prose(refusal.reason), "", *static)
    if not kernel.predictions and not kernel.refused:
        yield (name, "", "", "", "", "", *static)


def _make_prediction_cells(prediction: PredictionEntry) -> tuple[str, ...]:
    return (
        escape_prose(prediction.gpu_name),
        f"{prediction.cycles:,.0f}",
        f"{prediction.time_us:,.4g}",
        escape_prose(prediction.bound),
        f"{format_percent(prediction.occupancy)} ({escape_prose(prediction.occupancy_limiter)})",
    )


def _format_notes(notes: tuple[str, ...], warnings: tuple[WarningEntry, ...]) -> str:
    """Return notes and warnings as lists, the first of them where there are many."""
    lines = [f"- {escape_prose(note)}" for note in notes[:_MAX_NOTES]]
    for warning in warnings[:_MAX_WARNINGS]:
        place = f"{escape_name(warning.path)}: " if warning.path else ""
        lines.append(f"- {place}{escape_prose(warning.message)}")
    more = len(notes) + len(warnings) - len(lines)
    if more:
        lines.append(f"- and {more:,} more")
    return "".join(f"{line}\n" for line in lines) + ("\n" if lines else "")


def _format_figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _format_change(change: float | None) -> str:
    return "" if change is None else format_change(change)
