"""Dense matrix product [m, k] · [k, n] (WaveTune, table 2)."""

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
    warps, stages = micro
    return count_product_resources((macro[0], macro[1], macro[2]), warps, stages, unit)


KERNEL = TunableKernel(
    space=KernelSpace(
        name="gemm",
        inputs=("m", "n", "k"),
        macro_parameters=("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"),
        micro_parameters=("num_warps", "num_stages"),
        grid=(Tiling("m", "BLOCK_SIZE_M"), Tiling("n", "BLOCK_SIZE_N")),
        loop=Tiling("k", "BLOCK_SIZE_K"),
    ),
    macro_values=((16, 32, 64, 128, 256), (32, 64, 128, 256), (32, 64, 128)),
    micro_values=((4, 8), (2, 3, 4, 5)),
    count_resources=_count_resources,
)
