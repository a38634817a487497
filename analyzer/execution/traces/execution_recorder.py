"""Interface of recorders: calls that a machine makes for each run of instructions, access and guard."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

WarpArray = NDArray[np.int64]
LaneMaskArray = NDArray[np.bool_]
AddressArray = NDArray[np.uint64]


class ExecutionRecorder(Protocol):
    """Observer of execution, called in execution order.

    `warps` are distinct global warp numbers, CTA * warps_per_cta + warp; row i of `active` [n, 32] and
    `addresses` [n, 32] belongs to warps[i]. The caller must execute every iteration of a loop: loop
    acceleration would hide accesses. It may reuse arrays once a call returns.
    """

    def record_run(self, start: int, stop: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """Record that these warps run rows [start, stop) once; calls up to the next one are about this run.

        A block is one run, or several if warps may wait inside it.
        """
        ...

    def record_access(
        self, row: int, warps: WarpArray, active: LaneMaskArray, addresses: AddressArray
    ) -> None:
        """Record the addresses of a memory instruction, one in each active lane; others are ignored.

        An asynchronous copy (LDGSTS) is recorded shared side first, then global side, or global side only.
        """
        ...

    def record_guard(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """Record that a guard leaves only these of the run's lanes active at `row`; there may be none."""
        ...

    def record_unknown_access(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """Record that a memory instruction runs in these lanes, at unknown addresses."""
        ...
