"""Direct 2-D convolution, 4096 x 4096 outputs, tunable."""

from kernels.recipes import CUDA, MeasuredRow, Recipe

SOURCE = CUDA / "convolution.cu"
_BANKS = 32
# Tuning parameters and their macros in the source.
_NAMES = {
    "block_size_x": "BLOCK_X",
    "block_size_y": "BLOCK_Y",
    "tile_size_x": "TILE_X",
    "tile_size_y": "TILE_Y",
    "read_only": "READ_ONLY",
}


def recipe(row: MeasuredRow) -> Recipe:
    """Return the build of the row's configuration."""
    return convolution(row, filter_size=row.find_integer_parameter("filter_width"))


def convolution(row: MeasuredRow, filter_size: int, *, zero_outside: bool = False) -> Recipe:
    """Return the build of a configuration with a square filter."""
    sizes = [f"{name}={row.find_integer_parameter(key)}" for key, name in _NAMES.items()]
    filters = [f"FILTER_W={filter_size}", f"FILTER_H={filter_size}"]
    rest = [f"PADDING={padding(row, filter_size)}", f"ZERO_OUTSIDE={int(zero_outside)}"]
    defines = (*sizes, *filters, *rest)
    return Recipe(SOURCE, defines, ("-O3",), "convolution")


def padding(row: MeasuredRow, filter_size: int) -> int:
    """Return columns of padding in shared memory: 0 unless the configuration uses padding.

    With them the row length equals the block's width modulo the number of banks.
    """
    block_x = row.find_integer_parameter("block_size_x")
    if not row.find_integer_parameter("use_padding") or block_x % _BANKS == 0:
        return 0
    columns = block_x * row.find_integer_parameter("tile_size_x") + filter_size - 1
    return (block_x - columns) % _BANKS
