"""Reports as JUnit XML, as Jenkins, GitLab and others read it (Jenkins' xunit plugin, junit-10.xsd).

A suite for each input, a case for each kernel and GPU. A case of `check` fails where the gate trips on it,
one of `diff` where the kernel got significantly slower; unclear changes and GPUs without a prediction are
skipped. Figures stand in the output of the case.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from msgspec import Struct

from analyzer.render.problems import FindingsReport, describe_change, format_change, list_problems
from analyzer.report.analyze_schema import KernelReport, PredictionEntry, Report
from analyzer.report.check_schema import CheckedKernel, CheckedMetric, CheckReport, Level, Outcome
from analyzer.report.diff_schema import DiffReport, KernelDiff, KernelStatus, MetricChange, Verdict
from analyzer.text.escaping import escape_controls

# XML 1.0 has no way to write these, not even as references (section 2.2).
_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FAILED_OUTCOMES = (Outcome.REGRESSED, Outcome.OVER_BUDGET)


class Case(Struct, frozen=True, kw_only=True):
    """One test case."""

    suite: str  # the input
    name: str
    output: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()  # type, message
    skipped: str = ""


def render_junit(report: FindingsReport) -> str:
    """Return a report as JUnit XML, without times: the same report gives the same text."""
    match report:
        case CheckReport():
            name, cases = "warplens check", list(_make_check_cases(report))
        case DiffReport():
            name, cases = "warplens diff", [_make_diff_case(kernel) for kernel in report.kernels]
        case _:
            name, cases = "warplens analyze", list(_make_analyze_cases(report))
    suites: dict[str, list[Case]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    root = ElementTree.Element(
        "testsuites",
        {
            "name": name,
            "tests": str(len(cases)),
            "failures": str(_count_failed(cases)),
            "errors": "0",
        },
    )
    for suite, members in suites.items():
        _add_suite(root, suite, members)
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _add_suite(root: ElementTree.Element, name: str, cases: Sequence[Case]) -> None:
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": _clean(name) or "warplens",
            "tests": str(len(cases)),
            "failures": str(_count_failed(cases)),
            "errors": "0",
            "skipped": str(sum(bool(case.skipped) for case in cases)),
        },
    )
    for case in cases:
        node = ElementTree.SubElement(
            suite, "testcase", {"classname": _clean(name) or "warplens", "name": _clean(case.name)}
        )
        if case.failures:
            # One failure a case: several count as several failed tests in some readers.
            message = "; ".join(text for _, text in case.failures)
            kinds = ", ".join(dict.fromkeys(kind for kind, _ in case.failures))
            failure = ElementTree.SubElement(
                node, "failure", {"type": _clean(kinds), "message": _clean(message)}
            )
            failure.text = _clean("\n".join(text for _, text in case.failures))
        elif case.skipped:
            ElementTree.SubElement(node, "skipped", {"message": _clean(case.skipped)})
        if case.output:
            ElementTree.SubElement(node, "system-out").text = _clean("\n".join(case.output))


def _count_failed(cases: Iterable[Case]) -> int:
    return sum(bool(case.failures) for case in cases)


def _clean(text: str) -> str:
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", escape_controls(text, keep="\n"))


def _make_check_cases(report: CheckReport) -> Iterator[Case]:
    for kernel in report.kernels:
        named = {metric.gpu for metric in kernel.metrics if metric.gpu}
        gpus = [gpu for gpu in report.gpus if gpu in named] + sorted(named - set(report.gpus))
        for gpu in gpus or [""]:
            yield _make_check_case(report, kernel, gpu)


def _make_check_case(report: CheckReport, kernel: CheckedKernel, gpu: str) -> Case:
    """Return the case of a kernel on a GPU: what does not depend on a GPU counts for each."""
    violations = tuple(
        (violation.rule, violation.message)
        for violation in report.violations
        if violation.level is Level.ERROR
        and violation.kernel == kernel.name
        and violation.gpu in ("", gpu)
        and (violation.input == kernel.input or not violation.input)
    )
    metrics = [metric for metric in kernel.metrics if metric.gpu in ("", gpu)]
    failures = violations or tuple(
        (f"{metric.metric}-{metric.outcome.value}", _format_metric(metric))
        for metric in metrics
        if metric.outcome in _FAILED_OUTCOMES
    )
    return Case(
        suite=kernel.input,
        name=_name_case(kernel.demangled, gpu),
        output=(
            f"{kernel.status.value}, {kernel.outcome.value}",
            *map(_format_metric, metrics),
            *kernel.evidence,
        ),
        failures=() if report.updated else failures,
    )


def _format_metric(metric: CheckedMetric) -> str:
    change = "" if metric.change is None else f" ({format_change(metric.change)})"
    limit = f", limit {metric.limit}" if metric.limit else ""
    old, new = _format_figure(metric.baseline), _format_figure(metric.value)
    return f"{metric.metric}: {old} -> {new}{change}{limit}: {metric.outcome.value}"


def _format_figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _make_diff_case(kernel: KernelDiff) -> Case:
    is_slower = kernel.verdict is Verdict.SIGNIFICANT and (kernel.cycles_change or 0) >= 0
    both = kernel.status not in (KernelStatus.NEW, KernelStatus.REMOVED)
    change = describe_change(kernel)
    return Case(
        suite=kernel.input or kernel.old_input,
        name=kernel.demangled or kernel.old_demangled,
        output=(
            f"{kernel.status.value}, {kernel.verdict.value}",
            *map(_format_change, kernel.changes),
            *kernel.evidence,
        ),
        failures=(("significant", change),) if both and is_slower else (),
        skipped=change if both and kernel.verdict is Verdict.UNCLEAR else "",
    )


def _format_change(metric: MetricChange) -> str:
    change = "" if metric.change is None else f" ({format_change(metric.change)})"
    where = f" on {metric.gpu}" if metric.gpu else ""
    return f"{metric.metric}{where}: {_format_figure(metric.old)} -> {_format_figure(metric.new)}{change}"


def _make_analyze_cases(report: Report) -> Iterator[Case]:
    findings: dict[tuple[str, str], list[str]] = {}
    for problem in list_problems(report):
        findings.setdefault((problem.input, problem.kernel), []).append(f"{problem.rule}: {problem.message}")
    for kernel in report.kernels:
        found = findings.get((kernel.input, kernel.name), ())
        for prediction in kernel.predictions:
            yield Case(
                suite=kernel.input,
                name=_name_case(kernel.demangled, f"{prediction.gpu}, {prediction.model}"),
                output=(*_format_prediction(kernel, prediction), *found),
            )
        for refusal in kernel.refused:
            yield Case(
                suite=kernel.input, name=_name_case(kernel.demangled, refusal.gpu), skipped=refusal.reason
            )
        if not kernel.predictions and not kernel.refused:
            yield Case(suite=kernel.input, name=kernel.demangled, output=(*_format_counts(kernel), *found))


def _format_prediction(kernel: KernelReport, prediction: PredictionEntry) -> tuple[str, ...]:
    time = f"{prediction.time_us:.4g} us ({prediction.time_us_low:.4g} to {prediction.time_us_high:.4g})"
    return (
        f"{prediction.cycles:,.0f} cycles, {time}, bound {prediction.bound}",
        f"occupancy {prediction.occupancy:.0%} ({prediction.occupancy_limiter})",
        *_format_counts(kernel),
    )


def _format_counts(kernel: KernelReport) -> tuple[str, ...]:
    return (
        f"{kernel.instructions:,} instructions, {_format_figure(kernel.registers)} registers, "
        f"{kernel.spill_bytes:,} B spilled, {_format_figure(kernel.shared_bytes)} B shared",
    )


def _name_case(kernel: str, gpu: str) -> str:
    return f"{kernel} [{gpu}]" if gpu else kernel
