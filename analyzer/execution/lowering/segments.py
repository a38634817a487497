"""Data structures of a kernel compiled for abstract execution: segments of actions with a terminator.

A basic block becomes one segment, or several: it is split after each instruction at which warps may wait for
each other (BAR, WARPSYNC). Only instructions of the slice become actions.

    block   IADD3 R1 ...; BAR.SYNC 0; LDS R2 ...; @P0 BRA      becomes
    segment 0: COMPUTE            terminator CTA_BARRIER, falls through to segment 1
    segment 1: ACCESS_MEMORY      terminator BRANCH
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from math import prod

from msgspec import Struct

from analyzer.execution.lowering.bulk_operands import BulkOperands
from analyzer.execution.lowering.guarded_liveness import Guard
from analyzer.execution.lowering.slicing import Slice
from analyzer.execution.lowering.step import Step
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopForest
from analyzer.ir.opcode import AddressSpace, OpKind, Semantics
from analyzer.isa.register_operands import BARRIER_RESULT_PREDICATE, BARRIER_RESULT_WORD

_LAST_RANK = 1 << 30


class ActionKind(StrEnum):
    """Effect of an instruction of the slice on the abstract machine."""

    COMPUTE = "compute"
    SET_UNKNOWN = "set_unknown"  # the results become unknown
    COMPLETE_WAIT = "complete_wait"  # the wait succeeds: predicates true, registers unknown
    ALLOCATE_TENSOR_MEMORY = "allocate_tensor_memory"  # it succeeds: predicates true, address of column 0
    ACCESS_MEMORY = "access_memory"
    UPDATE_MBARRIER = "update_mbarrier"  # recorded where mbarriers are tracked; waits succeed
    OPEN_CONVERGENCE = "open_convergence"  # BSSY
    BREAK_CONVERGENCE = "break_convergence"  # BREAK
    SAVE_CONVERGENCE_BARRIER = "save_convergence_barrier"  # BMOV R, B
    RESTORE_CONVERGENCE_BARRIER = "restore_convergence_barrier"  # BMOV B, R
    TRAP = "trap"  # the launch ends with an error


class AddressTerm(Struct, frozen=True):
    """A term of an address: the value of a register times `scale`."""

    slot: int
    is_pair: bool  # 64-bit value in `slot` and `slot + 1`
    scale: int


class AddressExpression(Struct, frozen=True, kw_only=True):
    """The address [sum of terms + offset], in bytes; RZ is no term."""

    terms: tuple[AddressTerm, ...]
    offset: int
    is_64_bit: bool


class LoweredAccess(Struct, frozen=True, kw_only=True, eq=False):
    """A memory access of an instruction."""

    row: int
    space: AddressSpace
    kind: OpKind
    width_bytes: int  # of one lane and one repetition
    address: AddressExpression | None
    lane_predicates: tuple[Guard, ...]  # further predicates that disable lanes (global side of LDGSTS)
    result_slots: tuple[int, ...]  # registers that receive the loaded words
    data_slots: tuple[int, ...]  # registers that are stored, -1 for zero
    n_matrices: int  # of LDSM and STSM, else 0
    is_signed: bool
    atomic_operation: str  # modifier of an atomic (`ADD`), else empty
    bulk: BulkOperands | None = None  # of a bulk copy; execution finds its bytes from these registers
    repeats: tuple[tuple[int, int], ...] = ()  # (count, stride in bytes) of the rows of a box

    @property
    def lane_bytes(self) -> int:
        """Bytes that one lane requests, repetitions included."""
        return self.width_bytes * prod(count for count, _ in self.repeats)


class MbarrierOperation(Struct, frozen=True, eq=False):
    """Operation of an instruction on an mbarrier in shared memory.

    The record also represents an MMA of the tensor core, which names no mbarrier: `semantics` and `address`
    are None, and `operand_slot` holds the instruction descriptor.
    """

    row: int
    semantics: Semantics | None
    address: AddressExpression | None
    # Register with the awaited parity, the expected bytes, or the multicast mask of a copy (one bit for each
    # CTA of the cluster); -1 for zero, None where the instruction has no such operand.
    operand_slot: int | None
    coordinates: tuple[int, ...] = ()  # registers that select the tile which a copy loads
    tensor_map: int | None = None  # register with the address of the tensor map, None for other copies


class Action(Struct, frozen=True, eq=False):
    """An instruction of the slice, as the abstract machine executes it."""

    kind: ActionKind
    row: int
    guard: Guard | None
    writes: tuple[int, ...] = ()  # storage numbers of the registers that it writes
    step: Step | None = None
    mbarrier_operation: MbarrierOperation | None = None
    accesses: tuple[LoweredAccess, ...] = ()
    barrier: int = 0  # index of a convergence barrier
    origin_row: int | None = (
        None  # of SET_UNKNOWN: instruction that made the results unknown, if it is another
    )

    @property
    def unknown_row(self) -> int:
        """The instruction that makes its results unknown."""
        return self.row if self.origin_row is None else self.origin_row


class BarrierOperation(StrEnum):
    """What a CTA barrier computes of the predicates of its threads."""

    COUNT = "count"  # POPC
    ALL = "all"  # AND
    ANY = "any"  # OR
    UNKNOWN = "unknown"


class BarrierReduction(Struct, frozen=True):
    """Reduction of a predicate over the threads that come to a CTA barrier."""

    operation: BarrierOperation
    vote: Guard | None  # the predicate, None for a constant
    constant_vote: bool = True
    word_slot: int = BARRIER_RESULT_WORD  # receives the count
    predicate_slot: int = BARRIER_RESULT_PREDICATE  # receives the result of ALL and ANY

    @property
    def result_slots(self) -> tuple[int, ...]:
        """Slots that the barrier writes."""
        return self.word_slot, self.predicate_slot


class TerminatorKind(StrEnum):
    """Kind of control transfer at the end of a segment."""

    FALL_THROUGH = "fall_through"
    BRANCH = "branch"
    DIVERGENCE_BRANCH = "divergence_branch"  # BRA.DIV, BRA.CONV
    INDIRECT = "indirect"
    CALL = "call"
    EXIT = "exit"
    RECONVERGE = "reconverge"  # BSYNC
    WARP_SYNC = "warp_sync"
    CTA_BARRIER = "cta_barrier"


class Terminator(Struct, frozen=True, kw_only=True, eq=False):
    """Control transfer of instruction `row` at the end of a segment; targets are indices of segments."""

    kind: TerminatorKind
    row: int
    guard: Guard | None = None
    target: int | None = None
    fall_through: int | None = None
    conditions: tuple[Guard, ...] = ()  # taken if all hold; of a BRANCH the guard is among them
    indirect_targets: tuple[tuple[int, int], ...] = ()  # (address, segment) of an indirect branch or return
    slot: int | None = None  # register with the target address, or with the lane mask of BRA.DIV
    offset: int = 0  # added to the register of an indirect branch
    barrier: int = 0  # index of a convergence barrier or CTA barrier
    is_taken_if_converged: bool = False  # BRA.CONV; BRA.DIV is taken if diverged
    is_arrive_only: bool = False  # BAR.ARV
    n_threads: int | None = None  # of a CTA barrier, None for all of the CTA
    # Registers with the number of the CTA barrier and of its threads, None where they are printed. One
    # register may hold both, see `CtaBarriers`.
    barrier_slot: int | None = None
    n_threads_slot: int | None = None
    reduction: BarrierReduction | None = None  # of a CTA barrier whose result is needed

    @property
    def writes(self) -> tuple[int, ...]:
        """Storage numbers of the registers that it writes."""
        return () if self.reduction is None else self.reduction.result_slots

    @property
    def reads(self) -> frozenset[int]:
        """Storage numbers of the registers that it reads."""
        guards = [*self.conditions, *((self.guard,) if self.guard else ())]
        if self.reduction is not None and self.reduction.vote is not None:
            guards.append(self.reduction.vote)
        slots = (self.slot, self.barrier_slot, self.n_threads_slot, *(slot for slot, _ in guards))
        return frozenset(slot for slot in slots if slot is not None and slot >= 0)

    @property
    def successors(self) -> frozenset[int]:
        """Segments that may run next."""
        ways = {index for _, index in self.indirect_targets}
        if self.target is not None:
            ways.add(self.target)
        is_left = self.kind is TerminatorKind.EXIT or (self.kind in _JUMP_KINDS and bool(ways))
        is_certain = not self.conditions and self.guard is None
        if self.fall_through is not None and not (is_left and is_certain):
            ways.add(self.fall_through)
        return frozenset(ways)


_JUMP_KINDS = frozenset({TerminatorKind.BRANCH, TerminatorKind.INDIRECT})


class Segment(Struct, frozen=True, kw_only=True, eq=False):
    """Rows [start, stop) of a block."""

    index: int
    block: int
    start: int
    stop: int
    is_first: bool  # of its block
    rank: tuple[int, int]  # order of execution: paths that reconverge at a segment run before it
    actions: tuple[Action, ...]
    terminator: Terminator
    n_accesses: int  # to memory, by its actions
    has_approximations: bool = False  # of functions whose last bits may matter


class CompiledKernel(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A kernel as segments, ready for abstract execution."""

    cfg: Cfg
    loop_forest: LoopForest
    slice: Slice
    segments: tuple[Segment, ...]
    entry_segments: tuple[int, ...]  # first segment of each block
    unmodeled_rows: tuple[int, ...]  # rows of the slice whose semantics are not modelled
    unset_rows: tuple[int, ...]  # rows that no action followed, made unknown (`slice_verification`)
    unset_registers: tuple[int, ...]  # storage numbers that are read before anything sets them
    awaited_loads: frozenset[int]  # rows of polling loads, see `spin_loops.find_awaited_loads`
    steps_by_text: Mapping[int, Step | None]  # compiled instructions by text id; None: not modelled

    # Both are asked for by each symbolic iteration of a loop: a machine of its own.
    @cached_property
    def loops_by_header(self) -> Mapping[int, Loop]:
        """Loops by the first segment of their header."""
        return {self.entry_segments[loop.header]: loop for loop in self.loop_forest.loops}

    @cached_property
    def header_ranks(self) -> Mapping[int, tuple[int, int]]:
        """Rank of each loop header, after all blocks of its loop: no warp runs ahead of others."""
        segments, first = self.segments, self.entry_segments
        return {
            header: (max(segments[first[block]].rank[0] for block in loop.blocks), _LAST_RANK)
            for header, loop in self.loops_by_header.items()
        }
