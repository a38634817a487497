"""Fused mixtures of experts as SGLang's Triton kernel computes them.

Idea. Each of m tokens goes to topk of E experts. The (token, expert) pairs are sorted by expert, the pairs of
one expert are cut into blocks of BLOCK_M rows, and one CTA multiplies one block by BLOCK_N columns of its
expert's weights in steps of BLOCK_K. So a product is a list of equal tasks:

    tasks = sum over experts of ceil(pairs of the expert / BLOCK_M) · ceil(n / BLOCK_N)
    steps = ceil(k / BLOCK_K)                                       per task

Five pipes work on them, each with the time that it would need alone: `tensor` (padded rows count, the most
loaded SM decides), `l2` (each task loads its rows and its columns, so small tiles ask for a lot), `dram`
(weights of the experts that have pairs, once, in pieces of BLOCK_K contiguous elements), `latency` (steps of
a task wait for loads that num_stages - 1 buffers cover, wave by wave), and `launch`, which comes on top. The
others overlap: a p-norm joins them. `tail` is what a wave's CTAs end apart from each other.

Invariant: at a fixed configuration no term but `tail` shrinks where tokens are added.

Example: 512 tokens, 128 experts, topk 6, hidden 4096, intermediate 2048, first product. 3,072 pairs are 24
per expert; the default configuration for m > E has BLOCK_M 64, so 128 blocks of 64 rows, of which 24 are
valid, times 64 blocks of 64 columns: 8,192 tasks of 128 steps; 4.3 GB of weights bound it on every GPU.

Sources: the decomposition follows SynPerf (PipeWeave, ISCA 2026), section on fused MoE; the default
configuration is the rule of sglang's `get_default_config`, python/sglang/srt/layers/moe/fused_moe_triton/
fused_moe_triton_config.py @083d601, and Triton's defaults for what it leaves out.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, MoeBatch, OperatorBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Backend, DataType, MoeProduct, Operator
from analyzer.operators.retention import compute_lost_share


class TileConfiguration(Struct, frozen=True):
    """Configurations of the Triton kernel in columns, one entry per row."""

    block_m: Column
    block_n: Column
    block_k: Column
    group_m: Column
    warps: Column
    stages: Column


class ProductShape(Struct, frozen=True):
    """Grouped products in columns: `pairs` rows spread evenly over `experts`, each times k x n weights."""

    pairs: Column  # tokens x topk; rows that are computed
    distinct_rows: Column  # of the left operand: tokens for w13, pairs for w2
    experts: Column
    n: Column  # columns of the output
    k: Column  # reduction
    other_weight_bytes: Column  # of one expert, that pass through the L2 before the same weights come again
    dtype: DataType


class TileTerms(Struct, frozen=True):
    """What the tiles of grouped products ask of each pipe; times in microseconds, alone and unoverlapped."""

    tensor_us: Column
    l2_us: Column
    dram_us: Column
    latency_us: Column
    launch_us: Column
    tail_us: Column
    total_us: Column
    flops: Column  # of valid rows
    dram_bytes: Column
    tasks: Column  # that work; CTAs without rows leave at once
    steps: Column
    resident: Column  # CTAs per SM
    waves: Column
    fill: Column  # share of the blocks' rows that are valid
    blocks_per_expert: Column
    footprint: Column  # operands and output over the L2


_PARAMETERS = (
    FittedParameter("tensor_share", 0.8, 0.3, 1.1),  # of the peak at the sustained clock
    FittedParameter("l2_share", 1.0, 0.6, 1.6),
    # CTAs that one request to the L2 serves where the two SMs of a TPC ask once
    FittedParameter("request_sharing", 2.0, 1.0, 3.0),
    FittedParameter("dram_share", 1.05, 0.85, 1.2),  # of the sustained bandwidth
    # GDDR's part of that, since its checksums take bandwidth; aiconfigurator's rows of an L40S give 0.88
    FittedParameter("graphics_dram_share", 0.88, 0.8, 1.0),
    FittedParameter("short_row_loss", 0.1, 0.0, 0.8),  # more DRAM time where a step takes 64 bytes of a row
    FittedParameter("step_latency_us", 0.2, 0.02, 2.0),
    FittedParameter("tail_share", 0.12, 0.0, 0.6),  # of a wave's time: its CTAs end one after the other
    FittedParameter("launch_us", 5.0, 0.5, 8.0),
    FittedParameter("resident_limit", 0.5, 0.2, 1.5),  # of the L2, see `operators.retention`
    FittedParameter("sharpness", 4.3, 1.5, 8.0),  # p of the p-norm
    FittedParameter("around_us", 9.0, 0.0, 40.0),  # of alignment, activation and sum around both products
)

_CTAS_PER_CYCLE = 1.0  # of the GPU, that start or find nothing to do and leave (facts/kll.md: B300, A100)
_MMA_ROWS = 16.0  # rows of the smallest MMA: a block of fewer is padded by the hardware
_WARPGROUP_ROWS = 64.0  # rows of Hopper's warpgroup MMA; smaller blocks fall back to mma.sync
_SYNCHRONOUS_SHARE = 0.62  # of Hopper's peak that mma.sync reaches (arXiv 2402.13499, table 11: 62 %)
_RESERVED_SHARED_BYTES = 1024.0  # per CTA, taken by the system
_MAX_CTAS = 32.0
_BASE_REGISTERS = 56.0  # per thread, for pointers, masks and fragments, beside the accumulator
_L2_COPY_SHARE = 0.5  # of the L2's bandwidth, that a copy within it reaches


def choose_default_configuration(batch: MoeBatch) -> TileConfiguration:
    """Return the configuration that SGLang takes where it has no tuned one for the GPU and shape.

    Few tokens (m <= experts) get small blocks; FP8 with one scale per tensor gets large ones. Source: sglang
    `get_default_config`; num_warps 4 and num_stages 3 are Triton's defaults.
    """
    few = batch.m <= batch.experts
    general, small = _DEFAULTS.get(batch.dtype, _DEFAULTS[DataType.BF16])
    columns = [np.where(few, low, high).astype(np.float64) for high, low in zip(general, small, strict=True)]
    return TileConfiguration(*columns)


# BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, num_warps, num_stages: for m > experts, and for few tokens
_Blocks = tuple[int, int, int, int, int, int]
_DEFAULTS: dict[DataType, tuple[_Blocks, _Blocks]] = {
    DataType.BF16: ((64, 64, 32, 8, 4, 3), (16, 32, 64, 1, 4, 3)),
    DataType.FP8: ((128, 256, 128, 32, 8, 4), (64, 128, 128, 1, 4, 4)),
    DataType.FP8_BLOCK: ((64, 128, 128, 32, 4, 3), (64, 128, 128, 32, 4, 3)),
}


def describe_product(batch: MoeBatch, which: MoeProduct) -> ProductShape:
    """Return one of the two products of a batch: `w13` (hidden to twice intermediate) or `w2` (and back)."""
    pairs = batch.m * batch.topk
    is_first = which is MoeProduct.W13
    elements = batch.hidden * batch.intermediate * (1.0 if is_first else 2.0)
    alternates = 1.0 if batch.which is MoeProduct.BOTH else 0.0
    return ProductShape(
        pairs=pairs,
        distinct_rows=batch.m if is_first else pairs,
        experts=batch.experts,
        n=2.0 * batch.intermediate if is_first else batch.hidden,
        k=batch.hidden if is_first else batch.intermediate,
        other_weight_bytes=alternates * elements * batch.dtype.weight_bytes,
        dtype=batch.dtype,
    )


def compute_tile_terms(
    shape: ProductShape, configuration: TileConfiguration, hardware: OperatorHardware, parameters: Parameters
) -> TileTerms:
    """Return what grouped products ask of each pipe under these configurations, and the combined time.

    shape, configuration: one entry per row each; parameters: by name, as `FAMILY.parameters` lists them.
    """
    tiling = _cut_tiles(shape, configuration, hardware)
    tensor_us = _compute_tensor_us(shape, configuration, tiling, hardware) / parameters["tensor_share"]
    l2_us = _compute_l2_us(shape, configuration, tiling, hardware, parameters)
    bytes_once = _count_bytes_once(shape, tiling)
    lost = compute_lost_share(
        bytes_once + tiling.busy_experts * shape.other_weight_bytes,
        hardware.l2_bytes,
        parameters["resident_limit"],
        is_whole=hardware.is_l2_whole,
    )
    moved = bytes_once * lost
    short = 64.0 / (configuration.block_k * shape.dtype.weight_bytes)
    kind_share = 1.0 if hardware.has_stacked_dram else parameters["graphics_dram_share"]
    rate = parameters["dram_share"] * kind_share * hardware.sustained_dram_gbps * 1e3
    dram_us = moved * (1.0 + parameters["short_row_loss"] * short) / rate
    buffers = np.maximum(configuration.stages - 1.0, 1.0)
    latency_us = tiling.waves * tiling.steps / buffers * parameters["step_latency_us"]
    launch_us = parameters["launch_us"] + tiling.grid / (_CTAS_PER_CYCLE * hardware.boost_mhz)
    power = parameters["sharpness"]
    busy_us = (tensor_us**power + l2_us**power + dram_us**power + latency_us**power) ** (1.0 / power)
    tail_us = parameters["tail_share"] * busy_us / np.maximum(tiling.tasks / tiling.slots, 1.0)
    return TileTerms(
        tensor_us=tensor_us,
        l2_us=l2_us,
        dram_us=dram_us,
        latency_us=latency_us,
        launch_us=launch_us,
        tail_us=tail_us,
        total_us=busy_us + tail_us + launch_us,
        flops=2.0 * shape.pairs * shape.n * shape.k,
        dram_bytes=bytes_once,
        tasks=tiling.tasks,
        steps=tiling.steps,
        resident=tiling.resident,
        waves=tiling.waves,
        fill=tiling.fill,
        blocks_per_expert=tiling.blocks / tiling.busy_experts,
        footprint=bytes_once / hardware.l2_bytes,
    )


class _Tiling(Struct, frozen=True):
    """Tasks of grouped products in columns, and how the GPU takes them."""

    busy_experts: Column
    blocks: Column  # of rows, over all experts
    tasks: Column
    grid: Column  # CTAs launched, with those that find no rows
    steps: Column
    fill: Column
    resident: Column
    slots: Column  # CTAs that fit the GPU
    waves: Column


def _cut_tiles(shape: ProductShape, configuration: TileConfiguration, hardware: OperatorHardware) -> _Tiling:
    """Spread pairs evenly over the experts (pair f goes to expert f mod E) and cut them into tasks."""
    busy = np.minimum(shape.experts, np.maximum(shape.pairs, 1.0))
    fewer = np.floor(shape.pairs / busy)
    with_more = shape.pairs - busy * fewer  # experts that have one pair more than the others
    block_m = configuration.block_m
    blocks = with_more * np.ceil((fewer + 1.0) / block_m) + (busy - with_more) * np.ceil(fewer / block_m)
    column_blocks = np.ceil(shape.n / configuration.block_n)
    tasks = blocks * column_blocks
    # the grid is sized for the worst routing: each expert's last block may be nearly empty
    padded = shape.pairs + (shape.experts + 1.0) * (block_m - 1.0)
    padded = np.minimum(padded, np.maximum(shape.pairs, 1.0) * block_m)
    resident = _count_resident_ctas(shape, configuration, hardware)
    slots = hardware.sm_count * resident
    return _Tiling(
        busy_experts=busy,
        blocks=blocks,
        tasks=tasks,
        grid=np.maximum(np.ceil(padded / block_m) * column_blocks, tasks),
        steps=np.ceil(shape.k / configuration.block_k),
        fill=shape.pairs / (blocks * block_m),
        resident=resident,
        slots=slots,
        waves=np.ceil(tasks / slots),
    )


def _count_resident_ctas(
    shape: ProductShape, configuration: TileConfiguration, hardware: OperatorHardware
) -> Column:
    """Return CTAs per SM; Triton keeps num_stages - 1 buffers of both operands' tiles in shared memory.

    The sweeps of PipeWeave confirm the minus one: on an A40 (99 KiB per CTA) they list 128 x 256 x 64 in
    three stages, which is 96 KiB of two buffers.
    """
    tile = configuration.block_k * (
        configuration.block_m * shape.dtype.activation_bytes
        + configuration.block_n * shape.dtype.weight_bytes
    )
    shared = np.maximum(configuration.stages - 1.0, 1.0) * tile + _RESERVED_SHARED_BYTES
    threads = 32.0 * configuration.warps
    registers = np.minimum(configuration.block_m * configuration.block_n / threads + _BASE_REGISTERS, 255.0)
    by_shared = np.floor(hardware.shared_bytes_per_sm / shared)
    by_registers = np.floor(hardware.registers_per_sm / (registers * threads))
    by_warps = np.floor(hardware.max_warps_per_sm / configuration.warps)
    return np.clip(np.minimum(np.minimum(by_shared, by_registers), by_warps), 1.0, _MAX_CTAS)


def _compute_tensor_us(
    shape: ProductShape, configuration: TileConfiguration, tiling: _Tiling, hardware: OperatorHardware
) -> Column:
    """Return the time of the most loaded SM's MMAs at the sustained clock's peak."""
    padded_m = np.maximum(configuration.block_m, _MMA_ROWS)
    flops = 2.0 * padded_m * configuration.block_n * configuration.block_k * tiling.steps
    peak = hardware.find_peak_tflops(shape.dtype) * hardware.sustained_tensor_mhz / hardware.boost_mhz
    is_slower = hardware.has_warpgroup_mma & (padded_m < _WARPGROUP_ROWS)
    per_sm = np.where(is_slower, _SYNCHRONOUS_SHARE, 1.0) * peak * 1e6 / hardware.sm_count
    return np.ceil(tiling.tasks / hardware.sm_count) * flops / per_sm


def _compute_l2_us(
    shape: ProductShape,
    configuration: TileConfiguration,
    tiling: _Tiling,
    hardware: OperatorHardware,
    parameters: Parameters,
) -> Column:
    """Return the time of all tiles' operands on their way from the L2 to the SMs; invalid rows are masked."""
    rows = tiling.fill * configuration.block_m * shape.dtype.activation_bytes
    columns = configuration.block_n * shape.dtype.weight_bytes
    moved = tiling.tasks * tiling.steps * configuration.block_k * (rows + columns)
    stored = shape.pairs * shape.n * shape.dtype.output_bytes
    sharing = parameters["request_sharing"] if hardware.shares_requests else 1.0
    return (moved / sharing + stored) / (parameters["l2_share"] * hardware.l2_gbps * 1e3)


