"""Rows whose repeats tell that the clock stood still while they were timed.

The RTX A4000's short convolutions were repeated 32 times (`../shared/data/kernel_tuner`): about 50 ms, at
whose beginning the GPU may run above the clock that its power lets it keep. In rows that begin so, the first
repeats take 1.08 to 1.25 times less than the last, and the median is either. In the others all repeats
take the same time.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.recipes import Row, load_rows
from kernels.sweeps import SWEEPS, read_sweep

SWEEP = SWEEPS / "convolution_milo.parquet"
_DEVICE = "NVIDIA RTX A4000"
# What the first launch takes longer than the others: rows of both campaigns hardly differ in it.
_FIRST_LAUNCH_US = {"convolution_milo_15": 86.0, "convolution_milo_17": 43.0}
_STEADY = 0.03
_TUNED = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
_SAME_US = 0.02


def steady_rows(path: Path = SWEEP) -> Mapping[str, bool]:
    """Whether the clock stood still, by case; none where the sweep is not there. Raises TableError."""
    if not path.exists():
        return {}
    repeats: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for cells in read_sweep(path, (*_TUNED, "use_shmem", "t_min", "t_med", "t_max"), _DEVICE):
        repeats.setdefault(tuple(int(cells[name]) for name in _TUNED), []).append(cells)
    found = {}
    for row in load_rows():
        if row.suite not in _FIRST_LAUNCH_US or row.gpu != "RTX A4000":
            continue
        timed = [cells for cells in repeats.get(_configuration(row), ()) if _is_timed(cells, row)]
        if len(timed) == 1:
            least, most = (float(timed[0][name]) * 1e3 for name in ("t_min", "t_max"))
            found[row.case] = most - _FIRST_LAUNCH_US[row.suite] - least < _STEADY * least
    return found


def _configuration(row: Row) -> tuple[int, ...]:
    return tuple(row.integer(name) for name in _TUNED)


def _is_timed(cells: Mapping[str, Any], row: Row) -> bool:
    """Whether this is the row's measurement: both campaigns and kernels of the sweep have its parameters."""
    return abs(float(cells["t_med"]) * 1e3 - row.time_us) < _SAME_US
