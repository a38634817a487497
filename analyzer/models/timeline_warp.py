"""State of one simulated warp: its clock, its scoreboards, and the pipes that it shares.

Stall counts and scoreboards decide when an instruction issues: the compiler's, or those that
`demand.control_codes` assumes for code without control words.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from msgspec import Struct, field

from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.ir.arrays import FloatArray
from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.opcode import GLOBAL_SPACES, Opcode, OpKind, Semantics, is_warpgroup_mma
from analyzer.ir.operand import BarrierRegister, Immediate
from analyzer.ir.scheduling import SchedClass
from analyzer.isa.control_encoding import NO_BARRIER, ControlCodeColumns
from analyzer.models.interface import EARLY_SCOREBOARD
from analyzer.models.wait_causes import N_WAIT_CAUSES, WAIT_CAUSE_BY_PIPE, WaitCause


class Scoreboard(Struct):
    """A counter that instructions increment at issue and decrement when done."""

    ready_cycle: float = 0.0  # when it is zero again
    cause: int = WaitCause.SHORT_SCOREBOARD
    producer: int = -1  # row of the instruction that finishes last, or -1
    pending_cycles: list[float] = field(default_factory=list)  # when each pending instruction is done


class InstructionTiming:
    """Timing figures of each instruction; the lists hold one entry per row."""

    def __init__(
        self,
        kernel: Kernel,
        costs: OpcodeCosts,
        control_codes: ControlCodeColumns,
        latency_cycles: FloatArray,
        read_release_cycles: float,
        constant_passes: FloatArray | None = None,
        early_waits: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        ids = kernel.opcode_ids
        self.kernel = kernel
        self.read_release_cycles = read_release_cycles
        self.latency_cycles: list[float] = latency_cycles.tolist()
        issue_cycles = costs.issue_cycles[ids]
        if constant_passes is not None:
            issue_cycles = issue_cycles * constant_passes
        self.issue_cycles: list[float] = issue_cycles.tolist()
        self.wgmma_cycles: list[float] = costs.wgmma_cycles[ids].tolist()
        self.pipe: list[int] = costs.pipe[ids].tolist()
        self.alternate_pipe: list[int] = costs.alternate_pipe[ids].tolist()
        self.is_long: list[bool] = costs.is_long_scoreboard[ids].tolist()
        self.is_store: list[bool] = kernel.form_table.make_opcode_mask(_is_global_store)[ids].tolist()
        self.special_waits = _find_special_waits(kernel, self.latency_cycles, costs) | {
            row: _SpecialWait(scoreboard=EARLY_SCOREBOARD, max_outstanding=max_pending)
            for row, max_pending in early_waits.items()
        }
        self.group_end_rows = _find_group_end_rows(kernel)
        self.barrier_rows = frozenset(
            row for row, special in self.special_waits.items() if special.barrier_cycles
        )
        stall_cycles = np.maximum(control_codes.stall_cycles, 1).astype(np.float64)
        # A warp that has met goes on when the branch unit says where, whatever the compiler's stall count.
        has_met = kernel.form_table.make_opcode_mask(_is_convergence_wait)[ids]
        stall_cycles[has_met] = np.maximum(stall_cycles, latency_cycles)[has_met]
        self.stall_cycles: list[float] = stall_cycles.tolist()
        self.write_barrier: list[int] = control_codes.write_barrier.tolist()
        self.read_barrier: list[int] = control_codes.read_barrier.tolist()
        self.wait_mask: list[int] = control_codes.wait_mask.tolist()


class TimelineWarp:
    """Clock and scoreboards of a warp; `pipe_free` is shared by all warps of the sub-core.

    block_share: part of its time that each instruction takes, while a block runs that is not always executed.
    """

    def __init__(self, timing: InstructionTiming, pipe_free: list[float]) -> None:
        self.timing = timing
        n = len(timing.latency_cycles)
        # Most instructions wait for nothing but their stall count, so other waits are kept by row.
        self.row_waits: dict[int, list[float]] = {}
        self.pipe_waits: dict[int, float] = {}
        self.row_shares: dict[int, float] = {}
        self.total_waits = np.zeros((n, N_WAIT_CAUSES))
        self.producers = [-1] * n
        self.time = 0.0
        self.block_share = 1.0
        self.wgmma_end = 0.0
        self.last_store = -math.inf  # when it issued
        self.wgmma_group_ends: list[float] = []
        self.pipe_free = pipe_free
        self.scoreboards = [Scoreboard() for _ in range(8)]

    def accumulate_waits(self, times: float) -> None:
        """Add the waits of one iteration `times` times."""
        shares = self.row_shares
        if self.row_waits:
            taken = np.array([times * shares[row] for row in self.row_waits])
            self.total_waits[list(self.row_waits)] += np.array(list(self.row_waits.values())) * taken[:, None]
        for row, cycles in self.pipe_waits.items():
            cause = WAIT_CAUSE_BY_PIPE.get(self.timing.pipe[row], WaitCause.MEMORY_PIPE)
            self.total_waits[row, cause] += cycles * times * shares[row]
        self.row_waits.clear()
        self.pipe_waits.clear()

    def average_waits(self, weights: FloatArray) -> FloatArray:
        """Return the waits of each instruction [n, cause], the mean of its executions."""
        executed = np.where(weights > 0, weights, 1.0)[:, None]
        waits: FloatArray = self.total_waits / executed
        waits[:, WaitCause.WAIT] += np.where(weights > 0, np.array(self.timing.stall_cycles) - 1.0, 0.0)
        return waits

    def run_block(self, start: int, stop: int) -> None:
        """Issue rows [start, stop) one after another."""
        timing, boards, share = self.timing, self.scoreboards, self.block_share
        special, latency = timing.special_waits, timing.latency_cycles
        time = self.time
        for row in range(start, stop):
            mask = timing.wait_mask[row]
            if mask or row in special:
                causes = self.row_waits[row] = [0.0] * N_WAIT_CAUSES
                self.row_shares[row] = share
                if mask:
                    time = self._wait_for_scoreboards(row, mask, time, causes)
                if row in special:
                    time = self._wait_for_special(row, time, causes)
            time = self._occupy_pipe(row, time)
            if timing.is_store[row]:
                self.last_store = time
            barrier = timing.write_barrier[row]
            if barrier != NO_BARRIER:
                cause = WaitCause.LONG_SCOREBOARD if timing.is_long[row] else WaitCause.SHORT_SCOREBOARD
                _raise_scoreboard(boards[barrier], time + latency[row], cause, row)
            barrier = timing.read_barrier[row]
            if barrier != NO_BARRIER:
                cause = WaitCause.LONG_SCOREBOARD if timing.is_long[row] else WaitCause.SHORT_SCOREBOARD
                _raise_scoreboard(boards[barrier], time + timing.read_release_cycles, cause, row)
            time += share * timing.stall_cycles[row]
        self.time = time

    def _wait_for_scoreboards(self, row: int, mask: int, time: float, causes: list[float]) -> float:
        for number in range(6):
            board = self.scoreboards[number]
            if mask >> number & 1 and board.ready_cycle > time:
                causes[board.cause] += board.ready_cycle - time
                self.producers[row] = board.producer
                time += self.block_share * (board.ready_cycle - time)
        return time

    def _occupy_pipe(self, row: int, time: float) -> float:
        if self.timing.wgmma_cycles[row]:
            self._queue_wgmma(row, time)
            return time
        pipe, free = self.timing.pipe[row], self.pipe_free
        other = self.timing.alternate_pipe[row]
        if other >= 0 and free[other] < free[pipe]:
            pipe = other
        begin = free[pipe]
        if begin > time:
            self.pipe_waits[row] = late = begin - time
            self.row_shares[row] = self.block_share
            time += self.block_share * late
        if begin < time:
            begin = time
        free[pipe] = begin + self.block_share * self.timing.issue_cycles[row]
        return time

    def _queue_wgmma(self, row: int, time: float) -> None:
        """Queue a warpgroup's product at the tensor core, while its warp goes on.

        The length of the queue is not known: none is assumed.
        """
        pipe, share = self.timing.pipe[row], self.block_share
        done = max(self.pipe_free[pipe], self.wgmma_end, time) + share * self.timing.wgmma_cycles[row]
        self.wgmma_end = done
        self.pipe_free[pipe] = max(self.pipe_free[pipe], time) + share * self.timing.issue_cycles[row]
        if row in self.timing.group_end_rows:
            self.wgmma_group_ends.append(done + self.timing.latency_cycles[row])
            del self.wgmma_group_ends[:-_MAX_PENDING_RESULTS]

    def _wait_for_special(self, row: int, time: float, causes: list[float]) -> float:
        special = self.timing.special_waits[row]
        if special.barrier_cycles:
            causes[WaitCause.BARRIER] = special.barrier_cycles
            return time + self.block_share * special.barrier_cycles
        if special.fence_cycles:
            begin = time if special.is_full_fence else self.last_store
            late = max(0.0, begin + special.fence_cycles - time)
            causes[WaitCause.MEMBAR] = late
            return time + self.block_share * late
        if special.waits_warpgroup:
            late = self._find_groups_end(special.max_outstanding) - time
            cause = WaitCause.GMMA
        else:
            board = self.scoreboards[special.scoreboard]
            ended = board.pending_cycles[: len(board.pending_cycles) - special.max_outstanding]
            late = max(ended, default=time) - time
            cause = WaitCause(board.cause)
            if late > 0:
                self.producers[row] = board.producer
        if late <= 0:
            return time
        causes[cause] += late
        return time + self.block_share * late

    def _find_groups_end(self, outstanding: int) -> float:
        """Return when at most `outstanding` of the warp's groups of products are left."""
        return max(self.wgmma_group_ends[: len(self.wgmma_group_ends) - outstanding], default=0.0)


