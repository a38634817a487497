"""First product of a fused mixture-of-experts layer, as a grouped product over sorted tokens.

Written to the classical description of the kernel that vLLM and SGLang tune: each of the M tokens goes to
`TOP_K` experts, and a *slot* is one such pair, numbered `token * TOP_K + choice`. The caller sorts the slots
by expert and pads each expert's list to a multiple of BLOCK_SIZE_M, so that a block of rows has one expert:

    sorted_slots      [padded]               slot of each row; n_slots or more where the row is padding
    block_experts     [padded / BLOCK_SIZE_M] expert of each block of rows, -1 for none
    padded_slots      [1]                     length of the padded list

    c[slot, :] = a[slot // TOP_K, :] @ b[expert, :, :].T        a [M, K], b [experts, N, K], c [n_slots, N]

Programs are numbered so that GROUP_SIZE_M blocks of rows go through the columns together: with a group of
one, neighbours share rows of `a`; with more, they share rows of `b` where they have the same expert.
"""

import triton
import triton.language as tl


@triton.jit
def fused_moe(
    a_ptr, b_ptr, c_ptr, sorted_slots_ptr, block_experts_ptr, padded_slots_ptr,
    n, k, n_slots,
    a_stride, expert_stride, b_stride, c_stride,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr, TOP_K: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile [BLOCK_SIZE_M, BLOCK_SIZE_N] of `c`. EVEN_K: k is a multiple of BLOCK_SIZE_K."""
    padded_slots = tl.load(padded_slots_ptr)
    tiles_m, tiles_n = tl.cdiv(padded_slots, BLOCK_SIZE_M), tl.cdiv(n, BLOCK_SIZE_N)
    program = tl.program_id(0)
    in_group = GROUP_SIZE_M * tiles_n
    first_m = program // in_group * GROUP_SIZE_M
    rows_in_group = min(tiles_m - first_m, GROUP_SIZE_M)
    tile_m = first_m + program % in_group % rows_in_group
    tile_n = program % in_group // rows_in_group
    if tile_m * BLOCK_SIZE_M >= padded_slots:
        return
    slots = tl.load(sorted_slots_ptr + tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)).to(tl.int64)
    is_slot = slots < n_slots
    expert = tl.load(block_experts_ptr + tile_m).to(tl.int64)
    columns = (tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N).to(tl.int64)) % n
    depth = tl.arange(0, BLOCK_SIZE_K)
    a_tile = a_ptr + (slots[:, None] // TOP_K * a_stride + depth[None, :])
    b_tile = b_ptr + expert * expert_stride + (columns[None, :] * b_stride + depth[:, None])
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_SIZE_K)):
        if EVEN_K:
            rows = tl.load(a_tile, mask=is_slot[:, None], other=0.0)
            weights = tl.load(b_tile)
        else:
            left = k - step * BLOCK_SIZE_K
            rows = tl.load(a_tile, mask=is_slot[:, None] & (depth[None, :] < left), other=0.0)
            weights = tl.load(b_tile, mask=depth[:, None] < left, other=0.0)
        total += tl.dot(rows, weights)
        a_tile += BLOCK_SIZE_K
        b_tile += BLOCK_SIZE_K
    written = tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    inside = is_slot[:, None] & (written[None, :] < n)
    tl.store(
        c_ptr + slots[:, None] * c_stride + written[None, :], total.to(c_ptr.dtype.element_ty), mask=inside
    )
