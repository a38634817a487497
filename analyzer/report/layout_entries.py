"""What entries of compared layouts have in common, whether one batch or requests over time are forecast."""

from typing import Annotated

from msgspec import Meta, Struct


class LayoutEntry(Struct, frozen=True, kw_only=True):
    """One kind of GPU and one division of the model, and why it cannot be where it cannot."""

    gpu: str
    gpu_name: str
    gpus: Annotated[int, Meta(description="GPUs of one replica.")]
    tensor_parallel: int
    pipeline_parallel: int
    expert_parallel: int = 1
    dtype: Annotated[str, Meta(description="Of weights and products; empty where it is not possible.")] = ""
    is_possible: bool
    reason: Annotated[str, Meta(description="Why it is not possible; empty where it is.")] = ""
    hint: Annotated[str, Meta(description="What would work in its place.")] = ""
    price_per_gpu_hour: Annotated[float | None, Meta(description="As the user gave it.")] = None
    cost_per_million_output_tokens: float | None = None
    is_best: Annotated[
        bool,
        Meta(description="The first that meets all targets: the cheapest, where GPUs have prices."),
    ] = False
