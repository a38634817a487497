"""The report of `predict`: schema `warplens/predict/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/predict-1.json`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from analyzer.report.analyze_schema import WarningEntry

PREDICT_SCHEMA: Literal["warplens/predict/1"] = "warplens/predict/1"


class OperatorPredictionEntry(Struct, frozen=True, kw_only=True):
    """One operator on one GPU by one model."""

    operator: str
    gpu: Annotated[str, Meta(description="Key in the hardware database; as given where there is none.")]
    gpu_name: str = ""
    dtype: str
    shape: Annotated[
        Mapping[str, str], Meta(description="The operator's own columns, as they were given.")
    ] = {}
    model: str
    timing: Annotated[
        str, Meta(description="What the time spans: kernel, interval, ncu; of the rows that taught.")
    ] = ""
    time_us: Annotated[float | None, Meta(description="Null where the row cannot be answered.")]
    time_us_low: Annotated[float | None, Meta(description="Lower end of the 80 % interval.")]
    time_us_high: Annotated[float | None, Meta(description="Upper end of the 80 % interval.")]
    basis: Annotated[str, Meta(description="What the time rests on.")] = ""
    in_range: Annotated[bool, Meta(description="False where the row lies outside what taught the model.")] = (
        False
    )
    counts: Annotated[
        str,
        Meta(description="Of the work that is timed: exact, assumed, or unknown where some is not counted."),
    ] = "exact"
    reason: Annotated[str, Meta(description="Why the row cannot be answered.")] = ""
    terms_us: Annotated[
        Mapping[str, float],
        Meta(description="Terms of the analytic reference, the reference and the correction (--explain)."),
    ] = {}


class PredictReport(Struct, frozen=True, kw_only=True):
    """Predicted times of operators."""

    schema: Literal["warplens/predict/1"] = PREDICT_SCHEMA
    tool_version: str
    model_fingerprint: Annotated[
        str, Meta(description="Hash of code and hardware database: equal ones predict equally.")
    ] = ""
    interval: Annotated[str, Meta(description="What the intervals promise.")] = "80 %"
    predictions: tuple[OperatorPredictionEntry, ...]
    warnings: tuple[WarningEntry, ...] = ()
