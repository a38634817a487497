"""FP32 matrix products on CUDA cores, as cuBLAS computes them: linear (gemm) and batched (bmm).

The idea: a library cuts the output into tiles, perhaps the reduction into splits, and gives each part to a
CTA. For every tile and split that the library has, the time is

    floor + (math^p + l2^p + dram^p)^(1/p)
    math = FMAs of a CTA / (SM's rate · tile efficiency) · CTAs per SM

and the fastest one counts: libraries choose about as well as that, but for batched products, for which
cuBLAS takes few tiles (`operators.fp32_batched_tiles`, else one). The SM's rate is that of a sustained,
power-limited peak: peak · softmin(1, kappa · TDP / process node / peak). A tile's efficiency falls with its
operands per FMA and with the lanes per SM that one shared memory feeds. Less than some warps per SM leave
lanes idle.

Invariants: no time is below the floor; more rows, columns or reduction never take less math.
Example: 4096³ on V100 (80 SMs, 64 lanes): tiles of 128 by 128 are 1024 CTAs, 13 per SM and 12.8 on average,
so that waves cost 2 %.

Tiles, grids and split reductions are as kernel names and grids of NeuSight's profiles show them (PyTorch 2.1,
CUDA 12.1). The tile of Ampere's batched products is A100's, taken for all later GPUs too.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, OperatorBatch, ProductBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType, Operator

Matrix = NDArray[np.float64]
_ELEMENT_BYTES = 4.0
_K_STEP = 8.0  # of the reduction per iteration of SGEMM's main loop


class _Tile(Struct, frozen=True):
    columns: float
    rows: float
    warps: float


_TILES = (
    _Tile(128, 128, 8),
    _Tile(128, 64, 4),
    _Tile(64, 64, 2),
    _Tile(32, 128, 8),
    _Tile(128, 32, 8),
    _Tile(64, 32, 4),
    _Tile(32, 32, 4),
)
_TILE_COLUMNS = np.array([tile.columns for tile in _TILES])
_TILE_ROWS = np.array([tile.rows for tile in _TILES])
_TILE_WARPS = np.array([tile.warps for tile in _TILES])
_TILE_PLACES = {f"{tile.columns:g}x{tile.rows:g}": place for place, tile in enumerate(_TILES)}
_BATCHED_TILES = ("128x128",)  # where no others are known
_SPLITS = np.array([1.0, 3.0, 9.0])

_PARAMETERS = (
    FittedParameter("floor_us", 35.0, 2.0, 90.0),  # of the host's launch, and of one more for a bias
    FittedParameter("kappa", 0.7, 0.5, 0.9),  # TFLOP/s · nm / W
    FittedParameter("power_sharpness", 6.0, 2.0, 12.0),
    # FMAs per operand element at which half the peak is reached; of 64 lanes, twice as many of 128. At
    # least 10: a register tile of 8 by 8 asks 128 lanes' FMAs for all that the shared memory gives.
    FittedParameter("operand_cost", 20.0, 10.0, 40.0),
    FittedParameter("saturating_warps", 6.0, 1.0, 24.0),  # per SM
    FittedParameter("prologue_k", 16.0, 0.0, 200.0),  # start and end of a CTA, as steps of the reduction
    FittedParameter(
        "long_k_cost", 0.03, 0.0, 0.3
    ),  # per doubling beyond 2048: rows lie in more and more pages
    FittedParameter("sharpness", 3.0, 1.2, 8.0),  # p
    FittedParameter("dram_share", 0.95, 0.5, 1.2),  # of the sustained bandwidth
    FittedParameter("l2_share", 0.7, 0.2, 1.6),
    FittedParameter("split_us", 5.0, 0.0, 20.0),  # one more launch, that adds up the splits
)
_LONG_K = 2048.0
_TERM_NAMES = ("math", "l2", "dram", "split", "launch")
_LEAST_RATIO = 1e-9


class _Candidates(Struct, frozen=True):
    """Times of all tiles and splits, rows x candidates, in microseconds."""

    math_us: Matrix
    l2_us: Matrix
    dram_us: Matrix
    split_us: Matrix


def compute_terms(batch: ProductBatch, hardware: OperatorHardware, parameters: Parameters) -> ReferenceTerms:
    """Return the fastest candidate's time in its terms: math, L2, DRAM, splits, launch."""
    found = _compute_candidates(batch, hardware, parameters)
    p = parameters["sharpness"]
    times = (found.math_us**p + found.l2_us**p + found.dram_us**p) ** (1.0 / p) + found.split_us
    best = (np.arange(len(batch)), times.argmin(axis=1))
    launch = np.full(len(batch), parameters["floor_us"])
    parts = (found.math_us[best], found.l2_us[best], found.dram_us[best], found.split_us[best], launch)
    return ReferenceTerms(
        names=_TERM_NAMES,
        terms_us=np.stack(parts, axis=1),
        total_us=launch + times[best],
        flops=2.0 * batch.batch * batch.m * batch.n * batch.k,
        dram_bytes=_count_bytes(batch),
        gpu_us=times[best],
    )


def compute_sustained_tflops(hardware: OperatorHardware, parameters: Parameters) -> float:
    """Return the FP32 peak that the power limit leaves, in TFLOP/s."""
    peak = hardware.fp32_product_tflops
    power = parameters["kappa"] * hardware.tdp_w / hardware.process_nm / peak
    q = parameters["power_sharpness"]
    return float(peak * (1.0 + power**-q) ** (-1.0 / q))


