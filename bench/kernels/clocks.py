"""Find rows during whose repeats the clock was steady, and times at the final clock of the others.

The RTX A4000's short convolutions were repeated 32 times (AutoTuningAssociation/benchmark_hub @8eeb99e),
which takes about 50 ms. At the beginning the GPU may run above the clock that its power limit allows for
long. Then the first repeats are 1.08 to 1.25 times as fast as the last, and the median may be of either
kind. In the other rows all repeats take the same time.

The sweep has only the least, the median and the longest time. The first launch takes a constant longer
than the others (`_FIRST_LAUNCH_US`), so the longest time less this constant is that of a repeat at the
final clock: the clock was steady if it is close to the least time.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kernels.recipes import MeasuredRow, load_rows
from kernels.sweeps import SWEEPS, read_sweep

SWEEP = SWEEPS / "convolution_milo.parquet"
_DEVICE = "NVIDIA RTX A4000"
# Extra time of the first launch; it is nearly the same for all rows of a campaign.
_FIRST_LAUNCH_US = {"convolution_milo_15": 86.0, "convolution_milo_17": 43.0}
_MAX_STEADY_SPREAD = 0.03
_TUNED = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
_SAME_TIME_TOLERANCE_US = 0.02


class RepeatTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The clock and the time of a row's repeats."""

    is_steady: bool  # the clock did not change while the row was timed
    lasting_us: float  # time of a repeat at the final clock: at least the median


def read_repeats_by_case(path: Path = SWEEP) -> Mapping[str, RepeatTimes]:
    """Return the repeats of the A4000's convolutions by case; none without the sweep. Raises TableError."""
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
            shortest_us, longest_us = (float(own[0][name]) * 1e3 for name in ("t_min", "t_max"))
            longest_us -= _FIRST_LAUNCH_US[row.suite]
            found[row.case] = RepeatTimes(
                is_steady=longest_us - shortest_us < _MAX_STEADY_SPREAD * shortest_us,
                lasting_us=max(row.time_us, longest_us),
            )
    return found


def _make_configuration_key(row: MeasuredRow) -> tuple[int, ...]:
    return tuple(row.find_integer_parameter(name) for name in _TUNED)


def _is_same_measurement(cells: Mapping[str, Any], row: MeasuredRow) -> bool:
    """Return whether this is the row's own measurement, by its time.

    The sweep holds several campaigns and kernels with the same parameters.
    """
    return abs(float(cells["t_med"]) * 1e3 - row.time_us) < _SAME_TIME_TOLERANCE_US
