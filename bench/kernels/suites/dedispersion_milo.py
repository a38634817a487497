"""Dedispersion: sums over 1536 channels of shifted samples, tunable.

The grid is not divided by the tile size, so most CTAs are out of range and do nothing. The table's counts
are means over a random sample of CTAs, in which the number of idle ones is chance: instructions are compared
per FADD, which sums over channels.
"""

from kernels.recipes import CUDA, MeasuredRow, Recipe

SOURCE = CUDA / "dedispersion_milo.cu"
SCALED_BY = "FADD"
_NAMES = {
    "block_size_x": "BLOCK_X",
    "block_size_y": "BLOCK_Y",
    "tile_size_x": "TILE_X",
    "tile_size_y": "TILE_Y",
    "tile_stride_x": "STRIDE_X",
    "tile_stride_y": "STRIDE_Y",
}


def recipe(row: MeasuredRow) -> Recipe:
    """Return the build of the row's configuration."""
    defines = tuple(f"{name}={row.find_integer_parameter(key)}" for key, name in _NAMES.items())
    return Recipe(SOURCE, defines, (), "dedispersion")
