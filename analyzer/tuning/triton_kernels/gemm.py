"""Dense product of activations and weights, one output tile per program.

    c[m, n] = sum over k of a[m, k] · b[n, k]      a [M, K], b [N, K] (weights as they are stored), c [M, N]

Programs are numbered so that GROUP_SIZE_M tile rows go through the columns together and share `b` in the L2.
"""

import triton
import triton.language as tl


@triton.jit
def gemm(
    a_ptr, b_ptr, c_ptr,
    m, n, k,
    a_stride, b_stride, c_stride,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):  # fmt: skip
    """Compute one tile of `c`, accumulated in FP32."""
    program, tiles_m, tiles_n = tl.program_id(0), tl.cdiv(m, BLOCK_SIZE_M), tl.cdiv(n, BLOCK_SIZE_N)
    in_group = GROUP_SIZE_M * tiles_n
    first_m = program // in_group * GROUP_SIZE_M
    rows_in_group = min(tiles_m - first_m, GROUP_SIZE_M)
    tile_m = first_m + program % in_group % rows_in_group
    tile_n = program % in_group // rows_in_group
    rows = tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M).to(tl.int64)
    columns = tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N).to(tl.int64)
    depth = tl.arange(0, BLOCK_SIZE_K)
    a_tile = a_ptr + (rows % m)[:, None] * a_stride + depth[None, :]
    b_tile = b_ptr + (columns % n)[None, :] * b_stride + depth[:, None]
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for left in range(k, 0, -BLOCK_SIZE_K):
        a = tl.load(a_tile, mask=depth[None, :] < left, other=0.0)
        b = tl.load(b_tile, mask=depth[:, None] < left, other=0.0)
        total = tl.dot(a, b, total)
        a_tile += BLOCK_SIZE_K
        b_tile += BLOCK_SIZE_K
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    c_tile = c_ptr + rows[:, None] * c_stride + columns[None, :]
    tl.store(c_tile, total.to(c_ptr.dtype.element_ty), mask=inside)
