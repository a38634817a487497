"""Datasheet roofline (`--model roofline`): the larger of operations / peak and bytes / DRAM bandwidth.

Nothing is learned. It is a bound from below but where the data stay in the L2; the upper end of its interval
is assumed.
"""

import numpy as np

from analyzer.baselines.work import Work, count_work
from analyzer.hardware.gpu import Gpu
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import (
    AttentionBatch,
    Column,
    MlaBatch,
    MoeBatch,
    OperatorBatch,
    ProductBatch,
)
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.names import DataType

NAME = "roofline"
_LEAST_US = 1e-3
_HIGH_OVER_TIME = 4.0  # assumed: what small kernels take beyond the roofs


def predict(batch: OperatorBatch, gpu: Gpu) -> OperatorPrediction:
    """Return the roofline times of a batch on a GPU."""
    time_us = compute_roofline_us(batch, read_operator_hardware(gpu))
    return OperatorPrediction(
        time_us=time_us,
        low_us=time_us,
        high_us=time_us * _HIGH_OVER_TIME,
        in_range=np.ones(len(batch), dtype=np.bool_),
        basis="datasheet roofline: nothing learned; interval assumed",
    )


def compute_roofline_us(batch: OperatorBatch, hardware: OperatorHardware) -> Column:
    """Return the larger of the two roofs of each row in microseconds."""
    work = count_work(batch)
    peak_tflops, gbps = find_roofs(batch, hardware)
    return combine_roofs(work, peak_tflops, gbps)


def find_roofs(batch: OperatorBatch, hardware: OperatorHardware) -> tuple[float, float]:
    """Return the peak (TFLOP/s) of the units that an operator uses, and the DRAM bandwidth (GB/s)."""
    multiplies = isinstance(batch, ProductBatch | MoeBatch | AttentionBatch | MlaBatch)
    return hardware.find_peak_tflops(batch.dtype if multiplies else DataType.FP32), hardware.dram_gbps


def combine_roofs(work: Work, peak_tflops: float, gbps: float) -> Column:
    """Return max(operations / peak, bytes / bandwidth) in microseconds."""
    time_us: Column = np.maximum(work.flops / (peak_tflops * 1e6), work.bytes_moved / (gbps * 1e3))
    return np.maximum(time_us, _LEAST_US)
