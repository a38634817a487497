"""A kernel compiled for abstract execution: segments of actions, ended by what decides where to go.

A block is one segment, or several where warps may have to wait inside it (barriers, WARPSYNC).
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
    """What the machine does at an instruction of the slice."""

    COMPUTE = "step"
    SET_UNKNOWN = "forget"  # results are unknown
    COMPLETE_WAIT = "pass"  # a wait that ends: predicates true, registers unknown
    ALLOCATE_TENSOR_MEMORY = "allocate"  # tensor memory is there: predicates true, from column 0 on
    ACCESS_MEMORY = "access"
    UPDATE_MBARRIER = "signal"  # said to an mbarrier, where that is asked for; waits on it end
    OPEN_CONVERGENCE = "open"  # BSSY
    BREAK_CONVERGENCE = "break"
    SAVE_CONVERGENCE_BARRIER = "save"  # BMOV R, B
    RESTORE_CONVERGENCE_BARRIER = "restore"  # BMOV B, R


class AddressTerm(Struct, frozen=True):
    """A register that an address is summed from: `pair` reads two, `scale` multiplies."""

    slot: int
    is_pair: bool
    scale: int


class AddressExpression(Struct, frozen=True, kw_only=True):
    """[sum of terms + offset]; None among the terms' registers (RZ) is left out."""

    terms: tuple[AddressTerm, ...]
    offset: int
    is_64_bit: bool


class LoweredAccess(Struct, frozen=True, kw_only=True, eq=False):
    """What a memory instruction touches.

    masks: further predicates that switch lanes off (of an LDGSTS's global side); results: registers that take
    what is loaded; data: registers that are stored, -1 for zero; operation: of an atomic, as its modifier
    names it. bulk: of the copy engine, until registers tell what it touches, which then has a width of its
    own; repeats: (how often, bytes apart) that comes again, row for row of a box.
    """

    row: int
    space: AddressSpace
    kind: OpKind
    width_bytes: int
    address: AddressExpression | None
    lane_predicates: tuple[Guard, ...]
    result_slots: tuple[int, ...]
    data_slots: tuple[int, ...]
    n_matrices: int
    is_signed: bool
    atomic_operation: str
    bulk: BulkOperands | None = None
    repeats: tuple[tuple[int, int], ...] = ()

    @property
    def lane_bytes(self) -> int:
        """Bytes that one lane asks for."""
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
    """One instruction of the slice."""

    kind: ActionKind
    row: int
    guard: Guard | None
    writes: tuple[int, ...] = ()
    step: Step | None = None
    mbarrier_operation: MbarrierOperation | None = None
    accesses: tuple[LoweredAccess, ...] = ()
    barrier: int = 0


class TerminatorKind(StrEnum):
    """How a segment ends."""

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
    """What ends a segment at instruction `row`.

    target, fall: segments; conditions: predicates that must all hold for the branch, guard included;
    targets: segments by address, of an indirect branch or a return; slot: register that it reads.
    """

    kind: TerminatorKind
    row: int
    guard: Guard | None = None
    target: int | None = None
    fall_through: int | None = None
    conditions: tuple[Guard, ...] = ()
    indirect_targets: tuple[tuple[int, int], ...] = ()
    slot: int | None = None
    offset: int = 0
    barrier: int = 0
    is_taken_if_converged: bool = False
    is_arrive_only: bool = False
    n_threads: int | None = None

    @property
    def successors(self) -> frozenset[int]:
        """Segments that may come next."""
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
    """Rows [start, stop) of a block; by `rank` segments before a meeting point run before it."""

    index: int
    block: int
    start: int
    stop: int
    is_first: bool
    rank: tuple[int, int]
    actions: tuple[Action, ...]
    terminator: Terminator


class CompiledKernel(Struct, frozen=True, kw_only=True, eq=False):
    """Segments, and the first segment of each block; steps: of instructions compiled so far, by text.

    awaited: rows of loads that find what others write while the kernel runs (`waiting.find_awaited_loads`).
    """

    cfg: Cfg
    loop_forest: LoopForest
    slice: Slice
    segments: tuple[Segment, ...]
    entry_segments: tuple[int, ...]
    unmodeled_rows: tuple[int, ...]
    awaited_loads: frozenset[int]
    steps_by_text: Mapping[int, Step | None]
