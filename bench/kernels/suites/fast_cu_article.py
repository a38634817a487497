"""BF16 GEMM with WGMMA and TMA: fast_cu_article_wgmma.cu, steps 7 to 11.

Not covered: step 1 (FFMA), and 2 to 6, whose barriers are the C++ library's. The table has no counts of
steps 7 to 11: registers, shared memory and what the README tells are all that they were written to.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.recipes import CUDA, Recipe, Row

_SIZES = ("BM", "BN", "BK", "THREADS", "STAGES", "CTAS")
_TABLE = 6  # place of step 11's table among the arguments
_MOST_TILES = 128
_CURVE = 3
# CTAs in a cluster, sums that start from the first product, kind of store, order of tiles from a table.
_STEPS = {
    "7": (1, 0, 0, 0),
    "8": (2, 0, 0, 0),
    "9": (2, 1, 1, 0),
    "10": (2, 1, 2, 0),
    "11": (2, 1, 2, 1),
}


def recipe(row: Row) -> Recipe | None:
    number, _, _ = row.step.partition(":")
    if number not in _STEPS:
        return None
    sizes = zip(_SIZES, row.template()[: len(_SIZES)], strict=True)
    features = zip(("CLUSTER", "KEEP", "STORE", "CURVE"), _STEPS[number], strict=True)
    defines = tuple(f"{name}={value}" for name, value in (*sizes, *features))
    buffers = {_TABLE: _tiles_along_curve(row)} if _STEPS[number][_CURVE] else {}
    return Recipe(CUDA / "fast_cu_article_wgmma.cu", defines, (), "wgmma_gemm", buffers)


def _tiles_along_curve(row: Row) -> NDArray[np.int32]:
    """Tiles (row, column) of each CTA's turns, -1 behind the last: clusters side by side on the curve.

    A cluster of two takes tiles above each other, so that a step of the curve is one such pair.
    """
    tile_m, tile_n = (int(size) for size in row.template()[:2])
    m, n = (int(size) for size in row.arguments[:2])
    n_clusters = row.grid[0] // 2
    table = np.full((row.grid[0], _MOST_TILES), -1, dtype=np.int32)
    side = max(m // tile_m // 2, n // tile_n)
    places = [_on_curve(side, step) for step in range(side * side)]
    inside = [(pair, column) for pair, column in places if pair < m // tile_m // 2 and column < n // tile_n]
    for step, (pair, column) in enumerate(inside):
        turn, cluster = divmod(step, n_clusters)
        for rank in (0, 1):
            table[2 * cluster + rank, turn] = (2 * pair + rank) << 16 | column
    return table


def _on_curve(side: int, step: int) -> tuple[int, int]:
    """Place of a step of Hilbert's curve through a square whose side is a power of two."""
    x = y = 0
    size = 1
    while size < side:
        right = step // 2 & 1
        up = (step ^ right) & 1
        if not up:
            if right:
                x, y = size - 1 - x, size - 1 - y
            x, y = y, x
        x, y = x + size * right, y + size * up
        step //= 4
        size *= 2
    return x, y
