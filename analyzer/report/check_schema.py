"""The report of `check`: schema `warplens/check/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/check-1.json`.
"""

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from analyzer.report.analyze_schema import InputEntry, LaunchEntry, WarningEntry
from analyzer.report.diff_schema import KernelStatus

CHECK_SCHEMA: Literal["warplens/check/1"] = "warplens/check/1"


class Outcome(StrEnum):
    """What the gate says of a kernel or of one of its figures."""

    PASSED = "passed"
    IMPROVED = "improved"  # better by more than the threshold; `check --update` accepts it
    REGRESSED = "regressed"  # worse than the baseline by more than the threshold
    OVER_BUDGET = "over-budget"  # beyond an absolute limit of the configuration
    ADDED = "added"  # the baseline does not have it
    REMOVED = "removed"  # the baseline has it, the inputs do not


class Level(StrEnum):
    """Weight of a violation, in SARIF's words."""

    ERROR = "error"  # trips the gate
    WARNING = "warning"
    NOTE = "note"


class CheckedMetric(Struct, frozen=True, kw_only=True):
    """One figure of a kernel against the baseline, or against a budget."""

    metric: Annotated[str, Meta(description="Such as cycles, registers, spill_bytes, occupancy.")]
    gpu: Annotated[str, Meta(description="Empty where the figure does not depend on a GPU.")] = ""
    baseline: float | None
    value: float | None
    change: Annotated[float | None, Meta(description="Relative; null where the baseline is 0 or null.")]
    limit: Annotated[
        str, Meta(description="Threshold or budget as configured, such as `+5 %`; empty: reported only.")
    ] = ""
    outcome: Outcome


class Violation(Struct, frozen=True, kw_only=True):
    """One thing to show at a place in the source or the input: what annotations and SARIF are made of."""

    rule: Annotated[
        str,
        Meta(description="Such as cycles-regression, max-registers, new-kernel, or a rule of advice."),
    ]
    level: Level
    message: str
    kernel: Annotated[str, Meta(description="As compiled.")]
    gpu: str = ""
    input: str
    source: Annotated[str, Meta(description="FILE:LINE of the code that it concerns, where known.")] = ""
    fingerprint: Annotated[
        str,
        Meta(description="Hash of kernel, rule, metric and GPU: stable while the violation persists."),
    ]


class CheckedKernel(Struct, frozen=True, kw_only=True):
    """One kernel and launch against the baseline."""

    name: str
    old_name: Annotated[str, Meta(description="In the baseline; empty for a new kernel.")]
    demangled: str
    architecture: str
    input: str
    launch: LaunchEntry | None = None
    status: KernelStatus
    outcome: Annotated[Outcome, Meta(description="The worst of its figures'.")]
    metrics: tuple[CheckedMetric, ...]
    evidence: Annotated[tuple[str, ...], Meta(description="Why it changed, the most telling first.")] = ()


class CheckTotals(Struct, frozen=True, kw_only=True):
    """Kernels by outcome."""

    kernels: int
    passed: int
    regressed: int
    over_budget: int
    improved: int
    added: int
    removed: int


class CheckReport(Struct, frozen=True, kw_only=True):
    """Report of `check`: each kernel against the committed baseline and the budgets."""

    schema: Literal["warplens/check/1"]
    tool_version: str
    model_fingerprint: Annotated[
        str, Meta(description="Hash of the code and the tables that decide a time; equal for equal models.")
    ] = ""
    baseline: Annotated[str, Meta(description="Path of the baseline; empty where only budgets were held.")]
    updated: Annotated[bool, Meta(description="The baseline was written by this run.")] = False
    gpus: tuple[str, ...]
    inputs: tuple[InputEntry, ...]
    is_clean: Annotated[bool, Meta(description="False: the gate tripped, and the exit code is 1.")]
    totals: CheckTotals
    kernels: Annotated[
        tuple[CheckedKernel, ...], Meta(description="Those that trip the gate first; passed ones last.")
    ]
    violations: tuple[Violation, ...]
    accept: Annotated[str, Meta(description="Command that accepts the changes; empty: nothing to do.")] = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[WarningEntry, ...] = ()
