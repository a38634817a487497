"""Copy of the nearest known GPU (`--model nearest`): what a shape takes there is what it takes here.

Nearest is, of the GPUs that taught, one of the same architecture if there is any, and among these the one
with the least distance in log of peak and DRAM bandwidth; the GPU itself is never its own neighbour. The
shipped model copies what `ours` predicts for the neighbour, on shapes of which nothing was measured too;
`copy_measured` copies measured times, for the tables that compare models.
"""

from collections.abc import Iterable, Sequence
from math import log

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.baselines.linear import name_operator
from analyzer.baselines.roofline import compute_roofline_us, find_roofs
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.operators import ours
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import Column, OperatorBatch, RaggedLengths
from analyzer.operators.family import find_family
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.text.errors import UsageError

NAME = "nearest"
_LOG_INTERVAL = (-0.7, 0.7)  # assumed: half to twice the time
_ROWS_AT_ONCE = 256


class CopiedTimes(Struct, frozen=True):
    """Times of the nearest GPU, and how far in log2 of the shape the rows lie that were copied."""

    gpu: str
    time_us: Column
    distance: Column


def predict(batch: OperatorBatch, gpu: Gpu) -> OperatorPrediction:
    """Return what `ours` predicts on the nearest GPU that taught. Raises UsageError where none did."""
    family, hardware = find_family(batch), read_operator_hardware(gpu)
    weights = ours.find_weights(family, family.resolve(batch, hardware))
    taught = [known.gpu for known in weights.taught if known.gpu != gpu.measured_key] if weights else []
    if not taught:
        raise UsageError(
            f"nearest knows no other GPU for {name_operator(batch)}", hint="take `--model roofline`"
        )
    nearest = find_nearest_gpu(batch, hardware, taught)
    copied = ours.predict(batch, load_gpu(nearest))
    low, high = np.exp(_LOG_INTERVAL)
    return msgspec.structs.replace(
        copied,
        low_us=copied.time_us * low,
        high_us=copied.time_us * high,
        basis=f"copied from {nearest}, the nearest GPU that taught; interval assumed",
    )


def find_nearest_gpu(batch: OperatorBatch, hardware: OperatorHardware, keys: Iterable[str]) -> str:
    """Return the key of the nearest of some GPUs: by architecture first, then by peak and bandwidth."""
    figures = find_roofs(batch, hardware)

    def measure_distance(key: str) -> tuple[bool, float, str]:
        other = read_operator_hardware(load_gpu(key))
        away = sum(abs(log(a / b)) for a, b in zip(figures, find_roofs(batch, other), strict=True))
        return other.architecture != hardware.architecture, away, key

    return min(keys, key=measure_distance)


def copy_measured(
    batch: OperatorBatch, hardware: OperatorHardware, measured: Sequence[MeasuredBatch]
) -> CopiedTimes:
    """Return the measured times of the nearest GPU's nearest shapes.

    Where the same shape was not measured there, the nearest one's time is scaled by the two shapes' roofline
    times on that GPU. Rows of the GPU itself are not looked at. Raises UsageError if no other GPU has rows.
    """
    name = name_operator(batch)
    others = [part for part in measured if part.gpu != hardware.key and name_operator(part.batch) == name]
    if not others:
        raise UsageError(f"no other GPU has rows of {name}", hint="measure one")
    nearest = find_nearest_gpu(batch, hardware, {part.gpu for part in others})
    known = [part for part in others if part.gpu == nearest]
    shapes = np.concatenate([describe_shapes(part.batch) for part in known])
    their_hardware = read_operator_hardware(load_gpu(nearest))
    their_roof = np.concatenate([compute_roofline_us(part.batch, their_hardware) for part in known])
    rows, distance = _find_nearest_rows(describe_shapes(batch), shapes)
    scale = np.where(distance > 0, compute_roofline_us(batch, their_hardware) / their_roof[rows], 1.0)
    return CopiedTimes(nearest, np.concatenate([part.time_us for part in known])[rows] * scale, distance)


def describe_shapes(batch: OperatorBatch) -> NDArray[np.float64]:
    """Return rows x columns: log2 of 1 + each column; of lists of lengths their count, sum and maximum."""
    columns: list[Column] = []
    for name in batch.__struct_fields__:
        value = getattr(batch, name)
        if isinstance(value, RaggedLengths):
            columns += [value.counts, value.sum_rows(value.values), value.max_rows(value.values)]
        elif isinstance(value, np.ndarray):
            columns.append(value)
    return np.log2(1.0 + np.stack(columns, axis=1))


def _find_nearest_rows(
    asked: NDArray[np.float64], known: NDArray[np.float64]
) -> tuple[NDArray[np.int64], Column]:
    """Return for each asked shape the position of the nearest known one, and its distance."""
    rows = np.empty(len(asked), dtype=np.int64)
    distance = np.empty(len(asked))
    for start in range(0, len(asked), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        away = np.abs(asked[part, None, :] - known[None, :, :]).sum(axis=2)
        rows[part] = away.argmin(axis=1)
        distance[part] = away[np.arange(len(away)), rows[part]]
    return rows, distance
