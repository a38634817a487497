"""Attention: FlashInfer's FA2 and FA3, and what a serving framework picks (`generic`).

FA2 packs the queries that share keys, splits keys where tiles are few, and is written with warp-wide matrix
instructions on every architecture. FA3 (Hopper) packs them too, in tiles of 128 rows, with one persistent CTA
per SM that walks over the tiles, longest first; it splits the keys of decodes. `generic` (TensorRT-LLM) packs
and splits decodes and tiles prefills per query head, and kernels before its prefill write the new keys into
the cache. Beyond 32 query heads per KV head its decode is a kernel that reads the keys for each query head
anew (versions 1.0 to 1.3, on all GPUs measured), and on Ada its decode of grouped queries does not split an
FP8 cache. SGLang and vLLM take TensorRT-LLM's kernels where matrix instructions have tensor memory, FA3 where
they are a warpgroup's, FA2 elsewhere.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzer.operators.attention_features import FEATURE_NAMES, compute_attention_features
from analyzer.operators.attention_plan import (
    SPECULATIVE_QUERIES,
    Requests,
    TilePolicy,
    choose_packed_tile,
    merge_requests,
    plan_attention,
)
from analyzer.operators.attention_terms import (
    PARAMETERS,
    AttentionTerms,
    AttentionWork,
    MatrixInstruction,
    compute_reference,
)
from analyzer.operators.batches import AttentionBatch, OperatorBatch
from analyzer.operators.family import OperatorFamily, Parameters
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import AttentionKind, Backend, DataType, Operator

WIDEST_PACKED_GROUP = 32.0  # query heads per KV head beyond which a framework's decode kernel packs no heads
# Of 2,048 short decodes, a task of one query head takes 2,500 cycles of its SM on A100, L40S and H100, one of
# several heads 10,000 to 11,000 (3,300 and 6,400 on B200, with another kernel).
ONE_HEAD_ISSUE_SHARE = 0.25
# Of the rate of matrix products in FlashAttention-3's decodes, their softmax included: where SGLang's with an
# FP8 cache on H100 stop (aiconfigurator), and what 16 runs of SGLang on H20 show.
FA3_DECODE_SHARE = 0.75
_FA2 = frozenset({AttentionKind.FA2_PAGED, AttentionKind.FA2_RAGGED})
_FA3 = frozenset({AttentionKind.FA3_PAGED, AttentionKind.FA3_RAGGED})


def compute_terms(
    batch: AttentionBatch, hardware: OperatorHardware, parameters: Parameters
) -> AttentionTerms:
    """Return the analytic time of each row, in microseconds."""
    return compute_reference(_plan_work(batch, hardware), hardware, parameters)


def compute_features(
    batch: AttentionBatch, hardware: OperatorHardware, terms: AttentionTerms
) -> NDArray[np.float64]:
    """Return rows x features, dimensionless."""
    return compute_attention_features(hardware, terms, batch.head_dim)


def choose_weights(batch: OperatorBatch) -> str:
    """Return the set of weights: one for each kernel, width of the cache, and backend that calls it.

    Of FA2 and FA3 without a backend it is SGLang's and FlashInfer's, of the generic kind TensorRT-LLM's.
    """
    assert isinstance(batch, AttentionBatch)
    is_narrow = batch.dtype.activation_bytes < 2.0
    if batch.kind is AttentionKind.GENERIC:
        name = f"attention-generic-{'fp8' if is_narrow else 'bf16'}"
        return name if batch.backend in (None, Backend.TRTLLM) else f"{name}-{batch.backend}"
    kernel = "attention-fa2" if batch.kind in _FA2 else "attention-fa3"
    name = f"{kernel}-fp8" if is_narrow else kernel
    return f"{name}-{batch.backend}" if batch.backend is Backend.VLLM else name


def find_backend(batch: AttentionBatch) -> Backend | None:
    """Return TensorRT-LLM, None for a kernel that is named."""
    return Backend.TRTLLM if batch.kind is AttentionKind.GENERIC else None


def resolve(batch: AttentionBatch, hardware: OperatorHardware) -> AttentionBatch:
    """Return a batch with the kernel that its framework takes on a GPU."""
    if batch.kind is not AttentionKind.GENERIC or batch.backend in (None, Backend.TRTLLM):
        return batch
    return msgspec.structs.replace(batch, kind=choose_kernel(hardware))


def choose_kernel(hardware: OperatorHardware) -> AttentionKind:
    """Return whose kernel SGLang and vLLM take on a GPU: a named one where TensorRT-LLM's do not run."""
    if hardware.has_tensor_memory:
        return AttentionKind.GENERIC
    return AttentionKind.FA3_PAGED if hardware.has_warpgroup_mma else AttentionKind.FA2_PAGED


