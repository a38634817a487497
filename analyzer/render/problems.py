"""What a report has to say at a place in the source: the common ground of SARIF, annotations and JUnit.

A problem is a violation of `check`, a finding of advice of `analyze`, or a change that `diff` calls
significant or cannot judge. Its fingerprint stays as it is while lines, figures and the order of kernels
change, so that a service which has seen it knows it again.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import PurePath, PurePosixPath

import msgspec
from msgspec import Struct

from analyzer.report.analyze_schema import KernelReport, Report
from analyzer.report.check_schema import CheckReport, Level
from analyzer.report.diff_schema import DiffReport, KernelDiff, KernelStatus, Verdict

FindingsReport = Report | DiffReport | CheckReport

MIN_WARNED_GAIN_SHARE = 0.03  # as on the terminal: what gains less is only named
_MAX_EVIDENCE = 3
_MAX_PATH_PARTS = 32
_MAX_LINE_DIGITS = 9
_FINGERPRINT_DIGITS = 32


class Problem(Struct, frozen=True, kw_only=True):
    """One thing to show at one place."""

    rule: str
    level: Level
    message: str
    kernel: str  # as compiled
    demangled: str
    gpu: str  # empty where it does not depend on one
    path: str  # of the source, or of the input where the source is not known
    line: int  # from 1
    input: str
    fingerprint: str = ""


def list_problems(report: FindingsReport) -> tuple[Problem, ...]:
    """Return the problems of a report, errors first, else in the order of the report."""
    match report:
        case CheckReport():
            found = _list_violations(report)
        case DiffReport():
            found = _list_changes(report)
        case _:
            found = _list_findings(report)
    levels = list(Level)
    return tuple(sorted(_add_fingerprints(found), key=lambda problem: levels.index(problem.level)))


def find_place(source: str, input_path: str, input_line: int | None = None) -> tuple[str, int]:
    """Return file and line of `FILE:LINE`, of the input where that is empty; `shorten_path` of the file."""
    file, _, line = source.rpartition(":")
    if file and line.isdecimal() and len(line) <= _MAX_LINE_DIGITS and int(line):
        return shorten_path(file), int(line)
    return shorten_path(input_path), input_line or 1


def shorten_path(path: str) -> str:
    """Return a path beneath the root of the repository relative to it, with slashes; others as they are.

    Services know files by their path in the repository, and compilers note the whole path of a source. One of
    another machine or container (`/build/src/k.cu`) becomes the longest end of it that is a file: `src/k.cu`.
    """
    root = _find_root()
    whole = os.path.normpath(os.path.join(os.getcwd(), path))
    if PurePath(whole).is_relative_to(root):
        return PurePath(whole).relative_to(root).as_posix()
    parts = PurePosixPath(path).parts
    if ".." not in parts and len(parts) <= _MAX_PATH_PARTS:
        for first in range(1, len(parts)):
            if os.path.isfile(os.path.join(root, *parts[first:])):
                return "/".join(parts[first:])
    return PurePath(path).as_posix()


def _find_root() -> str:
    """Return the checkout that GitHub Actions names, where the current folder is in it; else that folder."""
    here = os.getcwd()
    checkout = os.environ.get("GITHUB_WORKSPACE", "")
    return checkout if os.path.isabs(checkout) and PurePath(here).is_relative_to(checkout) else here


def make_fingerprint(*parts: str) -> str:
    """Return a hash of some texts; a text with a separator in it is not taken for two."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def _add_fingerprints(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems with fingerprints: of what they have none, and the second of equal ones numbered."""
    seen: dict[str, int] = {}
    for problem in problems:
        found = problem.fingerprint or make_fingerprint(problem.kernel, problem.rule, problem.gpu)
        seen[found] = seen.get(found, 0) + 1
        if seen[found] > 1:
            found = make_fingerprint(found, str(seen[found]))
        yield msgspec.structs.replace(problem, fingerprint=found)


def _list_violations(report: CheckReport) -> Iterator[Problem]:
    names = {kernel.name: kernel.demangled for kernel in report.kernels}
    for violation in report.violations:
        path, line = find_place(violation.source, violation.input)
        yield Problem(
            rule=violation.rule,
            level=violation.level,
            message=violation.message,
            kernel=violation.kernel,
            demangled=names.get(violation.kernel, violation.kernel),
            gpu=violation.gpu,
            path=path,
            line=line,
            input=violation.input,
            fingerprint=violation.fingerprint,
        )


