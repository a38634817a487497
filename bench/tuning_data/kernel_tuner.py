"""Brute-force sweeps of two kernels at one problem size on three GPUs each (data/kernel_tuner).

CLBlast's product of 4,096³ in FP32 and a convolution of 4,096² with a filter of 15 x 15. A row is a
configuration; most of the space runs. Of GPUs that were measured twice the first campaign counts (see the
README there).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
from msgspec import Struct

from analyzer.tuning.kernel_space import KernelSpace, Tiling
from analyzer.tuning.measured_table import MeasuredTable, tabulate
from analyzer.tuning.samples import Samples

GPUS = {
    "NVIDIA GeForce RTX 2080 Ti": "rtx-2080-ti",
    "NVIDIA GeForce RTX 3060 Laptop GPU": "rtx-3060-laptop",
    "NVIDIA TITAN RTX": "titan-rtx",
}


class TunedKernel(Struct, frozen=True):
    """A kernel of the collection: its space, and how its columns give macro and micro parameters."""

    space: KernelSpace
    shape: tuple[int, ...]
    n_tile_columns: int = 0  # of macro parameters that are a block's size times a tile's

    def read_config(self, row: dict[str, Any]) -> list[int]:
        """Return macro and micro parameters of a row."""
        names = (*self.space.macro_parameters, *self.space.micro_parameters)
        if not self.n_tile_columns:
            return [int(row[name]) for name in names]
        sizes = [int(row[f"block_size_{axis}"]) * int(row[f"tile_size_{axis}"]) for axis in "xy"]
        return [*sizes, 1, *(int(row[name]) for name in self.space.micro_parameters)]


KERNELS = {
    "gemm": TunedKernel(
        KernelSpace(
            name="clblast_gemm",
            inputs=("m", "n", "k"),
            macro_parameters=("MWG", "NWG", "KWG"),
            micro_parameters=(
                "MDIMC", "NDIMC", "MDIMA", "NDIMB", "KWI", "VWM", "VWN", "STRM", "STRN", "SA", "SB",
            ),
            grid=(Tiling("m", "MWG"), Tiling("n", "NWG")),
            loop=Tiling("k", "KWG"),
        ),
        (4096, 4096, 4096),
    ),
    "convolution": TunedKernel(
        KernelSpace(
            name="convolution",
            inputs=("width", "height", "filter_rows"),
            macro_parameters=("columns", "rows", "filter_rows_per_step"),
            micro_parameters=("block_size_x", "block_size_y", "read_only", "use_padding"),
            grid=(Tiling("width", "columns"), Tiling("height", "rows")),
            loop=Tiling("filter_rows", "filter_rows_per_step"),
        ),
        (4096, 4096, 15),
        n_tile_columns=2,
    ),
}  # fmt: skip


def load_kernel(data: Path, name: str) -> dict[str, MeasuredTable]:
    """Return the sweeps of a kernel of KERNELS, by key of the GPU."""
    kernel = KERNELS[name]
    records = parquet.read_table(data / "kernel_tuner" / f"{name}.parquet").to_pylist()
    found = {}
    for device, gpu in GPUS.items():
        campaigns = list(dict.fromkeys(row["file"] for row in records if row["device"] == device))
        own = [row for row in records if campaigns and row["file"] == campaigns[0]]
        if own:
            found[gpu] = _tabulate(kernel, gpu, own)
    return found


def _tabulate(kernel: TunedKernel, gpu: str, rows: Sequence[dict[str, Any]]) -> MeasuredTable:
    configs = np.array([kernel.read_config(row) for row in rows], dtype=np.int64)
    times = [1e3 * row["time_ms"] if row["status"] == "ok" else np.nan for row in rows]
    n_macro = len(kernel.space.macro_parameters)
    shapes = np.tile(np.array(kernel.shape, dtype=np.int64), (len(rows), 1))
    return tabulate(
        Samples(kernel.space, gpu, shapes, configs[:, :n_macro], configs[:, n_macro:], np.array(times))
    )
