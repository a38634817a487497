"""NeuSight: operators cut into tiles, each as fast as the roofline times a learned utilization.

Source: Lee, Phanishayee, Mahajan, "Forecasting GPU Performance for Deep Learning Training and Inference",
ASPLOS 2025; equation and table numbers below are the paper's.

Idea: an operator's output falls into tiles (2), an SM computes one tile at a time, hence in waves (3), and
latency = latency of a tile · waves (4). A tile takes flops / (roofline · utilization) (5, 6), where the
roofline is an SM's share of min(flops / bytes · bandwidth, peak) (1), and utilization = alpha − beta / waves
(7) grows with the waves as latencies get hidden. Only alpha and beta are learned: sigmoids of an MLP's two
outputs, one MLP per operator family (8), on five ratios of a tile's work to an SM's share of the GPU (table 3).

Invariant: utilization is at most alpha < 1, so no prediction is below the roofline's time.
Example: 640 tiles on 80 SMs are 8 waves; with alpha = 0.9 and beta = 0.4 the SMs reach 0.85 of the roofline.

Open in the paper, and chosen here: least utilization `LEAST_UTILIZATION` where beta / waves exceeds alpha;
split reductions leave `tiles` alone (the output's tiles count); peaks and SMs are those of `hwdb` (the paper
gives P4 40 SMs, the chip has 20); inputs are cut off at the learning rows' range, then standardized by their
mean and deviation.
The authors' code departs from its paper: logarithms of four inputs (table 3 without memory size) instead of
five plain ratios, and symmetric percentage error as loss. Both are `NeuSightForm`s; the paper's is the default.
"""

from enum import StrEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.models.operators.neusight_tiles import TileTable, choose_tiles
from analyzer.operators.batches import CollectiveBatch, Column, ElementwiseBatch, ProductBatch, RowwiseBatch
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType, Operator

NeuSightBatch = ProductBatch | RowwiseBatch | ElementwiseBatch
Matrix = NDArray[np.float64]

LEAST_UTILIZATION = 1e-4  # a launch of 30 us that moves a few kilobytes
_FLOPS_PER_ELEMENT = {Operator.SOFTMAX: 5.0, Operator.LAYERNORM: 8.0}  # of row-wise operators; others 1


class NeuSightFamily(StrEnum):
    """The five families that have an MLP each; the value names their weights."""

    BMM = "bmm"
    LINEAR = "linear"
    ELEMENTWISE = "elementwise"
    SOFTMAX = "softmax"
    LAYERNORM = "layernorm"


class NeuSightForm(StrEnum):
    """Which inputs the MLP sees, and which loss it learns by."""

    PAPER = "paper"  # the five ratios of table 3; mean absolute percentage error
    CODE = "code"  # log2 of the first three and the last; symmetric percentage error


class UtilizationNetwork(Struct, frozen=True):
    """An MLP with ReLU between its layers, from standardized inputs to the logits of alpha and beta."""

    form: NeuSightForm
    input_low: Column  # of the rows that taught: inputs are cut off there
    input_high: Column
    input_mean: Column
    input_deviation: Column
    weights: tuple[Matrix, ...]  # inputs x outputs of each layer
    biases: tuple[Column, ...]


class NeuSightModel(Struct, frozen=True):
    """What one family has learned: its utilization, and the tiles that libraries chose on known GPUs."""

    family: NeuSightFamily
    network: UtilizationNetwork
    tiles: TileTable


class TiledWork(Struct, frozen=True):
    """An operator as equal tiles, per row."""

    tiles: Column
    flops_per_tile: Column
    bytes_per_tile: Column
    flops: Column  # of the whole operator, as those of the roofline
    bytes: Column


def find_family(operator: Operator) -> NeuSightFamily | None:
    """Return the family that predicts an operator, None where it counts as memory-bound."""
    return _FAMILIES.get(operator)


_FAMILIES = {
    Operator.BMM: NeuSightFamily.BMM,
    Operator.GEMM: NeuSightFamily.LINEAR,
    Operator.ELEMENTWISE: NeuSightFamily.ELEMENTWISE,
    Operator.SOFTMAX: NeuSightFamily.SOFTMAX,
    Operator.LAYERNORM: NeuSightFamily.LAYERNORM,
}


