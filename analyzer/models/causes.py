"""Why a walked warp waits before an instruction."""

from enum import IntEnum

from analyzer.demand.costs import PIPE_INDEX, PIPES
from analyzer.ir.machine import Pipe
from analyzer.models.base import Stall


class Cause(IntEnum):
    """Why a warp waits before an instruction; column of `WarpWalk.waits`."""

    WAIT = 0
    SHORT = 1
    LONG = 2
    MATH = 3
    MEMORY_PIPE = 4
    BARRIER = 5
    GMMA = 6
    BRANCH = 7
    DISPATCH = 8  # operands that lie in one bank of the register file


N_CAUSES = len(Cause)
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
PORTS = len(PIPES)  # of the register file: a number among those of the pipes
# Cause of waiting for a pipe; for those that are not named, the memory pipes.
PIPE_CAUSE = {PIPE_INDEX[pipe]: Cause.MATH for pipe in _MATH_PIPES} | {
    PIPE_INDEX[Pipe.CBU]: Cause.BRANCH,
    PORTS: Cause.DISPATCH,
}
STALL_OF = {
    Cause.WAIT: Stall.WAIT,
    Cause.SHORT: Stall.SHORT_SCOREBOARD,
    Cause.LONG: Stall.LONG_SCOREBOARD,
    Cause.MATH: Stall.MATH_PIPE_THROTTLE,
    Cause.MEMORY_PIPE: Stall.MIO_THROTTLE,
    Cause.BARRIER: Stall.BARRIER,
    Cause.GMMA: Stall.GMMA,
    Cause.BRANCH: Stall.BRANCH_RESOLVING,
    Cause.DISPATCH: Stall.DISPATCH_STALL,
}
