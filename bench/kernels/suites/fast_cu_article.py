"""BF16 GEMM in eleven steps, from the second on with WGMMA and TMA.

Sources: fast_cu_article_ffma.cu (step 1), fast_cu_article_library.cu (2 to 6), fast_cu_article_wgmma.cu
(7 to 11).
The table has no counts of steps 6 to 11: they were written to match its registers and shared memory, and
the description of the table.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.recipes import CUDA, MeasuredRow, Recipe

_SIZES = ("BM", "BN", "BK", "THREADS", "STAGES", "CTAS")
_TABLE = 6  # place of step 11's table among the arguments
_MOST_TILES = 128
_CURVE = 3
# By step: CTAs in a cluster; whether sums start from the first product; kind of store; whether the order of
# tiles comes from a table.
_STEPS = {
    "7": (1, 0, 0, 0),
    "8": (2, 0, 0, 0),
    "9": (2, 1, 1, 0),
    "10": (2, 1, 2, 0),
    "11": (2, 1, 2, 1),
}


_FFMA_SIZES = {"BM": 0, "BN": 1, "BK": 2, "WM": 3, "WN": 4, "WN_PARTS": 5, "TM": 6, "TN": 7, "THREADS": 8}
# Places of the parameters of steps 2 to 6 in the template; a parameter that a step lacks is 0.
_LIBRARY_STEPS = {
    "2": {"BM": 0, "BN": 1, "BK": 2, "THREADS": 6},
    "3": {"BM": 0, "BN": 1, "BK": 2, "THREADS": 3},
    "4": {"BM": 0, "BN": 1, "BK": 2, "THREADS": 3, "STAGES": 4},
    "5": {"BM": 0, "BN": 1, "BK": 2, "THREADS": 3, "STAGES": 4},
    "6": {"BM": 0, "BN": 1, "BK": 2, "THREADS": 3, "STAGES": 4, "CTAS": 5},
}


def recipe(row: MeasuredRow) -> Recipe | None:
    number, _, _ = row.step.partition(":")
    if number == "1":
        defines = _defines(row, _FFMA_SIZES)
        return Recipe(CUDA / "fast_cu_article_ffma.cu", defines, ("-O3",), "ffma_gemm")
    if number in _LIBRARY_STEPS:
        return _of_the_library(row, _LIBRARY_STEPS[number])
    if number not in _STEPS:
        return None
    sizes = zip(_SIZES, row.find_template_parameters()[: len(_SIZES)], strict=True)
    features = zip(("CLUSTER", "KEEP", "STORE", "CURVE"), _STEPS[number], strict=True)
    defines = tuple(f"{name}={value}" for name, value in (*sizes, *features))
    buffers = {_TABLE: _tiles_along_curve(row)} if _STEPS[number][_CURVE] else {}
    return Recipe(CUDA / "fast_cu_article_wgmma.cu", defines, (), "wgmma_gemm", buffers)


def _of_the_library(row: MeasuredRow, places: dict[str, int]) -> Recipe:
    absent = tuple(f"{name}=0" for name in ("STAGES", "CTAS") if name not in places)
    defines = (*_defines(row, places), *absent)
    return Recipe(CUDA / "fast_cu_article_library.cu", defines, ("-O3", "-std=c++17"), "library_gemm")


def _defines(row: MeasuredRow, places: dict[str, int]) -> tuple[str, ...]:
    template = row.find_template_parameters()
    return tuple(f"{name}={template[place]}" for name, place in places.items())


def _tiles_along_curve(row: MeasuredRow) -> NDArray[np.int32]:
    """Return the tiles of each CTA as row << 16 | column, then -1, in Hilbert order of pairs of tiles.

    A cluster of two CTAs takes two tiles above each other; a step of the curve is one such pair.
    """
    tile_m, tile_n = (int(size) for size in row.find_template_parameters()[:2])
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
    """Return the position of a step on Hilbert's curve through a square whose side is a power of two."""
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
