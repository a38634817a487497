"""The report of `serving`: schema `warplens/serving/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/serving-1.json`.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

SERVING_SCHEMA: Literal["warplens/serving/1"] = "warplens/serving/1"


class ServingEngineEntry(Struct, frozen=True, kw_only=True):
    """How the engine schedules, and what bounds it."""

    scheduler: Annotated[str, Meta(description="The framework whose rules it follows.")]
    chunk_tokens: Annotated[
        int,
        Meta(description="Tokens of a step: max_num_batched_tokens (vLLM), chunked_prefill_size (SGLang)."),
    ]
    max_running: Annotated[int, Meta(description="Requests in the batch, at most.")]
    kv_capacity_tokens: Annotated[int, Meta(description="Tokens whose keys and values fit.")]
    block_tokens: Annotated[int, Meta(description="Tokens of a block (page) of the KV cache.")]


class ServingLoadEntry(Struct, frozen=True, kw_only=True):
    """The requests, and how they arrive."""

    requests: int
    arrivals: Annotated[str, Meta(description="trace, poisson, uniform or burst.")]
    rate_per_s: Annotated[
        float | None, Meta(description="Requests per second; null where all arrive at once.")
    ]
    seed: Annotated[int | None, Meta(description="Of random arrivals and drawn requests.")] = None
    mean_prompt_tokens: float
    mean_output_tokens: float


class LatencyEntry(Struct, frozen=True, kw_only=True):
    """Distribution of a latency over requests (ITL: over pairs of tokens), in milliseconds."""

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


class ServingLatencies(Struct, frozen=True, kw_only=True):
    """Latencies as serving benchmarks define them."""

    queue: Annotated[LatencyEntry, Meta(description="Arrival to the begin of the first step.")]
    ttft: Annotated[LatencyEntry, Meta(description="Arrival to the first token.")]
    tpot: Annotated[
        LatencyEntry | None,
        Meta(description="First to last token over the tokens after the first; null where there are none."),
    ]
    itl: Annotated[
        LatencyEntry | None, Meta(description="Between two tokens; percentiles within half a percent.")
    ]
    end_to_end: Annotated[LatencyEntry, Meta(description="Arrival to the last token.")]


class ServingEndEntry(Struct, frozen=True, kw_only=True):
    """The same load with every step at one end of its 80 % interval."""

    latencies: ServingLatencies
    output_tokens_per_s: float
    is_stable: bool
    saturated_per_s: Annotated[float | None, Meta(description="Null: rates were not searched.")] = None


class ServingUseEntry(Struct, frozen=True, kw_only=True):
    """How busy the engine was between the first arrival and the last end."""

    busy_share: Annotated[float, Meta(description="Of the time, what a step ran.")]
    steps: int
    mean_running: float
    most_running: int
    mean_waiting: float
    most_waiting: int
    mean_kv_share: Annotated[float, Meta(description="Of the KV cache, what was taken.")]
    most_kv_share: float
    preemptions: Annotated[int, Meta(description="Requests taken out of the batch for want of KV cache.")]
    recomputed_tokens: int


class ServingObjectiveEntry(Struct, frozen=True, kw_only=True):
    """Service-level objective, and what meets it."""

    ttft_ms: float | None
    tpot_ms: float | None
    met_share: Annotated[float, Meta(description="Of the requests at the given arrivals.")]
    goodput_90_per_s: Annotated[
        float | None,
        Meta(
            description="Highest rate at which 90 % of the requests meet it, 0 if at none; null: not asked."
        ),
    ] = None
    goodput_99_per_s: float | None = None


class ServingRateEntry(Struct, frozen=True, kw_only=True):
    """One rate of arrivals."""

    rate_per_s: float
    ttft_p50_ms: float
    ttft_p90_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float | None
    tpot_p90_ms: float | None
    tpot_p99_ms: float | None
    output_tokens_per_s: float
    mean_running: float
    preemptions: int
    met_share: Annotated[float | None, Meta(description="Of the requests, what meets the objective.")]
    is_stable: bool
    is_long_enough: Annotated[
        bool, Meta(description="Whether requests arrive for three latencies: else latencies are of a start.")
    ]


class ServingTimelineEntry(Struct, frozen=True, kw_only=True):
    """Average over one interval of the run."""

    start_s: float
    running: float
    waiting: float
    kv_share: float


class ServedRequestEntry(Struct, frozen=True, kw_only=True):
    """One request; times in seconds from the begin of the trace, latencies in milliseconds."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    queue_ms: float
    ttft_ms: float
    tpot_ms: float | None
    end_to_end_ms: float
    preemptions: int


class ServingReport(Struct, frozen=True, kw_only=True):
    """One serving engine under a load over time."""

    schema: Literal["warplens/serving/1"] = SERVING_SCHEMA
    tool_version: str
    model_fingerprint: str = ""
    model: str
    gpu: str
    gpu_name: str = ""
    framework: str
    tensor_parallel: int
    pipeline_parallel: int
    dtype: str
    engine: ServingEngineEntry
    load: ServingLoadEntry
    duration_s: Annotated[float, Meta(description="First arrival to last end.")]
    latencies: ServingLatencies
    requests_per_s: Annotated[float, Meta(description="Completed, over the duration.")]
    output_tokens_per_s: float
    total_tokens_per_s: Annotated[float, Meta(description="Prompts and outputs.")]
    fast_steps: Annotated[
        ServingEndEntry, Meta(description="Every step as fast as its 80 % interval allows.")
    ]
    slow_steps: Annotated[ServingEndEntry, Meta(description="Every step as slow as its interval allows.")]
    use: ServingUseEntry
    is_stable: Annotated[bool, Meta(description="Whether the backlog does not grow while requests arrive.")]
    is_long_enough: Annotated[
        bool, Meta(description="Whether requests arrive for three latencies, so that this can be told.")
    ]
    backlog_growth: Annotated[
        float,
        Meta(description="Requests that stay, per arrival, in the last quarter against the one before."),
    ]
    saturated_per_s: Annotated[
        float | None,
        Meta(description="Requests per second where they wait at all times. Null: rates were not searched."),
    ] = None
    sustainable_per_s: Annotated[
        float | None, Meta(description="Highest rate at which the backlog does not grow.")
    ] = None
    objective: ServingObjectiveEntry | None = None
    rates: Annotated[tuple[ServingRateEntry, ...], Meta(description="Simulated rates, ascending.")] = ()
    timeline: tuple[ServingTimelineEntry, ...]
    requests: Annotated[tuple[ServedRequestEntry, ...], Meta(description="In the order of arrival.")]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
