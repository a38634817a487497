"""The tiles that libraries chose on profiled GPUs, and the choice for a shape and GPU that nobody profiled.

NeuSight takes a tile's size from the kernel that the nearest profiled GPU ran for the nearest shape:
nearest in the logarithms of the GPU's figures, then in those of the shape.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.hardware_figures import OperatorHardware

_CHUNK_ROWS = 4096  # of distances at a time: some 30 MB
Matrix = NDArray[np.float64]


class GpuTiles(Struct, frozen=True):
    """Tiles of one profiled GPU."""

    gpu_figures: Matrix  # of `describe_gpu`
    log2_shapes: Matrix  # profiles x sizes
    tiles: Matrix  # profiles x sizes of a tile


TileTable = tuple[GpuTiles, ...]


def describe_gpu(hardware: OperatorHardware) -> Matrix:
    """Return what GPUs are compared by: log2 of SMs, peak, bandwidth, L2 and memory size."""
    return np.log2(
        [
            hardware.sm_count,
            hardware.fp32_tflops,
            hardware.dram_gbps,
            hardware.l2_bytes,
            hardware.dram_bytes,
        ]
    )


def choose_tiles(table: TileTable, shapes: Matrix, hardware: OperatorHardware) -> Matrix:
    """Return for each shape (rows x sizes) the tile that the nearest GPU ran for the nearest shape."""
    figures = describe_gpu(hardware)
    nearest = min(table, key=lambda entry: float(np.sum((entry.gpu_figures - figures) ** 2)))
    places = find_nearest(nearest.log2_shapes, np.log2(shapes))
    return nearest.tiles[places]


def find_nearest(known: Matrix, wanted: Matrix) -> NDArray[np.int64]:
    """Return for each row of `wanted` the place of the nearest row of `known`."""
    lengths = np.sum(known**2, axis=1)
    parts = [
        np.argmin(lengths - 2.0 * (wanted[start : start + _CHUNK_ROWS] @ known.T), axis=1)
        for start in range(0, len(wanted), _CHUNK_ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
