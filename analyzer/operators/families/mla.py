"""Multi-head latent attention of DeepSeek's models.

A decode works on the latent cache itself: all heads share one KV head of latent_dim + rope_dim elements, the
first latent_dim of which are the values too, so heads are packed as one group. A prefill works on keys and
values that were expanded per head before, of expanded_dim + rope_dim and expanded_dim elements, and writes
the latent cache.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.attention_features import FEATURE_NAMES, compute_attention_features
from analyzer.operators.attention_plan import SPECULATIVE_QUERIES, TilePolicy, merge_requests, plan_attention
from analyzer.operators.attention_terms import (
    PARAMETERS,
    AttentionTerms,
    AttentionWork,
    MatrixInstruction,
    compute_reference,
)
from analyzer.operators.batches import MlaBatch, OperatorBatch
from analyzer.operators.family import OperatorFamily, Parameters
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Operator

DECODE_TILE = 64.0
PREFILL_TILE = 128.0


def compute_terms(batch: MlaBatch, hardware: OperatorHardware, parameters: Parameters) -> AttentionTerms:
    """Return the analytic time of each row, in microseconds."""
    return compute_reference(_plan_work(batch, hardware), hardware, parameters)


def compute_features(
    batch: MlaBatch, hardware: OperatorHardware, terms: AttentionTerms
) -> NDArray[np.float64]:
    """Return rows x features, dimensionless."""
    return compute_attention_features(hardware, terms, batch.latent_dim)


def choose_weights(batch: OperatorBatch) -> str:
    """Return the set of weights: data types are pooled, because all compute in bf16."""
    return "mla"


def _plan_work(batch: MlaBatch, hardware: OperatorHardware) -> AttentionWork:
    requests = merge_requests(batch.q_lengths, batch.kv_lengths)
    is_decode = requests.max_rows(requests.q) <= SPECULATIVE_QUERIES
    kv_heads = np.where(is_decode, 1.0, batch.heads)
    # Else TensorRT-LLM's decode has one CTA per request, whose time grows with the keys alone.
    splits = is_decode & hardware.splits_latent_decode
    policy = TilePolicy(np.where(is_decode, DECODE_TILE, PREFILL_TILE), is_decode, splits)
    latent = batch.latent_dim + batch.rope_dim
    key_dim = np.where(is_decode, latent, batch.expanded_dim + batch.rope_dim)
    value_dim = np.where(is_decode, batch.latent_dim, batch.expanded_dim)
    element_bytes = np.where(is_decode, batch.dtype.activation_bytes, 2.0)  # the cache's, or expanded keys'
    read = np.where(is_decode, latent, key_dim + value_dim)
    return AttentionWork(
        requests=requests,
        plan=plan_attention(requests, batch.heads, kv_heads, policy, hardware.sm_count),
        dtype=batch.dtype,
        instruction=MatrixInstruction.WIDEST,
        heads=batch.heads,
        kv_heads=kv_heads,
        flops_per_pair=2.0 * (key_dim + value_dim),
        key_bytes=read * element_bytes,
        query_bytes=2.0 * (key_dim + value_dim),
        appends=np.where(is_decode, 0.0, 1.0),
        issue_share=np.ones(len(batch)),
        slow_steps=np.where(is_decode & ~splits, 1.0, 0.0),
        step_share=np.ones(len(batch)),
        is_cold=batch.is_cold,
    )


FAMILY = OperatorFamily(
    name="mla",
    operators=frozenset({Operator.MLA}),
    parameters=PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
)
