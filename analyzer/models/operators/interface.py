"""What an operator model takes and returns."""

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.models.learned.correction import ResidualInterval
from analyzer.operators.batches import Column


class OperatorPrediction(Struct, frozen=True):
    """Predicted times of a batch, with 80 % intervals and what they rest on."""

    time_us: Column
    low_us: Column
    high_us: Column
    # False where a row lies outside what taught the model: its time is the reference's, or extrapolated
    in_range: NDArray[np.bool_]
    basis: str  # one phrase: "learned on 12,000 rows of this GPU (aiconfigurator, interval times)"
    # of the kernels alone, where the times are intervals with the host's launch in them; None: time_us
    gpu_us: Column | None = None
    # share of each time that the SMs decide, see `ReferenceTerms`; None: not told apart
    sm_share: Column | None = None
    is_of_others: bool = False  # no row of the framework's kernels taught: the time is that of others
    timing: str = ""  # what the times span: "kernel", "interval", "ncu"; empty where nothing measured says
    terms_us: Mapping[str, Column] = {}  # what a time was made of, for --explain
    level_name: str = ""  # of the model and set of weights that a calibration levels: "ours-gemm-bf16"
    leveled: ResidualInterval | None = None  # the interval once a calibration has given the level
    # makes rows x coordinates, between which a calibration interpolates; few ask for them
    locate: Callable[[], NDArray[np.float64]] | None = None
