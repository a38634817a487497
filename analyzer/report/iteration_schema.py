"""The report of one training or inference iteration: schema `warplens/iteration/1`.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/iteration-1.json`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

ITERATION_SCHEMA: Literal["warplens/iteration/1"] = "warplens/iteration/1"


class IterationOperatorEntry(Struct, frozen=True, kw_only=True):
    """Time of all operators of one kind on one GPU, for one micro-batch."""

    forward_ms: float
    backward_ms: float
    kernels: Annotated[int, Meta(description="Launches, both passes together.")]
    share: Annotated[float, Meta(description="Of both passes.")]
    basis: Annotated[str, Meta(description="What the time rests on.")] = ""


class IterationMemoryEntry(Struct, frozen=True, kw_only=True):
    """Memory of one GPU."""

    gpu_bytes: Annotated[int, Meta(description="Of the whole GPU.")]
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: Annotated[int, Meta(description="Tensors kept for the backward pass; an estimate.")]
    total_bytes: Annotated[int, Meta(description="All of it, with the context.")]
    fits: bool


class IterationReport(Struct, frozen=True, kw_only=True):
    """Times of one iteration of a model on one kind of GPU."""

    schema: Literal["warplens/iteration/1"] = ITERATION_SCHEMA
    tool_version: str
    model_fingerprint: str = ""
    model: str
    gpu: str
    gpu_name: str = ""
    operator_model: Annotated[str, Meta(description="That times the kernels.")]
    mode: Annotated[str, Meta(description="training or inference.")]
    dtype: str
    batch: Annotated[int | None, Meta(description="Sequences of all GPUs; null of an exported program.")]
    sequence: int | None
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    micro_batches: int
    is_compiled: Annotated[bool, Meta(description="Element-wise chains are fused.")]
    parameters: int
    forward_ms: Annotated[float, Meta(description="Kernels of one micro-batch, in all stages.")]
    backward_ms: float
    optimizer_ms: float
    communication_ms: Annotated[
        float, Meta(description="Waited for: gradients after the backward pass, sends between stages.")
    ]
    bubble_ms: Annotated[float, Meta(description="Further micro-batches, at the slowest stage's pace.")]
    host_ms: Annotated[float, Meta(description="What the host needs to launch; counts where it is longer.")]
    total_ms: float
    total_ms_low: float
    total_ms_high: Annotated[float, Meta(description="Ends of the 80 % interval.")]
    tokens_per_s: float | None
    flops: Annotated[float, Meta(description="Of products, on all GPUs.")]
    tflops_per_gpu: float
    peak_share: Annotated[float, Meta(description="Of the GPU's peak of the data type.")]
    operators: Mapping[str, IterationOperatorEntry]
    memory: IterationMemoryEntry
    assumptions: Annotated[tuple[str, ...], Meta(description="What the times rest on, guesses named.")] = ()
    warnings: tuple[str, ...] = ()
