"""FlashAttention (WaveTune, table 2): a block holds a tile of queries of one head and walks over all keys.

G counts batch · heads · ceil(q_length / tile): one launch covers all requests of a batch. Head size, data
type and causal mask are the same in all samples of a profile; another of these is another profile.
"""

from collections.abc import Sequence

from analyzer.tuning.kernel_space import ConfigResources, KernelSpace, ProductUnit, Tiling, TunableKernel

_HEAD_DIM = 128
_WARP_SIZE = 32
_ASYNC_ROWS = 64


def _count_resources(macro: Sequence[int], micro: Sequence[int], unit: ProductUnit) -> ConfigResources:
    """Return what a tile needs at least: staged tiles of keys and values; the FP32 output in registers.

    Asynchronous products read the queries from shared memory, too. With one stage keys and values share a
    buffer.
    """
    queries, keys = macro
    warps, stages = micro
    is_async = unit.is_async and queries >= _ASYNC_ROWS
    n_tiles = 2 * stages if stages > 1 else 1
    rows = n_tiles * keys + queries if is_async else 2 * (stages - 1) * keys
    return ConfigResources(
        rows * _HEAD_DIM * unit.element_bytes,
        -(-queries * _HEAD_DIM // (warps * _WARP_SIZE)),
        warps * _WARP_SIZE,
    )


KERNEL = TunableKernel(
    space=KernelSpace(
        name="flash_attention",
        inputs=("batch", "heads", "q_length", "kv_length"),
        macro_parameters=("BLOCK_M", "BLOCK_N"),
        micro_parameters=("num_warps", "num_stages"),
        grid=(Tiling("q_length", "BLOCK_M"),),
        loop=Tiling("kv_length", "BLOCK_N"),
        multipliers=("batch", "heads"),
    ),
    macro_values=((32, 64, 128, 256), (16, 32, 64, 128)),
    micro_values=((4, 8), (1, 2, 3, 4)),
    count_resources=_count_resources,
    defaults={"batch": 1},
)
