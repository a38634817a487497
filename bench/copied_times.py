"""Measured times of the nearest GPU, copied as `--model nearest` copies predicted ones; for tables alone."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.baselines.linear import name_operator
from analyzer.baselines.nearest import find_nearest_gpu
from analyzer.baselines.roofline import compute_roofline_us
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import Column, OperatorBatch, RaggedLengths
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.text.errors import UsageError

_ROWS_AT_ONCE = 256


class CopiedTimes(Struct, frozen=True):
    """Times of the nearest GPU, and how far in log2 of the shape the rows lie that were copied."""

    gpu: str
    time_us: Column
    distance: Column


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
    shapes = np.concatenate([_describe_shapes(part.batch) for part in known])
    their_hardware = read_operator_hardware(load_gpu(nearest))
    their_roof = np.concatenate([compute_roofline_us(part.batch, their_hardware) for part in known])
    rows, distance = _find_nearest_rows(_describe_shapes(batch), shapes)
    scale = np.where(distance > 0, compute_roofline_us(batch, their_hardware) / their_roof[rows], 1.0)
    return CopiedTimes(nearest, np.concatenate([part.time_us for part in known])[rows] * scale, distance)


def _describe_shapes(batch: OperatorBatch) -> NDArray[np.float64]:
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
