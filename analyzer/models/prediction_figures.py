"""The figures of a prediction that models and reports share, in a module that imports no model."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from analyzer.ir.launch import Timing


class PredictionFigures(Struct, frozen=True, kw_only=True):
    """Figures of one launch on one GPU by one model, as models give and as reports show them."""

    gpu: str
    gpu_name: str
    model: str
    cycles: Annotated[float, Meta(description="Elapsed SM cycles, launch included.")]
    time_us: float
    time_us_low: Annotated[float, Meta(description="Lower end of the interval; see assumptions.")]
    time_us_high: Annotated[float, Meta(description="Upper end of the interval; see assumptions.")]
    bound: Annotated[str, Meta(description="Pipe, memory level or latency that limits the kernel.")]
    occupancy: Annotated[float, Meta(description="Resident warps over the most that an SM can hold.")]
    occupancy_limiter: str
    ctas_per_sm: int
    waves: Annotated[float, Meta(description="CTAs of the grid over those that the GPU holds at a time.")]
    clock_mhz: float
    timing: Annotated[
        Timing | UnsetType,
        Meta(description="What the time is the time of, where that is not the launch interval."),
    ] = UNSET
