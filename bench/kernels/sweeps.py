"""Rows from whole tuning sweeps, on GPUs that the table of measured kernels does not hold.

`../shared/data/kernel_tuner` (benchmark_hub, its README there) has every configuration that was tried. Of the
sweep below the ten fastest are taken, so that a choice is held against the best, and others by a hash of the
configuration: half of them from the fastest fifth.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernels.recipes import ROOT, Row, TableError

SWEEP = ROOT.parent / "shared" / "data" / "kernel_tuner" / "convolution.parquet"
SUITE = "convolution_sweep"
GPU = "RTX 3060 Laptop"
_DEVICE = "NVIDIA GeForce RTX 3060 Laptop GPU"
_TUNED = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
_OUTPUTS = 4096
_BEST, _OF_FAST, _OF_ALL = 10, 70, 70


def sweep_rows(path: Path = SWEEP) -> tuple[Row, ...]:
    """Rows of the sweep; none where the file is not there. Raises TableError."""
    if not path.exists():
        return ()
    measured = sorted(_measured(path), key=lambda row: (row.time_us, row.case))
    best, rest = measured[:_BEST], measured[_BEST:]
    fast = _some(rest[: len(measured) // 5], _OF_FAST)
    others = _some([row for row in rest if row not in fast], _OF_ALL)
    return (*best, *fast, *others)


def _some(rows: Sequence[Row], count: int) -> list[Row]:
    return sorted(rows, key=lambda row: hashlib.sha256(row.case.encode()).hexdigest())[:count]


def _measured(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise TableError(f"{path}: reading it needs pyarrow (pip install -e '.[dev]')") from None
    wanted = [*_TUNED, "filter_width", "filter_height", "device", "status", "t_med"]
    for cells in parquet.read_table(path, columns=wanted).to_pylist():
        if cells["device"] == _DEVICE and cells["status"] == "ok":
            yield _row({name: int(cells[name]) for name in wanted[:-3]}, round(cells["t_med"] * 1e3, 3))


def _row(config: dict[str, int], time_us: float) -> Row:
    block = (config["block_size_x"], config["block_size_y"], 1)
    tile = (config["tile_size_x"], config["tile_size_y"], 1)
    x, y = (math.ceil(_OUTPUTS / (b * t)) for b, t in zip(block[:2], tile[:2], strict=True))
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
    return Row(
        case=f"cs-3060l-{digest}",
        suite=SUITE,
        step="",
        gpu=GPU,
        arch="sm_86",
        grid=(x, y, 1),
        block=block,
        cluster=None,
        dynamic_shared_bytes=0,
        arguments=("ptr", "ptr", "ptr"),
        registers=0,
        static_shared_bytes=0,
        warp_instructions_per_cta=None,
        opcodes_per_cta={},
        sectors_per_request={},
        time_us=time_us,
        note="",
        config=config,
    )
