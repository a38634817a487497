"""Tables of measured operators: `predict --table`'s columns and `time_us`, as rows that teach.

Further columns: `timing` (kernel, interval, ncu; kernel if not given), `dataset`, and `shape_key` (rows with
the same text stay on the same side of a split; by default (n, k) of products, the width of rows, head
layouts).
"""

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import (
    AttentionBatch,
    Column,
    MlaBatch,
    MoeBatch,
    OperatorBatch,
    ProductBatch,
    RowwiseBatch,
)
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.operator_rows import read_operator_rows
from analyzer.text.csv_table import CsvTable, read_csv_table
from analyzer.text.errors import InputError

_HINT = "learn takes predict's columns and time_us: see docs/predict.md"


def read_measured_table(path: Path) -> list[MeasuredBatch]:
    """Return the rows of a table as batches. Raises InputError for a row that cannot be read."""
    table = read_csv_table(path, _HINT)
    table.check_columns(("operator", "gpu", "time_us"), _HINT)
    found = read_operator_rows(table.columns, [fields for _, fields in table.rows])
    if found.problems:
        row, reason = min(found.problems.items())
        raise InputError(reason, location=table.locate_field(table.rows[row][0], 0), hint=_HINT)
    time_us = np.array([table.read_positive(i, "time_us", "microseconds") for i in range(len(table.rows))])
    given = _read_texts(table, "shape_key")
    timings, datasets = _read_texts(table, "timing"), _read_texts(table, "dataset")
    result = []
    for part in found.batches:
        for timing, dataset in sorted({(timings[i], datasets[i]) for i in part.places}):
            chosen = np.array(
                [n for n, i in enumerate(part.places) if (timings[i], datasets[i]) == (timing, dataset)]
            )
            batch = MeasuredBatch(
                dataset or path.name,
                load_gpu(part.gpu).key,
                part.batch,
                time_us[part.places],
                _make_keys(part.batch, [given[i] for i in part.places]),
                _read_timing(table, timing),
            )
            result.append(batch.select(chosen))
    return result


def _read_texts(table: CsvTable, column: str) -> list[str]:
    place = table.find_column(column)
    return [
        fields[place].strip() if place is not None and place < len(fields) else "" for _, fields in table.rows
    ]


def _read_timing(table: CsvTable, text: str) -> Timing:
    try:
        return Timing(text.lower() or Timing.KERNEL)
    except ValueError:
        raise InputError(f"{table.name}: timing {text!r}: one of {', '.join(Timing)}", hint=_HINT) from None


def _make_keys(batch: OperatorBatch, given: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return shape keys: hashes of what was given, else of the sizes that one model has."""
    if any(given):
        return np.array([crc32(text.encode()) for text in given], dtype=np.int64)
    return hash_columns(_list_key_columns(batch))


def _list_key_columns(batch: OperatorBatch) -> list[Column]:
    match batch:
        case ProductBatch():
            return [batch.n, batch.k]
        case RowwiseBatch():
            return [batch.columns]
        case MoeBatch():
            return [batch.experts, batch.topk, batch.hidden, batch.intermediate]
        case AttentionBatch():
            return [batch.heads, batch.kv_heads, batch.head_dim]
        case MlaBatch():
            return [batch.heads]
        case _:
            return [np.arange(len(batch), dtype=np.float64)]


def hash_columns(columns: Sequence[Column]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a hash of each row of columns: equal rows have equal ones in every run."""
    rows = np.ascontiguousarray(np.stack(columns, axis=1))
    return np.array([crc32(row.tobytes()) for row in rows], dtype=np.int64)
