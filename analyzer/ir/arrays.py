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


def order_by_first_place(ids: NDArray[Any], n: int) -> IntArray:
    """Return the distinct ids, each below `n`, in the order in which they first occur.

    Sums over them do not depend on how ids are numbered.

    >>> order_by_first_place(np.array([7, 2, 7, 0]), 8).tolist()
    [7, 2, 0]
    """
    first = np.full(n, len(ids), dtype=np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # of equal ids the last assignment holds
    used = np.flatnonzero(first < len(ids))
    return used[np.argsort(first[used])]
