"""Judge predictions of collectives on rows that taught nothing.

    python bench/operator_collectives.py [all_reduce | send_recv]

Beside ours: a random forest on bytes, GPUs and the hardware's figures, as SynPerf's authors have it (it
learns the logarithm of the time), and the datasheet's link. Data: `../shared/data` beside the repository, or
--data.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from error_metrics import ERROR_COLUMNS
from markdown import render_table
from msgspec.structs import replace
from numpy.typing import NDArray
from operator_data import collectives
from operator_tables import SMALL_SET, format_learned, format_row
from rich.console import Console

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.corrections import learn_weights
from analyzer.learning.splits import assign_folds
from analyzer.models.operators.ours import predict_with_weights
from analyzer.operators.batches import CollectiveBatch, Column
from analyzer.operators.families.collective import FAMILY
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.names import Operator

ROOT = Path(__file__).resolve().parents[1]
_OPTIONS = replace(SMALL_SET, max_rows_per_gpu=1500)
_PERFECT_LINK = {"nvlink_share": 1.0, "pair_share": 1.0, "pcie_share": 1.0, "multicast_gain": 1.0}
_N_FOLDS = 4
_N_TREES = 100


def judge(data: Path, operator: Operator, console: Console) -> None:
    """Print errors with sizes left out, with each GPU left out, and on NCCL's judging systems."""
    teaching = collectives.load_teaching(data, operator)
    learned = learn_weights(FAMILY, teaching, _OPTIONS, name=f"collective-{operator}")
    console.print(f"{operator}: sizes (half octaves) or a GPU left out", style="bold")
    console.print(format_learned(learned), markup=False)
    rows = []
    for batch in teaching:
        others = [other for other in teaching if other.gpu != batch.gpu]
        rows += [
            format_row(batch.gpu, "forest, sizes left out", *_leave_out_sizes(teaching, batch)),
            format_row(batch.gpu, "forest, GPU left out", batch, _predict_forest(others, batch)),
            format_row(batch.gpu, "datasheet link", batch, _compute_link_us(batch)),
        ]
    console.print(f"{operator}: baselines", style="bold")
    console.print(render_table(("GPU", "model", *ERROR_COLUMNS, "inside"), rows), markup=False)
    if operator is Operator.ALL_REDUCE:
        rows = []
        for batch in collectives.load_nccl(data.parent / "facts", judging=True):
            found = predict_with_weights(batch.batch, load_gpu(batch.gpu), FAMILY, learned.weights)
            rows += [
                format_row(batch.gpu, "ours", batch, found.time_us, found.low_us, found.high_us),
                format_row(batch.gpu, "forest", batch, _predict_forest(teaching, batch)),
                format_row(batch.gpu, "datasheet link", batch, _compute_link_us(batch)),
            ]
        console.print("all_reduce: NCCL on systems that taught nothing, 512 bytes to 512 MiB", style="bold")
        console.print(render_table(("GPU", "model", *ERROR_COLUMNS, "inside"), rows), markup=False)


def _leave_out_sizes(
    teaching: Sequence[MeasuredBatch], judged: MeasuredBatch
) -> tuple[MeasuredBatch, Column]:
    """Return a GPU's rows and what forests predict that the other folds' sizes taught."""
    predicted = np.empty(len(judged))
    folds = assign_folds(judged.shape_keys, _N_FOLDS, _OPTIONS.seed)
    for fold in range(_N_FOLDS):
        kept = [
            batch.select(np.flatnonzero(assign_folds(batch.shape_keys, _N_FOLDS, _OPTIONS.seed) != fold))
            for batch in teaching
        ]
        held = np.flatnonzero(folds == fold)
        predicted[held] = _predict_forest(kept, judged.select(held))
    return judged, predicted


def _predict_forest(teaching: Sequence[MeasuredBatch], judged: MeasuredBatch) -> Column:
    from sklearn.ensemble import RandomForestRegressor

    inputs = np.concatenate([_make_inputs(batch) for batch in teaching])
    target = np.log(np.concatenate([batch.time_us for batch in teaching]))
    forest = RandomForestRegressor(n_estimators=_N_TREES, min_samples_leaf=2, random_state=_OPTIONS.seed)
    found: Column = np.exp(forest.fit(inputs, target).predict(_make_inputs(judged)))
    return found


def _make_inputs(measured: MeasuredBatch) -> NDArray[np.float64]:
    batch = measured.batch
    assert isinstance(batch, CollectiveBatch)
    hardware = read_operator_hardware(load_gpu(measured.gpu))
    figures = (hardware.nvlink_gbps, hardware.pcie_gbps, hardware.sm_count, hardware.dram_gbps)
    return np.column_stack(
        [np.log2(batch.message_bytes), batch.gpus, *(np.full(len(batch), figure) for figure in figures)]
    )


def _compute_link_us(measured: MeasuredBatch) -> Column:
    """Return the time of the wire at the datasheet's rate of the link, nothing else."""
    hardware = read_operator_hardware(load_gpu(measured.gpu))
    terms = FAMILY.compute_terms(measured.batch, hardware, FAMILY.initial_parameters | _PERFECT_LINK)
    return np.maximum(terms.find_term("wire"), 0.1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables of one operator, both by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("operator", nargs="?", choices=(Operator.ALL_REDUCE, Operator.SEND_RECV))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options = parser.parse_args(arguments)
    console = Console(width=140)
    for operator in [options.operator] if options.operator else [Operator.ALL_REDUCE, Operator.SEND_RECV]:
        judge(options.data, Operator(operator), console)


if __name__ == "__main__":
    main()