def predict_neusight(batch: NeuSightBatch, hardware: OperatorHardware, model: NeuSightModel) -> Column:
    """Return the latency of each row in microseconds (equations 1 to 8)."""
    return predict_work(
        cut_tiles(batch, choose_tiles(model.tiles, describe_shapes(batch), hardware)),
        hardware,
        batch.dtype,
        model.network,
    )


def predict_work(
    work: TiledWork, hardware: OperatorHardware, dtype: DataType, network: UtilizationNetwork
) -> Column:
    """Return the latency in microseconds of operators that are cut into tiles already (equations 3 to 8)."""
    waves = np.ceil(work.tiles / hardware.sm_count)
    utilization = compute_utilization(compute_inputs(work, hardware, dtype, network.form), waves, network)
    return compute_roofline_us(work, hardware, dtype) / utilization


def predict_fused(
    batches: list[NeuSightBatch], hardware: OperatorHardware, first_model: NeuSightModel
) -> Column:
    """Return the latency in microseconds of a chain of operators that run as one kernel, row by row.

    The paper adds the FLOPs of all, takes what passes between them from the traffic, and lets the first
    operator's tiles and MLP predict. Traffic: the first one's inputs, the further inputs of the others, and the
    last one's output.
    """
    first = batches[0]
    tiles = choose_tiles(first_model.tiles, describe_shapes(first), hardware)
    work = cut_tiles(first, tiles)
    further_flops = sum((count_flops(batch) for batch in batches[1:]), np.zeros(len(first)))
    passed_on = sum((_count_output_bytes(batch) for batch in batches[:-1]), np.zeros(len(first)))
    further_bytes = sum((count_bytes(batch) for batch in batches[1:]), np.zeros(len(first))) - 2.0 * passed_on
    fused = TiledWork(
        tiles=work.tiles,
        flops_per_tile=work.flops_per_tile + further_flops / work.tiles,
        bytes_per_tile=work.bytes_per_tile + further_bytes / work.tiles,
        flops=work.flops + further_flops,
        bytes=work.bytes + further_bytes,
    )
    return predict_work(fused, hardware, first.dtype, first_model.network)


def predict_memory_bound(bytes_moved: Column, hardware: OperatorHardware) -> Column:
    """Return the latency in microseconds of an operator without a family: its bytes over the bandwidth."""
    return bytes_moved / (hardware.dram_gbps * 1e3)


def predict_ring_all_reduce(batch: CollectiveBatch, link_gbps: float, utilization: float) -> Column:
    """Return the latency in microseconds of all-reduces around a ring, and of one send between two GPUs.

    A ring of g GPUs passes 2 · (g − 1) / g of the message over each link; link_gbps is the peak of one
    direction. The paper measures `utilization` on a system at hand and carries it over to the target's link.
    """
    if batch.operator is Operator.SEND_RECV:
        share = np.ones(len(batch))
    else:
        share = 2.0 * (batch.gpus - 1.0) / batch.gpus
    return share * batch.message_bytes / (link_gbps * 1e3 * utilization)


def compute_roofline_us(work: TiledWork, hardware: OperatorHardware, dtype: DataType) -> Column:
    """Return waves · the time of one tile at an SM's share of the roofline, in microseconds (1, 3 to 5).

    Each tile has flops / bytes of the whole operator on its side of (1), so that a memory-bound operator's
    last, partial wave is paid in full, as in (4).
    """
    waves = np.ceil(work.tiles / hardware.sm_count)
    peak = hardware.find_peak_tflops(dtype) * 1e6  # flops per microsecond
    roofline = np.minimum(work.flops / work.bytes * hardware.dram_gbps * 1e3, peak)
    return waves * work.flops_per_tile / (roofline / hardware.sm_count)


def compute_inputs(
    work: TiledWork, hardware: OperatorHardware, dtype: DataType, form: NeuSightForm
) -> Matrix:
    """Return the ratios of table 3, rows x 5; of the code's form their logarithms, rows x 4."""
    waves = np.ceil(work.tiles / hardware.sm_count)
    peak, bandwidth = hardware.find_peak_tflops(dtype) * 1e12, hardware.dram_gbps * 1e9
    wave_bytes = waves * work.bytes_per_tile
    ratios = np.stack(
        [
            1e3 * work.flops_per_tile / (peak / hardware.sm_count),  # GFLOP per TFLOP/s: milliseconds
            1e3 * work.bytes_per_tile / (bandwidth / hardware.sm_count),
            wave_bytes / (hardware.l2_bytes / hardware.sm_count),
            work.flops_per_tile / work.bytes_per_tile / (peak / bandwidth),
            wave_bytes / (hardware.dram_bytes / hardware.sm_count),
        ],
        axis=1,
    )
    if form is NeuSightForm.PAPER:
        return ratios
    logarithms: Matrix = np.log2(ratios[:, :4])
    return logarithms


