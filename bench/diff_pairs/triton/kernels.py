"""Triton kernels of the pairs; the constants say which variant is compiled."""

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, ROUNDS: tl.constexpr, MASKED: tl.constexpr):
    """out = x / 2 + y, after ROUNDS steps of arithmetic on x."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n if MASKED else None
    x = tl.load(x_ptr + at, mask=mask)
    y = tl.load(y_ptr + at, mask=mask)
    for _ in range(ROUNDS):
        x = x * x + 0.25
    tl.store(out_ptr + at, x * 0.5 + y, mask=mask)


@triton.jit
def softmax(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    """Softmax of a row per program."""
    row = tl.program_id(0).to(tl.int64) * stride
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row + at, mask=inside, other=float("-inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 0))
    out = powers / tl.sum(powers, 0)
    tl.store(out_ptr + row + at, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def copy_tile(x_ptr, out_ptr, columns, ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr):
    """Double a tile per program, of every STEP-th column."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = (tl.program_id(1) * COLS + tl.arange(0, COLS)) * STEP
    at = row[:, None] * columns + col[None, :]
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2.0)


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, a_stride, b_stride, c_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    RELU: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C = A @ B, a tile per program, optionally with the negative results set to zero."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows[:, None] * a_stride + ks[None, :]
    b_tile = b_ptr + ks[:, None] * b_stride + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, k, BLOCK_K):
        acc = tl.dot(tl.load(a_tile), tl.load(b_tile), acc, input_precision=PRECISION)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * b_stride
    if RELU:
        acc = tl.maximum(acc, 0.0)
    c_tile = c_ptr + rows[:, None] * c_stride + cols[None, :]
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty))


@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EACH: tl.constexpr):
    """Adds all values to one number: each on its own, or a block at a time."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    if EACH:
        tl.atomic_add(out_ptr + at * 0, x, mask=at < n)
    else:
        tl.atomic_add(out_ptr, tl.sum(x, 0))


@triton.jit
def rmsnorm(x_ptr, weight_ptr, out_ptr, columns, stride, epsilon, BLOCK: tl.constexpr):
    """A row per program, in two passes over it."""
    row = tl.program_id(0).to(tl.int64) * stride
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + lanes
        x = tl.load(x_ptr + row + at, mask=at < columns, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, 0) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        at = start + lanes
        inside = at < columns
        x = tl.load(x_ptr + row + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + row + at, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)
