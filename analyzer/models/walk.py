"""Warps of one sub-core walked through the code in order: where they wait, for how long, and for whom.

With control codes the compiler's own stall counts and scoreboards say it; without, register latencies do.
Blocks are walked in address order; an innermost loop is walked until an iteration takes as long as the one
before, and the last one counts. Several warps go in lockstep, one instruction after another, so that they
queue for the pipes and meet at barriers. Since that order is fixed, every time is a sum or a maximum of
figures: none that improves makes a walk longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from analyzer.demand.costs import PIPE_INDEX, FloatArray, OpcodeCosts
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest
from analyzer.ir.machine import Pipe, SchedClass
from analyzer.ir.opcode import Opcode, Semantics
from analyzer.ir.operand import Barrier, Immediate
from analyzer.ir.program import InstructionForm, Kernel
from analyzer.isa.control_bits import NO_BARRIER, decode_columns
from analyzer.isa.roles import STORAGE_SIZE
from analyzer.models.base import Stall

_SETTLED_CYCLES = 1e-6


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


N_CAUSES = len(Cause)
# Cause of waiting for a pipe; for those that are not named, the memory pipes.
_PIPE_CAUSE = {
    **dict.fromkeys(
        (
            PIPE_INDEX[pipe]
            for pipe in (
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
        ),
        Cause.MATH,
    ),
    PIPE_INDEX[Pipe.CBU]: Cause.BRANCH,
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
}


@dataclass(frozen=True, slots=True, eq=False)
class WarpWalk:
    """Cycles that each instruction waits before it issues, the mean of its executions: waits[n, cause];
    producer[n] is the row of the instruction whose scoreboard it waits for, -1 for none.
    """

    waits: FloatArray
    producer: "np.ndarray[tuple[int], np.dtype[np.int32]]"

    def stack(self, weights: FloatArray) -> dict[Stall, float]:
        """Cycles of one warp by stall, instructions weighted by how often they run."""
        totals = weights @ self.waits
        stack = {Stall.SELECTED: float(weights.sum())}
        for cause, stall in STALL_OF.items():
            stack[stall] = float(totals[cause])
        return {stall: cycles for stall, cycles in stack.items() if cycles > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """Latencies in cycles: of loads from global memory, and until a memory instruction has read its
    registers.

    weights[n]: how often each instruction runs; row_latencies: of loads whose own latency is known, by row;
    warps: how many go in lockstep; visits: how often an innermost loop is walked at most.
    """

    weights: FloatArray
    memory_latency_cycles: float
    read_release_cycles: float
    row_latencies: Mapping[int, float] = field(default_factory=dict)
    warps: int = 1
    visits: int = 2


def walk_warps(
    kernel: Kernel, cfg: Cfg, nest: LoopNest, costs: OpcodeCosts, options: WalkOptions
) -> WarpWalk:
    """Walk them; waits are the mean of all.

    A loop's iterations beyond those walked take as long as the last one. A block that runs in a part of its
    loop's iterations takes that part of its time in each. So the waits, each as often as its instruction
    runs, sum to the time of the last instruction.
    """
    code = _Code(kernel, costs, options)
    pipe_free = [0.0] * len(PIPE_INDEX)
    warps = [_Warp(code, pipe_free) for _ in range(options.warps)]
    for run in block_runs(cfg, nest):
        runs = [float(options.weights[cfg.blocks[b].start]) for b in run.blocks]
        times = max(runs)
        if times <= 0:
            continue
        visits = 1 if run.loop is None else max(1, min(options.visits, int(times)))
        shares = [count / max(times, 1.0) for count in runs]
        blocks = [
            _Stretch(cfg.blocks[b].start, cfg.blocks[b].stop, share)
            for b, share in zip(run.blocks, shares, strict=True)
            if share > 0
        ]
        _repeat(warps, blocks, visits, max(times, 1.0))
    return _mean([warp.result(options.weights) for warp in warps])


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Rows [start, stop), and the part of the visits in which they run."""

    start: int
    stop: int
    share: float


def _repeat(warps: "list[_Warp]", blocks: list[_Stretch], visits: int, times: float) -> None:
    """Walk blocks so often; the times that are left take as long as the last one."""
    before = 0.0
    for visit in range(1, visits + 1):
        start = warps[0].time
        _walk(warps, blocks)
        taken = warps[0].time - start
        is_last = visit == visits or abs(taken - before) < _SETTLED_CYCLES
        left = times - visit if is_last else 0.0
        for warp in warps:
            warp.account(1.0 + left)
        if is_last:
            _skip(warps, left * taken)
            return
        before = taken


