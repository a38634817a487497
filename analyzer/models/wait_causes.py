"""Causes for which a simulated warp waits before an instruction, and the stalls that they are shown as."""

from enum import IntEnum

from analyzer.demand.opcode_costs import PIPE_INDEX, PIPES
from analyzer.ir.scheduling import Pipe
from analyzer.models.interface import Stall


class WaitCause(IntEnum):
    """Cause of a wait before an instruction; column of `WarpTimeline.waits`."""

    WAIT = 0
    SHORT_SCOREBOARD = 1
    LONG_SCOREBOARD = 2
    MATH_PIPE = 3
    MEMORY_PIPE = 4
    BARRIER = 5
    GMMA = 6
    BRANCH_RESOLVING = 7
    DISPATCH = 8  # operands in the same bank of the register file
    MEMBAR = 9  # stores on their way to the L2 or beyond


N_WAIT_CAUSES = len(WaitCause)
_MATH_PIPES = (
    Pipe.ALU,
    Pipe.FMA,
    Pipe.FMALITE,
    Pipe.FP16,
    Pipe.FP64,
    Pipe.XU,
    Pipe.TENSOR,
    Pipe.TC,
    Pipe.UNIFORM,
)
REGISTER_PORTS_INDEX = len(PIPES)  # read ports of the register file, counted as one more pipe
# Cause of a wait for a pipe; pipes that are not listed are memory pipes.
WAIT_CAUSE_BY_PIPE = {PIPE_INDEX[pipe]: WaitCause.MATH_PIPE for pipe in _MATH_PIPES} | {
    PIPE_INDEX[Pipe.CBU]: WaitCause.BRANCH_RESOLVING,
    REGISTER_PORTS_INDEX: WaitCause.DISPATCH,
}
STALL_BY_CAUSE = {
    WaitCause.WAIT: Stall.WAIT,
    WaitCause.SHORT_SCOREBOARD: Stall.SHORT_SCOREBOARD,
    WaitCause.LONG_SCOREBOARD: Stall.LONG_SCOREBOARD,
    WaitCause.MATH_PIPE: Stall.MATH_PIPE_THROTTLE,
    WaitCause.MEMORY_PIPE: Stall.MIO_THROTTLE,
    WaitCause.BARRIER: Stall.BARRIER,
    WaitCause.GMMA: Stall.GMMA,
    WaitCause.BRANCH_RESOLVING: Stall.BRANCH_RESOLVING,
    WaitCause.MEMBAR: Stall.MEMBAR,
    WaitCause.DISPATCH: Stall.DISPATCH_STALL,
}
