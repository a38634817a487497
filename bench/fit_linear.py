"""Fit the lines of `--model linear`: non-negative least squares of relative error, by operator and GPU."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from analyzer.baselines.linear import (
    LinearWeights,
    LineOfGpu,
    OperatorLines,
    evaluate_line,
    name_operator,
    transfer_line,
)
from analyzer.baselines.roofline import find_roofs
from analyzer.baselines.work import count_work
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import Column
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch

_ROWS_PER_LINE = 20_000
_UNSEEN_INTERVAL = (-0.7, 0.7)  # assumed where only one GPU taught


def fit_lines(measured: Sequence[MeasuredBatch]) -> LinearWeights:
    """Return the lines of all operators of measured batches; batches of one operator and GPU go together."""
    groups: defaultdict[str, defaultdict[str, list[MeasuredBatch]]] = defaultdict(lambda: defaultdict(list))
    for part in measured:
        groups[name_operator(part.batch)][part.gpu].append(part)
    return {name: _fit_operator(by_gpu) for name, by_gpu in groups.items()}


def _fit_operator(by_gpu: dict[str, list[MeasuredBatch]]) -> OperatorLines:
    lines = tuple(_fit_line(gpu, parts) for gpu, parts in sorted(by_gpu.items()))
    known = [_compute_errors(line, by_gpu[line.gpu]) for line in lines]
    unseen = [
        _compute_errors(transfer_line(others, line.gpu, line.peak_tflops, line.gbps), by_gpu[line.gpu])
        for line in lines
        if (others := [other for other in lines if other is not line])
    ]
    return OperatorLines(
        lines,
        _find_interval(np.concatenate(known)),
        _find_interval(np.concatenate(unseen)) if unseen else _UNSEEN_INTERVAL,
    )


def _fit_line(gpu: str, parts: Sequence[MeasuredBatch]) -> LineOfGpu:
    from scipy.optimize import nnls

    works = [count_work(part.batch) for part in parts]
    flops = np.concatenate([work.flops for work in works])
    moved = np.concatenate([work.bytes_moved for work in works])
    time_us = np.concatenate([part.time_us for part in parts])
    step = max(1, len(time_us) // _ROWS_PER_LINE)
    columns = np.stack([flops, moved, np.ones(len(flops))], axis=1)[::step] / time_us[::step, None]
    scale = np.maximum(columns.max(axis=0), 1e-300)
    coefficients = nnls(columns / scale, np.ones(len(columns)))[0] / scale
    peak_tflops, gbps = find_roofs(parts[0].batch, read_operator_hardware(load_gpu(gpu)))
    us_per_flop, us_per_byte, constant_us = (float(value) for value in coefficients)
    return LineOfGpu(gpu, us_per_flop, us_per_byte, constant_us, peak_tflops, gbps)


def _compute_errors(line: LineOfGpu, parts: Sequence[MeasuredBatch]) -> Column:
    """Return log(measured / predicted)."""
    return np.concatenate([np.log(part.time_us / evaluate_line(line, part.batch)) for part in parts])


def _find_interval(log_errors: Column) -> tuple[float, float]:
    low, high = np.quantile(log_errors, [0.1, 0.9])
    return min(float(low), 0.0), max(float(high), 0.0)
