"""Published lists of the best configurations of a fused-MoE kernel on three GPUs (data/pipeweave/moe_tuning).

288 shapes per GPU: 16 models (experts, experts per token, hidden and intermediate size) x 18 batch sizes
from 1 to 4,096. Of each shape the lists hold all configurations within 1 % of the best of a sweep, and the
three best; no time of any other is known. The output of the product is twice the intermediate size wide.
"""

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from analyzer.tuning.kernel_space import find_kernel
from analyzer.tuning.measured_table import MeasuredTable, tabulate
from analyzer.tuning.samples import Samples

# Names of the files: keys of the database.
GPUS = {"A100-80GB_SXM": "a100-80gb-sxm", "A40": "a40", "H800": "h800-sxm"}
_CONFIG = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


def load_lists(data: Path, name: str) -> MeasuredTable:
    """Return the listed configurations on a GPU of GPUS; data: the folder of all data."""
    folder = data / "pipeweave" / "moe_tuning"
    rows, times = [], []
    for part in ("within_1_percent", "best_three"):
        for record in parquet.read_table(folder / f"{part}_{name}.parquet").to_pylist():
            shape = (record["M"], record["E"], record["topk"], 2 * record["N"], record["H"])
            rows.append((*shape, *(record[column] for column in _CONFIG)))
            times.append(record["time_us"])
    table = np.array(rows, dtype=np.int64)
    space = find_kernel("grouped_gemm").space
    samples = Samples(space, GPUS[name], table[:, :5], table[:, 5:8], table[:, 8:], np.array(times))
    return tabulate(samples)


def load_default_times(data: Path, name: str) -> dict[tuple[int, ...], float]:
    """Return times in us of SGLang's default configuration that are published, by shape (m, ..., k)."""
    titles = {"A100-80GB_SXM": "A100-80GB SXM"}
    found: dict[tuple[int, ...], float] = {}
    with open(data / "pipeweave" / "rows" / "moe.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gpu"] == titles.get(name, name):
                m, experts, topk, hidden, intermediate = (
                    int(row[key]) for key in ("M", "E", "topk", "H", "N")
                )
                found[m, experts, topk, 2 * intermediate, hidden] = float(row["time_us"])
    return found
