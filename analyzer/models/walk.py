"""One warp walked through the code in order: where it waits, for how long, and for whom.

With control codes the compiler's own stall counts and scoreboards say it; without, register latencies do.
Blocks are walked in address order; an innermost loop is walked twice, and the second time counts, since
by then what it carries from one iteration to the next has settled.
"""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from analyzer.demand.costs import PIPE_INDEX, FloatArray, OpcodeCosts
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest
from analyzer.ir.machine import Pipe, SchedClass
from analyzer.ir.opcode import Opcode, Semantics
from analyzer.ir.operand import Barrier, Immediate
from analyzer.ir.program import Kernel
from analyzer.isa.control_bits import NO_BARRIER, decode_columns
from analyzer.isa.roles import STORAGE_SIZE
from analyzer.models.base import Stall

# Cycles from issue until a memory instruction has read its registers (RTX A6000, LDG and STS, source S9).
READ_RELEASE_CYCLES = 11.0
_MATH_PIPES = frozenset(
    PIPE_INDEX[p]
    for p in (
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
)
_TENSOR = PIPE_INDEX[Pipe.TENSOR]


class Cause(IntEnum):
    """Why a warp waits before an instruction; column of `WarpWalk.waits`."""

    WAIT = 0
    SHORT = 1
    LONG = 2
    MATH = 3
    MEMORY_PIPE = 4
    BARRIER = 5
    GMMA = 6


N_CAUSES = len(Cause)
STALL_OF = {
    Cause.WAIT: Stall.WAIT,
    Cause.SHORT: Stall.SHORT_SCOREBOARD,
    Cause.LONG: Stall.LONG_SCOREBOARD,
    Cause.MATH: Stall.MATH_PIPE_THROTTLE,
    Cause.MEMORY_PIPE: Stall.MIO_THROTTLE,
    Cause.BARRIER: Stall.BARRIER,
    Cause.GMMA: Stall.GMMA,
}


@dataclass(frozen=True, slots=True, eq=False)
class WarpWalk:
    """Cycles that each instruction waits before it issues: waits[n, cause]; producer[n] is the row of
    the instruction whose scoreboard it waits for, -1 for none.
    """

    waits: FloatArray
    producer: "np.ndarray[tuple[int], np.dtype[np.int32]]"

    def stack(self, weights: FloatArray, longer_cycles: float = 0.0) -> dict[Stall, float]:
        """Cycles of one warp by stall, instructions weighted by how often they run.

        longer_cycles: what each wait for memory takes more (or less) than in the walk.
        """
        totals = weights @ self.waits
        if longer_cycles:
            long_waits = self.waits[:, Cause.LONG]
            moved = np.where(long_waits > 0, np.maximum(long_waits + longer_cycles, 0.0), 0.0)
            totals[Cause.LONG] = weights @ moved
        stack = {Stall.SELECTED: float(weights.sum())}
        for cause, stall in STALL_OF.items():
            stack[stall] = float(totals[cause])
        return {stall: cycles for stall, cycles in stack.items() if cycles > 0}


def walk_warp(
    kernel: Kernel, cfg: Cfg, nest: LoopNest, costs: OpcodeCosts, memory_latency_cycles: float
) -> WarpWalk:
    """Walk one warp; loads from global memory take `memory_latency_cycles`."""
    walker = _Walker(kernel, costs, memory_latency_cycles)
    for blocks, times in _visits(cfg, nest):
        for _ in range(times):
            for block in blocks:
                walker.block(cfg.blocks[block].start, cfg.blocks[block].stop)
    return walker.result()


def _visits(cfg: Cfg, nest: LoopNest) -> list[tuple[list[int], int]]:
    """Runs of blocks in address order and how often to walk each: innermost loops twice."""
    inner = {loop.index for loop in nest.loops} - {loop.parent for loop in nest.loops}
    visits: list[tuple[list[int], int]] = []
    current: int | None = None
    for block in range(len(cfg.blocks)):
        loop = nest.loop_of[block]
        key = loop if loop in inner else None
        if visits and key == current:
            visits[-1][0].append(block)
        else:
            visits.append(([block], 1 if key is None else 2))
            current = key
    return visits


@dataclass(slots=True)
class _Scoreboard:
    """A counter that instructions raise at issue and lower when done."""

    ready: float = 0.0
    cause: int = Cause.SHORT
    producer: int = -1
    pending: list[float] = field(default_factory=list)


class _Walker:
    """State of the warp: time, scoreboards, pipes; the lists hold one entry per instruction."""

    def __init__(self, kernel: Kernel, costs: OpcodeCosts, memory_latency_cycles: float) -> None:
        n = len(kernel)
        ids = kernel.opcode_ids
        latency = np.where(costs.is_memory_load, memory_latency_cycles, costs.latency_cycles)
        self.kernel = kernel
        self.latency: list[float] = latency[ids].tolist()
        self.issue: list[float] = costs.issue_cycles[ids].tolist()
        self.pipe: list[int] = costs.pipe[ids].tolist()
        self.alternate: list[int] = costs.alternate[ids].tolist()
        self.is_long: list[bool] = costs.is_long[ids].tolist()
        # Most instructions wait for nothing but their stall count: the rest is kept by row.
        self.stalled = [0.0] * n
        self.waits: dict[int, list[float]] = {}
        self.pipe_waits: dict[int, float] = {}
        self.producer = [-1] * n
        self.special = _special_rows(kernel)
        self.time = 0.0
        self.pipe_free = [0.0] * len(PIPE_INDEX)
        self.scoreboards = [_Scoreboard() for _ in range(8)]
        self.register_ready = [0.0] * STORAGE_SIZE
        self.register_writer = [-1] * STORAGE_SIZE
        if kernel.control_words is not None:
            control = decode_columns(kernel.control_words)
            self.stall: list[int] = np.maximum(control.stall_cycles, 1).tolist()
            self.write_barrier: list[int] = control.write_barrier.tolist()
            self.read_barrier: list[int] = control.read_barrier.tolist()
            self.wait_mask: list[int] = control.wait_mask.tolist()
            self.block = self._controlled_block
        else:
            self.block = self._register_block

    def result(self) -> WarpWalk:
        """The waits of each instruction at its last visit."""
        waits = np.zeros((len(self.stalled), N_CAUSES))
        for row, causes in self.waits.items():
            waits[row] = causes
        waits[:, Cause.WAIT] += self.stalled
        for row, cycles in self.pipe_waits.items():
            pipe = Cause.MATH if self.pipe[row] in _MATH_PIPES else Cause.MEMORY_PIPE
            waits[row, pipe] += cycles
        return WarpWalk(waits, np.array(self.producer, dtype=np.int32))

    def _controlled_block(self, start: int, stop: int) -> None:
        boards, special = self.scoreboards, self.special
        time = self.time
        for row in range(start, stop):
            mask = self.wait_mask[row]
            if mask or row in special:
                causes = self.waits[row] = [0.0] * N_CAUSES
                if mask:
                    time = self._wait_boards(row, mask, time, causes)
                if row in special:
                    time = self._wait_special(row, time, causes)
            time = self._take_pipe(row, time)
            barrier = self.write_barrier[row]
            if barrier != NO_BARRIER:
                cause = Cause.LONG if self.is_long[row] else Cause.SHORT
                _raise(boards[barrier], time + self.latency[row], cause, row)
            barrier = self.read_barrier[row]
            if barrier != NO_BARRIER:
                cause = Cause.LONG if self.is_long[row] else Cause.SHORT
                _raise(boards[barrier], time + READ_RELEASE_CYCLES, cause, row)
            stall = self.stall[row]
            self.stalled[row] = stall - 1.0
            time += stall
        self.time = time

    def _register_block(self, start: int, stop: int) -> None:
        """Without control codes: an instruction issues when its registers are there, one a cycle."""
        ready, writer = self.register_ready, self.register_writer
        for row in range(start, stop):
            form = self.kernel.form(row)
            time, causes = self.time, [0.0] * N_CAUSES
            for number in form.read:
                if ready[number] > time:
                    causes[self._register_cause(writer[number])] += ready[number] - time
                    time = ready[number]
                    self.producer[row] = writer[number]
            if row in self.special:
                time = self._wait_special(row, time, causes)
            self.waits[row] = causes
            time = self._take_pipe(row, time)
            for number in form.written:
                ready[number] = time + self.latency[row]
                writer[number] = row
            self.time = time + 1.0

    def _register_cause(self, producer: int) -> Cause:
        if self.is_long[producer]:
            return Cause.LONG
        return Cause.SHORT if self.pipe[producer] not in _MATH_PIPES else Cause.WAIT

    def _wait_boards(self, row: int, mask: int, time: float, causes: list[float]) -> float:
        for number in range(6):
            board = self.scoreboards[number]
            if mask >> number & 1 and board.ready > time:
                causes[board.cause] += board.ready - time
                self.producer[row] = board.producer
                time = board.ready
        return time

    def _take_pipe(self, row: int, time: float) -> float:
        pipe, free = self.pipe[row], self.pipe_free
        other = self.alternate[row]
        if other >= 0 and free[other] < free[pipe]:
            pipe = other
        if free[pipe] > time:
            self.pipe_waits[row] = free[pipe] - time
            time = free[pipe]
        elif row in self.pipe_waits:  # of an earlier visit
            del self.pipe_waits[row]
        free[pipe] = time + self.issue[row]
        return time

    def _wait_special(self, row: int, time: float, causes: list[float]) -> float:
        special = self.special[row]
        if special.barrier_cycles:
            causes[Cause.BARRIER] = special.barrier_cycles
            return time + special.barrier_cycles
        if special.waits_warpgroup:
            done = self.pipe_free[_TENSOR]
            causes[Cause.GMMA] = max(0.0, done - time)
            return max(time, done)
        board = self.scoreboards[special.scoreboard]
        keep = special.outstanding
        pending = board.pending[: len(board.pending) - keep] if keep else board.pending
        done = max(pending, default=0.0)
        if done > time:
            causes[board.cause] += done - time
            self.producer[row] = board.producer
        return max(time, done)


@dataclass(frozen=True, slots=True)
class _Special:
    """What an instruction waits for beside its wait mask."""

    scoreboard: int = -1
    outstanding: int = 0
    waits_warpgroup: bool = False
    barrier_cycles: float = 0.0


# A CTA barrier costs some 20 cycles and two per warp (B300, source S7); warps arrive together here.
_BARRIER_CYCLES = 20.0
_MAX_PENDING = 64


def _special_rows(kernel: Kernel) -> dict[int, _Special]:
    rows = np.flatnonzero(kernel.vocabulary.mask(_is_special)[kernel.opcode_ids]).tolist()
    found: dict[int, _Special] = {}
    for row in rows:
        special = _special(kernel, row)
        if special is not None:
            found[row] = special
    return found


def _is_special(opcode: Opcode) -> bool:
    waits = opcode.semantics in {Semantics.WAIT_SCOREBOARD, Semantics.WAIT_WARPGROUP}
    return waits or opcode.sched is SchedClass.CTA_BARRIER


def _special(kernel: Kernel, row: int) -> _Special | None:
    form = kernel.form(row)
    opcode = form.opcode
    if opcode.sched is SchedClass.CTA_BARRIER:
        return None if "ARV" in opcode.modifiers else _Special(barrier_cycles=_BARRIER_CYCLES)
    if opcode.semantics is Semantics.WAIT_WARPGROUP:
        return _Special(waits_warpgroup=True) if "DEPBAR" in opcode.modifiers else None
    boards = [o for o in form.operands if isinstance(o, Barrier) and o.file == "SB"]
    counts = [o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int)]
    if not boards:
        return None
    return _Special(scoreboard=boards[0].index % 8, outstanding=counts[0] if counts else 0)


def _raise(board: _Scoreboard, done: float, cause: int, row: int) -> None:
    board.pending.append(done)
    if len(board.pending) > _MAX_PENDING:
        del board.pending[0]
    if done >= board.ready:
        board.ready, board.cause, board.producer = done, cause, row
