"""One warp on its way through the code: its clock, its scoreboards, and the pipes it shares.

With control codes the compiler's own stall counts and scoreboards say when an instruction issues; without,
register latencies do.
"""

import numpy as np
from msgspec import Struct, field

from analyzer.demand.costs import FloatArray, OpcodeCosts
from analyzer.ir.machine import SchedClass
from analyzer.ir.opcode import Opcode, Semantics
from analyzer.ir.operand import Barrier, Immediate
from analyzer.ir.program import InstructionForm, Kernel
from analyzer.isa.control_bits import NO_BARRIER, decode_columns
from analyzer.isa.roles import STORAGE_SIZE
from analyzer.models.causes import N_CAUSES, PIPE_CAUSE, Cause


class Scoreboard(Struct):
    """A counter that instructions raise at issue and lower when done."""

    ready: float = 0.0
    cause: int = Cause.SHORT
    producer: int = -1
    pending: list[float] = field(default_factory=list)


class Code:
    """What the walk asks of each instruction; the lists hold one entry per row."""

    def __init__(
        self, kernel: Kernel, costs: OpcodeCosts, latency_cycles: FloatArray, read_release_cycles: float
    ) -> None:
        ids = kernel.opcode_ids
        self.kernel = kernel
        self.read_release = read_release_cycles
        self.latency: list[float] = latency_cycles.tolist()
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


class Warp:
    """State of a warp: time and scoreboards; `pipe_free` is shared by all of the sub-core.

    share: of its time that each instruction takes, while a block is walked that does not always run.
    """

    def __init__(self, code: Code, pipe_free: list[float]) -> None:
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
        self.scoreboards = [Scoreboard() for _ in range(8)]
        self.register_ready = [0.0] * STORAGE_SIZE
        self.register_writer = [-1] * STORAGE_SIZE
        self.block = self._controlled_block if code.has_control else self._register_block

    def account(self, times: float) -> None:
        """Add up the waits of a visit, so often."""
        shares = self.shares
        if self.waits:
            taken = np.array([times * shares[row] for row in self.waits])
            self.totals[list(self.waits)] += np.array(list(self.waits.values())) * taken[:, None]
        for row, cycles in self.pipe_waits.items():
            cause = PIPE_CAUSE.get(self.code.pipe[row], Cause.MEMORY_PIPE)
            self.totals[row, cause] += cycles * times * shares[row]
        self.waits.clear()
        self.pipe_waits.clear()

    def waits_of(self, weights: FloatArray) -> FloatArray:
        """The waits of each instruction [n, cause], the mean of its executions."""
        executed = np.where(weights > 0, weights, 1.0)[:, None]
        waits: FloatArray = self.totals / executed
        if self.code.has_control:
            waits[:, Cause.WAIT] += np.where(weights > 0, np.array(self.code.stall) - 1.0, 0.0)
        return waits

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
        return Cause.WAIT if PIPE_CAUSE.get(self.code.pipe[producer]) is Cause.MATH else Cause.SHORT

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
        begin = free[pipe]
        if begin > time:
            self.pipe_waits[row] = late = begin - time
            self.shares[row] = self.share
            time += self.share * late
        if begin < time:
            begin = time
        free[pipe] = begin + self.share * self.code.issue[row]
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


class _Special(Struct, frozen=True):
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
    is_group = kernel.vocabulary.mask(_is_of_warpgroup)
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


def _raise(board: Scoreboard, done: float, cause: int, row: int) -> None:
    board.pending.append(done)
    if len(board.pending) > _MAX_PENDING:
        del board.pending[0]
    if done >= board.ready:
        board.ready, board.cause, board.producer = done, cause, row


def _is_of_warpgroup(opcode: Opcode) -> bool:
    return opcode.sched is SchedClass.MMA_WARPGROUP
