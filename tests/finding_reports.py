"""Reports of check and diff made by hand, with what real ones can hold, hostile names included."""

from typing import Any

from analyzer.report.analyze_schema import InputEntry, WarningEntry
from analyzer.report.check_schema import (
    CheckedKernel,
    CheckedMetric,
    CheckReport,
    CheckTotals,
    Level,
    Outcome,
    Violation,
)
from analyzer.report.diff_schema import (
    DiffReport,
    DiffSide,
    DiffTotals,
    FindingChange,
    KernelDiff,
    KernelStatus,
    MetricChange,
    Verdict,
)

# What would end a table cell, a tag, a workflow command, a line or a mention, were it not escaped.
HOSTILE = "k<script>alert(1)</script>|`x`\n::error::pwned ##[add-mask]x\r\x1b[2J @octocat #1 ]]> www.evil.com &amp; %0A,:*_[a](b)\u202e\ufffe\ud800"
INPUT = InputEntry(path="build/k.cubin", format="cubin", architecture=("sm_90",), toolchain="nvcc 13.0")


def make_metric(
    metric: str, baseline: float | None, value: float | None, outcome: Outcome, gpu: str = "", limit: str = ""
) -> CheckedMetric:
    change = None if not baseline or value is None else value / baseline - 1
    return CheckedMetric(
        metric=metric, gpu=gpu, baseline=baseline, value=value, change=change, limit=limit, outcome=outcome
    )


def make_checked(
    name: str,
    outcome: Outcome,
    metrics: tuple[CheckedMetric, ...],
    *,
    old_name: str | None = None,
    **more: Any,
) -> CheckedKernel:
    return CheckedKernel(
        name=name,
        old_name=name if old_name is None else old_name,
        demangled=name,
        architecture="sm_90",
        input=INPUT.path,
        status=more.pop("status", KernelStatus.CHANGED),
        outcome=outcome,
        metrics=metrics,
        **more,
    )


def make_violation(rule: str, kernel: str, **more: Any) -> Violation:
    return Violation(
        rule=rule,
        level=more.pop("level", Level.ERROR),
        message=more.pop("message", f"{kernel}: {rule}"),
        kernel=kernel,
        input=INPUT.path,
        fingerprint=more.pop("fingerprint", f"{rule}-{kernel}"[:40]),
        **more,
    )


def make_check_report(
    kernels: tuple[CheckedKernel, ...] = (), violations: tuple[Violation, ...] = (), **more: Any
) -> CheckReport:
    counted = {outcome: sum(kernel.outcome is outcome for kernel in kernels) for outcome in Outcome}
    return CheckReport(
        schema="warplens/check/1",
        tool_version="0.1.0",
        baseline="warplens-baseline.json",
        gpus=more.pop("gpus", ("h100",)),
        inputs=(INPUT,),
        is_clean=not any(violation.level is Level.ERROR for violation in violations),
        totals=CheckTotals(
            kernels=len(kernels),
            passed=counted[Outcome.PASSED],
            regressed=counted[Outcome.REGRESSED],
            over_budget=counted[Outcome.OVER_BUDGET],
            improved=counted[Outcome.IMPROVED],
            added=counted[Outcome.ADDED],
            removed=counted[Outcome.REMOVED],
        ),
        kernels=kernels,
        violations=violations,
        accept=more.pop("accept", "warplens check --update" if violations else ""),
        **more,
    )


