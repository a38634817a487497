"""Element types of the arrays that the package passes around, each under one name."""

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IdArray = NDArray[np.int32]  # indices into a table, kept small
Addresses = NDArray[np.uint64]
