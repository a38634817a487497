"""The page of a check: whether the gate tripped, what tripped it, and each kernel's figures."""

from collections.abc import Mapping
from pathlib import PurePath

from analyzer.render.html.page import render_page
from analyzer.report.check_schema import CheckedKernel, CheckReport, Outcome

_MAX_OPEN_KERNELS = 5
_PASSING = frozenset({Outcome.PASSED})


def render_check_page(report: CheckReport) -> str:
    """Return the page of a report."""
    totals = report.totals
    counts: Mapping[str, int] = {
        "regressed": totals.regressed,
        "over-budget": totals.over_budget,
        "removed": totals.removed,
        "added": totals.added,
        "improved": totals.improved,
        "passed": totals.passed,
    }
    names = [PurePath(entry.path).name or entry.path for entry in report.inputs]
    return render_page(
        "check.html",
        f"check of {names[0] if len(names) == 1 else f'{totals.kernels} kernels'}",
        {
            "report": report,
            "counts": [(name, count) for name, count in counts.items() if count or name == "passed"],
            "changed": [kernel for kernel in report.kernels if not _is_plain(kernel)],
            "passed": [kernel for kernel in report.kernels if _is_plain(kernel)],
            "n_open": _MAX_OPEN_KERNELS,
            "data": {"kind": "check"},
        },
    )


def _is_plain(kernel: CheckedKernel) -> bool:
    return kernel.outcome in _PASSING and not kernel.evidence