def _count_bytes_once(shape: ProductShape, tiling: _Tiling) -> Column:
    """Return the bytes of the busy experts' weights, of the left operand and of the output."""
    weights = tiling.busy_experts * shape.n * shape.k * shape.dtype.weight_bytes
    left = np.minimum(shape.distinct_rows, shape.pairs) * shape.k * shape.dtype.activation_bytes
    return weights + left + shape.pairs * shape.n * shape.dtype.output_bytes


TERM_NAMES = ("tensor", "l2", "dram", "latency", "launch", "tail", "around")


def compute_terms(batch: MoeBatch, hardware: OperatorHardware, parameters: Parameters) -> ReferenceTerms:
    """Return the reference time of a batch under the default configuration; both products add up."""
    products = _compute_products(batch, hardware, parameters)
    around_us = _compute_around_us(batch, hardware, parameters)
    columns = [_add(products, f"{name}_us") for name in TERM_NAMES[:-1]]
    return ReferenceTerms(
        names=TERM_NAMES,
        terms_us=np.stack([*columns, around_us], axis=1),
        total_us=_add(products, "total_us") + around_us,
        flops=_add(products, "flops"),
        dram_bytes=_add(products, "dram_bytes"),
    )


def _compute_products(batch: MoeBatch, hardware: OperatorHardware, parameters: Parameters) -> list[TileTerms]:
    configuration = choose_default_configuration(batch)
    products = (MoeProduct.W13, MoeProduct.W2) if batch.which is MoeProduct.BOTH else (batch.which,)
    return [
        compute_tile_terms(describe_product(batch, which), configuration, hardware, parameters)
        for which in products
    ]


