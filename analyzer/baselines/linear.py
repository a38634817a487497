"""Linear regression on operations and bytes (`--model linear`), as Li et al. (MICRO 2023) have it.

Per operator, data type and kind, and per GPU: time = a · flops + b · bytes + c with a, b, c >= 0, of least
squared relative error. On a GPU that taught nothing, a and b follow from its peak and bandwidth: the rates
1 / a and 1 / b of the GPUs that taught are taken as proportional to these (least squares through the
origin), c as their mean.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct

from analyzer.baselines.roofline import find_roofs
from analyzer.baselines.work import count_work
from analyzer.hardware.gpu import Gpu
from analyzer.models.learned.weights_file import find_weights_file, read_weights_file, write_weights_file
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import AttentionBatch, Column, MoeBatch, OperatorBatch
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.text.errors import UsageError

NAME = "linear"
_LEAST_US = 1e-3


class LineOfGpu(Struct, frozen=True):
    """Coefficients of one operator on one GPU, and what the GPU's datasheet says."""

    gpu: str
    us_per_flop: float
    us_per_byte: float
    constant_us: float
    peak_tflops: float
    gbps: float


class OperatorLines(Struct, frozen=True):
    """Lines of one operator on the GPUs that taught, and the residuals of rows it was fitted to."""

    lines: tuple[LineOfGpu, ...]
    log_interval: tuple[float, float]  # 80 % of log(measured / predicted)
    unseen_log_interval: tuple[float, float]  # of each GPU predicted from the others

    def find_line(self, gpu: str, peak_tflops: float, gbps: float) -> tuple[LineOfGpu, bool]:
        """Return a GPU's line and whether rows of this GPU taught it."""
        for line in self.lines:
            if line.gpu == gpu:
                return line, True
        return transfer_line(self.lines, gpu, peak_tflops, gbps), False


LinearWeights = Mapping[str, OperatorLines]  # by `name_operator`


def predict(batch: OperatorBatch, gpu: Gpu) -> OperatorPrediction:
    """Return times of a batch by the shipped lines. Raises UsageError if its operator has none."""
    weights = load_shipped_lines()
    if name_operator(batch) not in weights:
        raise UsageError(
            f"linear has no rows of {name_operator(batch)}", hint="take `--model roofline` or `--model ours`"
        )
    return predict_with_lines(batch, gpu.measured_key, read_operator_hardware(gpu), weights)


def predict_with_lines(
    batch: OperatorBatch, gpu: str, hardware: OperatorHardware, weights: LinearWeights
) -> OperatorPrediction:
    """Return times of a batch by one set of lines; KeyError where the operator has none."""
    lines = weights[name_operator(batch)]
    line, known = lines.find_line(gpu, *find_roofs(batch, hardware))
    time_us = evaluate_line(line, batch)
    low, high = lines.log_interval if known else lines.unseen_log_interval
    taught = ", ".join(line.gpu for line in lines.lines)
    return OperatorPrediction(
        time_us=time_us,
        low_us=time_us * np.exp(low),
        high_us=time_us * np.exp(high),
        in_range=np.ones(len(batch), dtype=np.bool_),
        basis=f"linear regression on operations and bytes, from rows of {taught}",
    )


def name_operator(batch: OperatorBatch) -> str:
    """Return operator, data type and kind or product: what a line is fitted to."""
    parts = [batch.operator.value, batch.dtype.value]
    if isinstance(batch, AttentionBatch):
        parts.append(batch.kind.value)
    if isinstance(batch, MoeBatch):
        parts.append(batch.which.value)
    return "-".join(parts)


def evaluate_line(line: LineOfGpu, batch: OperatorBatch) -> Column:
    """Return a line's times of a batch in microseconds."""
    work = count_work(batch)
    time_us = line.us_per_flop * work.flops + line.us_per_byte * work.bytes_moved + line.constant_us
    return np.maximum(time_us, _LEAST_US)


def transfer_line(lines: Iterable[LineOfGpu], gpu: str, peak_tflops: float, gbps: float) -> LineOfGpu:
    """Return the line of a GPU that taught nothing: rates in proportion to peak and bandwidth."""
    known = list(lines)
    rate = _fit_proportion([(line.peak_tflops, line.us_per_flop) for line in known])
    speed = _fit_proportion([(line.gbps, line.us_per_byte) for line in known])
    return LineOfGpu(
        gpu=gpu,
        us_per_flop=1.0 / (rate * peak_tflops) if rate else 0.0,
        us_per_byte=1.0 / (speed * gbps) if speed else 0.0,
        constant_us=float(np.mean([line.constant_us for line in known])),
        peak_tflops=peak_tflops,
        gbps=gbps,
    )


@cache
def load_shipped_lines() -> LinearWeights:
    """Return the shipped lines; none at all if no file is shipped."""
    path = find_weights_file(NAME)
    return load_lines(path) if path else {}


def load_lines(path: Path) -> LinearWeights:
    """Return lines from a file. Raises UsageError if it holds none."""
    return read_weights_file(
        path, dict[str, OperatorLines], lambda lines, _: lines, what="no lines", hint="learn them again"
    )


def save_lines(weights: LinearWeights, path: Path) -> None:
    """Write lines; numbers so few stand in the file's header."""
    write_weights_file(path, dict(weights), {"operators": np.array([len(weights)])})


def _fit_proportion(points: list[tuple[float, float]]) -> float:
    """Return s of 1 / coefficient = s · figure by least squares, 0 if no GPU has a coefficient."""
    used = [(figure, 1.0 / coefficient) for figure, coefficient in points if coefficient > 0.0]
    square = sum(figure**2 for figure, _ in used)
    return sum(figure * rate for figure, rate in used) / square if square else 0.0
