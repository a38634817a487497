"""Copy of the nearest known GPU (`--model nearest`): what a shape takes there is what it takes here.

Nearest is, of the GPUs that taught, one of the same architecture if there is any, and among these the one
with the least distance in log of peak and DRAM bandwidth; the GPU itself is never its own neighbour. What
`ours` predicts for the neighbour is copied, on shapes of which nothing was measured too.
"""

from collections.abc import Iterable
from math import log

import msgspec
import numpy as np

from analyzer.baselines.linear import name_operator
from analyzer.baselines.roofline import find_roofs
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.operators import ours
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import OperatorBatch
from analyzer.operators.family import find_family
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.text.errors import UsageError

NAME = "nearest"
_LOG_INTERVAL = (-0.7, 0.7)  # assumed: half to twice the time


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
