"""What a task asks of each pipe, in the order of the columns of `TaskTable.demand`."""

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Pipe(IntEnum):
    """Columns of a task's demand."""

    TENSOR = 0  # operations; a multiply and an add are two
    FMA = 1  # instructions of one lane
    XU = 2  # likewise
    LOADS = 3  # bytes loaded from global memory, in or out of a cache


def stack_demand(
    tensor: ArrayLike, fma: ArrayLike, xu: ArrayLike, load_bytes: ArrayLike
) -> NDArray[np.float64]:
    """Return tasks x pipes from a column or a number for each pipe."""
    columns = np.broadcast_arrays(tensor, fma, xu, load_bytes)
    return np.stack(columns, axis=-1).astype(np.float64)
