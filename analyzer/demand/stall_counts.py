"""Compute stall counts for code without control words, as a compiler sets them.

A stall count is the cycles from the issue of an instruction to that of the next one. It must be so long that

- a result of fixed latency is there when the first instruction that reads it issues;
- the next instruction of the same pipe finds the pipe free;
- a branch has been resolved, and a scoreboard has been set before the next instruction waits for it.

Blocks are gone through in address order, twice: what the blocks before one have left unfinished carries over
into it, at the second time around loops as well.

    FADD R0, R1, R2     stall 4: the next one reads R0
    FADD R3, R0, R2     stall 2: the next one needs the same pipe, of 16 lanes
    FMUL R4, R1, R1
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.demand.opcode_costs import PIPE_INDEX, OpcodeCosts
from analyzer.demand.scoreboards import Scoreboards, is_counted_wait
from analyzer.flow.cfg import BasicBlock, Cfg
from analyzer.hardware.schema import Arch
from analyzer.ir.opcode import (
    CONTROL_FLOW_KINDS,
    MEMORY_KINDS,
    Opcode,
    OpKind,
    Semantics,
    is_cta_barrier,
    is_warpgroup_mma,
)
from analyzer.ir.scheduling import Pipe, SchedClass
from analyzer.isa.control_encoding import NO_BARRIER
from analyzer.isa.register_operands import (
    PREDICATE_BASE,
    UNIFORM_PREDICATE_BASE,
    UNIFORM_REGISTER_BASE,
    find_predicate_unit,
)

_MAX_STALL_CYCLES = 255
_UNIFORM_PIPE = PIPE_INDEX[Pipe.UNIFORM]
_TENSOR_PIPE = PIPE_INDEX[Pipe.TENSOR]
# Pipes for which the compiler spaces instructions; for the others they queue.
_SPACED_PIPES = frozenset(
    PIPE_INDEX[pipe]
    for pipe in (Pipe.ALU, Pipe.FMA, Pipe.FMALITE, Pipe.FP16, Pipe.FP64, Pipe.XU, Pipe.TENSOR)
)
_ARITHMETIC_PIPES = frozenset(PIPE_INDEX[pipe] for pipe in (Pipe.ALU, Pipe.FMA, Pipe.FMALITE, Pipe.FP16))
_MEMORY_PIPE = PIPE_INDEX[Pipe.LSU]
_MEMORY_PIPES = frozenset(PIPE_INDEX[pipe] for pipe in (Pipe.LSU, Pipe.TEX, Pipe.ADU))

# By register unit: cycles since the issue of its last writer at the end of a block, and that row.
_Ages = dict[int, tuple[float, int]]


def compute_stall_counts(cfg: Cfg, costs: OpcodeCosts, arch: Arch, boards: Scoreboards) -> NDArray[np.uint8]:
    """Compute the stall count of each instruction, [n]."""
    return _Scheduler(cfg, costs, arch, boards).find_stalls()


def compute_data_stalls(cfg: Cfg, costs: OpcodeCosts, arch: Arch) -> NDArray[np.uint8]:
    """Compute the cycles from the issue of each instruction to that of the next one for data alone, [n].

    As `compute_stall_counts`, with pipes that are always free, branches that are resolved at once and no
    scoreboards: what is more than one cycle is a wait for a result of fixed latency. A compiler's stall count
    does not tell such a wait from one for a pipe.
    """
    none = np.full(len(cfg.kernel), NO_BARRIER, dtype=np.uint8)
    no_boards = Scoreboards(write=none, read=none, wait_mask=np.zeros_like(none))
    scheduler = _Scheduler(cfg, costs, arch, no_boards)
    scheduler.ignore_pipes()
    return scheduler.find_stalls()


class _Scheduler:
    """Stall counts so far, and what each block leaves unfinished."""

    def __init__(self, cfg: Cfg, costs: OpcodeCosts, arch: Arch, boards: Scoreboards) -> None:
        kernel, ids = cfg.kernel, cfg.kernel.opcode_ids
        table = kernel.form_table
        self.cfg, self.kernel, self.issue = cfg, kernel, arch.issue
        self.pipe: list[int] = costs.pipe[ids].tolist()
        for row in np.flatnonzero(table.make_opcode_mask(is_cta_barrier)[ids]).tolist():
            self.pipe[row] = _MEMORY_PIPE  # barriers are spaced like the memory instructions around them
        self.alternate_pipe: list[int] = costs.alternate_pipe[ids].tolist()
        self.interval = _compute_intervals(costs, arch)[ids].tolist()
        fixed = costs.has_fixed_latency & ~table.make_opcode_mask(is_warpgroup_mma)
        self.has_fixed_latency: list[bool] = fixed[ids].tolist()
        self.latency: list[float] = costs.latency_cycles[ids].tolist()
        self.is_memory: list[bool] = table.make_opcode_mask(_is_memory)[ids].tolist()
        resolving = table.make_opcode_mask(_is_resolved_late)[ids]
        branch_cycles = arch.sched[SchedClass.BRANCH].latency_cycles.value
        least = np.where(resolving, branch_cycles, 1.0)
        least[table.make_opcode_mask(_is_fence)[ids]] = arch.issue.barrier_cycles.value
        least[table.make_opcode_mask(is_counted_wait)[ids]] = arch.issue.memory_interval_cycles.value
        self.least: list[float] = least.tolist()
        self.is_barrier: list[bool] = table.make_opcode_mask(is_cta_barrier)[ids].tolist()
        self.wait_mask: list[int] = boards.wait_mask.tolist()
        self.set_boards = [
            [board for board in pair if board != NO_BARRIER]
            for pair in zip(boards.write.tolist(), boards.read.tolist(), strict=True)
        ]
        self.stalls = np.ones(len(kernel))
        self.edge_waits = np.zeros(len(kernel))  # of the last rows of blocks, for the block after
        self.max_age = max([*self.latency, arch.issue.guard_cycles.value, 0.0])
        self.exits: list[_Ages] = [{} for _ in cfg.blocks]

    def ignore_pipes(self) -> None:
        """Let pipes be free and branches be resolved at any time."""
        n = len(self.kernel)
        self.interval = [0.0] * n
        self.least = [1.0] * n
        self.is_barrier = [False] * n

    def find_stalls(self) -> NDArray[np.uint8]:
        """Return the stall counts of all rows, [n]."""
        for _ in range(2):
            for block in self.cfg.blocks:
                self.schedule_block(block)
        return np.minimum(np.ceil(self.stalls + self.edge_waits), _MAX_STALL_CYCLES).astype(np.uint8)

    def schedule_block(self, block: BasicBlock) -> None:
        """Set the stall counts of a block, and of the ends of the blocks before it where it needs more."""
        written: dict[int, tuple[float, int]] = {
            unit: (-age, row) for unit, (age, row) in self.enter_block(block).items()
        }
        pipe_free: dict[int, float] = {}
        board_set: dict[int, float] = {}
        time = 0.0
        for row in range(block.start, block.stop):
            ready = max(time, self.find_ready_cycle(row, written))
            pipe = self.find_pipe(row, pipe_free)
            ready = max(ready, pipe_free.get(pipe, 0.0))
            mask = self.wait_mask[row]
            for board, at in board_set.items():
                if mask >> board & 1:
                    ready = max(ready, at + self.issue.scoreboard_cycles.value)
            if row > block.start:
                self.stalls[row - 1] += ready - time
            self.issue_row(row, ready, written, pipe_free, board_set)
            self.stalls[row] = self.find_least_stall(row)
            time = ready + self.stalls[row]
        self.exits[block.index] = {
            unit: (time - at, row) for unit, (at, row) in written.items() if time - at < self.max_age
        }

    def issue_row(
        self,
        row: int,
        time: float,
        written: dict[int, tuple[float, int]],
        pipe_free: dict[int, float],
        board_set: dict[int, float],
    ) -> None:
        """Note what a row that issues at a time writes and occupies."""
        if interval := self.interval[row]:
            pipe_free[self.find_pipe(row, pipe_free)] = time + interval
        for unit in self.kernel.decode_form(row).defs:
            if self.has_fixed_latency[row]:
                written[unit] = (time, row)
            else:
                written.pop(unit, None)
        for board in self.set_boards[row]:
            board_set[board] = time

    def enter_block(self, block: BasicBlock) -> _Ages:
        """Return the ages of results at the start of a block, whose first row need not wait any more."""
        entry: _Ages = {}
        for source in self.cfg.predecessors[block.index]:
            ages = self.exits[source]
            if not ages:
                continue
            waits = self.find_ready_cycle(block.start, {u: (-age, row) for u, (age, row) in ages.items()})
            late = max(waits, 0.0)
            last = self.cfg.blocks[source].stop - 1
            self.edge_waits[last] = max(self.edge_waits[last], late)
            for unit, (age, row) in ages.items():
                known = entry.get(unit)
                if known is None or self.latency[row] - age - late > self.latency[known[1]] - known[0]:
                    entry[unit] = (age + late, row)
        return entry

    def find_pipe(self, row: int, pipe_free: dict[int, float]) -> int:
        """Return the pipe that takes a row first."""
        pipe, other = self.pipe[row], self.alternate_pipe[row]
        if other >= 0 and pipe_free.get(other, 0.0) < pipe_free.get(pipe, 0.0):
            return other
        return pipe

    def find_least_stall(self, row: int) -> float:
        """Return the stall count of a row on which nothing depends."""
        after = row + 1
        if self.is_barrier[row] and after < len(self.least):
            is_close = self.is_memory[after] or self.least[after] > 1.0
            return self.issue.barrier_cycles.value if is_close else 1.0
        return self.least[row]

    def find_ready_cycle(self, row: int, written: dict[int, tuple[float, int]]) -> float:
        """Return when the results of fixed latency that a row needs are there; times as in `written`."""
        form = self.kernel.decode_form(row)
        ready = 0.0
        guard = -1 if form.guard is None else find_predicate_unit(form.guard)
        for unit in form.uses:
            if unit in written:
                at, producer = written[unit]
                ready = max(ready, at + self.find_dependence_cycles(producer, row, unit, unit == guard))
        own = self.latency[row]
        for unit in form.defs:
            if unit in written:
                at, producer = written[unit]
                ready = max(ready, at + self.latency[producer] - own + 1.0)
        return ready

    def find_dependence_cycles(self, producer: int, row: int, unit: int, is_guard: bool) -> float:
        """Return the least cycles from the issue of a producer to that of a row that reads its result."""
        cycles, issue = self.latency[producer], self.issue
        if unit >= UNIFORM_PREDICATE_BASE:
            return max(cycles, issue.uniform_guard_cycles.value) if is_guard else cycles
        if unit >= PREDICATE_BASE:
            is_late = is_guard or self.is_memory[row] or self.least[row] > 1.0
            return max(cycles, issue.guard_cycles.value) if is_late else cycles
        if unit >= UNIFORM_REGISTER_BASE:
            is_late = self.is_memory[row] and self.pipe[producer] == _UNIFORM_PIPE
            return max(cycles, issue.uniform_address_cycles.value) if is_late else cycles
        if self.pipe[row] == _TENSOR_PIPE and self.pipe[producer] in _ARITHMETIC_PIPES:
            return max(cycles, issue.product_operand_cycles.value)
        crosses = self.pipe[row] != self.pipe[producer] and self.pipe[producer] in _ARITHMETIC_PIPES
        return cycles + (issue.other_pipe_cycles.value if crosses else 0.0)


def _compute_intervals(costs: OpcodeCosts, arch: Arch) -> NDArray[np.float64]:
    """Compute the cycles for which an opcode keeps others from its pipe, 0 where they queue, [n_opcode]."""
    spaced = np.isin(costs.pipe, list(_SPACED_PIPES))
    found = np.where(spaced, costs.issue_cycles, 0.0)
    on_tensor = costs.pipe == _TENSOR_PIPE
    found[on_tensor] = np.minimum(found[on_tensor], arch.issue.product_interval_cycles.value)
    found[costs.wgmma_cycles > 0] = 0.0
    found[np.isin(costs.pipe, list(_MEMORY_PIPES))] = arch.issue.memory_interval_cycles.value
    found[costs.pipe == _UNIFORM_PIPE] = arch.issue.uniform_interval_cycles.value
    return found


def _is_memory(opcode: Opcode) -> bool:
    return opcode.kind in MEMORY_KINDS


def _is_resolved_late(opcode: Opcode) -> bool:
    """Return whether the compiler leaves time for an instruction to change what issues next."""
    if opcode.kind in CONTROL_FLOW_KINDS:
        return opcode.kind not in (OpKind.CONVERGENCE_OPEN, OpKind.CONVERGENCE_BREAK)
    return opcode.sched_class is SchedClass.BRANCH


def _is_fence(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.MEMORY_FENCE