def make_tripped_report() -> CheckReport:
    """A regression in cycles on one GPU of two, a budget, an improvement, a new, a removed and a passed kernel."""
    cycles = make_metric("cycles", 100_000.0, 114_200.0, Outcome.REGRESSED, "h100", "+5 %")
    same = make_metric("cycles", 90_000.0, 90_000.0, Outcome.PASSED, "a100", "+5 %")
    kernels = (
        make_checked(
            "fmha_fwd",
            Outcome.REGRESSED,
            (cycles, same),
            evidence=("long_scoreboard +.22 CPI at src/k.cu:88",),
        ),
        make_checked(
            "gemm",
            Outcome.OVER_BUDGET,
            (make_metric("registers", 40.0, 168.0, Outcome.OVER_BUDGET, "", "128"),),
        ),
        make_checked(
            "softmax", Outcome.IMPROVED, (make_metric("cycles", 10.0, 9.0, Outcome.IMPROVED, "h100"),)
        ),
        make_checked(
            "added", Outcome.ADDED, (make_metric("cycles", None, 5.0, Outcome.ADDED, "h100"),), old_name=""
        ),
        make_checked("gone", Outcome.REMOVED, (), status=KernelStatus.REMOVED),
        make_checked("copy", Outcome.PASSED, (same,), status=KernelStatus.SAME),
    )
    violations = (
        make_violation(
            "cycles-regression",
            "fmha_fwd",
            gpu="h100",
            source="src/k.cu:88",
            message="fmha_fwd: 14.2 % more cycles than the baseline (limit +5 %)",
        ),
        make_violation("max-registers", "gemm", message="gemm: 168 registers, at most 128 are allowed"),
        make_violation("new-kernel", "added", level=Level.NOTE),
    )
    warning = WarningEntry(
        code="unknown-opcode", message="unknown opcode FOO", path=INPUT.path, line=None, count=3
    )
    return make_check_report(kernels, violations, gpus=("h100", "a100"), warnings=(warning,))


def make_hostile_check_report(n_kernels: int = 1) -> CheckReport:
    names = [f"{HOSTILE}{number}" for number in range(n_kernels)]
    metric = make_metric("cycles", 1.0, 2.0, Outcome.REGRESSED, "h100", "+5 %")
    kernels = tuple(
        make_checked(name, Outcome.REGRESSED, (metric,), evidence=(f"=cmd|' /C calc'!A1 {HOSTILE}",))
        for name in names
    )
    violations = tuple(
        make_violation(
            "cycles-regression", name, gpu="h100", source=f"src/{HOSTILE}.cu:3", fingerprint=f"f{number}"
        )
        for number, name in enumerate(names)
    )
    return make_check_report(kernels, violations)


def make_kernel_diff(name: str, verdict: Verdict, cycles_change: float | None, **more: Any) -> KernelDiff:
    return KernelDiff(
        name=name,
        old_name=more.pop("old_name", name),
        demangled=name,
        old_demangled=more.pop("old_demangled", name),
        architecture="sm_90",
        old_architecture="sm_90",
        input=INPUT.path,
        old_input="old/k.cubin",
        status=more.pop("status", KernelStatus.CHANGED),
        verdict=verdict,
        cycles_change=cycles_change,
        evidence=more.pop("evidence", ()),
        **more,
    )


def make_diff_report(kernels: tuple[KernelDiff, ...] | None = None) -> DiffReport:
    """A slower, a faster, an unclear, a benign, a new, a removed and an unchanged kernel, unless given."""
    if kernels is None:
        registers = MetricChange(metric="registers", old=40.0, new=56.0, change=0.4)
        cycles = MetricChange(metric="cycles", gpu="h100", old=1000.0, new=1142.0, change=0.142)
        conflict = FindingChange(
            rule="shared-bank-conflict",
            side="new",
            finding="32 wavefronts per request",
            source="src/k.cu:30",
            gain_share=0.2,
        )
        kernels = (
            make_kernel_diff(
                "slower",
                Verdict.SIGNIFICANT,
                0.142,
                evidence=("wait for SB2 at src/k.cu:88 moved 7 instructions earlier",),
                changes=(cycles, registers),
                findings=(conflict,),
            ),
            make_kernel_diff("faster", Verdict.SIGNIFICANT, -0.03),
            make_kernel_diff(
                "unclear", Verdict.UNCLEAR, None, evidence=("no control codes on the old side",)
            ),
            make_kernel_diff("benign", Verdict.BENIGN, 0.0),
            make_kernel_diff("added", Verdict.UNCLEAR, None, status=KernelStatus.NEW, old_name=""),
            make_kernel_diff("gone", Verdict.UNCLEAR, None, status=KernelStatus.REMOVED),
            make_kernel_diff("same", Verdict.UNCHANGED, 0.0, status=KernelStatus.SAME),
        )
    side = DiffSide(inputs=(INPUT,), kernels=len(kernels), tool_version="0.1.0")
    total = DiffTotals(
        gpu="h100", gpu_name="H100 SXM", kernels=5, old_cycles=1e6, new_cycles=1.1e6, cycles_change=0.1
    )
    return DiffReport(
        schema="warplens/diff/1",
        tool_version="0.1.0",
        old=side,
        new=side,
        gpus=("h100",),
        kernels=kernels,
        totals=(total,),
    )
