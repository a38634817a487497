"""Measured times of operators, which teach and judge the learned models."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.launch import Timing as Timing
from analyzer.operators.batches import Column, OperatorBatch, select


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
