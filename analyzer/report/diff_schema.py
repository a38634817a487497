"""The report of `diff`: schema `warplens/diff/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/diff-1.json`. A change is new - old; a relative change is that over the old value.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from analyzer.report.analyze_schema import InputEntry, LaunchEntry, ListingEntry, WarningEntry

DIFF_SCHEMA: Literal["warplens/diff/1"] = "warplens/diff/1"


class KernelStatus(StrEnum):
    """How a kernel of one side relates to the other side."""

    SAME = "same"  # same name, same code
    CHANGED = "changed"  # same name, other code
    RENAMED = "renamed"  # other name; the code may have changed too
    NEW = "new"
    REMOVED = "removed"


class Verdict(StrEnum):
    """Whether a change matters."""

    UNCHANGED = "unchanged"  # the same instructions, control codes and resources
    BENIGN = "benign"  # other code that does the same work in the same time
    SIGNIFICANT = "significant"  # slower or faster, or more or less work, beyond what is noise
    UNCLEAR = "unclear"  # what is known of the two does not decide it; the evidence says why


class MetricChange(Struct, frozen=True, kw_only=True):
    """A figure of a kernel on both sides; null where a side does not have it or it is not known."""

    metric: Annotated[str, Meta(description="Such as cycles, registers, spill_bytes, global_sectors.")]
    gpu: Annotated[str, Meta(description="Empty where the figure does not depend on a GPU.")] = ""
    old: float | None
    new: float | None
    change: Annotated[
        float | None, Meta(description="Relative; null where the old value is 0 or one is not known.")
    ]


class GpuChange(Struct, frozen=True, kw_only=True):
    """Predictions of one kernel on one GPU for both sides."""

    gpu: str
    gpu_name: str
    model: str
    old_cycles: float
    new_cycles: float
    cycles_change: Annotated[float, Meta(description="Relative.")]
    old_time_us: float
    new_time_us: float
    old_bound: str
    new_bound: str
    old_cpi_stack: Annotated[Mapping[str, float], Meta(description="Cycles by stall; they sum to cycles.")]
    new_cpi_stack: Mapping[str, float]
    old_ctas_per_sm: int
    new_ctas_per_sm: int
    old_occupancy_limiter: str
    new_occupancy_limiter: str


class FindingChange(Struct, frozen=True, kw_only=True):
    """A rule of advice that applies to one side only."""

    rule: Annotated[str, Meta(description="Identifier of the rule, with a page in docs/rules.")]
    side: Literal["old", "new"]
    finding: str
    source: str
    gain_share: Annotated[float, Meta(description="Share of that side's cycles that it costs.")]


class LoopChange(Struct, frozen=True, kw_only=True):
    """A loop whose trips or cycles differ, matched by its instructions."""

    old_header: Annotated[int | None, Meta(description="Address; null for a new loop.")]
    new_header: int | None
    source: str
    old_trips: float | None
    new_trips: float | None
    old_cycles: Annotated[float | None, Meta(description="Cycles of the launch due to its instructions.")]
    new_cycles: float | None


class AlignedLine(Struct, frozen=True, kw_only=True):
    """One line of the aligned listing: instructions of both sides, or of one."""

    kind: Literal["equal", "changed", "removed", "added"]
    old: ListingEntry | None
    new: ListingEntry | None


class KernelDiff(Struct, frozen=True, kw_only=True):
    """One kernel and launch on both sides."""

    name: Annotated[str, Meta(description="As compiled, on the new side; of a removed kernel the old name.")]
    old_name: Annotated[str, Meta(description="As compiled, on the old side; empty for a new kernel.")]
    demangled: str
    old_demangled: str
    architecture: Annotated[str, Meta(description="Of the new side; of a removed kernel that of the old.")]
    old_architecture: str
    input: str = ""
    old_input: str = ""
    launch: LaunchEntry | None = None
    status: KernelStatus
    verdict: Verdict
    cycles_change: Annotated[
        float | None,
        Meta(description="Relative, on the GPU where it is largest; null where a side has none."),
    ]
    evidence: Annotated[
        tuple[str, ...], Meta(description="What the verdict rests on, the most telling first.")
    ]
    predictions: tuple[GpuChange, ...] = ()
    changes: Annotated[tuple[MetricChange, ...], Meta(description="All figures that differ.")] = ()
    findings: tuple[FindingChange, ...] = ()
    loops: tuple[LoopChange, ...] = ()
    instructions_changed: Annotated[
        int, Meta(description="Instructions of either side without an equal one on the other.")
    ] = 0
    source: Annotated[
        str, Meta(description="FILE:LINE of the code whose cycles changed most; empty where not known.")
    ] = ""
    assumptions: tuple[str, ...] = ()
    listing: Annotated[tuple[AlignedLine, ...], Meta(description="Only of kernels that were asked for.")] = ()


class DiffSide(Struct, frozen=True, kw_only=True):
    """One side of the comparison."""

    inputs: tuple[InputEntry, ...]
    kernels: int
    tool_version: str
    model_fingerprint: Annotated[str, Meta(description="Of the model that predicted its times.")] = ""


class DiffTotals(Struct, frozen=True, kw_only=True):
    """Sums over kernels that both sides have, each launched once; unchanged ones add nothing."""

    gpu: str
    gpu_name: str
    kernels: int
    old_cycles: float
    new_cycles: float
    cycles_change: float | None


class DiffReport(Struct, frozen=True, kw_only=True):
    """Report of `diff`: what changed between two inputs, and whether it matters."""

    schema: Literal["warplens/diff/1"]
    tool_version: str
    model_fingerprint: Annotated[
        str, Meta(description="Hash of the code and the tables that decide a time; equal for equal models.")
    ] = ""
    old: DiffSide
    new: DiffSide
    gpus: tuple[str, ...]
    kernels: Annotated[
        tuple[KernelDiff, ...], Meta(description="Significant ones first, by cycles; unchanged ones last.")
    ]
    totals: tuple[DiffTotals, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[WarningEntry, ...] = ()
