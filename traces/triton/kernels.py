"""Triton kernels behind `traces/triton/`: what an inference engine spends its time on.

The code is ours.  `../variants.py` says with which types and tile sizes each kernel is compiled.
Values called `*stride` count elements between rows; the innermost dimension is contiguous.
"""

import triton
import triton.language as tl


@triton.jit
def grouped_tile(pid, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Tile (row, column) of a program when GROUP tile rows are walked together, column by column.

    Neighbouring programs then share both operands in the L2 cache.
    """
    group_size = GROUP * tiles_n
    first_row = pid // group_size * GROUP
    rows = min(tiles_m - first_row, GROUP)
    inside = pid % group_size
    return first_row + inside % rows, inside // rows


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr,
    m, n, k,
    a_stride, b_stride, c_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """C = A @ B, one tile of C per program, accumulated in FP32 along K."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + (rows % m)[:, None] * a_stride + ks[None, :]
    b_tile = b_ptr + ks[:, None] * b_stride + (cols % n)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for left in range(k, 0, -BLOCK_K):
        a = tl.load(a_tile, mask=ks[None, :] < left, other=0.0)
        b = tl.load(b_tile, mask=ks[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * b_stride
    c_tile = c_ptr + rows[:, None] * c_stride + cols[None, :]
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def matmul_tma_persistent(
    a_desc, b_desc, c_desc,
    m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """C = A @ B.T through TMA descriptors; PROGRAMS programs stay resident and share the tiles."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS):
        tile_m, tile_n = grouped_tile(tile, tiles_m, tiles_n, GROUP)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            a = a_desc.load([row, start])
            b = b_desc.load([col, start])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([row, col], acc.to(c_desc.dtype))


@triton.jit
def attend(
    acc, row_sum, row_max, q, k_ptr, v_ptr, stride, first, last, rows, length,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys [first, last); MASKED adds the causal and the length check."""
    dims = tl.arange(0, DIM)
    for start in range(first, last, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        inside = keys < length
        k = tl.load(k_ptr + keys[None, :] * stride + dims[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k)
        if MASKED:
            seen = (rows[:, None] >= keys[None, :]) & inside[None, :]
            scores = tl.where(seen, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        weights = tl.exp2(scores - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(weights, 1)
        v = tl.load(v_ptr + keys[:, None] * stride + dims[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None])
        row_max = new_max
    return acc, row_sum, row_max


@triton.jit
def flash_attention(
    q_ptr, k_ptr, v_ptr, out_ptr,
    length, stride, head_stride, log2_scale,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Attention forward for one block of queries of one head: softmax(Q K^T * scale) V.

    `log2_scale` is the softmax scale times log2(e).  BLOCK_M must be a multiple of BLOCK_N, and
    where CAUSAL is off the length too.
    """
    head = tl.program_id(1).to(tl.int64) * head_stride
    first_row = tl.program_id(0) * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    tile = head + rows[:, None] * stride + dims[None, :]
    inside = rows[:, None] < length
    q = tl.load(q_ptr + tile, mask=inside, other=0.0)
    q = (q * log2_scale).to(q.dtype)
    acc = tl.zeros((BLOCK_M, DIM), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    row_max = tl.full((BLOCK_M,), -1.0e30, tl.float32)
    free = first_row if CAUSAL else length
    acc, row_sum, row_max = attend(
        acc, row_sum, row_max, q, k_ptr + head, v_ptr + head, stride, 0, free, rows, length,
        DIM, BLOCK_N, False,
    )  # fmt: skip
    if CAUSAL:
        acc, row_sum, row_max = attend(
            acc, row_sum, row_max, q, k_ptr + head, v_ptr + head, stride, free, free + BLOCK_M,
            rows, length, DIM, BLOCK_N, True,
        )  # fmt: skip
    out = acc / row_sum[:, None]
    tl.store(out_ptr + tile, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax(x_ptr, out_ptr, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    """Row-wise softmax; the whole row (at most BLOCK values) stays in registers."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < columns
    x = tl.load(x_ptr + row * x_stride + cols, mask=inside, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, 0))
    out = numerator / tl.sum(numerator, 0)
    tl.store(out_ptr + row * out_stride + cols, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rmsnorm(x_ptr, weight_ptr, out_ptr, columns, stride, epsilon, BLOCK: tl.constexpr):
    """out = x / rms(x) * weight, a row per program, in two passes over the row."""
    row = tl.program_id(0).to(tl.int64) * stride
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        cols = start + lanes
        x = tl.load(x_ptr + row + cols, mask=cols < columns, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, 0) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        cols = start + lanes
        inside = cols < columns
        x = tl.load(x_ptr + row + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + row + cols, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def fused_moe(
    x_ptr, weight_ptr, out_ptr, gate_ptr, sorted_slot_ptr, block_expert_ptr, used_slots_ptr,
    n, k, slots,
    x_stride, expert_stride, weight_stride, out_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    TOP_K: tl.constexpr, APPLY_GATE: tl.constexpr,
):  # fmt: skip
    """One grouped GEMM over all experts: out[slot] = x[slot // TOP_K] @ weight[expert].T.

    A slot is a (token, chosen expert) pair.  Slots come sorted by expert and padded so that a block
    of BLOCK_M rows has one expert (`block_expert`, -1: none); padding carries a slot >= `slots`.
    """
    used = tl.load(used_slots_ptr)
    tile_m, tile_n = grouped_tile(tl.program_id(0), tl.cdiv(used, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    if tile_m * BLOCK_M >= used:
        return
    expert = tl.load(block_expert_ptr + tile_m).to(tl.int64)
    if expert < 0:
        return
    slot = tl.load(sorted_slot_ptr + tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    real = slot < slots
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + (slot // TOP_K)[:, None] * x_stride + ks[None, :]
    w_tile = weight_ptr + expert * expert_stride
    w_tile += (cols % n)[None, :] * weight_stride + ks[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for left in range(k, 0, -BLOCK_K):
        x = tl.load(x_tile, mask=real[:, None] & (ks[None, :] < left), other=0.0)
        w = tl.load(w_tile, mask=ks[:, None] < left, other=0.0)
        acc = tl.dot(x, w, acc)
        x_tile += BLOCK_K
        w_tile += BLOCK_K
    if APPLY_GATE:
        acc *= tl.load(gate_ptr + slot, mask=real, other=0.0)[:, None]
    out_tile = out_ptr + slot[:, None] * out_stride + cols[None, :]
    inside = real[:, None] & (cols[None, :] < n)
    tl.store(out_tile, acc.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def grouped_gemm(
    a_ptrs, b_ptrs, c_ptrs, sizes_ptr, groups,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Many products C = A @ B of different sizes, shared out tile by tile to PROGRAMS programs.

    `a_ptrs`, `b_ptrs`, `c_ptrs` hold addresses, multiples of 16, one a group; `sizes` holds m, n / 8
    and k / 8 of each group. Matrices are dense.
    """
    first = tl.program_id(0)
    for group in range(groups):
        m = tl.load(sizes_ptr + group * 3)
        n = tl.load(sizes_ptr + group * 3 + 1) * 8
        k = tl.load(sizes_ptr + group * 3 + 2) * 8
        a_ptr = tl.load(a_ptrs + group).to(tl.pointer_type(tl.float16))
        b_ptr = tl.load(b_ptrs + group).to(tl.pointer_type(tl.float16))
        c_ptr = tl.load(c_ptrs + group).to(tl.pointer_type(tl.float16))
        tiles_n = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(m, BLOCK_M) * tiles_n
        for tile in range(first, tiles, PROGRAMS):
            rows = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            cols = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            ks = tl.arange(0, BLOCK_K)
            a_tile = a_ptr + rows[:, None] * k + ks[None, :]
            b_tile = b_ptr + ks[:, None] * n + cols[None, :]
            a_tile = tl.multiple_of(a_tile, [16, 16])
            b_tile = tl.multiple_of(b_tile, [16, 16])
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for left in range(k, 0, -BLOCK_K):
                a = tl.load(a_tile, mask=(rows[:, None] < m) & (ks[None, :] < left), other=0.0)
                b = tl.load(b_tile, mask=(ks[:, None] < left) & (cols[None, :] < n), other=0.0)
                acc = tl.dot(a, b, acc)
                a_tile += BLOCK_K
                b_tile += BLOCK_K * n
            c_tile = tl.multiple_of(c_ptr + rows[:, None] * n + cols[None, :], [16, 16])
            tl.store(c_tile, acc.to(tl.float16), mask=(rows[:, None] < m) & (cols[None, :] < n))
        # The round goes on in the next group where it stopped in this one.
        taken = tl.cdiv(max(tiles - first, 0), PROGRAMS)
        first += taken * PROGRAMS - tiles
