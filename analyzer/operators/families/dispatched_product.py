"""Matrix products whose tile is known: frameworks take it from a table (`operators.dispatched_tiles`).

Idea: the tile is not the best of many, as where a library tries them (`gemm`), so a narrow product leaves SMs
idle, and a large one ends with a part of a round. The most loaded SM works through ceil(tiles / SMs) of them.
A step along k takes the tensor cores' cycles, which fewer than four warps do not fill, or those in which the
operands come from the L2, whose rate the busy SMs share and which a cluster asks for once. Where warps issue
the products themselves, a tile's first loads and last stores stand alone unless another CTA is resident;
asynchronous kernels store while the next tile is multiplied. Before the product a kernel of one CTA per row
narrows the activations. Reference: launch + quantization + (sm^p + dram^p)^(1/p).

Invariant: the reference grows with m, n and k as long as the tile is the same.

Example: m 128, n 128, k 8192 by tiles of 64 x 128 are two CTAs with 64 steps each, on 132 SMs or on 142.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import Column, OperatorBatch, ProductBatch
from analyzer.operators.dispatched_tiles import (
    DispatchedTiles,
    find_dispatched_tiles,
    list_dispatched_types,
)
from analyzer.operators.families.gemm import (
    count_bytes,
    count_reread_bytes,
    count_trailing_zeros,
    find_missing_share,
    find_working_set,
    join_terms,
    time_quantization,
)
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Operator
from analyzer.operators.overlap import add_by_norm

Matrix = NDArray[np.float64]

_SUBPARTITIONS = 4.0  # of an SM: a warp's products use the tensor core of its own
_SM_BYTES = 64.0  # that an SM takes from the L2 in a cycle
# Not fitted: with these the reference is off by 14.1 % on GPUs left out, as parameters by 16.1.
_TENSOR_SHARE = 0.93  # of the peak
_DRAM_SHARE = 0.77  # of the datasheet's bandwidth
_STEP_CYCLES = 40.0  # between two steps of an asynchronous kernel
_QUANTIZED_SHARE = 1.2  # of the time in which the L2 and the DRAM move the bytes


def compute_terms(batch: ProductBatch, hardware: OperatorHardware, parameters: Parameters) -> ReferenceTerms:
    """Return the reference time of each product, in microseconds.

    The terms: tensor, load (tensor cores wait for the L2, or between steps), store (and a tile's first
    loads), dram, quantize, launch.
    """
    tiles = find_dispatched_tiles(batch, hardware.architecture)
    ctas = _count_ctas(batch, tiles)
    rounds = np.ceil(ctas / hardware.sm_count)
    tensor, step, store = _time_tile(batch, tiles, np.minimum(ctas, hardware.sm_count), hardware, parameters)
    steps = np.ceil(batch.k / tiles.depth)
    if hardware.has_asynchronous_mma:
        tile = add_by_norm(steps * step, store, 4.0) + parameters["asynchronous_tile_cycles"]
    else:
        tile = steps * step + (store + parameters["tile_cycles"]) / tiles.resident
    sm_us = rounds * tile / hardware.boost_mhz
    to_us = rounds / hardware.boost_mhz
    return join_terms(
        batch,
        {
            "tensor": to_us * steps * tensor,
            "load": to_us * steps * (step - tensor),
            "store": np.maximum(sm_us - to_us * steps * step, 0.0),
        },
        sm_us=sm_us,
        dram_us=_time_dram(batch, tiles, ctas, hardware, parameters),
        quantize_us=_time_quantization(batch, hardware, parameters),
        launch_us=np.full(len(batch), parameters["launch_cycles"] / hardware.boost_mhz),
        norm=parameters["norm"],
    )


def _count_ctas(batch: ProductBatch, tiles: DispatchedTiles) -> Column:
    """Return the CTAs of each product, whole clusters of them."""
    along_m = np.ceil(np.ceil(batch.m / tiles.rows) / tiles.cluster_rows) * tiles.cluster_rows
    along_n = np.ceil(np.ceil(batch.n / tiles.columns) / tiles.cluster_columns) * tiles.cluster_columns
    ctas: Column = batch.batch * along_m * along_n
    return ctas


def _time_tile(
    batch: ProductBatch,
    tiles: DispatchedTiles,
    busy_sms: Column,
    hardware: OperatorHardware,
    parameters: Parameters,
) -> tuple[Column, Column, Column]:
    """Return cycles of the tensor cores in one step, of the whole step, and of a tile's stores."""
    cycles_per_us = hardware.sm_count * hardware.boost_mhz
    fma = hardware.find_burst_tflops(batch.dtype, _TENSOR_SHARE) * 1e6 / (2.0 * cycles_per_us)
    l2_bytes = hardware.l2_gbps * 1e3 / hardware.boost_mhz * parameters["l2_share"] / busy_sms
    load_bytes = np.minimum(l2_bytes, _SM_BYTES)
    store_bytes = np.minimum(l2_bytes * parameters["store_share"], _SM_BYTES)
    elements = tiles.rows * tiles.columns
    tensor = elements * tiles.depth / (fma * np.minimum(tiles.warps / _SUBPARTITIONS, 1.0))
    asked = tiles.rows / tiles.cluster_columns + tiles.columns / tiles.cluster_rows
    step = add_by_norm(tensor, asked * tiles.depth * batch.dtype.activation_bytes / load_bytes, 4.0)
    if hardware.has_asynchronous_mma:
        step = step + _STEP_CYCLES
    return tensor, step, elements * batch.dtype.output_bytes / store_bytes


