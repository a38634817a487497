"""Direct 2-D convolution as in `convolution`, configurations of a whole sweep (`kernels/sweeps.py`)."""

from kernels.recipes import Recipe, Row
from kernels.suites.convolution import convolution


def recipe(row: Row) -> Recipe:
    """One build for each configuration."""
    return convolution(row, filter_size=row.integer("filter_width"))
