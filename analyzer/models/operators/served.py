"""Times of operators as the steps of a served model meet them.

Measurements call one operator again and again, in milliseconds. A served model differs in three ways:

- Its layers take turns, so the L2 holds nothing of a product's weights, nor of keys and values (`is_cold`).
- It computes for seconds, so large products run at the rate that power and heat allow for long. What the
  model says of one large product is brought to that sustained rate, and others by the share of their time
  that the SMs decide: us · level^share. Of a GPU whose own products taught, a difference within the spread of
  sustained rates is left as it is.
- Kernels are launched by a CUDA graph or far ahead of them: the kernel's own time, without the host's launch.

Invariant: the largest products reach the sustained rate, within its spread where their GPU taught; those
bound by memory do not depend on it.

Example: an L20 sustains 111 TF where the transferred model says 101: a prefill's products take 9 % less, a
decode's of 8 rows, whose SMs decide 5 % of the time, half a percent.
"""

from math import log
from pathlib import Path

import msgspec
import numpy as np

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.serving_figures import load_serving_figures
from analyzer.models.operators import ours
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import AttentionBatch, Column, MlaBatch, OperatorBatch, ProductBatch
from analyzer.operators.family import find_family
from analyzer.operators.names import Operator
from analyzer.operators.sustained_rates import SustainedRates, find_sustained_rates

_LARGE = (32768.0, 8192.0, 8192.0)  # m, n, k of a product whose rate is the sustained one
_FLOPS_PER_US = 1e6  # of one TF


def predict_served(
    batch: OperatorBatch, gpu: Gpu, *, sustained: SustainedRates | None = None, folder: Path | None = None
) -> OperatorPrediction:
    """Return times of a batch in a served model.

    sustained: of the GPU's large products, where known better than by `find_sustained_rates`.
    Raises UsageError for an operator that no family serves.
    """
    found = predict_unleveled(batch, gpu, folder)
    if found.sm_share is None:
        return found
    rates = sustained or find_sustained_rates(gpu)
    scaled = _scale(found, compute_level(batch, gpu, rates, folder) ** found.sm_share)
    operands = "weights" if isinstance(batch, ProductBatch) else "keys and values"
    rate = f"large products at {rates.find(batch.dtype):.3g} TFLOP/s"
    return msgspec.structs.replace(scaled, basis=f"{scaled.basis}; {operands} not in the L2, {rate}")


def predict_unleveled(batch: OperatorBatch, gpu: Gpu, folder: Path | None = None) -> OperatorPrediction:
    """Return times of a batch in a served model, but for the level of the sustained rate."""
    if isinstance(batch, ProductBatch | AttentionBatch | MlaBatch):
        batch = msgspec.structs.replace(batch, is_cold=True)
    found = ours.predict(batch, gpu, folder)
    return found if found.gpu_us is None else _scale(found, found.gpu_us / found.time_us)


def compute_level(
    batch: OperatorBatch, gpu: Gpu, sustained: SustainedRates, folder: Path | None = None
) -> float:
    """Return by what the SMs' part of times is multiplied, so that a large product has the sustained rate.

    Of products, a large one of the batch's data type and backend is asked for; the reference of attention has
    the GPU's own sustained rate.
    """
    if not isinstance(batch, ProductBatch):
        return find_sustained_rates(gpu).find(batch.dtype) / sustained.find(batch.dtype)
    m, n, k = (np.array([size]) for size in _LARGE)
    large = msgspec.structs.replace(batch, operator=Operator.GEMM, m=m, n=n, k=k, batch=np.ones(1))
    found = predict_unleveled(large, gpu, folder)
    if found.sm_share is None:
        return 1.0
    own_tflops = float(2.0 * _LARGE[0] * _LARGE[1] * _LARGE[2] / found.time_us[0] / _FLOPS_PER_US)
    weights = ours.find_weights(find_family(batch), batch, folder)
    if weights is not None and ours.knows_gpu(weights, gpu):
        known = find_sustained_rates(gpu)
        spread = load_serving_figures().spread.tensor_measured.value
        # rates of narrow types follow from that of 16 bits by a rule: rows that taught say more
        is_ruled = known.find(batch.dtype) != known.tensor_tflops
        if is_ruled or abs(log(own_tflops / known.tensor_tflops)) < spread:
            own_tflops = known.find(batch.dtype)
    return float((own_tflops / sustained.find(batch.dtype)) ** (1.0 / found.sm_share[0]))


def _scale(found: OperatorPrediction, factor: Column) -> OperatorPrediction:
    """Return a prediction with its times multiplied, and as a term what that adds."""
    added_us = found.time_us * (factor - 1.0) + found.terms_us.get("served", 0.0)
    return msgspec.structs.replace(
        found,
        time_us=found.time_us * factor,
        low_us=found.low_us * factor,
        high_us=found.high_us * factor,
        gpu_us=None,
        terms_us={**found.terms_us, "served": added_us},
    )
