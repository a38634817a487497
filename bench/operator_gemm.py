"""Print how well the references of matrix products do with nothing learned of a GPU, and after ten probes.

    python bench/operator_gemm.py [bf16 fp8 fp8_block nvfp4 scaled_mm ...]

What is left out in turn: an architecture (sm_100: B200 and GB200 together); of SynPerf's scaled products,
which are all of sm_90, a GPU. The reference's parameters are fitted without it; no correction is learned:
`bench/operators.py` prints the errors of the shipped model. Ten probes are drawn at random, twenty times, and
the other rows judged. "level": the median of the probes' residuals, shrunk; "smooth": a Gaussian process
through them over the terms' shares, the time and the sizes. Baselines: the datasheet's roofline; least
squares of relative error over a constant, FLOPs / peak and bytes / bandwidth on the other GPUs; the time of
the same product on the other GPU with the nearest figures. Errors in percent.
"""

import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from operator_data.aiconfigurator_gemm import load_products
from operator_data.pipeweave_scaled_mm import load_scaled_products
from operator_teaching import DATA
from tabulate import tabulate

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.fit_reference import fit_parameters
from analyzer.learning.options import LearningOptions
from analyzer.operators.batches import Column, ProductBatch
from analyzer.operators.families.gemm import count_bytes
from analyzer.operators.family import find_family
from analyzer.operators.hardware_figures import compute_hardware_features, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.names import Backend

Matrix = NDArray[np.float64]
Row = list[str | float]

_N_JUDGED = 4000  # rows of each GPU, drawn at random
_N_PROBES = 10
_N_DRAWS = 20
_HEADERS = ("set", "GPU left out", "model", "mean", "median", "P90", "bias", "mean under 50 us")
# of the Gaussian process, in log time: what residuals of one GPU spread by, and over what distance
_LEVEL, _SPREAD, _NOISE, _LENGTH = 0.1, 0.15, 0.08, 1.0


def main() -> None:
    """Print the tables of the sets named on the command line."""
    for name in sys.argv[1:] or ["bf16", "fp8", "scaled_mm"]:
        measured = load_set(name)
        rows = [row for batch in measured for row in judge(name, batch, list_others(batch, measured))]
        print(tabulate(rows, headers=_HEADERS, floatfmt=".1f"), flush=True)


def load_set(name: str) -> list[MeasuredBatch]:
    """Return the rows of "scaled_mm", or of a data type of TensorRT-LLM's products, fewer at random."""
    if name == "scaled_mm":
        measured = load_scaled_products(DATA / "pipeweave")
    else:
        measured = [
            b for b in load_products(DATA / "aiconfigurator", [Backend.TRTLLM]) if b.batch.dtype == name
        ]
    random = np.random.default_rng(0)
    return [
        batch.select(np.sort(random.choice(len(batch), min(len(batch), _N_JUDGED), replace=False)))
        for batch in measured
    ]


def list_others(batch: MeasuredBatch, measured: Sequence[MeasuredBatch]) -> list[MeasuredBatch]:
    """Return the batches that may teach: of other architectures, where all have one of other GPUs."""
    architectures = {other.gpu: load_gpu(other.gpu).file.arch for other in measured}
    if len(set(architectures.values())) == 1:
        return [other for other in measured if other.gpu != batch.gpu]
    return [other for other in measured if architectures[other.gpu] != architectures[batch.gpu]]


def judge(name: str, batch: MeasuredBatch, others: Sequence[MeasuredBatch]) -> list[Row]:
    """Return a line per model of one GPU, of which nothing taught."""
    family = find_family(batch.batch)
    parameters = fit_parameters(family, others, LearningOptions())
    hardware = read_operator_hardware(load_gpu(batch.gpu))
    terms = family.compute_terms(batch.batch, hardware, parameters)
    log_error = np.log(batch.time_us / terms.total_us)
    shares = terms.terms_us / terms.terms_us.sum(axis=1, keepdims=True)
    places = np.hstack([3.0 * shares, 0.5 * np.log(terms.total_us)[:, None], 0.25 * _list_log_sizes(batch)])
    forms: dict[str, Callable[[Column, NDArray[np.int64]], Column]] = {
        "reference, 10 probes: level": lambda errors, picked: errors - find_level(errors[picked]),
        "reference, 10 probes: smooth": lambda errors, picked: errors - interpolate(places, errors, picked),
    }
    rows = [_summarize(name, batch, "reference", log_error)]
    for title, remove in forms.items():
        rows.append(_average([_summarize(name, batch, title, e) for e in draw_probes(log_error, remove)]))
    baselines = {
        "roofline": compute_roofline(batch).max(axis=0),
        "linear": predict_linearly(batch, others),
        "copy of the nearest": copy_nearest(batch, others),
    }
    rows += [_summarize(name, batch, title, np.log(batch.time_us / t)) for title, t in baselines.items()]
    return rows