def _time_dram(
    batch: ProductBatch,
    tiles: DispatchedTiles,
    ctas: Column,
    hardware: OperatorHardware,
    parameters: Parameters,
) -> Column:
    """Return the time of operands and output that the L2 does not keep, and of what waves read again."""
    least = count_bytes(batch)
    missing = find_missing_share(batch, least, hardware, parameters["resident_limit"])
    loads = ctas * batch.k * (tiles.rows + tiles.columns) * batch.dtype.activation_bytes
    again = parameters["reread_share"] * count_reread_bytes(loads, ctas, least, hardware)
    time_us: Column = (least.sum(axis=0) * missing + again) / _find_dram_rate(hardware)
    return time_us


def _time_quantization(batch: ProductBatch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the time in which activations are read in BF16 and written narrow, by one CTA per row."""
    bytes_us = time_quantization(batch, hardware, _find_dram_rate(hardware))
    rows_us = batch.batch * batch.m / hardware.sm_count * parameters["row_cycles"] / hardware.boost_mhz
    time_us: Column = _QUANTIZED_SHARE * bytes_us + rows_us
    return time_us


def _find_dram_rate(hardware: OperatorHardware) -> float:
    """Return bytes per microsecond."""
    return hardware.dram_gbps * _DRAM_SHARE * 1e3


def compute_features(batch: ProductBatch, hardware: OperatorHardware, terms: ReferenceTerms) -> Matrix:
    """Return rows x `FAMILY.feature_names`: where the time goes, sizes, the tile, its waves and padding."""
    tiles = find_dispatched_tiles(batch, hardware.architecture)
    waves = _count_ctas(batch, tiles) / hardware.sm_count
    least = count_bytes(batch)
    shares = np.log(np.maximum(terms.terms_us / terms.total_us[:, None], 1e-3))
    columns = [
        *shares.T,
        np.log2(batch.m),
        np.log2(batch.n),
        np.log2(batch.k),
        np.log2(least.sum(axis=0) / hardware.l2_bytes),
        np.log2(least[1] / hardware.l2_bytes),
        np.clip(np.log2(find_working_set(batch, least, hardware) / hardware.l2_bytes), -3.0, 3.0),
        np.log2(terms.total_us),
        np.log2(tiles.rows),
        np.log2(tiles.columns),
        np.log2(tiles.depth),
        np.log2(tiles.warps),
        np.log2(tiles.resident),
        np.log2(tiles.cluster_rows * tiles.cluster_columns),
        np.log2(waves),
        np.log2(np.ceil(waves) / waves),
        np.log2(np.ceil(batch.m / tiles.rows) * tiles.rows / batch.m),
        np.log2(np.ceil(batch.n / tiles.columns) * tiles.columns / batch.n),
        count_trailing_zeros(batch.m, 4),
        count_trailing_zeros(batch.n, 9),
        count_trailing_zeros(batch.k, 9),
        np.full(len(batch), float(hardware.has_asynchronous_mma)),
    ]
    return np.stack(columns, axis=1)


def choose_weights(batch: OperatorBatch) -> str:
    """Return the name of the set of weights: one of each framework and data type."""
    assert isinstance(batch, ProductBatch)
    return f"gemm-{batch.dtype}-{batch.backend}"


FAMILY = OperatorFamily(
    name="dispatched_product",
    operators=frozenset({Operator.GEMM}),
    kernels=list_dispatched_types(),
    parameters=(
        FittedParameter("l2_share", 1.3, 0.2, 3.0),
        FittedParameter("store_share", 0.2, 0.05, 2.0),
        FittedParameter("reread_share", 1.0, 0.0, 1.0),
        FittedParameter("launch_cycles", 9000.0, 200.0, 20000.0),
        FittedParameter("tile_cycles", 1500.0, 0.0, 20000.0),
        FittedParameter("asynchronous_tile_cycles", 500.0, 0.0, 6000.0),
        FittedParameter("row_cycles", 500.0, 0.0, 6000.0),
        FittedParameter("resident_limit", 0.4, 0.2, 1.1),
        FittedParameter("norm", 2.5, 1.2, 6.0),
    ),
    feature_names=(
        "tensor_share",
        "load_share",
        "store_share",
        "dram_share",
        "quantize_share",
        "launch_share",
        "log_m",
        "log_n",
        "log_k",
        "footprint_to_l2",
        "weights_to_l2",
        "working_set_to_l2",
        "log_reference",
        "tile_rows",
        "tile_columns",
        "tile_depth",
        "warps",
        "resident",
        "cluster",
        "waves",
        "last_wave",
        "m_padding",
        "n_padding",
        "m_alignment",
        "n_alignment",
        "k_alignment",
        "asynchronous",
    ),
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
)
