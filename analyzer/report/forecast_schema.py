"""The report of `forecast`: schema `warplens/forecast/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/forecast-1.json`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

FORECAST_SCHEMA: Literal["warplens/forecast/1"] = "warplens/forecast/1"


class ForecastStepEntry(Struct, frozen=True, kw_only=True):
    """One step: a prefill or a decode step."""

    iteration: Annotated[int, Meta(description="Counted from 1.")]
    phase: str
    batch_size: int
    num_tokens: Annotated[int, Meta(description="Rows of the products.")]
    kv_tokens: Annotated[int, Meta(description="Sum of the KV lengths, new tokens included.")]
    time_ms: float
    operators: Annotated[
        Mapping[str, Any],
        Meta(
            description="Operators of one GPU, as serving frameworks list them: gemm, attention, rmsnorm, "
            "siluandmul, moe, communication; lengths and sizes in elements, volumes in bytes."
        ),
    ] = {}


class ForecastOperatorEntry(Struct, frozen=True, kw_only=True):
    """Time of one operator over the run."""

    prefill_ms: Annotated[float, Meta(description="In all prefill steps.")]
    decode_ms: Annotated[float, Meta(description="In the median decode step.")]
    total_ms: float
    share: Annotated[float, Meta(description="Of the total time.")]
    basis: Annotated[str, Meta(description="What the time rests on.")] = ""


class ForecastMemoryEntry(Struct, frozen=True, kw_only=True):
    """Memory of one GPU."""

    gpu_bytes: Annotated[int, Meta(description="Of the whole GPU.")]
    usable_bytes: Annotated[int, Meta(description="Share that the framework may fill.")]
    weight_bytes: int
    activation_bytes: Annotated[int, Meta(description="Largest activations of a step; an estimate.")]
    kv_bytes_per_token: float
    kv_bytes: Annotated[int, Meta(description="Largest KV cache of the run.")]
    kv_capacity_tokens: Annotated[int, Meta(description="Tokens whose keys and values fit.")]
    fits: bool


class ForecastFigureEntry(Struct, frozen=True, kw_only=True):
    """A rate or latency that the times rest on."""

    name: str
    value: float
    unit: Annotated[str, Meta(description="Empty of a share.")]
    basis: Annotated[str, Meta(description="measured, vendor, calibrated or assumed.")]
    source: str


class ForecastCallEntry(Struct, frozen=True, kw_only=True):
    """A call of the prefill or of the median decode step, on one GPU."""

    phase: str
    operator: str
    sizes: Annotated[Mapping[str, float], Meta(description="m, n and k of a product; rows; bytes.")]
    count: Annotated[int, Meta(description="Launches in the step.")]
    time_us: Annotated[float, Meta(description="Of one launch.")]
    time_us_low: Annotated[float, Meta(description="Low end of its 80 % interval.")]
    time_us_high: float
    basis: Annotated[str, Meta(description="What the time rests on, as `predict --served` says it.")]
    total_ms: Annotated[float, Meta(description="Of all launches.")]
    bound: Annotated[str, Meta(description="The largest of the parts.")]
    parts_us: Annotated[
        Mapping[str, float],
        Meta(
            description="What the time rests on: tensor rate, streams of weights, KV cache, rows and "
            "experts, transfer."
        ),
    ]


class ForecastReport(Struct, frozen=True, kw_only=True):
    """Times of a whole run of a model on one kind of GPU."""

    schema: Literal["warplens/forecast/1"] = FORECAST_SCHEMA
    tool_version: str
    model_fingerprint: str = ""
    model: str
    gpu: str
    gpu_name: str = ""
    framework: str
    tensor_parallel: int
    pipeline_parallel: int
    dtype: str
    requests: Annotated[int, Meta(description="Requests of the trace.")]
    prefill_ms: Annotated[float, Meta(description="Time to first token: all prefill steps.")]
    decode_ms: Annotated[float | None, Meta(description="Median decode step; null where there is none.")]
    total_ms: float
    prefill_ms_low: float | None = None
    prefill_ms_high: Annotated[float | None, Meta(description="Ends of the 80 % interval.")] = None
    decode_ms_low: float | None = None
    decode_ms_high: float | None = None
    total_ms_low: float | None = None
    total_ms_high: float | None = None
    output_tokens_per_s: float | None = None
    requests_per_s: float | None = None
    steps: tuple[ForecastStepEntry, ...]
    operators: Mapping[str, ForecastOperatorEntry]
    calls: Annotated[
        tuple[ForecastCallEntry, ...], Meta(description="Of the prefill and of the median decode step.")
    ] = ()
    memory: ForecastMemoryEntry
    figures: tuple[ForecastFigureEntry, ...] = ()
    assumptions: Annotated[tuple[str, ...], Meta(description="What the run is assumed to be.")] = ()
    warnings: tuple[str, ...] = ()
