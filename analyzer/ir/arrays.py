"""Element types of the arrays that the package passes around, each under one name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
CountArray = NDArray[np.int64] | NDArray[np.float64]  # counts; floats if they may be too large for integers
BoolArray = NDArray[np.bool_]
IdArray = NDArray[np.int32]  # indices into a table, kept small
Addresses = NDArray[np.uint64]


def make_read_only(*arrays: NDArray[Any]) -> None:
    """Make arrays read-only, so that a frozen record that holds them cannot change."""
    for array in arrays:
        array.setflags(write=False)
