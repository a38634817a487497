"""The report of a check from its judgements: order, totals, and what tripped the gate."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from analyzer.checking.gate import Judgement
from analyzer.report.analyze_schema import Report, WarningEntry
from analyzer.report.check_schema import (
    CHECK_SCHEMA,
    CheckedKernel,
    CheckReport,
    CheckTotals,
    Level,
    Outcome,
    Violation,
)
from analyzer.report.diff_schema import KernelStatus

_ORDER = (
    Outcome.REGRESSED,
    Outcome.OVER_BUDGET,
    Outcome.IMPROVED,
    Outcome.ADDED,
    Outcome.REMOVED,
    Outcome.PASSED,
)
_ACCEPTED_RULES = frozenset({"new-kernel", "removed-kernel"})
_REGRESSION_SUFFIX = "-regression"


def make_check_report(
    report: Report,
    judgements: Sequence[Judgement],
    *,
    baseline: str,
    was_updated: bool,
    accept_command: str,
    notes: Sequence[str],
    warnings: Sequence[WarningEntry],
) -> CheckReport:
    """Return the report of a check.

    was_updated: the baseline was written, so that what changed is accepted and trips nothing.
    """
    ordered = sorted(judgements, key=lambda each: _make_sort_key(each.kernel))
    kernels = tuple(each.kernel for each in ordered)
    violations = tuple(violation for each in ordered for violation in each.violations)
    if was_updated:
        violations = tuple(map(_accept, violations))
    outcomes = Counter(kernel.outcome for kernel in kernels)
    has_moved = any(kernel.outcome not in (Outcome.PASSED, Outcome.OVER_BUDGET) for kernel in kernels)
    return CheckReport(
        schema=CHECK_SCHEMA,
        tool_version=report.tool_version,
        model_fingerprint=report.model_fingerprint,
        baseline=baseline,
        updated=was_updated,
        gpus=report.gpus,
        inputs=report.inputs,
        is_clean=not any(violation.level is Level.ERROR for violation in violations),
        totals=CheckTotals(
            kernels=len(kernels) - outcomes[Outcome.REMOVED],
            passed=outcomes[Outcome.PASSED],
            regressed=outcomes[Outcome.REGRESSED],
            over_budget=outcomes[Outcome.OVER_BUDGET],
            improved=outcomes[Outcome.IMPROVED],
            added=outcomes[Outcome.ADDED],
            removed=outcomes[Outcome.REMOVED],
        ),
        kernels=kernels,
        violations=violations,
        accept=accept_command if baseline and has_moved and not was_updated else "",
        notes=tuple(notes),
        warnings=(*report.warnings, *warnings, *(warning for each in ordered for warning in each.warnings)),
    )


def _make_sort_key(kernel: CheckedKernel) -> tuple[object, ...]:
    """Sort by outcome, then by how far the cycles moved; kernels with the code of the baseline go last."""
    changes = [abs(each.change or 0.0) for each in kernel.metrics if each.metric == "cycles"]
    launch = kernel.launch
    return (
        _ORDER.index(kernel.outcome),
        kernel.status is KernelStatus.SAME,
        -max(changes, default=0.0),
        kernel.demangled,
        kernel.architecture,
        kernel.input,
        "" if launch is None else repr((launch.grid, launch.block, sorted(launch.arguments.items()))),
    )


def _accept(violation: Violation) -> Violation:
    """Return a violation of the baseline that has just been replaced as a note; others stay."""
    is_accepted = violation.rule in _ACCEPTED_RULES or violation.rule.endswith(_REGRESSION_SUFFIX)
    if not is_accepted:
        return violation
    return replace(violation, level=Level.NOTE, message=f"{violation.message} (accepted)")
