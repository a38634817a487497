"""Measured times of operators, which teach and judge the learned models."""

from enum import StrEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, OperatorBatch, select


class Timing(StrEnum):
    """What a measured time spans; the three differ by one to three microseconds per launch."""

    KERNEL = "kernel"  # start to end of the kernel, as the PyTorch profiler or CUPTI see it
    INTERVAL = "interval"  # from one launch to the next, by CUDA events or CUDA graph replay
    NCU = "ncu"  # Nsight Compute's gpu__time_duration, at its own clock control


class MeasuredBatch(Struct, frozen=True):
    """Times of a batch of one operator, data type and kind on one GPU."""

    dataset: str
    gpu: str  # key in `hwdb/gpu`
    batch: OperatorBatch
    time_us: Column
    # rows with the same key stay on the same side of a split: (n, k) of products, head layouts of attention
    shape_keys: NDArray[np.int64]
    timing: Timing
    # rows picked for how far a model was off on them: they teach, and do not count as errors
    is_selection: bool = False

    def __len__(self) -> int:
        return len(self.time_us)

    def select(self, rows: NDArray[np.int64]) -> "MeasuredBatch":
        """Return the rows at these positions."""
        return MeasuredBatch(
            self.dataset,
            self.gpu,
            select(self.batch, rows),
            self.time_us[rows],
            self.shape_keys[rows],
            self.timing,
            self.is_selection,
        )
