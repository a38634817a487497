"""Judge predictions of SGLang's fused mixture of experts on rows that taught nothing.

    python bench/operator_moe.py product      SynPerf's own rows of the first product, each GPU left out
    python bench/operator_moe.py tuned        the same kernel, configurations written out, nothing learned
    python bench/operator_moe.py both bf16    aiconfigurator's rows of the whole operator

Data: `../shared/data` beside the repository, or --data. `bench/operators.py` learns what ships.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from error_metrics import ERROR_COLUMNS
from markdown import render_table
from operator_data import aiconfigurator_moe, pipeweave_moe
from operator_tables import SMALL_SET, format_learned, format_row
from rich.console import Console

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.corrections import learn_weights
from analyzer.learning.fit_reference import fit_parameters
from analyzer.learning.options import LearningOptions
from analyzer.models.operators.ours import compute_batch_terms, predict_with_weights
from analyzer.operators.batches import Column, MoeBatch
from analyzer.operators.expert_tiles import compute_tile_terms, cut_tiles
from analyzer.operators.families.moe import FAMILY, describe_product
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.names import DataType, MoeProduct

ROOT = Path(__file__).resolve().parents[1]
_BOTH = LearningOptions(
    max_rows_per_gpu=1600,
    n_trees=200,
    tree_depth=5,
    min_leaf_rows=10,
    transfer_trees=80,
    transfer_depth=4,
    n_perceptrons=3,
    n_steps=1500,
)


def judge_product(data: Path, console: Console) -> None:
    """Print errors on `rows/moe.csv`: each GPU left out, and models left out of known GPUs."""
    teaching = pipeweave_moe.load_teaching(data)
    tuned = {part.gpu: part for part in pipeweave_moe.load_tuned(data)}
    rows = []
    for judged in pipeweave_moe.load_sample(data):
        others = [batch for batch in teaching if batch.gpu != judged.gpu]
        learned = learn_weights(FAMILY, others, SMALL_SET, name=f"moe without {judged.gpu}")
        found = predict_with_weights(judged.batch, load_gpu(judged.gpu), FAMILY, learned.weights)
        hardware = read_operator_hardware(load_gpu(judged.gpu))
        terms = compute_batch_terms(judged.batch, hardware, FAMILY, learned.weights)
        calm = np.flatnonzero(~pipeweave_moe.find_disturbed(judged, tuned[judged.gpu]))
        rows += [
            format_row(judged.gpu, "ours", judged, found.time_us, found.low_us, found.high_us),
            format_row(judged.gpu, "reference alone", judged, terms.total_us),
            format_row(judged.gpu, "datasheet roofline", judged, _compute_roofline_us(judged)),
            format_row(judged.gpu, "linear regression", judged, _regress(others, judged)),
        ]
        if len(calm) < len(judged):
            rows.append(
                format_row(judged.gpu, "ours, undisturbed rows", judged.select(calm), found.time_us[calm])
            )
    console.print("First product, default configuration, rows/moe.csv; the GPU taught nothing", style="bold")
    console.print(render_table(("GPU", "model", *ERROR_COLUMNS, "inside"), rows), markup=False)
    learned = learn_weights(FAMILY, teaching, SMALL_SET, name="moe-product-bf16")
    console.print("Undisturbed rows of all GPUs; a model's dimensions or a GPU left out", style="bold")
    console.print(format_learned(learned), markup=False)


def judge_tuned(data: Path, console: Console) -> None:
    """Print errors of the reference under explicit configurations, fitted to default ones alone."""
    teaching = pipeweave_moe.load_teaching(data)
    rows = []
    for tuned in pipeweave_moe.load_tuned(data, "within_1_percent"):
        hardware = read_operator_hardware(load_gpu(tuned.gpu))
        shape = describe_product(tuned.batch, MoeProduct.W13)
        others = [batch for batch in teaching if batch.gpu != tuned.gpu]
        for name, taught in (("all", teaching), ("other GPUs", others)):
            parameters = fit_parameters(FAMILY, taught, LearningOptions())
            terms = compute_tile_terms(cut_tiles(shape, tuned.configuration, hardware), hardware, parameters)
            ratio = terms.total_us / tuned.time_us
            rows.append((tuned.gpu, name, str(len(ratio)), *_format_errors(ratio)))
    head = ("GPU", "fitted on default configurations of", "rows", "MAPE", "median", "bias")
    console.print("Configurations within 1 % of the best of a sweep: reference alone", style="bold")
    console.print(render_table(head, rows), markup=False)


def judge_both(data: Path, dtype: DataType, console: Console) -> None:
    """Print errors on whole operators: models left out, GPUs left out."""
    learned = learn_weights(FAMILY, aiconfigurator_moe.load(data, dtype), _BOTH, name=f"moe-both-{dtype}")
    console.print(f"Both products, {dtype}", style="bold")
    console.print(format_learned(learned), markup=False)


def _format_errors(ratio: Column) -> tuple[str, ...]:
    error = np.abs(ratio - 1.0)
    bias = float(np.exp(np.log(ratio).mean()))
    return (f"{100 * error.mean():.1f}%", f"{100 * np.median(error):.1f}%", f"{bias:.2f}")


def _count_work(measured: MeasuredBatch) -> tuple[Column, Column]:
    """Return microseconds of operations and of bytes at the datasheet's peaks."""
    batch = measured.batch
    assert isinstance(batch, MoeBatch)
    hardware = read_operator_hardware(load_gpu(measured.gpu))
    terms = FAMILY.compute_terms(batch, hardware, FAMILY.initial_parameters)
    peak = hardware.find_peak_tflops(batch.dtype)
    return terms.flops / (peak * 1e6), terms.dram_bytes / (hardware.dram_gbps * 1e3)


def _compute_roofline_us(measured: MeasuredBatch) -> Column:
    return np.maximum(*_count_work(measured))


def _regress(teaching: Sequence[MeasuredBatch], judged: MeasuredBatch) -> Column:
    """Return predictions of time = a · operations + b · bytes + c, fitted to relative errors."""

    def stack(measured: MeasuredBatch) -> Column:
        return np.stack([*_count_work(measured), np.ones(len(measured))], axis=1)

    time_us = np.concatenate([batch.time_us for batch in teaching])
    rows = np.concatenate([stack(batch) for batch in teaching]) / time_us[:, None]
    factors, *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
    found: Column = np.maximum(stack(judged) @ factors, 1.0)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("product", "tuned", "both"))
    parser.add_argument("dtype", nargs="?", type=DataType, default=DataType.BF16)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options = parser.parse_args(arguments)
    console = Console(width=140)
    match options.command:
        case "product":
            judge_product(options.data, console)
        case "tuned":
            judge_tuned(options.data, console)
        case "both":
            judge_both(options.data, options.dtype, console)


if __name__ == "__main__":
    main()
