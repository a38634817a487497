"""Block-scaled FP8 matrix products as vLLM runs them on Hopper: CUTLASS, one tile of 128 x 128.

Idea: the kernel is persistent with a fixed tile, and two neighbours along n share a cluster, so the columns
of tiles count in pairs. The most loaded SM works through ceil(tiles / SMs) tiles; each tile takes k / 128
steps, and a step takes the tensor cores' cycles or those in which the CUDA cores scale and add the partial
sums, whichever is more: the rates of Hopper's tensor cores hide the scaling on H20 and do not on H100.

Invariant: the reference does not change while m grows within a row of tiles, nor n within a pair of columns.

Example: m 3072, n 384, k 2048 on the 78 SMs of an H20 are 24 x 3 tiles, which would fit into one round; in
pairs they are 24 x 4 = 96, which take two.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import Column, OperatorBatch, ProductBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Operator
from analyzer.operators.retention import compute_lost_share

Matrix = NDArray[np.float64]

_TILE = 128.0  # of m, of n, and of a step along k


def count_rounds(batch: ProductBatch, hardware: OperatorHardware) -> tuple[Column, Column]:
    """Return tiles (columns in pairs), and how many of them the most loaded SM gets."""
    tiles = np.ceil(batch.m / _TILE) * 2.0 * np.ceil(batch.n / (2.0 * _TILE)) * batch.batch
    return tiles, np.ceil(tiles / hardware.sm_count)


def compute_terms(batch: ProductBatch, hardware: OperatorHardware, parameters: Parameters) -> ReferenceTerms:
    """Return the reference time of each product with its terms: sm, dram, launch, in microseconds."""
    tiles, rounds = count_rounds(batch, hardware)
    steps = np.ceil(batch.k / _TILE)
    peak = hardware.find_peak_tflops(batch.dtype)
    fma_per_cycle = peak * 1e6 / (2.0 * hardware.sm_count * hardware.boost_mhz)
    tensor = _TILE**3 / (fma_per_cycle * parameters["tensor_share"])
    step = (tensor**4 + parameters["scaling_cycles"] ** 4) ** 0.25
    busy = np.minimum(tiles, hardware.sm_count)
    load = 2.0 * _TILE**2 * busy * hardware.boost_mhz / (hardware.l2_gbps * 1e3 * parameters["l2_share"])
    step = np.maximum(step, load)
    sm_us = rounds * (steps * step + parameters["tile_cycles"]) / hardware.boost_mhz
    operands = batch.batch * batch.k * (batch.m + batch.n)
    moved = operands + 2.0 * batch.batch * batch.m * batch.n
    missing = compute_lost_share(moved, hardware.l2_bytes, parameters["resident_limit"], is_whole=False)
    rate = hardware.dram_gbps * parameters["dram_share"] * 1e3
    dram_us = (moved * missing + 2.0 * batch.batch * batch.m * batch.n * (1.0 - missing)) / rate
    launch_us = np.full(len(batch), parameters["launch_us"])
    norm = parameters["norm"]
    return ReferenceTerms(
        names=("sm", "dram", "launch"),
        terms_us=np.stack([sm_us, dram_us, launch_us], axis=1),
        total_us=launch_us + (sm_us**norm + dram_us**norm) ** (1.0 / norm),
        flops=2.0 * batch.batch * batch.m * batch.n * batch.k,
        dram_bytes=moved,
    )


def compute_features(batch: ProductBatch, hardware: OperatorHardware, terms: ReferenceTerms) -> Matrix:
    """Return rows x `FAMILY.feature_names`: where the time goes, rounds, padding, sizes against the L2."""
    tiles, rounds = count_rounds(batch, hardware)
    m, n, k = batch.m, batch.n, batch.k
    per_round = k * _TILE * (np.minimum(np.ceil(m / _TILE), hardware.sm_count) + np.ceil(n / _TILE))
    columns = [
        *(np.log(terms.terms_us[:, place] / terms.total_us) for place in range(3)),
        np.log2(m),
        np.log2(n),
        np.log2(k),
        np.log2(tiles / hardware.sm_count),
        np.log2(rounds),
        np.log2(rounds * hardware.sm_count / tiles),
        np.log2(np.ceil(m / _TILE) * _TILE / m),
        np.log2(2.0 * np.ceil(n / (2.0 * _TILE)) * _TILE / n),
        np.log2(np.ceil(k / _TILE) * _TILE / k),
        np.log2(terms.dram_bytes / hardware.l2_bytes),
        np.log2(n * k / hardware.l2_bytes),
        np.log2(m * k / hardware.l2_bytes),
        np.log2(m * n * 2.0 / hardware.l2_bytes),
        np.log2(per_round / hardware.l2_bytes),
        np.log2(np.minimum(tiles, hardware.sm_count) / hardware.sm_count),
        np.log2(terms.total_us),
        np.log2(k / n),
        np.mod(np.ceil(m / _TILE), 2.0),
    ]
    return np.stack(columns, axis=1)


def choose_weights(batch: OperatorBatch) -> str:
    """Return the name of the one set of weights."""
    return "scaled_mm"


FAMILY = OperatorFamily(
    name="scaled_mm",
    operators=frozenset({Operator.SCALED_MM}),
    parameters=(
        FittedParameter("tensor_share", 0.91, 0.5, 1.0),
        FittedParameter("scaling_cycles", 570.0, 100.0, 1500.0),
        FittedParameter("l2_share", 1.05, 0.2, 3.0),
        FittedParameter("tile_cycles", 1750.0, 200.0, 8000.0),
        FittedParameter("dram_share", 0.94, 0.5, 1.0),
        FittedParameter("resident_limit", 0.3, 0.3, 1.5),
        FittedParameter("launch_us", 3.74, 0.5, 10.0),
        FittedParameter("norm", 2.5, 1.2, 8.0),
    ),
    feature_names=(
        "sm_share",
        "dram_share",
        "launch_share",
        "log_m",
        "log_n",
        "log_k",
        "waves",
        "rounds",
        "last_round",
        "m_padding",
        "n_padding",
        "k_padding",
        "footprint_to_l2",
        "weights_to_l2",
        "activations_to_l2",
        "output_to_l2",
        "round_to_l2",
        "busy_sms",
        "log_reference",
        "depth_to_width",
        "odd_rows",
    ),
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
)
