"""A kernel compiled for abstract execution: segments of actions, ended by what decides where to go.

A block is one segment, or several where warps may have to wait inside it (barriers, WARPSYNC).
"""

from enum import StrEnum
from math import prod

from msgspec import Struct

from analyzer.execution.bulk_forms import BulkForm
from analyzer.execution.slicing import Guard, Slice
from analyzer.execution.step import Step
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest
from analyzer.ir.opcode import OpKind, Semantics, Space


class ActionKind(StrEnum):
    """What the machine does at an instruction of the slice."""

    STEP = "step"
    FORGET = "forget"  # results are unknown
    PASS = "pass"  # a wait that ends: predicates true, registers unknown
    ALLOCATE = "allocate"  # tensor memory is there: predicates true, from column 0 on
    ACCESS = "access"
    SIGNAL = "signal"  # said to an mbarrier, where that is asked for; waits on it end
    OPEN = "open"  # BSSY
    BREAK = "break"
    SAVE = "save"  # BMOV R, B
    RESTORE = "restore"  # BMOV B, R


class Term(Struct, frozen=True):
    """A register that an address is summed from: `pair` reads two, `scale` multiplies."""

    slot: int
    pair: bool
    scale: int


class AddressForm(Struct, frozen=True, kw_only=True):
    """[sum of terms + offset]; None among the terms' registers (RZ) is left out."""

    terms: tuple[Term, ...]
    offset: int
    wide: bool


class Access(Struct, frozen=True, kw_only=True, eq=False):
    """What a memory instruction touches.

    masks: further predicates that switch lanes off (of an LDGSTS's global side); results: registers that take
    what is loaded; data: registers that are stored, -1 for zero; operation: of an atomic, as its modifier
    names it. bulk: of the copy engine, until registers tell what it touches, which then has a width of its
    own; repeats: (how often, bytes apart) that comes again, row for row of a box.
    """

    row: int
    space: Space
    kind: OpKind
    width_bytes: int
    address: AddressForm | None
    masks: tuple[Guard, ...]
    results: tuple[int, ...]
    data: tuple[int, ...]
    n_matrices: int
    is_signed: bool
    operation: str
    bulk: BulkForm | None = None
    repeats: tuple[tuple[int, int], ...] = ()

    @property
    def lane_bytes(self) -> int:
        """Bytes that one lane asks for."""
        return self.width_bytes * prod(count for count, _ in self.repeats)


class Action(Struct, frozen=True, eq=False):
    """One instruction of the slice."""

    kind: ActionKind
    row: int
    guard: Guard | None
    writes: tuple[int, ...] = ()
    step: Step | None = None
    signal: "Signal | None" = None
    accesses: tuple[Access, ...] = ()
    barrier: int = 0


class Signal(Struct, frozen=True, eq=False):
    """What an instruction says to the mbarrier at an address in shared memory.

    word: register that holds the parity waited for, or the bytes to expect, or a bit for each CTA of the
    cluster that a copy goes to; -1 for zero, None for none of them. Of
    a product of the tensor core, which says nothing to one (`meaning` None), it is the descriptor.
    coordinates: registers that say which tile of its tensor a copy brings; tensor: that with the address of
    the tensor's descriptor, None where a copy has none.
    """

    row: int
    meaning: Semantics | None
    address: AddressForm | None
    word: int | None
    coordinates: tuple[int, ...] = ()
    tensor: int | None = None


class EndKind(StrEnum):
    """How a segment ends."""

    NEXT = "next"
    BRANCH = "branch"
    MASK_BRANCH = "mask_branch"  # BRA.DIV, BRA.CONV
    INDIRECT = "indirect"
    CALL = "call"
    EXIT = "exit"
    MEET = "meet"  # BSYNC
    WARP_SYNC = "warp_sync"
    CTA_BARRIER = "cta_barrier"


class End(Struct, frozen=True, kw_only=True, eq=False):
    """What ends a segment at instruction `row`.

    target, fall: segments; conditions: predicates that must all hold for the branch, guard included;
    targets: segments by address, of an indirect branch or a return; slot: register that it reads.
    """

    kind: EndKind
    row: int
    guard: Guard | None = None
    target: int | None = None
    fall: int | None = None
    conditions: tuple[Guard, ...] = ()
    targets: tuple[tuple[int, int], ...] = ()
    slot: int | None = None
    offset: int = 0
    barrier: int = 0
    wants_together: bool = False
    arrives_only: bool = False
    count: int | None = None

    @property
    def followers(self) -> frozenset[int]:
        """Segments that may come next."""
        ways = {index for _, index in self.targets}
        if self.target is not None:
            ways.add(self.target)
        is_left = self.kind is EndKind.EXIT or (self.kind in _JUMPS and bool(ways))
        is_certain = not self.conditions and self.guard is None
        if self.fall is not None and not (is_left and is_certain):
            ways.add(self.fall)
        return frozenset(ways)


_JUMPS = frozenset({EndKind.BRANCH, EndKind.INDIRECT})


class Segment(Struct, frozen=True, kw_only=True, eq=False):
    """Rows [start, stop) of a block; by `rank` segments before a meeting point run before it."""

    index: int
    block: int
    start: int
    stop: int
    is_first: bool
    rank: tuple[int, int]
    actions: tuple[Action, ...]
    end: End


class CompiledKernel(Struct, frozen=True, kw_only=True, eq=False):
    """Segments, and the first segment of each block; steps: of instructions compiled so far, by text.

    awaited: rows of loads that find what others write while the kernel runs (`waiting.awaited_rows`).
    """

    cfg: Cfg
    nest: LoopNest
    slice: Slice
    segments: tuple[Segment, ...]
    entry_of: tuple[int, ...]
    unknown_steps: tuple[int, ...]
    awaited: frozenset[int]
    steps: dict[int, Step | None]
