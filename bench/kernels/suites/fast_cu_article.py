"""BF16 GEMM with WGMMA and TMA: fast_cu_article_wgmma.cu, steps 7 to 11.

Not covered: step 1 (FFMA), and 2 to 6, whose barriers are the C++ library's. The table has no counts of
steps 7 to 11: registers, shared memory and what the README tells are all that they were written to.
"""

from kernels.recipes import CUDA, Recipe, Row

_SIZES = ("BM", "BN", "BK", "THREADS", "STAGES", "CTAS")
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
    return Recipe(CUDA / "fast_cu_article_wgmma.cu", defines, (), "wgmma_gemm")
