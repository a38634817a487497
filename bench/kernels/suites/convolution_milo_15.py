"""Direct 2-D convolution with a 15 x 15 filter: as `convolution`, measured on other GPUs."""

from kernels.recipes import MeasuredRow, Recipe
from kernels.suites.convolution import convolution


def recipe(row: MeasuredRow) -> Recipe:
    """Return the build of the row's configuration."""
    return convolution(row, filter_size=15, zero_outside=True)