def draw_probes(log_error: Column, remove: Callable[[Column, NDArray[np.int64]], Column]) -> list[Column]:
    """Return per draw of probes the errors that remain, nan at the probes."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(_N_DRAWS):
        picked = random.choice(len(log_error), _N_PROBES, replace=False)
        left = remove(log_error, picked)
        left[picked] = np.nan
        found.append(left)
    return found


def find_level(residuals: Column) -> float:
    """Return the median of residuals, shrunk towards none as if one more were zero."""
    return float(np.median(residuals) * len(residuals) / (len(residuals) + 1.0))


def interpolate(places: Matrix, log_error: Column, picked: NDArray[np.int64]) -> Column:
    """Return the mean of a Gaussian process through the picked rows' errors, at all rows.

    The kernel: level^2 + spread^2 · exp(-distance^2 / 2 length^2), noise of each row apart.
    """
    inverse = np.linalg.solve(
        _find_kernel(places[picked], places[picked]) + _NOISE**2 * np.eye(len(picked)), log_error[picked]
    )
    smooth: Column = _find_kernel(places, places[picked]) @ inverse
    return smooth


def _find_kernel(left: Matrix, right: Matrix) -> Matrix:
    distance = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(_LEVEL**2 + _SPREAD**2 * np.exp(-0.5 * distance / _LENGTH**2), dtype=np.float64)


def _list_log_sizes(batch: MeasuredBatch) -> Matrix:
    products = _find_products(batch)
    return np.log2(np.column_stack([products.m, products.n, products.k]))


def _summarize(name: str, batch: MeasuredBatch, model: str, log_error: Column) -> Row:
    """Return mean, median, P90, bias, mean under 50 us in percent; rows that are nan do not count."""
    counts = np.isfinite(log_error)
    error = 100.0 * np.abs(np.exp(-log_error[counts]) - 1.0)
    short = error[batch.time_us[counts] < 50.0]
    bias = 100.0 * (np.exp(-np.median(log_error[counts])) - 1.0)
    figures = (error.mean(), np.median(error), np.percentile(error, 90), bias, short.mean())
    return [name, batch.gpu, model, *map(float, figures)]


def _average(rows: Sequence[Row]) -> Row:
    figures = np.array([row[3:] for row in rows], dtype=np.float64)
    return [*rows[0][:3], *figures.mean(axis=0).tolist()]


def compute_roofline(batch: MeasuredBatch) -> Matrix:
    """Return 2 x rows: times of the FLOPs at the datasheet's peak and of the bytes, in us."""
    products = _find_products(batch)
    hardware = read_operator_hardware(load_gpu(batch.gpu))
    flops = 2.0 * products.batch * products.m * products.n * products.k
    moved = count_bytes(products).sum(axis=0)
    return np.stack(
        [flops / hardware.find_peak_tflops(products.dtype) * 1e-6, moved / hardware.dram_gbps * 1e-3]
    )


def predict_linearly(batch: MeasuredBatch, others: Sequence[MeasuredBatch]) -> Column:
    """Return a + b · FLOPs / peak + c · bytes / bandwidth, of least relative error on the other GPUs."""
    inputs = np.concatenate([_make_inputs(other) for other in others])
    time_us = np.concatenate([other.time_us for other in others])
    found, *_ = np.linalg.lstsq(inputs / time_us[:, None], np.ones(len(time_us)), rcond=None)
    predicted: Column = np.maximum(_make_inputs(batch) @ found, 0.1)
    return predicted


def _make_inputs(batch: MeasuredBatch) -> Matrix:
    return np.column_stack([np.ones(len(batch)), *compute_roofline(batch)])


def copy_nearest(batch: MeasuredBatch, others: Sequence[MeasuredBatch]) -> Column:
    """Return the times of the same products on the GPU with the nearest figures, nan where it has none."""
    figures = _find_figures(batch.gpu)
    nearest = min(others, key=lambda other: float(np.abs(_find_figures(other.gpu) - figures).sum()))
    times = dict(zip(_list_shapes(nearest), nearest.time_us.tolist(), strict=True))
    return np.array([times.get(shape, np.nan) for shape in _list_shapes(batch)])


def _find_figures(gpu: str) -> Column:
    return np.array(compute_hardware_features(read_operator_hardware(load_gpu(gpu))))


def _list_shapes(batch: MeasuredBatch) -> list[tuple[float, float, float]]:
    products = _find_products(batch)
    return list(zip(products.m.tolist(), products.n.tolist(), products.k.tolist(), strict=True))


def _find_products(batch: MeasuredBatch) -> ProductBatch:
    assert isinstance(batch.batch, ProductBatch)
    return batch.batch


if __name__ == "__main__":
    main()