class _SpecialWait(Struct, frozen=True):
    """Wait of an instruction beside its wait mask; one of the four kinds is set."""

    scoreboard: int = -1
    max_outstanding: int = 0  # instructions or groups that may be pending when it goes on
    waits_warpgroup: bool = False
    barrier_cycles: float = 0.0
    fence_cycles: float = 0.0  # from the last store before a fence until it is visible in its scope
    is_full_fence: bool = False  # takes as long without a store


_MAX_PENDING_RESULTS = 64
_WARPGROUP_BARRIER_FILE = "gsb"
_STORE_KINDS = frozenset({OpKind.STORE, OpKind.REDUCTION, OpKind.ATOMIC})
_WAITING_SEMANTICS = frozenset({Semantics.WAIT_SCOREBOARD, Semantics.WAIT_WARPGROUP, Semantics.MEMORY_FENCE})


def _find_special_waits(
    kernel: Kernel, latency_cycles: list[float], costs: OpcodeCosts
) -> dict[int, _SpecialWait]:
    rows = np.flatnonzero(kernel.form_table.make_opcode_mask(_is_special_wait)[kernel.opcode_ids]).tolist()
    found: dict[int, _SpecialWait] = {}
    for row in rows:
        opcode_id = kernel.opcode_ids[row]
        fence = float(costs.fence_cycles[opcode_id])
        special = (
            _SpecialWait(fence_cycles=fence, is_full_fence=bool(costs.is_full_fence[opcode_id]))
            if fence
            else _make_special_wait(kernel, row, latency_cycles[row])
        )
        if special is not None:
            found[row] = special
    return found


