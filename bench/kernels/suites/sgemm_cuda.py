"""FP32 GEMM in nine classical steps: sgemm_cuda_*.cu."""

from kernels.recipes import CUDA, MeasuredRow, Recipe

_TILES = ("BM", "BN", "BK", "TM", "TN")
# By step: source, entry, macros of the template's parameters, further defines.
_STEPS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "1": ("1_naive", "sgemm_naive", (), ()),
    "2": ("2_coalesced", "sgemm_coalesced", ("TILE",), ()),
    "3": ("3_shared", "sgemm_shared", ("TILE",), ()),
    "4": ("4_column_results", "sgemm_column_results", ("BM", "BN", "BK", "TM"), ()),
    "5": ("5_block_results", "sgemm_block_results", _TILES, ()),
    "6": ("6_vector_loads", "sgemm_vector_loads", _TILES, ("B_LAYOUT=0", "PADDING=0")),
    "7": ("6_vector_loads", "sgemm_vector_loads", _TILES, ("B_LAYOUT=1",)),
    "8": ("6_vector_loads", "sgemm_vector_loads", _TILES, ("B_LAYOUT=2", "PADDING=5")),
    "9": ("9_tuned", "sgemm_tuned", _TILES, ("THREADS=256",)),
}


def recipe(row: MeasuredRow) -> Recipe | None:
    number, _, _ = row.step.partition(":")
    if number not in _STEPS:
        return None
    stem, kernel, names, further = _STEPS[number]
    sizes = tuple(
        f"{name}={value}" for name, value in zip(names, row.find_template_parameters(), strict=True)
    )
    return Recipe(CUDA / f"sgemm_cuda_{stem}.cu", sizes + further, (), kernel)
