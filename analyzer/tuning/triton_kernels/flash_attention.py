"""Attention without a mask, forward: a block of queries of one head per program, online softmax over keys.

    out[i, :] = sum over j of softmax(q[i] · k[j] / sqrt(D))[j] · v[j, :]
    q and out [batch, heads, queries, D], k and v [batch, heads, keys, D]

The running maximum and sum are those of Milakov and Gimelshein's online softmax, as FlashAttention uses them.
"""

import triton
import triton.language as tl


@triton.jit
def flash_attention(
    q_ptr, k_ptr, v_ptr, out_ptr,
    q_length, kv_length, log2_scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of one head. log2_scale: log2(e) / sqrt(HEAD_DIM); tensors are contiguous."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims, keys = tl.arange(0, HEAD_DIM), tl.arange(0, BLOCK_N)
    places = head * q_length * HEAD_DIM + rows[:, None] * HEAD_DIM + dims[None, :]
    inside = rows[:, None] < q_length
    queries = tl.load(q_ptr + places, mask=inside, other=0.0)
    k_tile = k_ptr + head * kv_length * HEAD_DIM + keys[None, :] * HEAD_DIM + dims[:, None]
    v_tile = v_ptr + head * kv_length * HEAD_DIM + keys[:, None] * HEAD_DIM + dims[None, :]
    total = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    row_max = tl.full((BLOCK_M,), -1.0e30, dtype=tl.float32)
    for first in range(0, kv_length, BLOCK_N):
        seen = first + keys < kv_length
        k = tl.load(k_tile, mask=seen[None, :], other=0.0)
        scores = tl.where(seen[None, :], tl.dot(queries, k) * log2_scale, -1.0e30)
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        weights = tl.exp2(scores - new_max[:, None])
        kept = tl.exp2(row_max - new_max)
        row_sum = row_sum * kept + tl.sum(weights, 1)
        v = tl.load(v_tile, mask=seen[:, None], other=0.0)
        total = tl.dot(weights.to(v.dtype), v, total * kept[:, None])
        row_max = new_max
        k_tile += BLOCK_N * HEAD_DIM
        v_tile += BLOCK_N * HEAD_DIM
    result = total / row_sum[:, None]
    tl.store(out_ptr + places, result.to(out_ptr.dtype.element_ty), mask=inside)