def _list_findings(report: Report) -> Iterator[Problem]:
    """Yield the findings of advice, and the GPUs that cannot run a kernel."""
    for kernel in report.kernels:
        gpu, gpu_name = _find_first_gpu(kernel)
        for advice in kernel.advice:
            counts = advice.gain_share >= MIN_WARNED_GAIN_SHARE and not advice.gain_is_limit
            gain = f"{'' if counts else 'at most '}{max(0.0, advice.gain_share):.1%} of the cycles"
            where = f" on {gpu_name}" if gpu_name else ""
            yield _make_kernel_problem(
                kernel,
                advice.rule,
                Level.WARNING if counts else Level.NOTE,
                f"{advice.finding}; {advice.action} (predicted gain: {gain}{where})",
                gpu=gpu,
                source=advice.source,
            )
        for refusal in kernel.refused:
            yield _make_kernel_problem(
                kernel,
                "no-prediction",
                Level.NOTE,
                f"no prediction for {refusal.gpu_name}: {refusal.reason}",
                gpu=refusal.gpu,
            )


def _find_first_gpu(kernel: KernelReport) -> tuple[str, str]:
    """Return the GPU that findings are for."""
    return (kernel.predictions[0].gpu, kernel.predictions[0].gpu_name) if kernel.predictions else ("", "")


def _make_kernel_problem(
    kernel: KernelReport, rule: str, level: Level, message: str, *, gpu: str, source: str = ""
) -> Problem:
    path, line = find_place(source, kernel.input, kernel.line)
    return Problem(
        rule=rule,
        level=level,
        message=message,
        kernel=kernel.name,
        demangled=kernel.demangled,
        gpu=gpu,
        path=path,
        line=line,
        input=kernel.input,
    )


def _list_changes(report: DiffReport) -> Iterator[Problem]:
    for kernel in report.kernels:
        judged = _judge_change(kernel)
        if judged is None:
            continue
        rule, level = judged
        yield _make_change_problem(kernel, rule, level, describe_change(kernel), find_change_source(kernel))
        for finding in kernel.findings:
            if finding.side == "new":
                message = f"new: {finding.finding} ({finding.gain_share:.1%} of the cycles)"
                yield _make_change_problem(kernel, finding.rule, Level.WARNING, message, finding.source)


def _judge_change(kernel: KernelDiff) -> tuple[str, Level] | None:
    """Return rule and level of a kernel's change; None for one that is not worth a remark."""
    if kernel.status is KernelStatus.NEW:
        return "new-kernel", Level.NOTE
    if kernel.status is KernelStatus.REMOVED:
        return "removed-kernel", Level.NOTE
    if kernel.verdict is Verdict.UNCLEAR:
        return "kernel-unclear", Level.NOTE
    if kernel.verdict is not Verdict.SIGNIFICANT:
        return None
    if not kernel.cycles_change:
        return "kernel-changed", Level.WARNING
    return ("kernel-slower", Level.WARNING) if kernel.cycles_change > 0 else ("kernel-faster", Level.NOTE)


def describe_change(kernel: KernelDiff) -> str:
    """Return one sentence on a kernel of `diff`: its change in cycles and the first of its evidence."""
    match kernel.status:
        case KernelStatus.NEW:
            return f"{kernel.demangled} is new"
        case KernelStatus.REMOVED:
            return f"{kernel.demangled} is gone"
    evidence = "; ".join(kernel.evidence[:_MAX_EVIDENCE])
    change = "" if kernel.cycles_change is None else f" {format_change(kernel.cycles_change)} cycles"
    return f"{kernel.demangled}: {kernel.verdict.value}{change}{': ' if evidence else ''}{evidence}"


def find_change_source(kernel: KernelDiff) -> str:
    """Return the source place that a change of a kernel is about, "" where it names none."""
    findings = (finding.source for finding in kernel.findings if finding.side == "new")
    loops = (loop.source for loop in kernel.loops)
    return next((source for source in (kernel.source, *findings, *loops) if source), "")


def _make_change_problem(kernel: KernelDiff, rule: str, level: Level, message: str, source: str) -> Problem:
    input_path = kernel.input or kernel.old_input
    path, line = find_place(source, input_path)
    return Problem(
        rule=rule,
        level=level,
        message=message,
        kernel=kernel.name,
        demangled=kernel.demangled or kernel.old_demangled,
        gpu="",
        path=path,
        line=line,
        input=input_path,
    )


def format_change(change: float) -> str:
    """Return a relative change as `+14.2 %`."""
    return f"{change * 100:+.1f} %"
