"""Reports of `tune`: schema `warplens/tune-rank/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/tune-rank-1.json`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

TUNE_RANK_SCHEMA: Literal["warplens/tune-rank/1"] = "warplens/tune-rank/1"


class RankedConfigEntry(Struct, frozen=True, kw_only=True):
    """A configuration with its predicted time."""

    rank: Annotated[int, Meta(description="From 1, the fastest.")]
    config: Annotated[
        Mapping[str, int],
        Meta(
            description="BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M, num_warps, num_stages of "
            "fused_moe, as SGLang and vLLM write them."
        ),
    ]
    time_us: Annotated[float, Meta(description="Predicted, or measured where `basis` says so.")]
    time_us_low: Annotated[float | None, Meta(description="Lower end of the 80 % interval.")] = None
    time_us_high: Annotated[
        float | None, Meta(description="Upper end; as the lower one null where the time is measured.")
    ] = None
    basis: Annotated[str, Meta(description="predicted or measured.")] = "predicted"
    bound: Annotated[str, Meta(description="The resource that needs most time.")] = ""
    ctas_per_sm: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None


class TuneRankReport(Struct, frozen=True, kw_only=True):
    """Configurations of one kernel on one GPU for one shape, best first."""

    schema: Literal["warplens/tune-rank/1"] = TUNE_RANK_SCHEMA
    tool_version: str
    model_fingerprint: str = ""
    kernel: str
    gpu: str
    gpu_name: str = ""
    shape: Mapping[str, int]
    configurations: tuple[RankedConfigEntry, ...]
    enumerated: Annotated[int, Meta(description="Configurations of the space.")]
    pruned: Annotated[Mapping[str, int], Meta(description="Configurations left out, by reason.")] = {}
    compiled_facts: Annotated[str, Meta(description="Where registers and instructions come from.")] = ""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
