"""The cross-GPU report's kernels: they lie among the shipped dumps' sources, one file for all.

`matmul_tiled` does not agree: its moves, 6 % of its instructions, differ by a quarter, in whatever form its
loop and its guards are written.
"""

from kernels.recipes import ROOT, MeasuredRow, Recipe

SOURCE = ROOT / "traces" / "cuda" / "report16.cu"


def recipe(row: MeasuredRow) -> Recipe:
    """A step is the kernel's name; sizes are arguments, so one build serves all rows of a GPU."""
    return Recipe(SOURCE, (), ("-O3",), row.step)
