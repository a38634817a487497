"""Rows whose repeats tell that the clock stood still while they were timed.

The RTX A4000's short convolutions were repeated 32 times (AutoTuningAssociation/benchmark_hub @8eeb99e):
about 50 ms, at whose beginning the GPU may run above the clock that its power lets it keep. In rows that
begin so, the first repeats take 1.08 to 1.25 times less than the last, and the median is either. In the
others all repeats take the same time.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kernels.recipes import MeasuredRow, load_rows
from kernels.sweeps import SWEEPS, read_sweep

SWEEP = SWEEPS / "convolution_milo.parquet"
_DEVICE = "NVIDIA RTX A4000"
# What the first launch takes longer than the others: rows of both campaigns hardly differ in it.
_FIRST_LAUNCH_US = {"convolution_milo_15": 86.0, "convolution_milo_17": 43.0}
_MAX_STEADY_SPREAD = 0.03
_TUNED = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
_SAME_TIME_TOLERANCE_US = 0.02


class RepeatTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What the repeats of a row tell.

    is_steady: the clock stood still; lasting_us: what a repeat took at the clock that the GPU came to, at
    least: the longest one less what the first takes longer, or the median.
    """

    is_steady: bool
    lasting_us: float


def read_repeats_by_case(path: Path = SWEEP) -> Mapping[str, RepeatTimes]:
    """Of the A4000's convolutions; none where the sweep is not there. Raises TableError."""
    if not path.exists():
        return {}
    timed: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for cells in read_sweep(path, (*_TUNED, "use_shmem", "t_min", "t_med", "t_max"), _DEVICE):
        timed.setdefault(tuple(int(cells[name]) for name in _TUNED), []).append(cells)
    found = {}
    for row in load_rows():
        if row.suite not in _FIRST_LAUNCH_US or row.gpu != "RTX A4000":
            continue
        own = [
            cells for cells in timed.get(_make_configuration_key(row), ()) if _is_same_measurement(cells, row)
        ]
        if len(own) == 1:
            least, most = (float(own[0][name]) * 1e3 for name in ("t_min", "t_max"))
            most -= _FIRST_LAUNCH_US[row.suite]
            found[row.case] = RepeatTimes(
                is_steady=most - least < _MAX_STEADY_SPREAD * least, lasting_us=max(row.time_us, most)
            )
    return found


def _make_configuration_key(row: MeasuredRow) -> tuple[int, ...]:
    return tuple(row.find_integer_parameter(name) for name in _TUNED)


def _is_same_measurement(cells: Mapping[str, Any], row: MeasuredRow) -> bool:
    """Whether this is the row's measurement: both campaigns and kernels of the sweep have its parameters."""
    return abs(float(cells["t_med"]) * 1e3 - row.time_us) < _SAME_TIME_TOLERANCE_US
