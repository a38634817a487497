"""Sample rows from whole tuning sweeps, on GPUs that the table of measured kernels does not have.

AutoTuningAssociation/benchmark_hub @8eeb99e has every configuration that a tuner tried. A sample has the
fastest ones, so that a model's choice is compared with the real optimum, and others by a hash of the
configuration: many of them from the fastest fifth, where a tuner's decisions are made.
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
    """A configuration of a sweep: a name, which is hashed, and a time."""

    @property
    def case(self) -> str: ...

    @property
    def time_us(self) -> float: ...


def read_sweep(path: Path, columns: Sequence[str], device: str) -> list[dict[str, Any]]:
    """Read columns of the configurations that ran on a device. Raises TableError."""
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
    rows: Iterable[_Configuration], n_fastest: int, n_of_fastest_fifth: int, n_of_others: int
) -> tuple[_Configuration, ...]:
    """Return the fastest configurations, and samples by hash of the fastest fifth and of the others."""
    ordered = sorted(rows, key=lambda row: (row.time_us, row.case))
    rest = ordered[n_fastest:]
    fast = _sample_by_hash(rest[: len(ordered) // 5], n_of_fastest_fifth)
    others = [row for row in rest if row not in fast]
    return (*ordered[:n_fastest], *fast, *_sample_by_hash(others, n_of_others))


def _sample_by_hash(rows: Sequence[_Configuration], count: int) -> list[_Configuration]:
    return sorted(rows, key=lambda row: hashlib.sha256(row.case.encode()).hexdigest())[:count]


def read_sweep_rows(path: Path = SWEEP) -> tuple[MeasuredRow, ...]:
    """Return a sample of the sweep; none if the file is missing. Raises TableError."""
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