def _skip(warps: "list[_Warp]", cycles: float) -> None:
    """So many cycles later everything stands as it does now."""
    if cycles:
        warps[0].pipe_free[:] = [free + cycles for free in warps[0].pipe_free]
        for warp in warps:
            warp.skip(cycles)


def _walk(warps: "list[_Warp]", blocks: list[_Stretch]) -> None:
    for block in blocks:
        for warp in warps:
            warp.share = block.share
        if len(warps) == 1:
            warps[0].block(block.start, block.stop)
            continue
        for row in range(block.start, block.stop):
            for warp in warps:
                warp.block(row, row + 1)
            if row in warps[0].code.barriers:
                _meet(warps, row)


def _meet(warps: "list[_Warp]", row: int) -> None:
    """All leave a barrier when the last has come; each has waited for its latency already."""
    last = max(warp.time for warp in warps)
    for warp in warps:
        late = last - warp.time
        warp.waits[row][Cause.BARRIER] += late
        warp.time += warp.share * late


def _mean(walks: list[WarpWalk]) -> WarpWalk:
    if len(walks) == 1:
        return walks[0]
    return WarpWalk(np.mean([walk.waits for walk in walks], axis=0), walks[0].producer)


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks in address order: those of one innermost loop, or one block outside of any."""

    blocks: tuple[int, ...]
    loop: int | None


def block_runs(cfg: Cfg, nest: LoopNest) -> tuple[BlockRun, ...]:
    """All blocks as runs."""
    inner = {loop.index for loop in nest.loops} - {loop.parent for loop in nest.loops}
    runs: list[list[int]] = []
    loops: list[int | None] = []
    for block in range(len(cfg.blocks)):
        loop = nest.loop_of[block]
        key = loop if loop in inner else None
        if runs and key is not None and key == loops[-1]:
            runs[-1].append(block)
        else:
            runs.append([block])
            loops.append(key)
    return tuple(BlockRun(tuple(run), loop) for run, loop in zip(runs, loops, strict=True))


@dataclass(slots=True)
class _Scoreboard:
    """A counter that instructions raise at issue and lower when done."""

    ready: float = 0.0
    cause: int = Cause.SHORT
    producer: int = -1
    pending: list[float] = field(default_factory=list)


class _Code:
    """What the walk asks of each instruction; the lists hold one entry per row."""

    def __init__(self, kernel: Kernel, costs: OpcodeCosts, options: WalkOptions) -> None:
        ids = kernel.opcode_ids
        latency = np.where(costs.is_memory_load, options.memory_latency_cycles, costs.latency_cycles)
        self.kernel = kernel
        self.read_release = options.read_release_cycles
        self.latency: list[float] = latency[ids].tolist()
        for row in options.row_latencies.keys() & set(np.flatnonzero(costs.is_memory_load[ids]).tolist()):
            self.latency[row] = options.row_latencies[row]
        self.issue: list[float] = costs.issue_cycles[ids].tolist()
        self.matrix: list[float] = costs.matrix_cycles[ids].tolist()
        self.pipe: list[int] = costs.pipe[ids].tolist()
        self.alternate: list[int] = costs.alternate[ids].tolist()
        self.is_long: list[bool] = costs.is_long[ids].tolist()
        self.special = _special_rows(kernel, self.latency)
        self.group_ends = _group_ends(kernel)
        self.barriers = frozenset(row for row, special in self.special.items() if special.barrier_cycles)
        self.has_control = kernel.control_words is not None
        if kernel.control_words is not None:
            control = decode_columns(kernel.control_words)
            self.stall: list[int] = np.maximum(control.stall_cycles, 1).tolist()
            self.write_barrier: list[int] = control.write_barrier.tolist()
            self.read_barrier: list[int] = control.read_barrier.tolist()
            self.wait_mask: list[int] = control.wait_mask.tolist()


class _Warp:
    """State of a warp: time and scoreboards; `pipe_free` is shared by all of the sub-core.

    share: of its time that each instruction takes, while a block is walked that does not always run.
    """

    def __init__(self, code: _Code, pipe_free: list[float]) -> None:
        self.code = code
        n = len(code.latency)
        # Most instructions wait for nothing but their stall count: the rest is kept by row.
        self.waits: dict[int, list[float]] = {}
        self.pipe_waits: dict[int, float] = {}
        self.shares: dict[int, float] = {}
        self.totals = np.zeros((n, N_CAUSES))
        self.producer = [-1] * n
        self.time = 0.0
        self.share = 1.0
        self.matrix_done = 0.0
        self.matrix_groups: list[float] = []
        self.pipe_free = pipe_free
        self.scoreboards = [_Scoreboard() for _ in range(8)]
        self.register_ready = [0.0] * STORAGE_SIZE
        self.register_writer = [-1] * STORAGE_SIZE
        self.block = self._controlled_block if code.has_control else self._register_block

    def account(self, times: float) -> None:
        """Add up the waits of a visit, so often."""
        shares = self.shares
        for row, causes in self.waits.items():
            self.totals[row] += np.multiply(causes, times * shares[row])
        for row, cycles in self.pipe_waits.items():
            cause = _PIPE_CAUSE.get(self.code.pipe[row], Cause.MEMORY_PIPE)
            self.totals[row, cause] += cycles * times * shares[row]
        self.waits.clear()
        self.pipe_waits.clear()

    def skip(self, cycles: float) -> None:
        """Move everything that is to come, pipes aside."""
        self.time += cycles
        self.matrix_done += cycles
        self.matrix_groups = [done + cycles for done in self.matrix_groups]
        self.register_ready = [ready + cycles for ready in self.register_ready]
        for board in self.scoreboards:
            board.ready += cycles
            board.pending = [done + cycles for done in board.pending]

    def result(self, weights: FloatArray) -> WarpWalk:
        """The waits of each instruction, the mean of its executions."""
        executed = np.where(weights > 0, weights, 1.0)[:, None]
        waits = self.totals / executed
        if self.code.has_control:
            waits[:, Cause.WAIT] += np.where(weights > 0, np.array(self.code.stall) - 1.0, 0.0)
        return WarpWalk(waits, np.array(self.producer, dtype=np.int32))

    def _controlled_block(self, start: int, stop: int) -> None:
        code, boards, share = self.code, self.scoreboards, self.share
        special, latency = code.special, code.latency
        time = self.time
        for row in range(start, stop):
            mask = code.wait_mask[row]
            if mask or row in special:
                causes = self.waits[row] = [0.0] * N_CAUSES
                self.shares[row] = share
                if mask:
                    time = self._wait_boards(row, mask, time, causes)
                if row in special:
                    time = self._wait_special(row, time, causes)
            time = self._take_pipe(row, time)
            barrier = code.write_barrier[row]
            if barrier != NO_BARRIER:
                cause = Cause.LONG if code.is_long[row] else Cause.SHORT
                _raise(boards[barrier], time + latency[row], cause, row)
            barrier = code.read_barrier[row]
            if barrier != NO_BARRIER:
                cause = Cause.LONG if code.is_long[row] else Cause.SHORT
                _raise(boards[barrier], time + code.read_release, cause, row)
            time += share * code.stall[row]
        self.time = time

    def _register_block(self, start: int, stop: int) -> None:
        """Without control codes: an instruction issues when its registers are there, one a cycle."""
        ready, writer, share = self.register_ready, self.register_writer, self.share
        for row in range(start, stop):
            form = self.code.kernel.form(row)
            time, causes = self.time, [0.0] * N_CAUSES
            for number in form.read:
                late = ready[number] - time
                if late > 0:
                    causes[self._register_cause(writer[number])] += late
                    time += share * late
                    self.producer[row] = writer[number]
            if row in self.code.special:
                time = self._wait_special(row, time, causes)
            self.waits[row] = causes
            self.shares[row] = share
            time = self._take_pipe(row, time)
            for number in form.written:
                ready[number] = time + self.code.latency[row]
                writer[number] = row
            self.time = time + share

    def _register_cause(self, producer: int) -> Cause:
        if self.code.is_long[producer]:
            return Cause.LONG
        return Cause.WAIT if _PIPE_CAUSE.get(self.code.pipe[producer]) is Cause.MATH else Cause.SHORT

    def _wait_boards(self, row: int, mask: int, time: float, causes: list[float]) -> float:
        for number in range(6):
            board = self.scoreboards[number]
            if mask >> number & 1 and board.ready > time:
                causes[board.cause] += board.ready - time
                self.producer[row] = board.producer
                time += self.share * (board.ready - time)
        return time

    def _take_pipe(self, row: int, time: float) -> float:
        if self.code.matrix[row]:
            self._queue_matrix(row, time)
            return time
        pipe, free = self.code.pipe[row], self.pipe_free
        other = self.code.alternate[row]
        if other >= 0 and free[other] < free[pipe]:
            pipe = other
        late = free[pipe] - time
        if late > 0:
            self.pipe_waits[row] = late
            self.shares[row] = self.share
            time += self.share * late
        free[pipe] = max(free[pipe], time) + self.share * self.code.issue[row]
        return time

    def _queue_matrix(self, row: int, time: float) -> None:
        """A warpgroup's product waits for the tensor core in a queue, and its warp goes on.

        How many fit there is not known: no limit is taken.
        """
        pipe, share = self.code.pipe[row], self.share
        done = max(self.pipe_free[pipe], self.matrix_done, time) + share * self.code.matrix[row]
        self.matrix_done = done
        self.pipe_free[pipe] = max(self.pipe_free[pipe], time) + share * self.code.issue[row]
        if row in self.code.group_ends:
            self.matrix_groups.append(done)
            del self.matrix_groups[:-_MAX_PENDING]

    def _wait_special(self, row: int, time: float, causes: list[float]) -> float:
        special = self.code.special[row]
        if special.barrier_cycles:
            causes[Cause.BARRIER] = special.barrier_cycles
            return time + self.share * special.barrier_cycles
        if special.waits_warpgroup:
            late = self._groups_done(special.outstanding) - time
            cause = Cause.GMMA
        else:
            board = self.scoreboards[special.scoreboard]
            ended = board.pending[: len(board.pending) - special.outstanding]
            late = max(ended, default=time) - time
            cause = Cause(board.cause)
            if late > 0:
                self.producer[row] = board.producer
        if late <= 0:
            return time
        causes[cause] += late
        return time + self.share * late

    def _groups_done(self, outstanding: int) -> float:
        """When at most so many of the warp's groups of products are left."""
        return max(self.matrix_groups[: len(self.matrix_groups) - outstanding], default=0.0)