def includes_cache_write(kind: AttentionKind, backend: Backend | None) -> bool:
    """Return whether times of a kernel include those that write new keys and values into the cache."""
    return kind is AttentionKind.GENERIC or backend is Backend.VLLM


def _plan_work(batch: AttentionBatch, hardware: OperatorHardware) -> AttentionWork:
    requests = merge_requests(batch.q_lengths, batch.kv_lengths, batch.window)
    policy = _choose_policy(batch, requests, hardware)
    element_bytes = batch.dtype.activation_bytes  # of named kinds the cache's: queries have 16 bits
    appends = slow_steps = np.zeros(len(batch))
    issue_share = np.ones(len(batch))
    query_bytes = np.full(len(batch), 2.0)
    step_share = np.ones(len(batch))
    is_decode = _find_decodes(requests)
    if batch.kind in _FA3:
        step_share = np.where(is_decode, FA3_DECODE_SHARE, 1.0)
    if includes_cache_write(batch.kind, batch.backend):
        appends = np.where(is_decode, 0.0, 1.0)
    if batch.kind is AttentionKind.GENERIC:
        is_shared = policy.packs & (batch.heads > batch.kv_heads)
        issue_share = np.where(is_decode & ~is_shared, ONE_HEAD_ISSUE_SHARE, 1.0)
        slow_steps = np.where(is_decode & ~policy.splits, batch.head_dim / 128.0, 0.0)
        query_bytes = np.where(is_decode, 2.0, element_bytes)  # a decode's are bf16 even with a narrow cache
    return AttentionWork(
        requests=requests,
        plan=plan_attention(requests, batch.heads, batch.kv_heads, policy, hardware.sm_count),
        dtype=DataType.BF16 if batch.kind in _FA2 else batch.dtype,  # FA2 widens what it loads
        instruction=MatrixInstruction.WARP if batch.kind in _FA2 else MatrixInstruction.WIDEST,
        heads=batch.heads,
        kv_heads=batch.kv_heads,
        flops_per_pair=4.0 * batch.head_dim,
        key_bytes=2.0 * batch.head_dim * element_bytes,
        query_bytes=(query_bytes + 2.0) * batch.head_dim,
        appends=appends,
        issue_share=issue_share,
        slow_steps=slow_steps,
        step_share=step_share,
        is_cold=batch.is_cold,
    )


def _find_decodes(requests: Requests) -> NDArray[np.bool_]:
    """Return the rows whose requests all have few queries."""
    is_decode: NDArray[np.bool_] = requests.max_rows(requests.q) <= SPECULATIVE_QUERIES
    return is_decode


def _choose_policy(batch: AttentionBatch, requests: Requests, hardware: OperatorHardware) -> TilePolicy:
    """Return how each row is tiled."""
    group = batch.heads / batch.kv_heads
    mean_q = requests.sum_rows(requests.q) / batch.q_lengths.counts
    packed = choose_packed_tile(np.floor(mean_q * group), batch.head_dim)
    if batch.kind in _FA2:
        return TilePolicy(packed, np.ones(len(batch), dtype=bool), np.ones(len(batch), dtype=bool))
    wide = np.full(len(batch), 128.0)
    is_decode = _find_decodes(requests)
    if batch.kind in _FA3:
        tile = np.where(batch.head_dim <= 64.0, 192.0, wide)
        return TilePolicy(tile, np.ones(len(batch), dtype=bool), is_decode)
    packs = is_decode & (group <= WIDEST_PACKED_GROUP)
    wide = np.where(mean_q <= 64.0, 64.0, wide)
    splits = is_decode
    if not hardware.splits_fp8_decode and batch.dtype.activation_bytes < 2.0:
        splits = is_decode & (group == 1.0)
    return TilePolicy(np.where(packs, packed, np.where(is_decode, 16.0, wide)), packs, splits)


FAMILY = OperatorFamily(
    name="attention",
    operators=frozenset({Operator.ATTENTION}),
    parameters=PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
    resolve=resolve,
    find_backend=find_backend,
)
