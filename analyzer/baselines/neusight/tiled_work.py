"""Operators as equal tiles of their output, in waves over the SMs (NeuSight, equations 1 to 4).

Source: Lee, Phanishayee, Mahajan, "Forecasting GPU Performance for Deep Learning Training and Inference",
ASPLOS 2025.

Example: a product of 1000 rows and 1000 columns in tiles of 128 by 64 has ceil(1000 / 128) · ceil(1000 / 64)
= 128 tiles; on 108 SMs these are 2 waves, so that its least time is that of 216 tiles.
"""

from enum import StrEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, ElementwiseBatch, OperatorBatch, ProductBatch, RowwiseBatch
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType, Operator

TiledBatch = ProductBatch | RowwiseBatch | ElementwiseBatch
Matrix = NDArray[np.float64]

_FLOPS_PER_ELEMENT = {Operator.SOFTMAX: 5.0, Operator.LAYERNORM: 8.0}


class NeuSightFamily(StrEnum):
    """The five families that have an MLP each; the value names their weights."""

    BMM = "bmm"
    LINEAR = "linear"
    ELEMENTWISE = "elementwise"
    SOFTMAX = "softmax"
    LAYERNORM = "layernorm"


_FAMILIES = {
    Operator.BMM: NeuSightFamily.BMM,
    Operator.GEMM: NeuSightFamily.LINEAR,
    Operator.ELEMENTWISE: NeuSightFamily.ELEMENTWISE,
    Operator.SOFTMAX: NeuSightFamily.SOFTMAX,
    Operator.LAYERNORM: NeuSightFamily.LAYERNORM,
}


class TiledWork(Struct, frozen=True):
    """Operators as equal tiles, one entry per row."""

    tiles: Column
    flops_per_tile: Column
    bytes_per_tile: Column
    flops: Column  # of the whole operator, without the padding of tiles
    bytes: Column

    def count_waves(self, hardware: OperatorHardware) -> Column:
        """Return in how many rounds the SMs compute all tiles, one tile each at a time (3)."""
        return np.ceil(self.tiles / hardware.sm_count)


def find_neusight_family(batch: OperatorBatch) -> NeuSightFamily | None:
    """Return the family that predicts a batch, None where it counts as memory-bound."""
    return _FAMILIES.get(batch.operator)


def cut_tiles(batch: TiledBatch, tiles: Matrix) -> TiledWork:
    """Return the work of each row cut into tiles (2).

    tiles: rows x 2, output columns and rows per tile of products; rows x 1 of the others: rows of the matrix
    (each a whole one) of row-wise operators, elements of element-wise ones. CTAs that share an output tile by
    parts of the reduction count as one tile.
    """
    flops, moved = count_flops(batch), count_bytes(batch)
    if isinstance(batch, ProductBatch):
        columns, rows = tiles.T
        operands = batch.k * (rows * batch.dtype.activation_bytes + columns * batch.dtype.weight_bytes)
        return TiledWork(
            tiles=batch.batch * np.ceil(batch.n / columns) * np.ceil(batch.m / rows),
            flops_per_tile=2.0 * rows * columns * batch.k,
            bytes_per_tile=operands + rows * columns * batch.dtype.output_bytes,
            flops=flops,
            bytes=moved,
        )
    if isinstance(batch, RowwiseBatch):
        size, whole = tiles[:, 0] * batch.columns, batch.rows * batch.columns
    else:
        size, whole = tiles[:, 0], batch.elements
    return TiledWork(
        tiles=np.ceil(whole / size),
        flops_per_tile=flops / whole * size,
        bytes_per_tile=moved / whole * size,
        flops=flops,
        bytes=moved,
    )


def describe_shapes(batch: TiledBatch) -> Matrix:
    """Return the sizes that tell one shape of a family from another, rows x sizes."""
    if isinstance(batch, ProductBatch):
        return np.stack([batch.batch, batch.m, batch.n, batch.k], axis=1)
    if isinstance(batch, RowwiseBatch):
        return np.stack([batch.rows, batch.columns], axis=1)
    return batch.elements[:, None]


def count_flops(batch: TiledBatch) -> Column:
    """Return the operations of each row; of element-wise operators one per output."""
    if isinstance(batch, ProductBatch):
        return 2.0 * batch.batch * batch.m * batch.n * batch.k
    if isinstance(batch, RowwiseBatch):
        return _FLOPS_PER_ELEMENT.get(batch.operator, 1.0) * batch.rows * batch.columns
    return batch.elements


def count_bytes(batch: TiledBatch) -> Column:
    """Return the bytes of inputs and outputs of each row."""
    if isinstance(batch, ProductBatch):
        rows, weights = batch.dtype.activation_bytes, batch.dtype.weight_bytes
        inputs = batch.m * batch.k * rows + batch.k * batch.n * weights
        return batch.batch * inputs + _count_output_bytes(batch)
    if isinstance(batch, RowwiseBatch):
        return 2.0 * batch.rows * batch.columns * batch.dtype.activation_bytes
    return (batch.inputs + 1.0) * batch.elements * batch.dtype.activation_bytes


def _count_output_bytes(batch: TiledBatch) -> Column:
    if isinstance(batch, ProductBatch):
        return batch.batch * batch.m * batch.n * batch.dtype.output_bytes
    size = batch.rows * batch.columns if isinstance(batch, RowwiseBatch) else batch.elements
    return size * batch.dtype.activation_bytes


def compute_roofline_us(work: TiledWork, hardware: OperatorHardware, dtype: DataType) -> Column:
    """Return waves · a tile's FLOPs over an SM's share of the roofline, in microseconds (1, 3 to 5).

    The roofline is that of the whole operator's FLOPs per byte; it may bind by bandwidth, and a last, partial
    wave is then paid in full as well, as (4) has it.
    """
    peak = hardware.find_peak_tflops(dtype) * 1e6  # FLOPs per microsecond
    roofline = np.minimum(work.flops / work.bytes * hardware.dram_gbps * 1e3, peak)
    return work.count_waves(hardware) * work.flops_per_tile / (roofline / hardware.sm_count)
