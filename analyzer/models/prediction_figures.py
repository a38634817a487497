"""The figures of a prediction that models and reports share, in a module that imports no model."""

from msgspec import Struct


class PredictionFigures(Struct, frozen=True, kw_only=True):
    """Figures of one launch on one GPU by one model, as models give and as reports show them."""

    gpu: str
    gpu_name: str
    model: str
    cycles: float  # elapsed SM cycles, launch included
    time_us: float
    time_us_low: float  # low and high: see `assumptions`
    time_us_high: float
    bound: str
    occupancy: float
    occupancy_limiter: str
    ctas_per_sm: int
    waves: float
    clock_mhz: float
