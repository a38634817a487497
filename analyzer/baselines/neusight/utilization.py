"""Utilization of the roofline as NeuSight learns it: alpha - beta / waves (equations 5 to 8, table 3).

The idea: with more waves an SM has more to hide latencies with, so that utilization grows towards alpha.
Both are sigmoids of an MLP's outputs, one MLP per family, which sees ratios of a tile's work to an SM's
share of the GPU. Invariant: utilization is below 1, so that no prediction is faster than the roofline.
Example: alpha = 0.9, beta = 0.4 and 8 waves give 0.85; one wave gives 0.5.
"""

from enum import StrEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.baselines.neusight.tiled_work import TiledWork, compute_roofline_us
from analyzer.operators.batches import Column
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType

Matrix = NDArray[np.float64]
LEAST_UTILIZATION = 1e-4  # of launches that move some kilobytes in 30 us


class NeuSightForm(StrEnum):
    """Which of table 3's inputs the MLP sees, and which loss it learned by."""

    PAPER = "paper"  # all five; mean absolute percentage error
    CODE = "code"  # the authors' code: without memory size; symmetric percentage error


class UtilizationNetwork(Struct, frozen=True):
    """An MLP with ReLU between its layers, from standardized logarithms to the logits of alpha and beta."""

    form: NeuSightForm
    low: Column  # of each input over the rows that taught: inputs are cut off there
    high: Column
    mean: Column
    deviation: Column
    weights: tuple[Matrix, ...]  # inputs x outputs, per layer
    biases: tuple[Column, ...]


def predict_work_us(
    work: TiledWork, hardware: OperatorHardware, dtype: DataType, network: UtilizationNetwork
) -> Column:
    """Return the latency of operators cut into tiles, in microseconds (3 to 8)."""
    inputs = compute_inputs(work, hardware, dtype, network.form)
    utilization = compute_utilization(inputs, work.count_waves(hardware), network)
    return compute_roofline_us(work, hardware, dtype) / utilization


def compute_inputs(
    work: TiledWork, hardware: OperatorHardware, dtype: DataType, form: NeuSightForm
) -> Matrix:
    """Return log2 of table 3's ratios, rows x 5, or rows x 4 in the form of the code.

    A tile's FLOPs and bytes over an SM's share of peak and bandwidth (both milliseconds); the tile's FLOPs
    per byte over the GPU's; the bytes of all waves over an SM's share of the L2, and of the memory.
    """
    peak, bandwidth = hardware.find_peak_tflops(dtype) * 1e12, hardware.dram_gbps * 1e9
    wave_bytes = work.count_waves(hardware) * work.bytes_per_tile
    ratios = [
        1e3 * work.flops_per_tile * hardware.sm_count / peak,
        1e3 * work.bytes_per_tile * hardware.sm_count / bandwidth,
        wave_bytes * hardware.sm_count / hardware.l2_bytes,
        work.flops_per_tile / work.bytes_per_tile * bandwidth / peak,
    ]
    if form is NeuSightForm.PAPER:
        ratios.append(wave_bytes * hardware.sm_count / hardware.dram_bytes)
    logarithms: Matrix = np.log2(np.stack(ratios, axis=1))
    return logarithms


def compute_utilization(inputs: Matrix, waves: Column, network: UtilizationNetwork) -> Column:
    """Return alpha - beta / waves (7, 8), at least `LEAST_UTILIZATION`."""
    values = (np.clip(inputs, network.low, network.high) - network.mean) / network.deviation
    last = len(network.weights) - 1
    for place, (weights, biases) in enumerate(zip(network.weights, network.biases, strict=True)):
        values = values @ weights + biases
        if place < last:
            values = np.maximum(values, 0.0)
    alpha, beta = 1.0 / (1.0 + np.exp(-np.clip(values, -40.0, 40.0))).T
    utilization: Column = np.maximum(alpha - beta / waves, LEAST_UTILIZATION)
    return utilization
