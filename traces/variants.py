"""Triton kernels to compile, with their argument types, tile sizes and options.

A name that occurs twice in `VARIANTS`, with different `archs`, is tuned per architecture, as by an
autotuner.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

ALL_ARCHS = (80, 89, 90, 100, 120)
ALIGNED = ("a_stride", "b_stride", "c_stride", "k", "n", "columns", "stride", "head_stride",
           "x_stride", "out_stride", "expert_stride", "weight_stride")  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """One compilation of one kernel."""

    name: str
    kernel: str
    types: Mapping[str, str]  # of the arguments that are not constexpr
    constexprs: Mapping[str, int | bool]
    num_warps: int = 4
    num_stages: int = 3
    archs: tuple[int, ...] = ALL_ARCHS
    aligned: tuple[str, ...] = field(default=ALIGNED)  # integer arguments that are multiples of 16
    source: str = "kernels"  # file under traces/triton/, without its suffix
    is_binary: bool = False  # the cubin is shipped, not its dumps


def pointers(names: str, element: str) -> dict[str, str]:
    """Return the types of pointer arguments named `<name>_ptr`."""
    return {f"{name}_ptr": f"*{element}" for name in names.split()}


def integers(names: str) -> dict[str, str]:
    """Return the types of 32-bit integer arguments."""
    return dict.fromkeys(names.split(), "i32")


MATMUL_TYPES = pointers("a b c", "fp16") | integers("m n k a_stride b_stride c_stride")
ATTENTION_TYPES = (
    pointers("q k v out", "bf16") | integers("length stride head_stride") | {"log2_scale": "fp32"}
)
MOE_TYPES = (
    pointers("x weight out", "bf16")
    | {"gate_ptr": "*fp32", "sorted_slot_ptr": "*i32", "block_expert_ptr": "*i32"}
    | {"used_slots_ptr": "*i32"}
    | integers("n k slots x_stride expert_stride weight_stride out_stride")
)
TMA_TYPES = {
    "a_desc": "tensordesc<fp16[128, 64]>",
    "b_desc": "tensordesc<fp16[128, 64]>",
    "c_desc": "tensordesc<fp16[128, 128]>",
} | integers("m n k")

GROUPED_TYPES = {
    "a_ptrs": "*i64", "b_ptrs": "*i64", "c_ptrs": "*i64", "sizes_ptr": "*i32", "groups": "i32",
}  # fmt: skip


def tiles(m: int, n: int, k: int, **more: int | bool) -> dict[str, int | bool]:
    """Return the tile sizes of a matrix product that visits tiles in groups of eight tile rows."""
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8, **more}


def attention(
    name: str, dim: int, rows: int, num_warps: int, num_stages: int, archs: tuple[int, ...]
) -> Variant:
    """Return flash attention with head size `dim`: `rows` queries per program, 32 keys per step."""
    sizes = {"DIM": dim, "BLOCK_M": rows, "BLOCK_N": 32, "CAUSAL": name == "flash_attention"}
    return Variant(name, "flash_attention", ATTENTION_TYPES, sizes, num_warps, num_stages, archs)


def staged_matmul(name: str, rows: int, num_stages: int, archs: tuple[int, ...]) -> Variant:
    """Return a small matrix product with a pipeline of `num_stages` stages."""
    return Variant(name, "matmul", MATMUL_TYPES, tiles(rows, 32, 32), num_stages=num_stages, archs=archs)


VARIANTS = (
    Variant("matmul", "matmul", MATMUL_TYPES, tiles(128, 64, 32), num_stages=3),
    Variant("matmul_large_tile", "matmul", MATMUL_TYPES, tiles(128, 256, 64), num_warps=8, num_stages=3,
            archs=(80, 90)),
    Variant("matmul_square_tile", "matmul", MATMUL_TYPES, tiles(128, 128, 32), num_stages=3, archs=(80,)),
    Variant("matmul_one_stage", "matmul", MATMUL_TYPES, tiles(64, 64, 32), num_stages=1,
            archs=(80, 90, 120)),
    staged_matmul("matmul_two_stages", rows=32, num_stages=2, archs=(80, 89, 120)),
    staged_matmul("matmul_two_stages", rows=64, num_stages=2, archs=(90,)),
    staged_matmul("matmul_four_stages", rows=32, num_stages=4, archs=(80, 120)),
    staged_matmul("matmul_four_stages", rows=64, num_stages=4, archs=(90,)),
    Variant("matmul_unaligned", "matmul", MATMUL_TYPES, tiles(32, 32, 16), num_stages=1,
            archs=(80, 90, 120), aligned=()),
    Variant("matmul_tma_persistent", "matmul_tma_persistent", TMA_TYPES,
            tiles(128, 128, 64, PROGRAMS=132), num_warps=8, archs=(90, 100, 120)),
    attention("flash_attention", dim=64, rows=128, num_warps=8, num_stages=2, archs=(80, 90, 120)),
    attention("flash_attention", dim=32, rows=64, num_warps=4, num_stages=1, archs=(89,)),
    attention("flash_attention", dim=64, rows=64, num_warps=4, num_stages=1, archs=(100,)),
    attention("flash_attention_full", dim=32, rows=64, num_warps=4, num_stages=1, archs=ALL_ARCHS),
    Variant("softmax", "softmax",
            pointers("x out", "fp16") | integers("columns x_stride out_stride"), {"BLOCK": 1024}),
    Variant("rmsnorm", "rmsnorm",
            pointers("x weight out", "bf16") | integers("columns stride") | {"epsilon": "fp32"},
            {"BLOCK": 1024}),
    Variant("fused_moe", "fused_moe", MOE_TYPES, tiles(32, 64, 64, TOP_K=2, APPLY_GATE=True),
            archs=(80, 90, 100, 120)),
    Variant("grouped_gemm", "grouped_gemm", GROUPED_TYPES,
            {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "PROGRAMS": 24}),
    Variant("matmul_specialized", "matmul_specialized", TMA_TYPES,
            {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "PROGRAMS": 148},
            archs=(100,), aligned=(), source="specialized", is_binary=True),
)  # fmt: skip
