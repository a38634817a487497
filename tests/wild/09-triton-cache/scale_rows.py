"""Compiled by Triton 3.9 to the files of `cache/`, and by 3.4 to `scale_rows_3.4.ttir`: `python scale_rows.py`."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def scale_rows(x, y, n, x_stride, y_stride, factor, bias, BLOCK: tl.constexpr, ROUND: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * x_stride + at, mask=at < n) * factor
    if bias is not None:
        value += tl.load(bias + at, mask=at < n)
    if ROUND:
        value = tl.floor(value)
    tl.store(y + row * x_stride + at * y_stride, value, mask=at < n)


if __name__ == "__main__":
    constants = {"y_stride": 1, "bias": None, "BLOCK": 512, "ROUND": True}
    types = {"x": "*fp32", "y": "*fp32", "n": "i32", "x_stride": "i32", "factor": "fp32"}
    names = scale_rows.arg_names
    triton.compile(
        ASTSource(
            fn=scale_rows,
            signature={name: types.get(name, "constexpr") for name in names},
            constexprs=constants,
            attrs={(3,): [["tt.divisibility", 16]]},
        ),
        target=GPUTarget("cuda", 90, 32),
    )
