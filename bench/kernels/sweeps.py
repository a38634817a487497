"""Rows from whole tuning sweeps, on GPUs that the table of measured kernels does not hold.

AutoTuningAssociation/benchmark_hub @8eeb99e (a copy lies in `../shared/data/kernel_tuner`) has every
configuration that was tried. Of a sweep the fastest ones are taken, so that a choice is held against the
best, and others by a hash of the configuration: many of them from the fastest fifth.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kernels.recipes import ROOT, MeasuredRow, TableError

SWEEPS = ROOT.parent / "shared" / "data" / "kernel_tuner"
SWEEP = SWEEPS / "convolution.parquet"
SUITE = "convolution_sweep"
GPU = "RTX 3060 Laptop"
_DEVICE = "NVIDIA GeForce RTX 3060 Laptop GPU"
_TUNED = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
_OUTPUTS = 4096
_N_FASTEST, _N_OF_FASTEST_FIFTH, _N_OF_OTHERS = 10, 70, 70


class TimedConfiguration(Protocol):
    """A configuration of a sweep: the name that is hashed, and its time."""

    @property
    def case(self) -> str: ...

    @property
    def time_us(self) -> float: ...


def read_sweep(path: Path, columns: Sequence[str], device: str) -> list[dict[str, Any]]:
    """Columns of the configurations that ran on a device. Raises TableError."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise TableError(f"{path}: reading it needs pyarrow (pip install -e '.[dev]')") from None
    if not path.exists():
        raise TableError(f"{path} is not there")
    ran = [("device", "==", device), ("status", "==", "ok")]
    rows: list[dict[str, Any]] = parquet.read_table(path, columns=list(columns), filters=ran).to_pylist()
    return rows


_Configuration = TypeVar("_Configuration", bound=TimedConfiguration)


def sample_configurations(
    rows: Iterable[_Configuration], best: int, of_fast: int, of_all: int
) -> tuple[_Configuration, ...]:
    """So many of the fastest, and by a hash of the rest: of the fastest fifth, and of all others."""
    ordered = sorted(rows, key=lambda row: (row.time_us, row.case))
    rest = ordered[best:]
    fast = _sample_by_hash(rest[: len(ordered) // 5], of_fast)
    return (*ordered[:best], *fast, *_sample_by_hash([row for row in rest if row not in fast], of_all))


def _sample_by_hash(rows: Sequence[_Configuration], count: int) -> list[_Configuration]:
    return sorted(rows, key=lambda row: hashlib.sha256(row.case.encode()).hexdigest())[:count]


def read_sweep_rows(path: Path = SWEEP) -> tuple[MeasuredRow, ...]:
    """Rows of the sweep; none where the file is not there. Raises TableError."""
    return (
        sample_configurations(_read_measured_rows(path), _N_FASTEST, _N_OF_FASTEST_FIFTH, _N_OF_OTHERS)
        if path.exists()
        else ()
    )


def _read_measured_rows(path: Path) -> Iterator[MeasuredRow]:
    wanted = (*_TUNED, "filter_width", "filter_height")
    for cells in read_sweep(path, (*wanted, "t_med"), _DEVICE):
        yield _make_row({name: int(cells[name]) for name in wanted}, round(cells["t_med"] * 1e3, 3))


def _make_row(config: dict[str, int], time_us: float) -> MeasuredRow:
    block = (config["block_size_x"], config["block_size_y"], 1)
    tile = (config["tile_size_x"], config["tile_size_y"], 1)
    x, y = (math.ceil(_OUTPUTS / (b * t)) for b, t in zip(block[:2], tile[:2], strict=True))
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
    return MeasuredRow(
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
