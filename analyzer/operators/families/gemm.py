"""Matrix products on tensor cores: gemm and bmm.

Idea: a library picks the tile and the split of the reduction that finish first, so the reference times every
candidate and keeps the fastest. A tile needs the larger of its tensor cycles and of the cycles that its
operands take from the L2; an SM works through ceil(tiles / SMs) of them (wave quantization) and pays a ramp
(first loads, last stores) once per round of resident tiles. Beside the SMs works the DRAM, which moves each
operand once, and again where a wave's operands do not stay in the L2. Reference:
launch + (sm^p + dram^p)^(1/p).

Invariant: the reference is positive, grows with the batch, and is never below the launch floor or the DRAM's
time for operands read once at the datasheet's rate times the fitted share.

Example: 4096 x 4096 x 4096 on 132 SMs in tiles of 128 x 256 are 512 tiles, 4 per SM at most where 3.9 would
do: 3 % are lost to the last wave.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, OperatorBatch, ProductBatch, select
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import POWER_SOFTNESS, OperatorHardware
from analyzer.operators.names import Backend, DataType, Operator
from analyzer.operators.retention import STORED_SPACE, compute_lost_share
from analyzer.operators.sustained_rates import compute_soft_minimum

Matrix = NDArray[np.float64]


class TilePlan(Struct, frozen=True):
    """Tiles of one size per row of a batch, and the cycles that they take on the most loaded SM."""

    tiles: Column  # with padding and all parts of the reduction
    loads_bytes: Column  # that all tiles read, from L2 or DRAM
    tensor_cycles: Column
    load_cycles: Column  # in which the tensor cores wait for operands from the L2
    ramp_cycles: Column  # first loads, last stores, addition of the reduction's parts

    @property
    def cycles(self) -> Column:
        """Cycles of the most loaded SM."""
        return self.tensor_cycles + self.load_cycles + self.ramp_cycles


class TileRates(Struct, frozen=True):
    """What one SM does per cycle, and what a tile costs before and after its products."""

    fma: float
    load_bytes: float
    ramp_cycles: float  # once
    round_cycles: float  # for each further round of resident tiles


_TILE_SHAPES = (
    (16, 64),
    (32, 64),
    (64, 32),
    (64, 64),
    (64, 128),
    (128, 64),
    (128, 128),
    (64, 256),
    (256, 64),
    (128, 256),
    (256, 128),
)
_CANDIDATES = np.array([(*shape, splits) for shape in _TILE_SHAPES for splits in (1, 2, 4, 8, 16)], float)
_ROWS_AT_ONCE = 256  # times candidates: keeps the arrays in the cache
_FEATURE_TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))


def choose_tiles(batch: ProductBatch, hardware: OperatorHardware, parameters: Parameters) -> TilePlan:
    """Return per row the candidate tile and split whose most loaded SM has the fewest cycles."""
    cycles_per_us = hardware.sm_count * hardware.boost_mhz
    sustained = find_sustained_tflops(batch.dtype, hardware, parameters)
    rates = TileRates(
        fma=sustained * 1e6 / (2.0 * cycles_per_us),
        load_bytes=hardware.l2_gbps * 1e3 / cycles_per_us * parameters["l2_share"],
        ramp_cycles=parameters["ramp_cycles"],
        round_cycles=parameters["round_cycles"],
    )
    best = np.empty(len(batch), dtype=np.int64)
    rows, columns, splits = _CANDIDATES.T[:, :, None]
    for start in range(0, len(batch), _ROWS_AT_ONCE):
        part = select(batch, np.arange(start, min(start + _ROWS_AT_ONCE, len(batch))))
        cycles = plan_tiles(part, hardware.sm_count, rates, rows, columns, splits).cycles
        best[start : start + _ROWS_AT_ONCE] = cycles.argmin(axis=0)
    return plan_tiles(batch, hardware.sm_count, rates, *_CANDIDATES[best].T)


def plan_tiles(
    batch: ProductBatch,
    sm_count: float,
    rates: TileRates,
    rows: Column,
    columns: Column,
    splits: Column,
) -> TilePlan:
    """Return the cycles of tiles of rows x columns elements with the reduction in so many parts.

    The three are one per row of the batch, or candidates x 1: the plan then has candidates x rows.
    """
    tiles = np.ceil(batch.m / rows) * np.ceil(batch.n / columns) * batch.batch * splits
    depth = np.ceil(batch.k / (32.0 * splits)) * 32.0
    rounds = np.ceil(tiles / sm_count)
    operands = rows * batch.dtype.activation_bytes + columns * batch.dtype.weight_bytes
    tensor = rows * columns / rates.fma
    load = operands / rates.load_bytes
    step = np.sqrt(np.sqrt(tensor**4 + load**4))
    resident = np.clip(16384.0 / (rows * columns), 1.0, 4.0)
    ramp = rates.ramp_cycles + np.maximum(rounds / resident - 1.0, 0.0) * rates.round_cycles
    adding = rates.ramp_cycles + rounds * rows * columns * 8.0 / rates.load_bytes
    return TilePlan(
        tiles=tiles,
        loads_bytes=tiles * depth * operands,
        tensor_cycles=rounds * depth * tensor,
        load_cycles=rounds * depth * (step - tensor),
        ramp_cycles=ramp + np.where(np.greater(splits, 1), adding, 0.0),
    )


def find_sustained_tflops(dtype: DataType, hardware: OperatorHardware, parameters: Parameters) -> float:
    """Return what tensor cores sustain in TFLOP/s: a share of the peak, less where power ends it sooner.

    Warp-level products move their operands through the register file and take about twice the energy of
    asynchronous ones (wgmma, tcgen05), so that an L40S throttles where an H100 does not.
    """
    peak = hardware.find_peak_tflops(dtype) * parameters["tensor_share"]
    if hardware.has_asynchronous_mma:
        return peak
    picojoules = parameters["picojoules"] * (dtype.activation_bytes / 2.0) ** _ENERGY_EXPONENT
    by_power = hardware.tdp_w / picojoules
    return compute_soft_minimum(peak, by_power, POWER_SOFTNESS)


_ENERGY_EXPONENT = 0.6  # of the operands' width: INT8 on an A100 and FP8 on an L40S take .5 to .65 of BF16's
_STORED_RATE = 0.35  # of the L2's bandwidth
# Of the L2. Small weights on an L40S, taught by TensorRT-LLM's warm rows, against SGLang's cold ones: a mean
# error of 8 % at 1.5, 7 at 2 to 16; other GPUs 5 to 8 % at 1.5 and up to 10 beyond.
_COLD_PASSED = 1.5


def count_bytes(batch: ProductBatch) -> Matrix:
    """Return 3 x rows: bytes of the activations and of the weights with their scales, and of the output."""
    return np.stack(
        [
            batch.batch * batch.m * batch.k * batch.dtype.stored_activation_bytes,
            batch.batch * batch.n * batch.k * batch.dtype.stored_weight_bytes,
            batch.batch * batch.m * batch.n * batch.dtype.output_bytes,
        ]
    )


def compute_terms(batch: ProductBatch, hardware: OperatorHardware, parameters: Parameters) -> ReferenceTerms:
    """Return the reference time of each product, in microseconds.

    The terms: tensor, load (tensor cores wait for the L2), ramp, dram, quantize (of what a module does beside
    the product), launch. SM and DRAM overlap, the rest adds up.
    """
    plan = choose_tiles(batch, hardware, parameters)
    least = count_bytes(batch)
    sm_us = plan.cycles / hardware.boost_mhz
    again = parameters["reread_share"] * count_reread_bytes(plan.loads_bytes, plan.tiles, least, hardware)
    missing = find_missing_share(batch, least, hardware, parameters["resident_limit"])
    dram_rate = hardware.dram_gbps * parameters["dram_share"] * 1e3
    stored = least[2] * (1.0 - missing) / (hardware.l2_gbps * 1e3 * _STORED_RATE)
    dram_us = (least.sum(axis=0) * missing + again) / dram_rate + stored + parameters["dram_ramp_us"]
    return join_terms(
        batch,
        {
            "tensor": plan.tensor_cycles / hardware.boost_mhz,
            "load": plan.load_cycles / hardware.boost_mhz,
            "ramp": plan.ramp_cycles / hardware.boost_mhz,
        },
        sm_us=sm_us,
        dram_us=dram_us,
        quantize_us=parameters["module_us"]
        + parameters["module_share"] * time_quantization(batch, hardware, dram_rate),
        launch_us=np.full(len(batch), parameters["launch_us"]),
        norm=parameters["norm"],
    )


def join_terms(
    batch: ProductBatch,
    sm_terms_us: Mapping[str, Column],
    *,
    sm_us: Column,
    dram_us: Column,
    quantize_us: Column,
    launch_us: Column,
    norm: float,
) -> ReferenceTerms:
    """Return launch + quantization + (sm^norm + dram^norm)^(1 / norm) of products, with its terms.

    sm_terms_us: what the time of the SMs is made of.
    """
    busy, streaming = sm_us**norm, dram_us**norm
    product_us = (busy + streaming) ** (1.0 / norm)
    total = launch_us + quantize_us + product_us
    return ReferenceTerms(
        names=(*sm_terms_us, "dram", "quantize", "launch"),
        terms_us=np.stack([*sm_terms_us.values(), dram_us, quantize_us, launch_us], axis=1),
        total_us=total,
        flops=2.0 * batch.batch * batch.m * batch.n * batch.k,
        dram_bytes=count_bytes(batch).sum(axis=0),
        sm_share=busy / (busy + streaming) * product_us / total,
    )


def time_quantization(batch: ProductBatch, hardware: OperatorHardware, dram_rate: float) -> Column:
    """Return the time in which the L2, and the DRAM, read the activations in BF16 and write them narrow.

    dram_rate: bytes per microsecond.
    """
    moved = 3.0 * batch.batch * batch.m * batch.k
    lost = np.clip(2.0 * moved / hardware.l2_bytes - 2.0, 0.0, 1.0)
    from_l2 = moved / (hardware.l2_gbps * 1e3)
    time_us: Column = from_l2 + moved * lost / dram_rate
    return time_us


def find_missing_share(
    batch: ProductBatch, least: Matrix, hardware: OperatorHardware, resident_limit: float
) -> Column:
    """Return the share of operands and output that the L2 does not keep from one use to the next."""
    passed = find_working_set(batch, least, hardware)
    return compute_lost_share(passed, hardware.l2_bytes, resident_limit, is_whole=hardware.is_l2_whole)


def find_working_set(batch: ProductBatch, least: Matrix, hardware: OperatorHardware) -> Column:
    """Return the bytes that pass between two uses of the same weights where they were measured.

    TensorRT-LLM's collector cycles through as many copies of the weights as fill the L2, at most five, so
    small weights stay resident and those whose copies fill it exactly, as 4096 x 6144 of bf16 on 96 MiB,
    too. SGLang's and vLLM's cycle through six: on an L40S weights of a sixth of its L2 stay, larger ones do
    not. What is cold passes more than an L2, as far as most rows that taught.
    """
    if batch.backend in (None, Backend.TRTLLM):
        copies = np.clip(np.ceil(hardware.l2_bytes / least[1]), 1.0, 5.0)
    else:
        copies = np.full(len(batch), 6.0)
    passed: Column = copies * least[1] + least[0] + STORED_SPACE * least[2]
    return np.maximum(passed, _COLD_PASSED * hardware.l2_bytes) if batch.is_cold else passed


def count_reread_bytes(
    loads_bytes: Column, tiles: Column, least: Matrix, hardware: OperatorHardware
) -> Column:
    """Return the bytes that waves read again because the operands do not fit into the L2.

    A wave covers a square of sqrt(SMs) by sqrt(SMs) tiles, so of its loads one in sqrt(SMs) leaves the L2;
    of those only the share misses that does not fit: 1 - L2 / operands.
    """
    operands = least[0] + least[1]
    missing = np.clip(1.0 - hardware.l2_bytes / np.maximum(operands, 1.0), 0.0, 1.0)
    wave_loads = loads_bytes / np.sqrt(np.minimum(hardware.sm_count, tiles))
    again: Column = missing * np.maximum(wave_loads - operands, 0.0)
    return again


def compute_features(batch: ProductBatch, hardware: OperatorHardware, terms: ReferenceTerms) -> Matrix:
    """Return rows x `FAMILY.feature_names`: where the time goes, sizes, waves and padding of tiles."""
    m, n, k = batch.m, batch.n, batch.k
    columns = [
        np.log(np.maximum(terms.find_term(name) / terms.total_us, 1e-3))
        for name in ("tensor", "load", "ramp", "dram")
    ]
    least = count_bytes(batch)
    columns += [
        np.log2(m),
        np.log2(n),
        np.log2(k),
        np.log2(batch.batch),
        np.log2(least.sum(axis=0) / hardware.l2_bytes),
        np.log2(least[1] / hardware.l2_bytes),
        np.clip(np.log2(find_working_set(batch, least, hardware) / hardware.l2_bytes), -3.0, 3.0),
        np.log2(terms.flops / terms.dram_bytes),
        np.log2(terms.total_us),
    ]
    for size in (16, 64, 128, 256):
        columns.append(np.log2(np.ceil(m / size) * size / m))
    for size in (128, 256):
        columns.append(np.log2(np.ceil(n / size) * size / n))
    columns += [count_trailing_zeros(m, 4), count_trailing_zeros(n, 9), count_trailing_zeros(k, 9)]
    waves = np.ceil(m / _TILE_ROWS) * np.ceil(n / _TILE_WIDTHS) * batch.batch / hardware.sm_count
    columns += [*np.log2(np.stack([waves, np.ceil(waves) / waves], axis=1)).reshape(-1, len(batch))]
    columns.append(np.full(len(batch), float(hardware.has_asynchronous_mma)))
    return np.stack(columns, axis=1)


_TILE_ROWS, _TILE_WIDTHS = np.array(_FEATURE_TILES, float).T[:, :, None]
_TILE_NAMES = tuple(f"{rows}x{width}" for rows, width in _FEATURE_TILES)
_FEATURE_NAMES = (
    "tensor_share",
    "load_share",
    "ramp_share",
    "dram_share",
    "log_m",
    "log_n",
    "log_k",
    "log_batch",
    "footprint_to_l2",
    "weights_to_l2",
    "working_set_to_l2",
    "intensity",
    "log_reference",
    *(f"m_padding_{size}" for size in (16, 64, 128, 256)),
    *(f"n_padding_{size}" for size in (128, 256)),
    "m_alignment",
    "n_alignment",
    "k_alignment",
    *(f"{figure}_{tile}" for tile in _TILE_NAMES for figure in ("waves", "last_wave")),
    "asynchronous",
)


def count_trailing_zeros(sizes: Column, most: int) -> Column:
    """Return how often 2 divides each size, at most `most` times."""
    whole = sizes.astype(np.int64)
    count: Column = np.minimum(np.log2((whole & -whole).astype(np.float64)), most)
    return count


def choose_weights(batch: OperatorBatch) -> str:
    """Return the name of the set of weights: the data type's own; FP16 and TF32 share that of BF16.

    Without a backend it is TensorRT-LLM's, of which most data types and GPUs taught.
    """
    assert isinstance(batch, ProductBatch)
    dtype = DataType.BF16 if batch.dtype in (DataType.FP16, DataType.TF32) else batch.dtype
    return f"gemm-{dtype}" if batch.backend in (None, Backend.TRTLLM) else f"gemm-{dtype}-{batch.backend}"


def find_backend(batch: ProductBatch) -> Backend | None:
    """Return TensorRT-LLM; frameworks' batched products are not told apart."""
    return Backend.TRTLLM if batch.operator is Operator.GEMM else None


FAMILY = OperatorFamily(
    name="gemm",
    operators=frozenset({Operator.GEMM, Operator.BMM}),
    parameters=(
        FittedParameter("tensor_share", 0.89, 0.2, 1.0),
        FittedParameter("l2_share", 1.6, 0.2, 3.0),
        FittedParameter("dram_share", 0.78, 0.5, 1.0),
        FittedParameter("reread_share", 1.0, 0.0, 1.0),
        FittedParameter("picojoules", 1.5, 0.9, 1.8),
        FittedParameter("ramp_cycles", 4800.0, 200.0, 8000.0),
        FittedParameter("round_cycles", 2000.0, 0.0, 8000.0),
        FittedParameter("dram_ramp_us", 1.3, 0.0, 4.0),
        FittedParameter("launch_us", 0.1, 0.05, 8.0),
        FittedParameter("module_us", 0.0, 0.0, 20.0),
        FittedParameter("module_share", 0.0, 0.0, 2.0),
        FittedParameter("resident_limit", 0.4, 0.2, 1.1),
        FittedParameter("norm", 2.9, 1.2, 6.0),
    ),
    feature_names=_FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
    find_backend=find_backend,
    data_types=frozenset(DataType) - {DataType.FP32},
)
