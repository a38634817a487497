"""What an operator has to compute and to move at least, from its shapes: the input of the simple baselines.

Floating-point operations count a multiply and an add as two, and of causal attention only scores that are
seen. Bytes are those of the inputs read once and the outputs written once, as if caches were unlimited.

Example: gemm in BF16 with m = n = k = 1024 has 2 · 1024^3 operations and 3 · 2 · 1024^2 bytes.
"""

from functools import singledispatch

import numpy as np
from msgspec import Struct

from analyzer.operators.attention_plan import Requests, count_pairs, merge_requests
from analyzer.operators.batches import (
    AttentionBatch,
    CollectiveBatch,
    Column,
    ElementwiseBatch,
    MlaBatch,
    MoeBatch,
    OperatorBatch,
    ProductBatch,
    RowwiseBatch,
)
from analyzer.operators.names import MoeProduct, Operator

_ROWWISE_OPS = {  # per element of the input
    Operator.RMSNORM: 4.0,
    Operator.FUSED_ADD_RMSNORM: 5.0,
    Operator.LAYERNORM: 8.0,
    Operator.SOFTMAX: 5.0,
    Operator.SILU_MUL: 3.0,
}
# Tensors of the input's size that are read and written. SiLU-and-multiply writes half its input's width.
_ROWWISE_TENSORS = {Operator.FUSED_ADD_RMSNORM: 4.0, Operator.SILU_MUL: 1.5}


class Work(Struct, frozen=True):
    """Operations and bytes of each row."""

    flops: Column
    bytes_moved: Column


@singledispatch
def count_work(batch: OperatorBatch) -> Work:
    """Return the operations and bytes of each row of a batch."""
    raise TypeError(f"no count of work for {type(batch).__name__}")


@count_work.register
def _(batch: ProductBatch) -> Work:
    dtype = batch.dtype
    inputs = batch.k * (batch.m * dtype.stored_activation_bytes + batch.n * dtype.stored_weight_bytes)
    outputs = batch.m * batch.n * dtype.output_bytes
    return Work(
        flops=2.0 * batch.batch * batch.m * batch.n * batch.k,
        bytes_moved=batch.batch * (inputs + outputs),
    )


@count_work.register
def _(batch: MoeBatch) -> Work:
    entries = batch.m * batch.topk
    used = np.minimum(batch.experts, entries)
    products = [(batch.hidden, 2.0 * batch.intermediate), (batch.intermediate, batch.hidden)]
    wanted = {MoeProduct.W13: products[:1], MoeProduct.W2: products[1:], MoeProduct.BOTH: products}
    flops, moved = np.zeros(len(batch)), np.zeros(len(batch))
    for k, n in wanted[batch.which]:
        flops += 2.0 * entries * k * n
        moved += used * k * n * batch.dtype.stored_weight_bytes
        moved += entries * (k * batch.dtype.stored_activation_bytes + n * batch.dtype.output_bytes)
    return Work(flops, moved)


@count_work.register
def _(batch: AttentionBatch) -> Work:
    q, kv, scores = _sum_lengths(merge_requests(batch.q_lengths, batch.kv_lengths, batch.window))
    size = batch.dtype.activation_bytes
    return Work(
        flops=4.0 * scores * batch.heads * batch.head_dim,
        bytes_moved=batch.head_dim * (2.0 * batch.kv_heads * kv * size + 2.0 * batch.heads * q * size),
    )


@count_work.register
def _(batch: MlaBatch) -> Work:
    q, kv, scores = _sum_lengths(merge_requests(batch.q_lengths, batch.kv_lengths))
    width = batch.latent_dim + batch.rope_dim
    size = batch.dtype.activation_bytes
    return Work(
        flops=2.0 * scores * batch.heads * (width + batch.latent_dim),
        bytes_moved=size * (kv * width + q * batch.heads * (width + batch.latent_dim)),
    )


@count_work.register
def _(batch: RowwiseBatch) -> Work:
    elements = batch.rows * batch.columns
    tensors = _ROWWISE_TENSORS.get(batch.operator, 2.0)
    return Work(
        flops=_ROWWISE_OPS[batch.operator] * elements,
        bytes_moved=elements * tensors * batch.dtype.activation_bytes,
    )


@count_work.register
def _(batch: ElementwiseBatch) -> Work:
    return Work(
        flops=batch.elements, bytes_moved=batch.elements * (batch.inputs + 1.0) * batch.dtype.activation_bytes
    )


@count_work.register
def _(batch: CollectiveBatch) -> Work:
    """Count each GPU's own memory: a ring sends and receives the message 2 (n - 1) / n times."""
    rounds = 2.0 * (batch.gpus - 1.0) / batch.gpus if batch.operator is Operator.ALL_REDUCE else 1.0
    return Work(flops=np.zeros(len(batch)), bytes_moved=2.0 * rounds * batch.message_bytes)


def _sum_lengths(requests: Requests) -> tuple[Column, Column, Column]:
    """Return per row queries, keys, and scores of causal attention."""
    scores = count_pairs(requests.q, requests.kv, requests.window)
    return (requests.sum_rows(requests.q), requests.sum_rows(requests.kv), requests.sum_rows(scores))
