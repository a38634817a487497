"""Comparison of two models: the stalls in which they differ, why, and at which instruction most."""

import numpy as np
from msgspec import Struct

from analyzer.models.interface import Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.stalls import STALL_INDEX

_MIN_DIFFERENCE_SHARE = 0.01

# How the interval models (amali, gcom, mdm) and the models of the longest bound treat each stall.
DIFFERENCE_REASON_BY_STALL = {
    Stall.LONG_SCOREBOARD: (
        "interval models charge a warp's own waits for loads here, queues beyond the L1 to mio_throttle; "
        "the others overlap both, and charge here what L2 or DRAM take longer"
    ),
    Stall.SHORT_SCOREBOARD: "waits for shared memory, of one warp or of warps in lockstep",
    Stall.MIO_THROTTLE: (
        "interval models add what queues at MSHRs, NoC and DRAM take beyond issue (AMALI equation 24); "
        "the others take the longer of waits and bytes, and charge queues at shared memory here"
    ),
    Stall.LG_THROTTLE: (
        "interval models add the L1's cycles of all resident warps, interval by interval (equations 11, 13)"
    ),
    Stall.MATH_PIPE_THROTTLE: (
        "interval models add the pipes' cycles of all resident warps, interval by interval (10, 12); "
        "the others let pipes work while warps wait, and charge only what a pipe takes longer"
    ),
    Stall.DISPATCH_STALL: "only `sm` knows of register banks, each of which gives one operand a cycle",
    Stall.TEX_THROTTLE: "interval models add the texture pipe's cycles of all resident warps (equation 10)",
    Stall.BRANCH_RESOLVING: "queues for the branch unit",
    Stall.BARRIER: "one warp meets nobody; warps in lockstep wait for the last",
    Stall.MEMBAR: "one warp walks to the L2 and back; `sm` adds the queue of the stores before",
    Stall.GMMA: "a warpgroup's products: by the tensor rate, or by lanes (equation 14)",
    Stall.WAIT: "the compiler's stall counts of the walked warp; roles and representative warp may differ",
    Stall.SELECTED: "instructions of the walked warp; roles and representative warp may differ",
    Stall.NOT_SELECTED: "issue slots of other resident warps that outlast the walked one",
    Stall.NO_INSTRUCTIONS: "AMALI's launch latency, its part of cold instruction lines (equations 27, 28)",
    Stall.IMC_MISS: "AMALI's launch latency, its part of cold constant lines (equations 27, 28)",
    Stall.IDLE: "AMALI's instruction divergence between sub-cores (equation 29)",
    Stall.LAUNCH: "launch overhead, and CTAs that are handed out more slowly than they run",
    Stall.DRAIN: "stores on their way when a warp ends",
}


class StallDifference(Struct, frozen=True, kw_only=True):
    """One stall in two models."""

    stall: Stall
    cycles: float
    other_cycles: float
    reason: str
    row: int | None  # instruction with the largest difference


def compare_results(result: ModelResult, other: ModelResult) -> tuple[StallDifference, ...]:
    """Return the stalls in which two models of one input differ by 1 % of the time, largest first.

    A model that knows no stalls is compared with none.
    """
    stack, other_stack = result.prediction.cpi_stack, other.prediction.cpi_stack
    if not stack or not other_stack:
        return ()
    min_difference_cycles = _MIN_DIFFERENCE_SHARE * max(result.prediction.cycles, other.prediction.cycles)
    found = []
    for stall in Stall:
        cycles, others = stack.get(stall, 0.0), other_stack.get(stall, 0.0)
        if abs(cycles - others) >= max(min_difference_cycles, 1e-9):
            found.append(
                StallDifference(
                    stall=stall,
                    cycles=cycles,
                    other_cycles=others,
                    reason=DIFFERENCE_REASON_BY_STALL[stall],
                    row=_find_worst_row(result, other, stall),
                )
            )
    return tuple(sorted(found, key=lambda one: -abs(one.cycles - one.other_cycles)))


def _find_worst_row(result: ModelResult, other: ModelResult, stall: Stall) -> int | None:
    if result.stalls is None or other.stalls is None:
        return None
    column = STALL_INDEX[stall]
    row_differences = np.abs(result.stalls.cycles[:, column] - other.stalls.cycles[:, column])
    row = int(np.argmax(row_differences))
    return row if row_differences[row] > 0 else None