def _is_convergence_wait(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.CONVERGENCE_WAIT


def _is_global_store(opcode: Opcode) -> bool:
    return opcode.kind in _STORE_KINDS and opcode.space in GLOBAL_SPACES


def _is_special_wait(opcode: Opcode) -> bool:
    return opcode.semantics in _WAITING_SEMANTICS or opcode.sched_class is SchedClass.CTA_BARRIER


def _find_group_end_rows(kernel: Kernel) -> frozenset[int]:
    """Return the rows of products that end a group: those that name the group barrier."""
    is_group = kernel.form_table.make_opcode_mask(is_warpgroup_mma)
    rows = np.flatnonzero(is_group[kernel.opcode_ids]).tolist()
    return frozenset(
        row for row in rows if any(_is_group_barrier(o) for o in kernel.decode_form(row).operands)
    )


def _is_group_barrier(operand: object) -> bool:
    return isinstance(operand, BarrierRegister) and operand.file == _WARPGROUP_BARRIER_FILE


def _make_special_wait(kernel: Kernel, row: int, latency_cycles: float) -> _SpecialWait | None:
    form = kernel.decode_form(row)
    opcode = form.opcode
    if opcode.sched_class is SchedClass.CTA_BARRIER:
        return None if "ARV" in opcode.modifiers else _SpecialWait(barrier_cycles=latency_cycles)
    if opcode.semantics is Semantics.WAIT_WARPGROUP:
        return (
            _SpecialWait(waits_warpgroup=True, max_outstanding=parse_max_outstanding(form))
            if "DEPBAR" in opcode.modifiers
            else None
        )
    boards = [o for o in form.operands if isinstance(o, BarrierRegister) and o.file == "SB"]
    if not boards:
        return None
    return _SpecialWait(scoreboard=boards[0].index % 8, max_outstanding=parse_max_outstanding(form))


def parse_max_outstanding(form: InstructionForm) -> int:
    """Return how many may be outstanding: the instruction's immediate, 0 without one."""
    numbers = (o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int))
    return next(numbers, 0)


def _raise_scoreboard(board: Scoreboard, done: float, cause: int, row: int) -> None:
    board.pending_cycles.append(done)
    if len(board.pending_cycles) > _MAX_PENDING_RESULTS:
        del board.pending_cycles[0]
    if done >= board.ready_cycle:
        board.ready_cycle, board.cause, board.producer = done, cause, row
