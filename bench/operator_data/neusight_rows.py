"""Load NeuSight's fp32 layer norm, softmax and element-wise rows (../shared/data/neusight).

Intervals of CUDA events around one eager call of PyTorch 2.1, the mean of the five fastest of 25: never below
what the host needs to launch it, 25 to 60 us. The eleven element-wise operators are told apart by their
number of inputs alone.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import ElementwiseBatch, OperatorBatch, RowwiseBatch
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, Operator
from operator_data.gpu_keys import NEUSIGHT

DATASET = "neusight"
FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "neusight"
TEACHING, JUDGING = "nv_train_collect", "nv_test_public"
_ROWWISE = {"ln": Operator.LAYERNORM, "softmax": Operator.SOFTMAX}
INPUTS = {
    **dict.fromkeys(("add", "mul", "pow", "div"), 2.0),
    **dict.fromkeys(("addu", "mulu", "powu", "divu", "relu", "gelu", "tanh"), 1.0),
}

_HOST_BOUND = 1.6  # times a batch's shortest time: rows below it tell of the host, not of the GPU
_HOST_BOUND_PART = 8  # of `most_rows` such rows, one in so many
_SHORTEST_QUANTILE = 0.02

Table = dict[str, NDArray[Any]]


def load_teaching(folder: Path = FOLDER, most_rows: int = 700) -> list[MeasuredBatch]:
    """Return rows of both tables that teach: of the large one at most so many per batch, few host-bound ones.

    The large table has small shapes only, so that the other one teaches too; each shape key stays on one side
    of a split.
    """
    random = np.random.default_rng(0)
    return [_thin(batch, most_rows, random) for batch in load_rows(TEACHING, folder)] + load_rows(
        JUDGING, folder
    )


def _thin(batch: MeasuredBatch, most_rows: int, random: np.random.Generator) -> MeasuredBatch:
    is_host_bound = batch.time_us < _HOST_BOUND * np.quantile(batch.time_us, _SHORTEST_QUANTILE)
    parts = []
    for where, most in ((~is_host_bound, most_rows), (is_host_bound, most_rows // _HOST_BOUND_PART)):
        rows = np.flatnonzero(where)
        parts.append(random.choice(rows, min(len(rows), most), replace=False))
    return batch.select(np.sort(np.concatenate(parts)))


def load_rows(name: str, folder: Path = FOLDER) -> list[MeasuredBatch]:
    """Return one batch per operator, number of inputs and GPU of a table; a shape key is one (B, H)."""
    table = _read_table(folder / f"{name}.parquet")
    operators: list[tuple[tuple[str, ...], Operator]] = [
        ((label,), operator) for label, operator in _ROWWISE.items()
    ]
    for inputs in (1.0, 2.0):
        labels = tuple(label for label, count in INPUTS.items() if count == inputs)
        operators.append((labels, Operator.ELEMENTWISE))
    batches = []
    for labels, operator in operators:
        of_operator = np.isin(table["OPName"], labels)
        for device, key in NEUSIGHT.items():
            where = np.flatnonzero(of_operator & (table["Device"] == device))
            if len(where):
                batches.append(_make_batch(table, where, operator, key))
    return batches


def _make_batch(table: Table, where: NDArray[np.int64], operator: Operator, key: str) -> MeasuredBatch:
    rows, columns = table["B"][where], table["H"][where]
    batch: OperatorBatch
    if operator is Operator.ELEMENTWISE:
        inputs = np.array([INPUTS[label] for label in table["OPName"][where]])
        batch = ElementwiseBatch(operator, DataType.FP32, rows * columns, inputs)
    else:
        batch = RowwiseBatch(operator, DataType.FP32, rows, columns)
    keys = (columns * 10_000_019 + rows).astype(np.int64)
    return MeasuredBatch(DATASET, key, batch, 1e3 * table["Latency"][where], keys, Timing.INTERVAL)


def _read_table(path: Path) -> Table:
    import pyarrow.parquet as pq

    columns = pq.read_table(path, columns=["OPName", "Device", "Latency", "B", "H"]).to_pydict()
    table: Table = {name: np.array(columns[name]) for name in ("OPName", "Device")}
    for name in ("Latency", "B", "H"):
        table[name] = np.array([np.nan if x is None else x for x in columns[name]], dtype=np.float64)
    return table
