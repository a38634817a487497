"""How execution tells a listener what it runs."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

WarpArray = NDArray[np.int64]
LaneMaskArray = NDArray[np.bool_]
AddressArray = NDArray[np.uint64]


class ExecutionRecorder(Protocol):
    """Told of execution while it goes on.

    Calls come in execution order. `warps` are distinct global warp numbers, CTA * warps_per_cta + warp; row i
    of `active` [n, 32] and `addresses` [n, 32] belongs to warps[i]. A caller that closes loops in one step
    must not do so for warps that are recorded. Arrays may be reused by the caller once a call returns.
    """

    def record_run(self, start: int, stop: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """These warps run rows [start, stop) once; the calls up to the next one are about this run.

        A block is one run, or several where warps may wait inside it.
        """
        ...

    def record_access(
        self, row: int, warps: WarpArray, active: LaneMaskArray, addresses: AddressArray
    ) -> None:
        """The memory instruction at `row` touches one address in each active lane; others are ignored.

        Of an asynchronous copy (LDGSTS) tell the shared side first, then the global one, or that one only.
        """
        ...

    def record_guard(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """The instruction at `row` runs in these lanes of the run's only; none is allowed."""
        ...

    def record_unknown_access(self, row: int, warps: WarpArray, active: LaneMaskArray) -> None:
        """The memory instruction at `row` runs in these lanes, at addresses that nothing decides."""
        ...
