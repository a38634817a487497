"""Fused mixtures of experts as SGLang's Triton kernel computes them.

Idea. Each of m tokens goes to topk of E experts. Two grouped products (`expert_tiles`) follow each other,
from hidden to twice intermediate and back, under the configuration that SGLang takes where it has no tuned
one; `around` is what stands around both: alignment, activation and the sum over topk.

Sources: the decomposition follows SynPerf (PipeWeave, ISCA 2026), section on fused MoE; the default
configuration is the rule of sglang's `get_default_config`, python/sglang/srt/layers/moe/fused_moe_triton/
fused_moe_triton_config.py @083d601, and Triton's defaults for what it leaves out.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import Column, MoeBatch, OperatorBatch
from analyzer.operators.expert_tiles import (
    ProductShape,
    TileConfiguration,
    TileTerms,
    compute_tile_terms,
    cut_tiles,
    list_tile_parameters,
)
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Backend, DataType, MoeProduct, Operator

_PARAMETERS = (
    *list_tile_parameters(),
    FittedParameter("around_us", 9.0, 0.0, 40.0),  # of alignment, activation and sum around both products
)

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
        distinct_rows=batch.m if is_first and not _copies_rows(batch) else pairs,
        experts=batch.experts,
        n=2.0 * batch.intermediate if is_first else batch.hidden,
        k=batch.hidden if is_first else batch.intermediate,
        other_weight_bytes=alternates * elements * batch.dtype.weight_bytes,
        dtype=batch.dtype,
    )


TERM_NAMES = ("sms", "l2", "dram", "launch", "tail", "around")


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
        compute_tile_terms(
            cut_tiles(describe_product(batch, which), configuration, hardware), hardware, parameters
        )
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
    if _copies_rows(batch):
        moved = moved + batch.dtype.activation_bytes * (batch.m + pairs) * batch.hidden
    in_l2 = moved < hardware.l2_bytes
    rate = np.where(in_l2, _L2_COPY_SHARE * hardware.l2_gbps, hardware.sustained_dram_gbps)
    return parameters["around_us"] + moved / (rate * 1e3)


def _copies_rows(batch: MoeBatch) -> bool:
    """Return whether the kernels first copy the rows of each expert side by side: TensorRT-LLM's do."""
    return (batch.backend or find_backend(batch)) is Backend.TRTLLM


FEATURE_NAMES = (
    "log2 SMs / total",
    "log2 L2 / total",
    "log2 DRAM / total",
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
    tiles = cut_tiles(shape, configuration, hardware)
    shares = np.log2(np.maximum(terms.terms_us[:, :4] / terms.total_us[:, None], 2.0**-12))
    columns = [
        *shares.T,
        terms.find_term("around") / terms.total_us,
        np.log2(tiles.tasks / tiles.slots),
        np.log2(np.ceil(tiles.tasks / tiles.slots) * tiles.slots / tiles.tasks),
        np.log2(np.ceil(tiles.tasks / hardware.sm_count) * hardware.sm_count / tiles.tasks),
        tiles.code.resident,
        tiles.fill,
        np.log2(tiles.blocks / tiles.busy_experts),
        np.log2(shape.pairs / tiles.busy_experts),
        np.log2(tiles.busy_experts),
        np.log2(configuration.block_m),
        np.log2(tiles.steps),
        np.log2(shape.n),
        np.log2(terms.dram_bytes / hardware.l2_bytes),
        np.log2(tiles.row_bytes / hardware.l2_bytes),
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
