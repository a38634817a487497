"""Print how well matrix products are predicted: known GPUs with new (n, k), and architectures left out.

    python bench/operator_gemm.py [bf16 fp8 ... | scaled_mm] [--rows 6000] [--trees 300] [--save FOLDER]

Known: rows of each GPU taught, of other (n, k); folds by hash of (n, k). Left out: the reference's parameters
and the correction never saw the architecture (SynPerf's products: the GPU). Ten probes: ten random rows of
the GPU left out set the level of the rest (mean of twenty draws). Baselines beside them: the datasheet's
roofline; least squares of time over FLOPs, bytes and a constant on the other GPUs, in units of the peak and
of the bandwidth; the time of the same product on the nearest of the other GPUs. Errors are percentages.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from operator_data.aiconfigurator_gemm import load_products
from operator_data.pipeweave_scaled_mm import load_scaled_products
from tabulate import tabulate

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.corrections import Learned, learn_weights
from analyzer.learning.options import LearningOptions
from analyzer.models.learned.weights import save_weights
from analyzer.operators.batches import Column, ProductBatch
from analyzer.operators.families.gemm import count_bytes
from analyzer.operators.family import find_family
from analyzer.operators.hardware_figures import compute_hardware_features, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch

SHARED = Path("/work/shared/data")
_N_PROBES = 10
_N_DRAWS = 20
_PROBE_WEIGHT = 1.0  # of the prior that the level is right, in probes

Row = list[str | float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=["bf16", "fp8", "scaled_mm"])
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--rows", type=int, default=6000, help="rows per GPU that teach")
    parser.add_argument("--trees", type=int, default=OPTIONS.n_trees)
    parser.add_argument("--save", type=Path, help="folder for the weights")
    arguments = parser.parse_args()
    for name in arguments.sets:
        measured = load_set(name, arguments.data)
        options = msgspec.structs.replace(
            OPTIONS,
            max_rows_per_gpu=arguments.rows,
            n_trees=arguments.trees,
            leaves_out="gpu" if name == "scaled_mm" else "architecture",
        )
        family = find_family(measured[0].batch)
        weights_name = family.choose_weights(measured[0].batch)
        learned = learn_weights(family, measured, options, name=weights_name, report=print)
        print(f"\n{weights_name}: parameters {_format_parameters(learned)}")
        print(tabulate(describe(learned), headers=_HEADERS, floatfmt=".1f"))
        print(tabulate(compute_baselines(measured), headers=_HEADERS, floatfmt=".1f"))
        if arguments.save:
            save_weights(learned.weights, arguments.save / f"{weights_name}.safetensors")


OPTIONS = LearningOptions(
    n_trees=500,
    tree_depth=7,
    tree_rate=0.08,
    min_leaf_rows=10,
    n_perceptrons=4,
    hidden=(128, 128),
    n_steps=6000,
    leaves_out="architecture",
)
_HEADERS = (
    "situation",
    "left out",
    "GPU",
    "rows",
    "mean",
    "median",
    "P90",
    "bias",
    "mean <50us",
    "ten probes",
)


def load_set(name: str, data: Path) -> list[MeasuredBatch]:
    """Return the measured batches of a set: "scaled_mm" or a data type of aiconfigurator's products."""
    if name == "scaled_mm":
        return load_scaled_products(data / "pipeweave")
    return [batch for batch in load_products(data / "aiconfigurator") if batch.batch.dtype == name]


def describe(learned: Learned) -> list[Row]:
    """Return a line per situation, what was left out, and GPU."""
    gpus = sorted(taught.gpu for taught in learned.weights.taught)
    rows: list[Row] = []
    for errors in learned.errors:
        for place in np.unique(errors.gpu):
            where = errors.gpu == place
            rows.append(
                [
                    errors.situation.value,
                    errors.left_out,
                    gpus[place],
                    *_summarize(errors.log_error[where], errors.predicted_us[where]),
                ]
            )
        rows.append(
            [
                errors.situation.value,
                errors.left_out,
                "all",
                *_summarize(errors.log_error, errors.predicted_us),
            ]
        )
    return rows


def _summarize(log_error: Column, predicted_us: Column) -> Row:
    """Return rows, mean, median, P90, bias, mean under 50 us, mean after ten probes, in percent."""
    error = 100.0 * np.abs(np.exp(-log_error) - 1.0)
    short = predicted_us * np.exp(log_error) < 50.0
    return [
        len(error),
        float(error.mean()),
        float(np.median(error)),
        float(np.percentile(error, 90)),
        float(100.0 * (np.exp(-np.median(log_error)) - 1.0)),
        float(error[short].mean()) if short.any() else float("nan"),
        probe(log_error),
    ]


