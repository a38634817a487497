"""Configurations that frameworks use where nothing was tuned, by kernel: the baseline of every comparison.

- `grouped_gemm`: the rule of SGLang and of vLLM for 16-bit floats (get_default_config of both, 2025): up to
one
  token per expert a small tile, else 64 x 64 x 32; warps and stages are Triton's own, 4 and 3.
- `gemm`: one entry of the list that Triton's tutorial on matrix products tunes over, 128 x 128 x 32 with 4
warps
  and 4 stages; with fewer rows than the tile has, the next power of two from 16.
- `flash_attention`: what vLLM launches its Triton prefill kernel with: 128 queries x 64 keys, 4 warps, 1
stage.
"""

from collections.abc import Callable, Mapping, Sequence

from analyzer.text.errors import UsageError
from analyzer.tuning.kernel_space import KernelSpace

Config = dict[str, int]


def _choose_grouped_gemm(shape: Mapping[str, int]) -> Config:
    if shape["m"] <= shape["experts"]:
        tiles = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    else:
        tiles = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
    return {**tiles, "num_warps": 4, "num_stages": 3}


def _choose_gemm(shape: Mapping[str, int]) -> Config:
    rows = min(128, max(16, 1 << (shape["m"] - 1).bit_length()))
    return {
        "BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 32, "num_warps": 4, "num_stages": 4,
    }  # fmt: skip


def _choose_attention(_shape: Mapping[str, int]) -> Config:
    return {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4, "num_stages": 1}


_RULES: Mapping[str, Callable[[Mapping[str, int]], Config]] = {
    "gemm": _choose_gemm,
    "grouped_gemm": _choose_grouped_gemm,
    "flash_attention": _choose_attention,
}


def choose_default(space: KernelSpace, shape: Sequence[int]) -> Config:
    """Return the default configuration of a kernel for inputs in the order of its space.

    Raises UsageError for a kernel without a known default.
    """
    if space.name not in _RULES:
        raise UsageError(f"no default configuration of {space.name} is known")
    return _RULES[space.name](dict(zip(space.inputs, shape, strict=True)))
