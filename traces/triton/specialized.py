"""Triton kernels whose warps have roles: the compiler gives the loads, the products and the rest to
groups of warps of their own, which wait for their part in a loop and jump to it through a table.
"""

import triton
import triton.language as tl


@triton.jit
def matmul_specialized(
    a_desc, b_desc, c_desc,
    m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """C = A @ B.T through TMA descriptors, row by row of tiles; PROGRAMS programs stay resident."""
    tiles_n = tl.cdiv(n, BLOCK_N)
    count = tl.cdiv(m, BLOCK_M) * tiles_n
    for tile in tl.range(tl.program_id(0), count, PROGRAMS, flatten=False, warp_specialize=True):
        row = tile // tiles_n * BLOCK_M
        col = tile % tiles_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            a = a_desc.load([row, start])
            b = b_desc.load([col, start])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([row, col], acc.to(c_desc.dtype))