def _compute_candidates(
    batch: ProductBatch, hardware: OperatorHardware, parameters: Parameters
) -> _Candidates:
    is_batched = batch.operator is Operator.BMM
    names = (hardware.fp32_batched_tiles or _BATCHED_TILES) if is_batched else hardware.fp32_linear_tiles
    chosen = [_TILE_PLACES[name] for name in names or _TILE_PLACES]
    splits = _SPLITS[:1] if is_batched else _SPLITS
    columns, rows, warps = (values[chosen, None] for values in (_TILE_COLUMNS, _TILE_ROWS, _TILE_WARPS))
    count, m, n, k = (value[:, None, None] for value in (batch.batch, batch.m, batch.n, batch.k))
    ctas = count * np.ceil(n / columns) * np.ceil(m / rows) * splits
    steps = np.ceil(k / splits / _K_STEP) * _K_STEP + parameters["prologue_k"]
    load = np.maximum(np.ceil(ctas / hardware.sm_count), parameters["saturating_warps"] / warps)
    # FMAs per element of an operand, over what the lanes of an SM ask of its one shared memory
    reuse = 2.0 * columns * rows / (columns + rows)
    efficiency = reuse / (reuse + parameters["operand_cost"] * _count_lanes(hardware) / 64.0)
    long = 1.0 + parameters["long_k_cost"] * np.maximum(np.log2(k / splits / _LONG_K), 0.0)
    rate = 0.5e6 * compute_sustained_tflops(hardware, parameters) / hardware.sm_count  # FMAs per us and SM
    output_bytes = _ELEMENT_BYTES * count * m * n * splits
    l2_rate = hardware.l2_gbps * 1e3 * parameters["l2_share"]
    dram_rate = hardware.sustained_dram_gbps * 1e3 * parameters["dram_share"]

    def flatten(values: NDArray[np.float64]) -> Matrix:
        return np.broadcast_to(values, ctas.shape).reshape(len(batch), -1)

    return _Candidates(
        math_us=flatten(columns * rows * steps / (rate * efficiency) * load * long),
        l2_us=flatten((_ELEMENT_BYTES * ctas * (columns + rows) * steps + output_bytes) / l2_rate),
        dram_us=flatten(_count_bytes(batch)[:, None, None] / dram_rate),
        split_us=flatten(np.where(splits > 1.0, parameters["split_us"] + 2.0 * output_bytes / l2_rate, 0.0)),
    )


def _count_bytes(batch: ProductBatch) -> Column:
    """Return the bytes of both operands and the output."""
    return _ELEMENT_BYTES * batch.batch * (batch.m * batch.k + batch.k * batch.n + batch.m * batch.n)


def _count_lanes(hardware: OperatorHardware) -> float:
    """Return the FP32 lanes of an SM: 64 or 128."""
    return hardware.fp32_tflops * 0.5e6 / (hardware.sm_count * hardware.boost_mhz)


def compute_features(
    batch: ProductBatch, hardware: OperatorHardware, terms: ReferenceTerms
) -> NDArray[np.float64]:
    """Return rows x FEATURE_NAMES: logarithms of ratios of terms, shapes, waves, padding, footprints."""
    kernel_us = terms.total_us - terms.find_term("launch")
    m, n, k, count = batch.m, batch.n, batch.k, batch.batch
    ratios = [terms.find_term(name) / kernel_us for name in ("math", "l2", "dram")]
    ratios += [terms.total_us / kernel_us, kernel_us / terms.find_term("launch"), m, n, k, count, m / n]
    for tile in _TILES:
        tiles = np.ceil(n / tile.columns) * np.ceil(m / tile.rows)
        per_sm = count * tiles / hardware.sm_count
        ratios += [per_sm, np.ceil(per_sm) / per_sm, tiles * tile.columns * tile.rows / (m * n)]
    footprints = (m * k, k * n, m * n)
    ratios += [_ELEMENT_BYTES * count * size / hardware.l2_bytes for size in footprints]
    ratios += [_count_bytes(batch) / hardware.l2_bytes, k / np.sqrt(m * n)]
    logs = np.log2(np.maximum(np.stack(ratios, axis=1), _LEAST_RATIO))
    evenness = [_count_factors_of_two(value) for value in (m, n, k)]
    splits = (terms.find_term("split") > 0.0).astype(np.float64)
    return np.hstack([logs, np.stack([*evenness, splits], axis=1)])


def _count_factors_of_two(values: Column) -> Column:
    """Return how often 2 divides each value, at most 7: rows of 512 bytes are aligned as well as any."""
    whole = values.astype(np.int64)
    return np.minimum(np.log2((whole & -whole).astype(np.float64)), 7.0)


def choose_weights(batch: OperatorBatch) -> str:
    """Return the set of weights: linear and batched products are learned apart."""
    return f"fp32_product-{batch.operator}"


_TILE_NAMES = tuple(f"{tile.columns:.0f}x{tile.rows:.0f}" for tile in _TILES)
FEATURE_NAMES = (
    *("math / kernel", "L2 / kernel", "DRAM / kernel", "total / kernel", "kernel / launch"),
    *("m", "n", "k", "batch", "m / n"),
    *(f"{what} of {tile}" for tile in _TILE_NAMES for what in ("CTAs per SM", "waves' ceiling", "padding")),
    *("A / L2", "B / L2", "D / L2", "bytes / L2", "k / sqrt(m n)"),
    *("factors of 2 in m", "factors of 2 in n", "factors of 2 in k", "splits"),
)
FAMILY = OperatorFamily(
    name="fp32_product",
    operators=frozenset({Operator.GEMM, Operator.BMM}),
    parameters=_PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
    data_types=frozenset({DataType.FP32}),
)
