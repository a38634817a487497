"""Grouped matrix product of a mixture of experts (WaveTune, table 2), as in SGLang's and vLLM's kernel.

`m` tokens go to `topk` of `experts` experts each; `n` is the width of the output of one expert and `k` its
depth. Who gets how many tokens is not known when the kernel is launched, so the rows are dealt out evenly
(section 5.2 of the paper: a uniform approximation).
"""

from collections.abc import Sequence

from analyzer.tuning.kernel_space import (
    ConfigResources,
    KernelSpace,
    ProductUnit,
    Tiling,
    TunableKernel,
    count_product_resources,
)


def _count_resources(macro: Sequence[int], micro: Sequence[int], unit: ProductUnit) -> ConfigResources:
    _, warps, stages = micro
    return count_product_resources((macro[0], macro[1], macro[2]), warps, stages, unit)


KERNEL = TunableKernel(
    space=KernelSpace(
        name="grouped_gemm",
        inputs=("m", "experts", "topk", "n", "k"),
        macro_parameters=("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"),
        micro_parameters=("GROUP_SIZE_M", "num_warps", "num_stages"),
        grid=(Tiling("m", "BLOCK_SIZE_M", factor="topk", groups="experts"), Tiling("n", "BLOCK_SIZE_N")),
        loop=Tiling("k", "BLOCK_SIZE_K"),
    ),
    macro_values=((16, 32, 64, 128, 256), (32, 64, 128, 256), (32, 64, 128)),
    micro_values=((1, 16), (4, 8), (2, 3, 4, 5)),
    count_resources=_count_resources,
    defaults={"experts": 1, "topk": 1},
)