@dataclass(frozen=True, slots=True)
class _Special:
    """What an instruction waits for beside its wait mask."""

    scoreboard: int = -1
    outstanding: int = 0
    waits_warpgroup: bool = False
    barrier_cycles: float = 0.0


_MAX_PENDING = 64
_GROUP_BARRIER = "gsb"


def _special_rows(kernel: Kernel, latency_cycles: list[float]) -> dict[int, _Special]:
    rows = np.flatnonzero(kernel.vocabulary.mask(_is_special)[kernel.opcode_ids]).tolist()
    found: dict[int, _Special] = {}
    for row in rows:
        special = _special(kernel, row, latency_cycles[row])
        if special is not None:
            found[row] = special
    return found


def _is_special(opcode: Opcode) -> bool:
    waits = opcode.semantics in {Semantics.WAIT_SCOREBOARD, Semantics.WAIT_WARPGROUP}
    return waits or opcode.sched is SchedClass.CTA_BARRIER


def _group_ends(kernel: Kernel) -> frozenset[int]:
    """Products with which a group ends: those that name the group barrier."""
    is_group = kernel.vocabulary.mask(lambda opcode: opcode.sched is SchedClass.MMA_WARPGROUP)
    rows = np.flatnonzero(is_group[kernel.opcode_ids]).tolist()
    return frozenset(row for row in rows if any(_is_group_barrier(o) for o in kernel.form(row).operands))


