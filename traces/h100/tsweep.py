import triton
import triton.language as tl


@triton.jit
def t_moe_sweep(a_ptr, b_ptr, c_ptr, ids_ptr, exp_ptr, n_valid, N, K, TOPK, NM, sa, sbe, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr):
    pid = tl.program_id(0)
    nn = tl.cdiv(N, BN)
    per = GM * nn
    first = (pid // per) * GM
    gs = min(NM - first, GM)
    pm = first + (pid % per) % gs
    pn = (pid % per) // gs
    ids = tl.load(ids_ptr + pm * BM + tl.arange(0, BM)).to(tl.int64)
    mask = ids < n_valid
    e = tl.load(exp_ptr + pm).to(tl.int64)
    rn = (pn * BN + tl.arange(0, BN).to(tl.int64)) % N
    rk = tl.arange(0, BK)
    a = a_ptr + (ids[:, None] // TOPK * sa + rk[None, :])
    b = b_ptr + e * sbe + (rn[None, :] * sb + rk[:, None])
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=mask[:, None] & (rk[None, :] < K - k * BK), other=0.0)
        y = tl.load(b, mask=rk[:, None] < K - k * BK, other=0.0)
        acc += tl.dot(x, y)
        a += BK
        b += BK
    on = pn * BN + tl.arange(0, BN)
    tl.store(c_ptr + ids[:, None] * sc + on[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask[:, None] & (on[None, :] < N))
