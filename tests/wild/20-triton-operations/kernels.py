"""Sources of the kernels of this folder, compiled with Triton 3.6: B 256, BM 32, BN 64, R 32; four warps.

mulmask: sm_90, its .sass printed by cuobjdump; descgs: sm_100; the others: sm_90. Places in the source are cut out.
matmul_21: Triton 2.1 for sm_80, tiles of 64 x 64 x 32, three stages.
"""

import triton
import triton.language as tl


@triton.jit
def mulmask(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (n < N)[None, :] * (m < M)[:, None]
    o = m[:, None] * N + n[None, :]
    tl.store(y + o, tl.load(x + o, mask=mask), mask=mask)


@triton.jit
def flipk(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    k = tl.flip(o < n, 0)
    tl.store(y + o, tl.load(x + o, mask=k), mask=k)


@triton.jit
def splitjoin(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    z = tl.join(a, a * 2)
    b, c = tl.split(z)
    j = tl.join(o < n, o < n)
    tl.store(y + 2 * o[:, None] + tl.arange(0, 2)[None, :], tl.join(b, c), mask=j)
    tl.store(y + tl.interleave(o, o + n), tl.interleave(b, c), mask=tl.interleave(o < n, o + 1 < n))


@triton.jit
def descred(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    e = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    e.atomic_add([tl.program_id(0) * BM, 0], d.load([tl.program_id(0) * BM, 0]))


@triton.jit
def descgs(x, ix, y, M, N, R: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, BN])
    e = tl.make_tensor_descriptor(y, [M, N], [N, 1], [1, BN])
    i = tl.load(ix + tl.arange(0, R))
    e.scatter(d.gather(i, 0), i, 0)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        rows, columns = (k * BK + rk)[:, None], (k * BK + rk)[None, :]
        x = tl.load(a + rm[:, None] * K + columns, mask=(rm[:, None] < M) & (columns < K), other=0.0)
        y = tl.load(b + rows * N + rn[None, :], mask=(rows < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(x, y)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=mask)