def _is_group_barrier(operand: object) -> bool:
    return isinstance(operand, Barrier) and operand.file == _GROUP_BARRIER


def _special(kernel: Kernel, row: int, latency_cycles: float) -> _Special | None:
    form = kernel.form(row)
    opcode = form.opcode
    if opcode.sched is SchedClass.CTA_BARRIER:
        return None if "ARV" in opcode.modifiers else _Special(barrier_cycles=latency_cycles)
    if opcode.semantics is Semantics.WAIT_WARPGROUP:
        return (
            _Special(waits_warpgroup=True, outstanding=_count(form)) if "DEPBAR" in opcode.modifiers else None
        )
    boards = [o for o in form.operands if isinstance(o, Barrier) and o.file == "SB"]
    if not boards:
        return None
    return _Special(scoreboard=boards[0].index % 8, outstanding=_count(form))


def _count(form: InstructionForm) -> int:
    """How many may be outstanding: the instruction's number, none where it names none."""
    numbers = (o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int))
    return next(numbers, 0)


def _raise(board: _Scoreboard, done: float, cause: int, row: int) -> None:
    board.pending.append(done)
    if len(board.pending) > _MAX_PENDING:
        del board.pending[0]
    if done >= board.ready:
        board.ready, board.cause, board.producer = done, cause, row
