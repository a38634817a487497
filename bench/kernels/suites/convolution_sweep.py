"""Direct 2-D convolution as in `convolution`, configurations of a whole sweep (`kernels/sweeps.py`)."""

from kernels.recipes import MeasuredRow, Recipe
from kernels.suites.convolution import convolution


def recipe(row: MeasuredRow) -> Recipe:
    """One build for each configuration."""
    return convolution(row, filter_size=row.find_integer_parameter("filter_width"))
