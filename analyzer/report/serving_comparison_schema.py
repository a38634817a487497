"""The report of a `serving` of several layouts: schema `warplens/serving-comparison/1`.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/serving-comparison-1.json`.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from analyzer.report.layout_entries import LayoutEntry
from analyzer.report.serving_schema import ServingLoadEntry

SERVING_COMPARISON_SCHEMA: Literal["warplens/serving-comparison/1"] = "warplens/serving-comparison/1"


class ServedLayoutEntry(LayoutEntry, frozen=True, kw_only=True):
    """One replica at the highest rate of requests that it serves well, or why it cannot be."""

    rate_per_s: Annotated[
        float | None,
        Meta(
            description="Requests per second: the highest rate at which 90 % meet the objective, 0 if none "
            "does; without an objective the highest at which the backlog does not grow."
        ),
    ] = None
    saturated_per_s: Annotated[
        float | None, Meta(description="Requests per second where they wait at all times.")
    ] = None
    saturated_per_s_low: float | None = None
    saturated_per_s_high: Annotated[
        float | None, Meta(description="With every step at the ends of its 80 % interval.")
    ] = None
    ttft_p50_ms: Annotated[float | None, Meta(description="Latencies are those at the rate.")] = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p99_ms: float | None = None
    output_tokens_per_s: Annotated[
        float | None, Meta(description="The rate times the mean output of a request.")
    ] = None
    output_tokens_per_s_per_gpu: float | None = None


class ServingComparison(Struct, frozen=True, kw_only=True):
    """One load on replicas of several kinds of GPUs and layouts."""

    schema: Literal["warplens/serving-comparison/1"] = SERVING_COMPARISON_SCHEMA
    tool_version: str
    model_fingerprint: str = ""
    model: str
    framework: str
    load: ServingLoadEntry
    slo_ttft_ms: Annotated[float | None, Meta(description="Objective: time to first token, at most.")] = None
    slo_tpot_ms: Annotated[float | None, Meta(description="Objective: time per output token, at most.")] = (
        None
    )
    layouts: Annotated[
        tuple[ServedLayoutEntry, ...],
        Meta(description="Cheapest first, without prices by tokens per GPU; then the impossible."),
    ]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
