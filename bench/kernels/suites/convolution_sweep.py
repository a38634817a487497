"""Direct 2-D convolution as in `convolution`: a sample of a whole sweep (`kernels/sweeps.py`)."""

from kernels.recipes import MeasuredRow, Recipe
from kernels.suites.convolution import convolution


def recipe(row: MeasuredRow) -> Recipe:
    """Return the build of the row's configuration."""
    return convolution(row, filter_size=row.find_integer_parameter("filter_width"))
