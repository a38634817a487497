"""Inputs map to grid and loop as the kernels launch them."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_cases import map_input

from analyzer.hardware.gpu_database import load_gpu
from analyzer.text.errors import UsageError
from analyzer.tuning.kernel_space import find_kernel, list_kernels

H100 = load_gpu("h100").arch
sizes = st.integers(1, 20_000)


def test_kernels_of_the_paper_are_described() -> None:
    assert {"gemm", "grouped_gemm", "flash_attention"} <= set(list_kernels())


@given(m=sizes, n=sizes, k=sizes, macro=st.sampled_from(list(product(*find_kernel("gemm").macro_values))))
def test_a_product_has_a_block_per_tile(m: int, n: int, k: int, macro: tuple[int, ...]) -> None:
    grid, loops = map_input(find_kernel("gemm").space, (m, n, k), macro)
    assert grid == math.ceil(m / macro[0]) * math.ceil(n / macro[1])
    assert loops == math.ceil(k / macro[2])


@given(
    m=st.integers(1, 3000), experts=st.integers(1, 64), topk=st.integers(1, 8), tile=st.sampled_from([16, 64])
)
def test_experts_get_rows_by_turns(m: int, experts: int, topk: int, tile: int) -> None:
    space = find_kernel("grouped_gemm").space
    rows = np.bincount(np.arange(m * topk) % experts, minlength=experts)
    shape = {"m": m, "experts": experts, "topk": topk, "n": 200, "k": 64}
    wanted = int((-(-rows // tile)).sum()) * 4, 2
    assert map_input(space, space.order_inputs(shape), (tile, 64, 32)) == wanted


def test_attention_counts_heads_of_all_requests() -> None:
    space = find_kernel("flash_attention").space
    shape = {"batch": 3, "heads": 14, "q_length": 1000, "kv_length": 1000}
    assert map_input(space, space.order_inputs(shape), (128, 64)) == (3 * 14 * 8, 16)


@pytest.mark.parametrize("shape", [{"m": 1, "n": 2}, {"m": 1, "n": 0, "k": 4}])
def test_an_input_that_is_missing_or_not_positive_is_an_error(shape: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="kernel gemm"):
        find_kernel("gemm").space.order_inputs(shape)


def test_an_unknown_kernel_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        find_kernel("softmax")
    assert "flash_attention" in caught.value.diagnostic.hint


@pytest.mark.parametrize(
    ("macro", "micro", "obstacle"),
    [
        ((256, 128, 64), (8, 5), "shared memory"),  # 245,760 bytes on Hopper, which keeps all five copies
        ((256, 128, 64), (8, 4), ""),
        ((32, 256, 64), (8, 5), ""),  # below 64 rows one copy fewer
        ((256, 256, 32), (4, 2), "registers"),
        ((256, 256, 32), (64, 2), "threads"),
    ],
)
def test_what_cannot_fit_an_h100_is_named(
    macro: tuple[int, ...], micro: tuple[int, ...], obstacle: str
) -> None:
    assert H100 is not None
    assert find_kernel("gemm").find_obstacle(macro, micro, 2, H100) == obstacle


def test_an_a100_has_less_shared_memory_and_stages_one_tile_in_registers() -> None:
    kernel, arch = find_kernel("gemm"), load_gpu("a100").arch
    assert arch is not None
    assert kernel.find_obstacle((256, 128, 64), (8, 4), 2, arch) == ""  # 3 x 49,152
    assert kernel.find_obstacle((256, 128, 64), (8, 5), 2, arch) == "shared memory"
