"""The report of `validate`: schema `warplens/validate/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/validate-1.json`. Times are microseconds, ratios are predicted over measured, errors and
coverage are shares of one (0.12 is 12 %).
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

VALIDATE_SCHEMA: Literal["warplens/validate/1"] = "warplens/validate/1"


class CasePrediction(Struct, frozen=True, kw_only=True):
    """One model's prediction for one row."""

    model: str
    cycles: float
    time_us: float
    time_us_low: float
    time_us_high: float
    ratio: float
    bound: str
    clock_mhz: float
    cpi_shares: Annotated[
        Mapping[str, float], Meta(description="Shares of the cycles by stall, largest first.")
    ]


class CaseEntry(Struct, frozen=True, kw_only=True):
    """One row of the table with the predictions of the models."""

    case: str
    line: int
    suite: str
    dump: str
    kernel: str
    gpu: str
    gpu_name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    split: str
    group: str
    counted: bool
    config: str
    note: str
    time_us: Annotated[float, Meta(description="Measured time.")]
    provenance: Annotated[str, Meta(description="Provenance of the execution counts.")]
    transferred: Annotated[bool, Meta(description="The code is not of the GPU's architecture.")]
    predictions: tuple[CasePrediction, ...]
    refused: Annotated[Mapping[str, str], Meta(description="Why a model has no prediction, by model.")]


class ScoreEntry(Struct, frozen=True, kw_only=True):
    """One model's errors over the counted rows of a suite on a GPU."""

    suite: Annotated[str | None, Meta(description="Null for all suites.")]
    gpu: Annotated[str | None, Meta(description="Null for all GPUs.")]
    gpu_name: str
    model: str
    rows: int
    refused: int
    mape: Annotated[float, Meta(description="Mean of |predicted / measured - 1|.")]
    median_ape: Annotated[float, Meta(description="Median of |predicted / measured - 1|.")]
    p90_ape: Annotated[float, Meta(description="90th percentile of |predicted / measured - 1|.")]
    bias: Annotated[float, Meta(description="Geometric mean of the ratios.")]
    spearman: Annotated[
        float | None,
        Meta(
            description="Rank correlation of predicted and measured times; null for fewer than three rows or "
            "equal times."
        ),
    ]
    interval_coverage: Annotated[
        float, Meta(description="Share of rows whose measured time is in the predicted interval.")
    ]
    groups: int
    choice_loss: Annotated[
        float | None, Meta(description="Mean loss of the groups; null where there are none.")
    ]
    worst_choice_loss: Annotated[
        float | None, Meta(description="Largest loss of the groups; null where there are none.")
    ]


class GroupEntry(Struct, frozen=True, kw_only=True):
    """Rows of one GPU among which a tuner chooses: the model's choice and its loss."""

    suite: str
    gpu: str
    group: str
    model: str
    rows: int
    best_case: Annotated[str, Meta(description="Row with the least measured time.")]
    best_time_us: float
    chosen_case: Annotated[str, Meta(description="Row with the least predicted time, the first of several.")]
    chosen_time_us: Annotated[
        float, Meta(description="Its measured time; where several have the least predicted time, their mean.")
    ]
    loss: Annotated[float, Meta(description="chosen_time_us over best_time_us, less one.")]


class WorstEntry(Struct, frozen=True, kw_only=True):
    """A counted row with a large factor between prediction and measurement, either way."""

    case: str
    line: int
    suite: str
    gpu: str
    gpu_name: str
    kernel: str
    measured_us: float
    provenance: str
    prediction: CasePrediction


class CeilingEntry(Struct, frozen=True, kw_only=True):
    """A measured operator that its shape could do much better, by SynPerf's ceiling."""

    case: str
    line: int
    gpu: str
    gpu_name: str
    kernel: str
    measured_us: float
    ceiling_us: Annotated[float, Meta(description="The time at the ceiling of the efficiency.")]
    efficiency: Annotated[float, Meta(description="Theoretical over measured time.")]
    ceiling: Annotated[float, Meta(description="The 80th percentile of the efficiency of such shapes.")]


class ValidationReport(Struct, frozen=True, kw_only=True):
    """Report of `validate`: every row with every model."""

    schema: Literal["warplens/validate/1"]
    tool_version: str
    model_fingerprint: Annotated[
        str, Meta(description="Hash of the code and the tables that decide a time; equal for equal models.")
    ] = ""
    table: str
    split: str | None
    models: Annotated[tuple[str, ...], Meta(description="The default one first.")]
    rows: Annotated[int, Meta(description="Rows that the filters leave.")]
    counted: Annotated[int, Meta(description="Rows that the table says to count in the scores.")]
    refused: Annotated[int, Meta(description="Rows for which some model has no prediction.")]
    transferred: Annotated[int, Meta(description="Rows whose code is not of the GPU's architecture.")]
    scores: tuple[ScoreEntry, ...]
    groups: tuple[GroupEntry, ...]
    worst: Annotated[tuple[WorstEntry, ...], Meta(description="Of each model, the largest factor first.")]
    cases: tuple[CaseEntry, ...]
    underperforming: Annotated[
        tuple[CeilingEntry, ...],
        Meta(
            description="Operators more than .1 of efficiency below SynPerf's ceiling, the widest gap first."
        ),
    ] = ()

    def find_overall_score(self, model: str | None = None) -> ScoreEntry | None:
        """Return the errors of a model, of the default one for None, over all rows; None without rows."""
        wanted = model or self.models[0]
        return next((s for s in self.scores if s.model == wanted and s.suite is None and s.gpu is None), None)