def probe(log_error: Column) -> float:
    """Return the mean error in percent, over twenty draws, after ten rows set the level, shrunk to none."""
    random = np.random.default_rng(0)
    errors = []
    for _ in range(_N_DRAWS):
        picked = random.choice(len(log_error), min(_N_PROBES, len(log_error)), replace=False)
        level = np.median(log_error[picked]) * len(picked) / (len(picked) + _PROBE_WEIGHT)
        errors.append(100.0 * np.abs(np.exp(level - np.delete(log_error, picked)) - 1.0).mean())
    return float(np.mean(errors))


def compute_baselines(measured: Sequence[MeasuredBatch]) -> list[Row]:
    """Return a line per baseline and GPU, nothing of the GPU's architecture taught."""
    rows: list[Row] = []
    baselines: dict[str, Callable[[MeasuredBatch, Sequence[MeasuredBatch]], Column]] = {
        "roofline": lambda batch, others: compute_roofline(batch).sum(axis=0).clip(min=_roof_max(batch)),
        "linear": predict_linearly,
        "copy": copy_nearest,
    }
    for name, baseline in baselines.items():
        for batch in measured:
            architecture = load_gpu(batch.gpu).file.arch
            others = [
                other
                for other in measured
                if load_gpu(other.gpu).file.arch != architecture
                or (len({load_gpu(b.gpu).file.arch for b in measured}) == 1 and other.gpu != batch.gpu)
            ]
            if others or name == "roofline":
                predicted = baseline(batch, others)
                found = np.isfinite(predicted)
                log_error = np.log(batch.time_us[found] / predicted[found])
                rows.append([name, architecture, batch.gpu, *_summarize(log_error, predicted[found])])
    return rows


def compute_roofline(batch: MeasuredBatch) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return 2 x rows: times of the FLOPs at the datasheet's peak and of the bytes, in us."""
    assert isinstance(batch.batch, ProductBatch)
    hardware = read_operator_hardware(load_gpu(batch.gpu))
    products = batch.batch
    flops = 2.0 * products.batch * products.m * products.n * products.k
    moved = count_bytes(products).sum(axis=0)
    return np.stack(
        [flops / hardware.find_peak_tflops(products.dtype) * 1e-6, moved / hardware.dram_gbps * 1e-3]
    )


def _roof_max(batch: MeasuredBatch) -> Column:
    return np.asarray(compute_roofline(batch).max(axis=0), dtype=np.float64)


def predict_linearly(batch: MeasuredBatch, others: Sequence[MeasuredBatch]) -> Column:
    """Return a + b · FLOPs / peak + c · bytes / bandwidth, of least relative error on the other GPUs."""
    inputs = np.concatenate([_make_inputs(other) for other in others])
    time_us = np.concatenate([other.time_us for other in others])
    found, *_ = np.linalg.lstsq(inputs / time_us[:, None], np.ones(len(time_us)), rcond=None)
    return np.maximum(_make_inputs(batch) @ found, 0.1)


def _make_inputs(batch: MeasuredBatch) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.column_stack([np.ones(len(batch)), *compute_roofline(batch)])


def copy_nearest(batch: MeasuredBatch, others: Sequence[MeasuredBatch]) -> Column:
    """Return the times of the same products on the GPU with the nearest figures, nan where it has none."""
    figures = _find_figures(batch.gpu)
    nearest = min(others, key=lambda other: float(np.abs(_find_figures(other.gpu) - figures).sum()))
    times = {row: time for row, time in zip(_list_shapes(nearest), nearest.time_us.tolist(), strict=True)}
    return np.array([times.get(row, np.nan) for row in _list_shapes(batch)])


def _find_figures(gpu: str) -> Column:
    return np.array(compute_hardware_features(read_operator_hardware(load_gpu(gpu))))


def _list_shapes(batch: MeasuredBatch) -> list[tuple[float, ...]]:
    assert isinstance(batch.batch, ProductBatch)
    products = batch.batch
    return list(zip(products.m.tolist(), products.n.tolist(), products.k.tolist(), strict=True))


def _format_parameters(learned: Learned) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in learned.weights.parameters.items())


if __name__ == "__main__":
    main()
