"""What `validate` found: the schema of its JSON and the value that its other outputs print.

Field names are the JSON contract: keys may be added, never renamed. Times are microseconds, ratios are
predicted over measured, errors and coverage are shares of one (0.12 is 12 %).
"""

from typing import Literal

import msgspec

VALIDATE_SCHEMA: Literal["warplens/validate/1"] = "warplens/validate/1"


class CasePrediction(msgspec.Struct, frozen=True, kw_only=True):
    """One model's answer to one row; cpi_shares: stalls' shares of the cycles, largest first."""

    model: str
    cycles: float
    time_us: float
    time_us_low: float
    time_us_high: float
    ratio: float
    bound: str
    clock_mhz: float
    cpi_shares: dict[str, float]


class CaseEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table with what the models say of it.

    provenance: of the executed counts. transferred: the code is not of the GPU's architecture.
    refused: why a model has no answer, by model; then it is not among the predictions.
    """

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
    time_us: float
    provenance: str
    transferred: bool
    predictions: tuple[CasePrediction, ...]
    refused: dict[str, str]


class ScoreEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One model's errors over the counted rows of a suite on a GPU; None stands for all suites, or all GPUs.

    mape, median_ape, p90_ape: mean, median and 90th percentile of |predicted / measured - 1|.
    bias: geometric mean of the ratios. spearman: rank correlation of predicted and measured times, None where
    fewer than three rows differ in them. interval_coverage: rows whose measured time lies in the interval.
    choice_loss, worst_choice_loss: mean and largest loss of the groups, None where there are none.
    """

    suite: str | None
    gpu: str | None
    gpu_name: str
    model: str
    rows: int
    refused: int
    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    spearman: float | None
    interval_coverage: float
    groups: int
    choice_loss: float | None
    worst_choice_loss: float | None


class GroupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one GPU among which a tuner chooses: what the model chooses, and what that costs.

    loss: measured time of the row with the least predicted time over the least measured time, less one. Where
    several rows have the least predicted time, the mean of theirs counts, and the first is named.
    """

    suite: str
    gpu: str
    group: str
    model: str
    rows: int
    best_case: str
    best_time_us: float
    chosen_case: str
    chosen_time_us: float
    loss: float


class WorstEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A counted row that a model misses by the largest factor, either way."""

    case: str
    line: int
    suite: str
    gpu: str
    gpu_name: str
    kernel: str
    measured_us: float
    provenance: str
    prediction: CasePrediction


class ValidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every row with every model; models: the default one first.

    rows: those that the filters leave; counted: those of them that figures are over, but for refused ones;
    refused: rows for which some model has no answer. worst: of each model, the largest factor first.
    """

    schema: Literal["warplens/validate/1"]
    tool_version: str
    table: str
    split: str | None
    models: tuple[str, ...]
    rows: int
    counted: int
    refused: int
    transferred: int
    scores: tuple[ScoreEntry, ...]
    groups: tuple[GroupEntry, ...]
    worst: tuple[WorstEntry, ...]
    cases: tuple[CaseEntry, ...]

    def find_overall_score(self, model: str | None = None) -> ScoreEntry | None:
        """Errors of a model, of the default one where None, over all suites and GPUs; None without rows."""
        wanted = model or self.models[0]
        return next((s for s in self.scores if s.model == wanted and s.suite is None and s.gpu is None), None)
