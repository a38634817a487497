"""Data structures of a kernel compiled for abstract execution: segments of actions with a terminator.

A basic block becomes one segment, or several: it is split after each instruction at which warps may wait for
each other (BAR, WARPSYNC). Only instructions of the slice become actions.

    block   IADD3 R1 ...; BAR.SYNC 0; LDS R2 ...; @P0 BRA      becomes
    segment 0: COMPUTE            terminator CTA_BARRIER, falls through to segment 1
    segment 1: ACCESS_MEMORY      terminator BRANCH
"""

from collections.abc import Mapping
from enum import StrEnum
from math import prod

from msgspec import Struct

from analyzer.execution.lowering.bulk_operands import BulkOperands
from analyzer.execution.lowering.slicing import Guard, Slice
from analyzer.execution.lowering.step import Step
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.ir.opcode import AddressSpace, OpKind, Semantics


class ActionKind(StrEnum):
    """Effect of an instruction of the slice on the abstract machine."""

    COMPUTE = "step"
    SET_UNKNOWN = "forget"  # the results become unknown
    COMPLETE_WAIT = "pass"  # the wait succeeds: predicates true, registers unknown
    ALLOCATE_TENSOR_MEMORY = "allocate"  # it succeeds: predicates true, address of column 0
    ACCESS_MEMORY = "access"
    UPDATE_MBARRIER = "signal"  # recorded where mbarriers are tracked; waits succeed
    OPEN_CONVERGENCE = "open"  # BSSY
    BREAK_CONVERGENCE = "break"  # BREAK
    SAVE_CONVERGENCE_BARRIER = "save"  # BMOV R, B
    RESTORE_CONVERGENCE_BARRIER = "restore"  # BMOV B, R


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
    writes: tuple[int, ...] = ()  # storage numbers
    step: Step | None = None
    mbarrier_operation: MbarrierOperation | None = None
    accesses: tuple[LoweredAccess, ...] = ()
    barrier: int = 0  # index of a convergence barrier


class TerminatorKind(StrEnum):
    """Kind of control transfer at the end of a segment."""

    FALL_THROUGH = "next"
    BRANCH = "branch"
    DIVERGENCE_BRANCH = "mask_branch"  # BRA.DIV, BRA.CONV
    INDIRECT = "indirect"
    CALL = "call"
    EXIT = "exit"
    RECONVERGE = "meet"  # BSYNC
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


class CompiledKernel(Struct, frozen=True, kw_only=True, eq=False):
    """A kernel as segments, ready for abstract execution."""

    cfg: Cfg
    loop_forest: LoopForest
    slice: Slice
    segments: tuple[Segment, ...]
    entry_segments: tuple[int, ...]  # first segment of each block
    unmodeled_rows: tuple[int, ...]  # rows of the slice whose semantics are not modelled
    awaited_loads: frozenset[int]  # rows of polling loads, see `spin_loops.find_awaited_loads`
    steps_by_text: Mapping[int, Step | None]  # compiled instructions by text id; None: not modelled
