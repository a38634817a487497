"""Reports that tests of pages render: real ones, and one whose texts all try to be markup."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from paths import ROOT, TRACES

import analyzer
from analyzer.cli.app import run
from analyzer.cli.launch_options import load_launch_table
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import Report
from analyzer.report.check_schema import (
    CheckedKernel,
    CheckedMetric,
    CheckReport,
    CheckTotals,
    Level,
    Outcome,
    Violation,
)
from analyzer.report.diff_schema import DiffReport, KernelStatus
from analyzer.report.report_reader import read_report

HOSTILE = (
    "</script></template></style><script>window.pwned = 1</script>"
    "<img src=x onerror='window.pwned = 2'>\"' onload=\"pwned\" {{ 7 * 7 }} &lt;b&gt; \u2028 ]]> <!--"
)


@cache
def make_matmul_report() -> Report:
    """Return the report of a matmul with a launch on two GPUs, all parts that a page shows in it."""
    options = Options(
        launch_table=load_launch_table(Path(ROOT) / "docs/launch.json"),
        listing=True,
        advice=True,
        hardware_curves=True,
        models=("steady",),
    )
    return analyzer.analyze(str(TRACES / "triton/sm_90/matmul.sass"), ["h100", "h20"], options=options)


@cache
def make_library_report() -> Report:
    """Return the report of sixteen kernels without a launch."""
    options = Options(listing=True, models=("steady",))
    return analyzer.analyze(str(TRACES / "cuda/sm_90/report16.sass"), "h100", options=options)


@cache
def make_large_report() -> Report:
    """Return a report of one kernel with 17,010 instructions: the matmul thirty times over."""
    report = make_matmul_report()
    kernel = report.kernels[0]
    step = len(kernel.listing) * 16
    listing = tuple(
        msgspec.structs.replace(
            entry,
            address=entry.address + copy * step,
            producer=None if entry.producer is None else entry.producer + copy * step,
            instruction=entry.instruction.replace("R1", f"R{copy}"),
        )
        for copy in range(30)
        for entry in kernel.listing
    )
    return msgspec.structs.replace(report, kernels=(msgspec.structs.replace(kernel, listing=listing),))


@cache
def make_diff_report() -> DiffReport:
    """Return the diff of three kernels for two architectures, with the aligned listing of two."""
    old, new = (TRACES / f"cuda/sm_{arch}/report16.sass" for arch in (80, 86))
    with TemporaryDirectory() as folder:
        output = Path(folder) / "diff.json"
        chosen = [
            "-k",
            "saxpy",
            "-k",
            "reduce_sum",
            "-m",
            "steady",
            "-g",
            "a100",
            "--grid",
            "64",
            "--block",
            "256",
        ]
        assert run(["diff", str(old), str(new), *chosen, "--format", "json", "-o", str(output)]) == 0
        found = read_report(output)
    assert isinstance(found, DiffReport)
    return found


def make_check_report() -> CheckReport:
    """Return a check with a kernel that regressed and one that passed."""
    cycles = CheckedMetric(
        metric="cycles", gpu="h100-sxm", baseline=1000.0, value=1234.0, change=0.234, limit="+5 %",
        outcome=Outcome.REGRESSED,
    )  # fmt: skip
    kernel = CheckedKernel(
        name="slow", old_name="slow", demangled="slow(int)", architecture="sm_90", input="lib.sass",
        status=KernelStatus.CHANGED, outcome=Outcome.REGRESSED, metrics=(cycles,), evidence=("a wait moved",),
    )  # fmt: skip
    passed = msgspec.structs.replace(
        kernel, name="fast", demangled="fast(int)", outcome=Outcome.PASSED, metrics=(), evidence=()
    )
    violation = Violation(
        rule="cycles-regression", level=Level.ERROR, message="slow: cycles +23.4 %", kernel="slow",
        input="lib.sass", source="k.cu:41", fingerprint="0123",
    )  # fmt: skip
    return CheckReport(
        schema="warplens/check/1", tool_version="0", baseline="base.json", gpus=("h100-sxm",), inputs=(),
        is_clean=False, kernels=(kernel, passed), violations=(violation,), accept="warplens check --update",
        totals=CheckTotals(
            kernels=2, passed=1, regressed=1, over_budget=0, improved=0, added=0, removed=0
        ),
    )  # fmt: skip


def make_hostile(report: Any, kept: frozenset[str] = frozenset()) -> Any:
    """Return a report of any kind in which all texts that come from inputs are markup.

    kept: names of further fields to leave as they are.
    """
    fixed = kept | _FIXED_FIELDS

    def spoil(value: Any, name: str) -> Any:
        match value:
            case str():
                return value if name in fixed or not value else f"{value}{HOSTILE}"
            case dict():
                return {
                    (f"{key}{HOSTILE}" if name in {"arguments", "mix"} else key): spoil(
                        item, name if name in {"arguments", "mix"} else key
                    )
                    for key, item in value.items()
                }
            case list() | tuple():
                return [spoil(item, name) for item in value]
            case _:
                return value

    return msgspec.convert(spoil(msgspec.to_builtins(report), ""), type(report))


# Fields with closed sets of values, or that link parts of a report.
_FIXED_FIELDS = frozenset(
    [
        "schema",
        "tool_version",
        "model_fingerprint",
        "format",
        "effect",
        "provenance",
        "addresses",
        "model",
        "gpus",
        "gpu",
        "stall",
        "key",
        "timing",
        "unit",
        "level",
        "kind",
        "verdict",
        "status",
        "side",
        "outcome",
        "rule",
        "space",
        "metric",
    ]
)
