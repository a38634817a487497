"""Rows that Triton loads side by side and names rows by: ttg.convert_layout in the loop. D 64, BLOCK 128, sm_80."""

import triton
import triton.language as tl


@triton.jit
def bag_mean(idx_ptr, table_ptr, out_ptr, L, D: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, D)
    acc = tl.zeros([D], tl.float32)
    for i in range(0, L, BLOCK):
        ids = tl.load(idx_ptr + pid * L + i + tl.arange(0, BLOCK))
        acc += tl.sum(tl.load(table_ptr + ids[:, None] * D + cols[None, :]), 0)
    tl.store(out_ptr + pid * D + cols, acc)
