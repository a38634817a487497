"""Load SynPerf's own rows of SGLang's fused MoE (PipeWeave): the first product, bf16, kernel durations.

Rows of the default configuration come from two places: `rows/moe.csv`, a sample of all; and the points that
the authors' P80 ceiling called out, `moe_tuning/underperforming_*.csv`, which are a selection of slow ones.

A third of the A40's rows are two to three times slower than their neighbours, at any number of tokens (6,753
tokens take 2.3 ms, 6,177 and 6,945 take 4.7 ms; memory-bound rows take exactly twice the stream): the board
throttled. No shape tells them apart, so they do not teach: `find_disturbed` finds them by the best
configuration of the authors' own sweep of the same model.
"""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, MoeBatch
from analyzer.operators.expert_tiles import TileConfiguration
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, MoeProduct, Operator
from operator_data.gpu_keys import PIPEWEAVE

DATASET = "pipeweave moe"
_SHAPE = ("M", "E", "topk", "H", "N")
_CONFIGURATION = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
# default over best configuration: 1.0 to 1.55 where nothing disturbed, 1.8 to 4 where the A40 throttled
_DISTURBED_RATIO = 1.75

_Shape = tuple[int, ...]


class TunedRows(Struct, frozen=True):
    """Times of written-out configurations on one GPU: for each shape those within 1 % of the best."""

    gpu: str  # key in `hwdb/gpu`
    batch: MoeBatch
    configuration: TileConfiguration
    time_us: Column


def load_sample(data: Path) -> list[MeasuredBatch]:
    """Return the rows of `rows/moe.csv` under `data` (the folder `shared/data`), a batch per GPU."""
    return _group(_read_rows(data / "pipeweave" / "rows" / "moe.csv", "time_us"))


def load_teaching(data: Path) -> list[MeasuredBatch]:
    """Return all rows of the default configuration, without disturbed ones, two batches per GPU.

    The authors' underperforming points are marked as a selection: they teach, and their errors do not count.
    """
    sample = _read_rows(data / "pipeweave" / "rows" / "moe.csv", "time_us")
    called_out: dict[tuple[str, _Shape], float] = {}
    for path in sorted((data / "pipeweave" / "moe_tuning").glob("underperforming_*.csv")):
        called_out |= _read_rows(path, "avg_duration")
    batches = _group(sample)
    batches += _group({key: called_out[key] for key in called_out if key not in sample}, is_selection=True)
    tuned = {part.gpu: part for part in load_tuned(data)}
    return [batch.select(np.flatnonzero(~find_disturbed(batch, tuned[batch.gpu]))) for batch in batches]


def load_tuned(data: Path, kind: str = "best_three") -> list[TunedRows]:
    """Return the rows of the sweeps: `best_three` of each shape, or all `within_1_percent` of the best."""
    result = []
    for path in sorted((data / "pipeweave" / "moe_tuning").glob(f"{kind}_*.parquet")):
        table = pq.read_table(path)
        columns = {name: table[name].to_numpy().astype(np.float64) for name in (*_SHAPE, *_CONFIGURATION)}
        result.append(
            TunedRows(
                PIPEWEAVE[table["gpu"][0].as_py()],
                _make_batch([columns[name] for name in _SHAPE]),
                TileConfiguration(*(columns[name] for name in _CONFIGURATION)),
                table["time_us"].to_numpy(),
            )
        )
    return result


def find_disturbed(measured: MeasuredBatch, tuned: TunedRows) -> NDArray[np.bool_]:
    """Return which rows are too slow against the best configuration of the same model to be undisturbed."""
    batch = measured.batch
    assert isinstance(batch, MoeBatch)
    best: defaultdict[_Shape, dict[float, float]] = defaultdict(dict)
    for model, m, time_us in zip(_list_models(tuned.batch), tuned.batch.m, tuned.time_us, strict=True):
        best[model][m] = min(best[model].get(m, np.inf), time_us)
    ratio = np.ones(len(batch))
    for i, model in enumerate(_list_models(batch)):
        if model not in best:
            continue
        m, time_us = np.array(sorted(best[model].items())).T
        within = np.exp(np.interp(np.log(batch.m[i]), np.log(m), np.log(time_us)))
        ratio[i] = measured.time_us[i] / (within * max(1.0, batch.m[i] / m[-1]))
    disturbed: NDArray[np.bool_] = ratio >= _DISTURBED_RATIO
    return disturbed


def _list_models(batch: MoeBatch) -> list[_Shape]:
    columns = (batch.experts, batch.topk, batch.hidden, batch.intermediate)
    return [tuple(int(value) for value in row) for row in zip(*columns, strict=True)]


def _read_rows(path: Path, time_column: str) -> dict[tuple[str, _Shape], float]:
    """Return times in microseconds by GPU and shape; a shape that stands twice keeps its last time."""
    with path.open(newline="", encoding="utf-8") as file:
        return {
            (PIPEWEAVE[row["gpu"]], tuple(int(row[name]) for name in _SHAPE)): float(row[time_column])
            for row in csv.DictReader(file)
        }


def _group(rows: dict[tuple[str, _Shape], float], *, is_selection: bool = False) -> list[MeasuredBatch]:
    groups: defaultdict[str, list[tuple[_Shape, float]]] = defaultdict(list)
    for (gpu, shape), time_us in rows.items():
        groups[gpu].append((shape, time_us))
    result = []
    for gpu, found in sorted(groups.items()):
        batch = _make_batch(list(np.array([shape for shape, _ in found], dtype=np.float64).T))
        times_us = np.array([time_us for _, time_us in found])
        keys = make_shape_keys(batch)
        result.append(MeasuredBatch(DATASET, gpu, batch, times_us, keys, Timing.KERNEL, is_selection))
    return result


def _make_batch(columns: list[Column]) -> MoeBatch:
    m, experts, topk, hidden, intermediate = columns
    return MoeBatch(Operator.MOE, DataType.BF16, MoeProduct.W13, m, experts, topk, hidden, intermediate)


def make_shape_keys(batch: MoeBatch) -> NDArray[np.int64]:
    """Return one key per model: experts, topk, hidden and intermediate size."""
    columns = (batch.experts, batch.topk, batch.hidden, batch.intermediate)
    key = np.zeros(len(batch), dtype=np.int64)
    for column in columns:
        key = key * np.int64(65_537) + column.astype(np.int64)
    return key
