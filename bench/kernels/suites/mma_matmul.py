"""FP16 GEMM with mma.sync, all row-major, in six steps: mma_matmul_*.cu."""

from kernels.recipes import CUDA, MeasuredRow, Recipe

# By step: source, entry, defines.
_STEPS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "1.0": ("1_plain", "mma_plain", ("TILES=1",)),
    "1.1": ("1_plain", "mma_plain", ("TILES=2",)),
    "2.0": ("2_permuted", "mma_permuted", ("KEEP_A=0",)),
    "2.1": ("2_permuted", "mma_permuted", ("KEEP_A=1",)),
    "3.0": ("3_stages", "mma_stages", ("TILES=2", "STAGES=3")),
    "3.1": ("3_stages", "mma_stages", ("TILES=4", "STAGES=3")),
}


def recipe(row: MeasuredRow) -> Recipe | None:
    number, _, _ = row.step.partition(":")
    if number not in _STEPS:
        return None
    stem, kernel, defines = _STEPS[number]
    return Recipe(CUDA / f"mma_matmul_{stem}.cu", defines, (), kernel)
