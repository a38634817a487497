"""The report of a `forecast` of several layouts: schema `warplens/forecast-comparison/1`.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/forecast-comparison-1.json`.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from analyzer.report.layout_entries import LayoutEntry

FORECAST_COMPARISON_SCHEMA: Literal["warplens/forecast-comparison/1"] = "warplens/forecast-comparison/1"


class ForecastTargets(Struct, frozen=True, kw_only=True):
    """Limits that the user set, ms; null: none."""

    ttft_ms: Annotated[float | None, Meta(description="Time to first token, at most.")] = None
    tpot_ms: Annotated[float | None, Meta(description="Time per output token, at most.")] = None
    total_ms: Annotated[float | None, Meta(description="Time of the whole run, at most.")] = None


class ComparedLayoutEntry(LayoutEntry, frozen=True, kw_only=True):
    """One kind of GPU and one division of the model: times and costs, or why it cannot be."""

    ttft_ms: Annotated[float | None, Meta(description="Time to first token: all prefill steps.")] = None
    ttft_ms_low: float | None = None
    ttft_ms_high: Annotated[float | None, Meta(description="Ends of the 80 % interval.")] = None
    tpot_ms: Annotated[
        float | None, Meta(description="Time per output token, median decode step; null without one.")
    ] = None
    tpot_ms_low: float | None = None
    tpot_ms_high: float | None = None
    total_ms: float | None = None
    total_ms_low: float | None = None
    total_ms_high: float | None = None
    output_tokens_per_s: float | None = None
    output_tokens_per_s_per_gpu: float | None = None
    kv_capacity_tokens: Annotated[
        int | None, Meta(description="Tokens whose keys and values fit; of one replica.")
    ] = None
    memory_share: Annotated[
        float | None, Meta(description="Of a GPU's memory, what weights, KV cache and activations fill.")
    ] = None
    run_cost: Annotated[float | None, Meta(description="Of all GPUs over the run, in the price's unit.")] = (
        None
    )
    meets_targets: Annotated[bool | None, Meta(description="null where no target was set.")] = None
    meets_at_high_end: Annotated[
        bool | None, Meta(description="Whether the upper ends of the intervals meet the targets, too.")
    ] = None
    missed: Annotated[tuple[str, ...], Meta(description="Targets that it misses, in words.")] = ()
    is_pareto: Annotated[
        bool, Meta(description="No other has less time and no more cost (without prices: GPUs).")
    ] = False
    warnings: tuple[str, ...] = ()


class ForecastComparison(Struct, frozen=True, kw_only=True):
    """One run of a model on several kinds of GPUs and layouts."""

    schema: Literal["warplens/forecast-comparison/1"] = FORECAST_COMPARISON_SCHEMA
    tool_version: str
    model_fingerprint: str = ""
    model: str
    framework: str
    dtype: str
    requests: int
    prompt_tokens: int
    output_tokens: int
    targets: ForecastTargets
    ranked_by: Annotated[
        str, Meta(description="What layouts are sorted by: cost_per_million_output_tokens or total_ms.")
    ]
    layouts: Annotated[
        tuple[ComparedLayoutEntry, ...], Meta(description="Best first, then those that are not possible.")
    ]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