def _add(products: list[TileTerms], name: str) -> Column:
    found: Column = sum(getattr(product, name) for product in products)
    return found


def _compute_around_us(batch: MoeBatch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the time of what stands around both products: alignment, activation and the sum over topk."""
    if batch.which is not MoeProduct.BOTH:
        return np.zeros(len(batch))
    pairs = batch.m * batch.topk
    moved = 2.0 * (3.0 * pairs * batch.intermediate + pairs * batch.hidden + batch.m * batch.hidden)
    in_l2 = moved < hardware.l2_bytes
    rate = np.where(in_l2, _L2_COPY_SHARE * hardware.l2_gbps, hardware.sustained_dram_gbps)
    return parameters["around_us"] + moved / (rate * 1e3)


FEATURE_NAMES = (
    "log2 tensor / total",
    "log2 L2 / total",
    "log2 DRAM / total",
    "log2 latency / total",
    "log2 launch / total",
    "share around the products",
    "log2 waves",
    "log2 whole waves / waves",
    "log2 tasks of the most loaded SM / mean",
    "CTAs per SM",
    "share of valid rows",
    "log2 blocks per expert",
    "log2 pairs per busy expert",
    "log2 busy experts",
    "log2 rows per block",
    "log2 steps",
    "log2 n",
    "log2 footprint / L2",
    "log2 left operand / L2",
)


def compute_features(
    batch: MoeBatch, hardware: OperatorHardware, terms: ReferenceTerms
) -> NDArray[np.float64]:
    """Return what the reference may have left out, as ratios; of both products, the first one's tiles."""
    configuration = choose_default_configuration(batch)
    which = MoeProduct.W2 if batch.which is MoeProduct.W2 else MoeProduct.W13
    shape = describe_product(batch, which)
    tiling = _cut_tiles(shape, configuration, hardware)
    slots = tiling.slots
    left_bytes = np.minimum(shape.distinct_rows, shape.pairs) * shape.k * shape.dtype.activation_bytes
    shares = np.log2(np.maximum(terms.terms_us[:, :5] / terms.total_us[:, None], 2.0**-12))
    columns = [
        *shares.T,
        terms.find_term("around") / terms.total_us,
        np.log2(tiling.tasks / slots),
        np.log2(tiling.waves * slots / tiling.tasks),
        np.log2(np.ceil(tiling.tasks / hardware.sm_count) * hardware.sm_count / tiling.tasks),
        tiling.resident,
        tiling.fill,
        np.log2(tiling.blocks / tiling.busy_experts),
        np.log2(shape.pairs / tiling.busy_experts),
        np.log2(tiling.busy_experts),
        np.log2(configuration.block_m),
        np.log2(tiling.steps),
        np.log2(shape.n),
        np.log2(terms.dram_bytes / hardware.l2_bytes),
        np.log2(left_bytes / hardware.l2_bytes),
    ]
    return np.stack(columns, axis=1)


def choose_weights(batch: OperatorBatch) -> str:
    """Return the set of weights: single products and the whole operator are learned apart, FP16 with BF16."""
    assert isinstance(batch, MoeBatch)
    dtype = DataType.BF16 if batch.dtype is DataType.FP16 else batch.dtype
    if batch.which is not MoeProduct.BOTH:
        return f"moe-product-{dtype}"
    name = f"moe-both-{dtype}"
    return name if batch.backend in (None, find_backend(batch)) else f"{name}-{batch.backend}"


def find_backend(batch: MoeBatch) -> Backend | None:
    """Return whose kernels most GPUs taught: SGLang's, of FP8 with one scale TensorRT-LLM's."""
    if batch.which is not MoeProduct.BOTH:
        return None
    return Backend.TRTLLM if batch.dtype is DataType.FP8 else Backend.SGLANG


FAMILY = OperatorFamily(
    name="moe",
    operators=frozenset({Operator.MOE}),
    parameters=_PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
    find_backend=find_backend,
)