def compute_utilization(inputs: Matrix, waves: Column, network: UtilizationNetwork) -> Column:
    """Return alpha − beta / waves (7, 8), at least `LEAST_UTILIZATION`."""
    values = np.clip(inputs, network.input_low, network.input_high)
    values = (values - network.input_mean) / network.input_deviation
    last = len(network.weights) - 1
    for place, (weights, biases) in enumerate(zip(network.weights, network.biases, strict=True)):
        values = values @ weights + biases
        if place < last:
            values = np.maximum(values, 0.0)
    alpha, beta = 1.0 / (1.0 + np.exp(-np.clip(values, -40.0, 40.0))).T
    return np.maximum(alpha - beta / waves, LEAST_UTILIZATION)


def describe_shapes(batch: NeuSightBatch) -> Matrix:
    """Return the sizes that tell one shape of a family from another, rows x sizes."""
    if isinstance(batch, ProductBatch):
        return np.stack([batch.batch, batch.m, batch.n, batch.k], axis=1)
    if isinstance(batch, RowwiseBatch):
        return np.stack([batch.rows, batch.columns], axis=1)
    return batch.elements[:, None]


def count_flops(batch: NeuSightBatch) -> Column:
    """Return the operations of each row; of element-wise operators one per output."""
    if isinstance(batch, ProductBatch):
        return 2.0 * batch.batch * batch.m * batch.n * batch.k
    if isinstance(batch, RowwiseBatch):
        return _FLOPS_PER_ELEMENT.get(batch.operator, 1.0) * batch.rows * batch.columns
    return batch.elements


def count_bytes(batch: NeuSightBatch) -> Column:
    """Return the bytes of inputs and outputs of each row."""
    if isinstance(batch, ProductBatch):
        inputs = (
            batch.m * batch.k * batch.dtype.activation_bytes + batch.k * batch.n * batch.dtype.weight_bytes
        )
        return batch.batch * inputs + _count_output_bytes(batch)
    if isinstance(batch, RowwiseBatch):
        return 2.0 * batch.rows * batch.columns * batch.dtype.activation_bytes
    return (batch.inputs + 1.0) * batch.elements * batch.dtype.activation_bytes


def _count_output_bytes(batch: NeuSightBatch) -> Column:
    if isinstance(batch, ProductBatch):
        return batch.batch * batch.m * batch.n * batch.dtype.output_bytes
    size = batch.rows * batch.columns if isinstance(batch, RowwiseBatch) else batch.elements
    return size * batch.dtype.activation_bytes


def cut_tiles(batch: NeuSightBatch, tiles: Matrix) -> TiledWork:
    """Return the work of each row cut into tiles (equation 2).

    tiles: rows x 2, output columns and rows per tile of products; rows x 1 of the others: rows of the matrix
    (each a whole one) of row-wise operators, elements of element-wise ones.
    """
    flops, moved = count_flops(batch), count_bytes(batch)
    if isinstance(batch, ProductBatch):
        columns, rows = tiles.T
        count = batch.batch * np.ceil(batch.n / columns) * np.ceil(batch.m / rows)
        operands = batch.k * (rows * batch.dtype.activation_bytes + columns * batch.dtype.weight_bytes)
        return TiledWork(
            tiles=count,
            flops_per_tile=2.0 * rows * columns * batch.k,
            bytes_per_tile=operands + rows * columns * batch.dtype.output_bytes,
            flops=flops,
            bytes=moved,
        )
    if isinstance(batch, RowwiseBatch):
        size, whole = tiles[:, 0] * batch.columns, batch.rows * batch.columns
    else:
        size, whole = tiles[:, 0], batch.elements
    count = np.ceil(whole / size)
    return TiledWork(
        tiles=count,
        flops_per_tile=flops / whole * size,
        bytes_per_tile=moved / whole * size,
        flops=flops,
        bytes=moved,
    )
