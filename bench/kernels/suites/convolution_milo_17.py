"""Direct 2-D convolution with a 17 x 17 filter: as `convolution`, measured on other GPUs."""

from kernels.recipes import MeasuredRow, Recipe
from kernels.suites.convolution import convolution


def recipe(row: MeasuredRow) -> Recipe:
    """Return the build of the row's configuration."""
    return convolution(row, filter_size=17)
