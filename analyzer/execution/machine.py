"""Abstract execution: many warps at once, 32 lanes wide, only the slice that control and addresses need.

Warps that stand at the same segment go on together as a `Group`. Lanes of a warp part at a branch and meet
where hardware lets them: at BSYNC with the lanes that its barrier register holds, at WARPSYNC. Groups whose
segment comes first in reverse postorder run first, so that those ahead wait for those behind.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.lanes import ALL_LANES, Doubt, Group, LaneState, Origins, Rows, View, joined
from analyzer.execution.memory import Loaded, MemoryLog, TrackedMemory, lane_addresses
from analyzer.execution.program import Access, Action, ActionKind, CompiledKernel, End, EndKind, Segment
from analyzer.execution.slicing import Guard
from analyzer.execution.step import Bits, ConstantRead, Read, SpecialRead, Step, Value, Words
from analyzer.execution.warps import Batch
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import OpKind, Space
from analyzer.isa.roles import PREDICATE_BASE

IntArray = NDArray[np.int64]

Decide = Callable[["Machine", View, End, Origins], Bits]


_LAST = 1 << 30
SIGNATURE_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_CHANGES = frozenset({OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION})
_KEPT = frozenset({Space.SHARED, Space.LOCAL})


class StopExecution(Exception):
    """The step limit was reached, or a loop has no end."""


@dataclass(slots=True, eq=False)
class Tally:
    """What was executed: per block and warp, executions and active lanes; per memory instruction, its log.

    entries[loop]: how often warps come to a loop from outside.
    hanging[row]: warp instructions that ran under the assumption made at that branch.
    """

    blocks: IntArray
    lanes: IntArray
    memory: MemoryLog
    entries: NDArray[np.float64]
    hanging: dict[int, float] = field(default_factory=dict)
    doubted: set[int] = field(default_factory=set)


class Machine:
    """Executes a compiled kernel for a batch of warps.

    decide: what a branch does whose condition is unknown (see `analyzer.execution.guesses`).
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        batch: Batch,
        decide: Decide,
        *,
        step_limit: int,
    ) -> None:
        self.kernel, self.batch, self.decide = kernel, batch, decide
        self.state = LaneState(len(batch.cta_numbers), batch.shape.warps_per_cta)
        self.live: Bits = batch.live.copy()
        n_blocks = len(kernel.cfg.blocks)
        self.tally = Tally(
            blocks=np.zeros((n_blocks, batch.n_warps), dtype=np.int64),
            lanes=np.zeros((n_blocks, batch.n_warps), dtype=np.int64),
            memory=MemoryLog(batch),
            entries=np.zeros(len(kernel.nest.loops)),
        )
        self.queue: dict[int, list[Group]] = {}
        self.meeting: dict[int, dict[int, Bits]] = {}
        self.masks: dict[int, NDArray[np.uint32]] = {}
        self.saved: dict[int, dict[int, NDArray[np.uint32]]] = {}
        self.arrived: dict[tuple[int, int], Bits] = {}
        self.waiting: dict[tuple[int, int], list[tuple[int, Group]]] = {}
        self.tracked = TrackedMemory(batch) if kernel.slice.keeps_shared or kernel.slice.keeps_local else None
        self.steps, self.step_limit = 0, step_limit
        self.lengths = np.array([len(block) for block in kernel.cfg.blocks], dtype=np.int64)
        self.signature: NDArray[np.uint64] | None = None
        self.on_header: Callable[[Segment, Group], bool] | None = None
        self.headers = {kernel.entry_of[loop.header]: loop for loop in kernel.nest.loops}
        # a header waits for all that is still inside its loop, so that warps do not run ahead
        self.header_ranks = {
            kernel.entry_of[loop.header]: max(kernel.segments[kernel.entry_of[b]].rank for b in loop.blocks)[
                :1
            ]
            + (_LAST,)
            for loop in kernel.nest.loops
        }

    # ---- scheduling ------------------------------------------------------------------------------

    def start(self) -> None:
        """Put all warps at the entry."""
        rows = np.arange(self.batch.n_warps, dtype=np.int64)
        self.enter(self.kernel.entry_of[0], Group(rows, self.live.copy(), is_whole=True, is_full=True))

    def run(self) -> None:
        """Execute until no warp is left. Raises StopExecution at the step limit."""
        with np.errstate(all="ignore"):
            while self.step():
                pass

    def step(self) -> bool:
        """Run the groups of the first segment that has some; False where none is left."""
        if not self.queue and not self._release_stuck():
            return False
        if self.steps >= self.step_limit:
            raise StopExecution(f"stopped after {self.steps:,} steps")
        segments = self.kernel.segments
        index = min(self.queue, key=lambda i: self.header_ranks.get(i, segments[i].rank))
        groups, later = _together(self.queue.pop(index), self.batch.n_warps)
        if later:
            self.queue[index] = later
        segment = segments[index]
        for group in groups:
            if (
                segment.is_first
                and index in self.headers
                and self.on_header
                and self.on_header(segment, group)
            ):
                continue
            self.execute(segment, group)
        return True

    def enter(self, index: int | None, group: Group) -> None:
        """Let a group wait for its turn at a segment; None is the end of the code."""
        if index is None or not len(group.rows):
            return
        segment = self.kernel.segments[index]
        if group.doubts and segment.is_first:
            self._settle(segment.block, group)
        self.queue.setdefault(index, []).append(group)

    def _settle(self, block: int, group: Group) -> None:
        """Where paths of a doubtful branch meet, what they wrote is unknown, and the doubt ends."""
        for place, doubt in enumerate(group.doubts):
            if doubt.block != block:
                continue
            written = self.batch.region_writes(doubt.row, doubt.block)
            needed = self.kernel.slice.needed[block]
            view = View(self.state, group)
            unknown = np.full((1, 1), doubt.origin, dtype=np.int32)
            for slot in written:
                if needed >> slot & 1:
                    view.write(slot, view.value(slot), unknown)
            view.flush()
            group.doubts = group.doubts[:place]
            return

    def execute(self, segment: Segment, group: Group) -> None:
        """Run one segment and send the group on."""
        self.steps += 1
        all_lanes = group.is_full and self.batch.all_live and bool(group.mask.all())
        view = View(self.state, group, all_lanes=all_lanes)
        if segment.is_first:
            self._count(segment.block, group, view)
        for action in segment.actions:
            self._act(action, view)
        ahead = self._leave(segment.end, view)
        view.flush()
        for index, part in ahead:
            loop = self.headers.get(index) if index is not None else None
            if loop is not None and segment.block not in loop.blocks:
                self.tally.entries[loop.index] += float(self.batch.weights[part.rows].sum())
            self.enter(index, part)

    def _count(self, block: int, group: Group, view: View) -> None:
        lanes = WARP_LANES if view.active is ALL_LANES else group.mask.sum(axis=1)
        if group.is_whole:
            self.tally.blocks[block] += 1
            self.tally.lanes[block] += lanes
        else:
            self.tally.blocks[block, group.rows] += 1
            self.tally.lanes[block, group.rows] += lanes
        for doubt in group.doubts:
            self.tally.doubted.add(block)
            weight = float(self.batch.weights[group.rows].sum()) * float(self.lengths[block])
            self.tally.hanging[doubt.row] = self.tally.hanging.get(doubt.row, 0.0) + weight

    # ---- actions ---------------------------------------------------------------------------------

    def _act(self, action: Action, view: View) -> None:
        lanes: Bits | None = None
        unknown: Origins | None = None
        if action.guard is not None:
            lanes, unknown = self.guard(action.guard, view)
            if unknown is None:
                if not (lanes & view.active).any():
                    return
                if lanes.all():
                    lanes = None
            else:
                lanes = lanes | (unknown != 0)
        match action.kind:
            case ActionKind.STEP if action.step is not None:
                self.apply(action.step, view, lanes, unknown)
            case ActionKind.ACCESS:
                for access in action.accesses:
                    self._access(access, view, lanes, unknown)
            case ActionKind.FORGET:
                self.forget(action.writes, view, action.row + 1, lanes)
            case ActionKind.PASS | ActionKind.ALLOCATE:
                self._pass(action, view, lanes)
            case _:
                self._converge(action, view, lanes)

    def guard(self, guard: Guard, view: View) -> tuple[Bits, Origins | None]:
        """Lanes whose guard is true, and the origin of what is not known of it."""
        slot, negated = guard
        value = view.value(slot)
        return (~value if negated else value), view.origin(slot)

    def forget(self, writes: Iterable[int], view: View, origin: int, lanes: Bits | None) -> None:
        """Results become unknown."""
        unknown = np.full((1, 1), origin, dtype=np.int32)
        mask = None if lanes is None else self._within(lanes, view)
        for slot in writes:
            if slot >= 0:
                view.write(slot, view.value(slot), unknown, None, mask)

    def _pass(self, action: Action, view: View, lanes: Bits | None) -> None:
        """Waits end: the predicate says so; a state word is opaque."""
        mask = None if lanes is None else self._within(lanes, view)
        for slot in action.writes:
            if slot >= PREDICATE_BASE:
                view.write(slot, np.ones((1, 1), dtype=bool), None, None, mask)
            elif slot >= 0:
                known = (
                    None if action.kind is ActionKind.ALLOCATE else np.full((1, 1), action.row + 1, np.int32)
                )
                view.write(slot, np.zeros((1, 1), dtype=np.uint32), known, None, mask)

    def _within(self, lanes: Bits, view: View) -> Bits:
        return lanes if view.group.is_full else lanes & view.mask

    def read(self, what: Read, view: View) -> tuple[Value, Origins | None]:
        """A word that a step reads, and the origin of what is not known of it."""
        if isinstance(what, int):
            return view.value(what), view.origin(what)
        if isinstance(what, SpecialRead):
            value, origin = self.batch.special(what.name)
            return view.pick(value), origin
        return self._constant(what, view)

    def _constant(self, what: ConstantRead, view: View) -> tuple[Value, Origins | None]:
        if what.base is None:
            return self.batch.constant(what.bank, what.offset)
        base, origin = view.value(what.base), view.origin(what.base)
        offsets = (base.astype(np.uint32) + np.uint32(what.offset & 0xFFFFFFFF)).astype(np.int64)
        value, unknown = self.batch.constants(what.bank, offsets)
        return value, joined(origin, unknown)

    def apply(self, step: Step, view: View, lanes: Bits | None, unknown: Origins | None) -> None:
        """Carry out one compiled instruction."""
        origin = unknown
        words = []
        for what in step.reads:
            value, source = self.read(what, view)
            words.append(value)
            if source is not None:
                origin = joined(origin, source)
        if step.uses_mask:
            active = view.active if lanes is None else view.active & lanes
            rows = np.broadcast_to(view.flat(active), (len(view.group.rows), WARP_LANES))
            results = tuple(map(view.shaped, step.apply(rows, *map(view.flat, words))))
            if origin is not None:
                origin = _whole_warp(origin, active)
        else:
            results = step.apply(*words)
            if self.signature is not None:
                self._sign(step, words, results, view)
        mask = None if lanes is None else self._within(lanes, view)
        for slot, result in zip(step.writes, results, strict=True):
            if slot >= 0:
                view.write(slot, result, origin, None, mask)

    def _sign(self, step: Step, words: list[Value], results: tuple[Value, ...], view: View) -> None:
        """Add what the step compared to the warps' signatures."""
        assert self.signature is not None
        watched = results if step.watch is None else (*results, *step.watch(*words))
        for value in watched:
            if value.dtype == np.bool_:
                bits = np.broadcast_to(view.flat(value), view.group.mask.shape) & view.group.mask
                rows = view.group.rows
                mixed = self.signature[rows] * SIGNATURE_FACTOR
                self.signature[rows] = mixed + lane_words(bits) + np.uint64(step.writes[0] + 2)

    def _access(self, access: Access, view: View, lanes: Bits | None, unknown: Origins | None) -> None:
        active = view.active if lanes is None else view.active & lanes
        for guard in access.masks:
            more, source = self.guard(guard, view)
            if source is not None:
                more, unknown = more | (source != 0), joined(unknown, source)
            active = active & more
        addresses = origin = None
        if access.address is not None:
            addresses, origin = lane_addresses(access.address, view)
        self.tally.memory.record(access, view.group, active, addresses, origin, unknown)
        self._transfer(access, view, lanes, addresses, origin)

    def _transfer(
        self,
        access: Access,
        view: View,
        lanes: Bits | None,
        addresses: NDArray[np.uint64] | None,
        origin: Origins | None,
    ) -> None:
        """Contents: of buffers, and of shared and local memory where the slice keeps them."""
        mask = None if lanes is None else self._within(lanes, view)
        known = addresses is not None and origin is None
        if access.results:
            loaded = None
            if known and addresses is not None and access.kind is OpKind.LOAD:
                loaded = self._load(access, view, addresses)
            if loaded is None:
                self.forget(access.results, view, access.row + 1, lanes)
            else:
                for slot, word in zip(access.results, loaded, strict=True):
                    view.write(slot, word.value, word.origin, word.delta, mask)
        if self.tracked is not None and access.kind in _CHANGES and access.space in _KEPT:
            active = view.flat(view.active if lanes is None else view.active & lanes)
            active = np.broadcast_to(active, (len(view.group.rows), WARP_LANES))
            self.tracked.store(access, view, active, addresses if known else None)

    def _load(self, access: Access, view: View, addresses: NDArray[np.uint64]) -> list[Loaded] | None:
        if access.space in (Space.GLOBAL, Space.GENERIC):
            return self.batch.load_global(access, addresses)
        if self.tracked is not None and access.space in (Space.SHARED, Space.LOCAL):
            return self.tracked.load(access, view, addresses)
        return None

    # ---- convergence -----------------------------------------------------------------------------

    def barrier_masks(self, barrier: int) -> NDArray[np.uint32]:
        """Lane mask that each lane's convergence barrier holds, [n_warp, 32]."""
        if barrier not in self.masks:
            self.masks[barrier] = np.zeros((self.batch.n_warps, WARP_LANES), dtype=np.uint32)
        return self.masks[barrier]

    def _converge(self, action: Action, view: View, lanes: Bits | None) -> None:
        group = view.group
        active = group.mask if lanes is None else group.mask & view.flat(lanes)
        masks = self.barrier_masks(action.barrier)
        match action.kind:
            case ActionKind.OPEN:
                masks[group.rows] = np.where(active, lane_words(active)[:, None], masks[group.rows])
            case ActionKind.BREAK:
                gone = lane_words(active)[:, None]
                masks[group.rows] &= ~gone
                self._recheck(action.barrier, group)
            case ActionKind.SAVE:
                for slot in action.writes:
                    within = None if lanes is None else view.shaped(active)
                    view.write(slot, view.shaped(masks[group.rows]), None, None, within)
            case ActionKind.RESTORE:
                for slot in action.writes:
                    value = np.broadcast_to(view.flat(view.value(slot)), active.shape)
                    masks[group.rows] = np.where(active, value, masks[group.rows])
            case _:
                pass

    def _recheck(self, barrier: int, group: Group) -> None:
        """Lanes that wait may go on when others leave their barrier."""
        for index in list(self.meeting):
            if self.kernel.segments[index].end.barrier == barrier:
                self._meet(index, group.rows, group.doubts)

    def _meet(self, index: int, rows: Rows, doubts: tuple[Doubt, ...]) -> None:
        """Release the lanes at BSYNC whose partners are all there, or gone."""
        end = self.kernel.segments[index].end
        waiting = self.meeting.get(index, {})
        masks = self.barrier_masks(end.barrier)
        ready_rows, ready_masks = [], []
        for row in rows.tolist():
            held = waiting.get(row)
            if held is None:
                continue
            live = int(lane_words(self.live[row : row + 1])[0])
            here = int(lane_words(held[None])[0])
            rest = here
            while rest:
                lane = (rest & -rest).bit_length() - 1
                wanted = int(masks[row, lane]) & live | 1 << lane
                rest &= ~(1 << lane)
                if wanted & ~here:
                    continue
                out = _lane_bits(wanted & here)
                ready_rows.append(row)
                ready_masks.append(out)
                here &= ~wanted
                rest &= ~wanted
            if here:
                waiting[row] = _lane_bits(here)
            else:
                del waiting[row]
        if not waiting:
            self.meeting.pop(index, None)
        if ready_rows:
            self._send(end.fall, np.array(ready_rows, dtype=np.int64), np.array(ready_masks), doubts)

    def _send(self, index: int | None, rows: Rows, masks: Bits, doubts: tuple[Doubt, ...]) -> None:
        """A warp may be among `rows` more than once, with other lanes: those go separately."""
        while len(rows):
            _, firsts = np.unique(rows, return_index=True)
            self.enter(index, self.group(rows[firsts], masks[firsts], doubts))
            keep = np.ones(len(rows), dtype=bool)
            keep[firsts] = False
            rows, masks = rows[keep], masks[keep]

    def group(self, rows: Rows, mask: Bits, doubts: tuple[Doubt, ...]) -> Group:
        """A group of these warps and lanes."""
        return Group(
            rows,
            mask,
            is_whole=len(rows) == self.batch.n_warps,
            is_full=bool((mask == self.live[rows]).all()),
            doubts=doubts,
        )

    # ---- ends of segments ------------------------------------------------------------------------

    def _leave(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        group = view.group
        match end.kind:
            case EndKind.NEXT:
                return [(end.fall, group)]
            case EndKind.BRANCH:
                return self._branch(end, view)
            case EndKind.MASK_BRANCH:
                return self._mask_branch(end, view)
            case EndKind.INDIRECT:
                return self._indirect(end, view)
            case EndKind.EXIT:
                return self._exit(end, view)
            case EndKind.MEET:
                return self._sync(end, view)
            case EndKind.WARP_SYNC:
                return self._warp_sync(end, view)
            case EndKind.CTA_BARRIER:
                return self._cta_barrier(end, view)
            case _:
                return [(end.fall, group)]

    def condition(self, conditions: tuple[Guard, ...], view: View) -> tuple[Bits, Origins | None]:
        """All of them true; what is not known of it, unless one that is known is false."""
        taken: Bits = ALL_LANES
        unknown: Origins | None = None
        for guard in conditions:
            lanes, origin = self.guard(guard, view)
            if origin is not None:
                unknown = joined(unknown, np.where(taken, origin, 0).astype(np.int32))
                lanes = lanes | (origin != 0)
            elif unknown is not None:
                unknown = np.where(lanes, unknown, 0).astype(np.int32)
            taken = taken & lanes
        if unknown is not None and not (np.where(view.active, unknown, 0) != 0).any():
            unknown = None
        return taken, unknown

    def _branch(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        if not end.conditions:
            return [(end.target, view.group)]
        taken, unknown = self.condition(end.conditions, view)
        doubts = view.group.doubts
        if unknown is not None:
            origin = int(np.where(view.active, unknown, 0).max())
            unknown = view.flat(unknown)
            guess = self.decide(self, view, end, unknown)
            taken = np.where(unknown != 0, guess, view.flat(taken))
            doubts = self._doubted(end.row, origin, doubts)
        return self._split(end.target, end.fall, taken, view, doubts)

    def _doubted(self, row: int, origin: int, doubts: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
        block = self.batch.meeting_block(row)
        self.tally.hanging.setdefault(row, 0.0)
        self.batch.note_origin(row, origin)
        if any(doubt.row == row for doubt in doubts):
            return doubts
        if block is not None and any(doubt.block == block for doubt in doubts):
            # both end there: the outer one's region holds the inner one's
            place = next(i for i, doubt in enumerate(doubts) if doubt.block == block)
            return (*doubts[: place + 1], *doubts[place + 1 :], Doubt(row, block, origin))
        return (*doubts, Doubt(row, block, origin))

    def _split(
        self, target: int | None, fall: int | None, taken: Bits, view: View, doubts: tuple[Doubt, ...]
    ) -> list[tuple[int | None, Group]]:
        group = view.group
        group.doubts = doubts
        if taken.size == 1:
            return [(target if taken.reshape(1)[0] else fall, group)]
        taken = view.flat(taken)
        goes = group.mask & taken
        if not goes.any():
            return [(fall, group)]
        stays = group.mask & ~taken
        if not stays.any():
            return [(target, group)]
        found: list[tuple[int | None, Group]] = []
        for index, mask in ((target, goes), (fall, stays)):
            here = mask.any(axis=1)
            rows = group.rows[here]
            found.append((index, self._part(rows, mask[here], group, doubts)))
        return found

    def _part(self, rows: Rows, mask: Bits, group: Group, doubts: tuple[Doubt, ...]) -> Group:
        full = group.is_full and bool((mask == self.live[rows]).all())
        return Group(rows, mask, is_whole=len(rows) == self.batch.n_warps, is_full=full, doubts=doubts)

    def _mask_branch(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        """BRA.DIV goes where lanes of the mask are missing, BRA.CONV where none is."""
        group = view.group
        wanted = self.live[group.rows]
        if end.slot is not None and end.slot >= 0:
            words = np.broadcast_to(view.flat(view.value(end.slot))[:, :1], (len(group.rows), 1))
            wanted = wanted & ((words >> np.arange(WARP_LANES, dtype=np.uint32)) & np.uint32(1) == 1)
        together = ~(wanted & ~group.mask).any(axis=1, keepdims=True)
        taken = together if end.wants_together else ~together
        if end.guard is not None:
            taken = taken & view.flat(self.guard(end.guard, view)[0])
        return self._split(end.target, end.fall, taken, view, group.doubts)

    def _indirect(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        group = view.group
        origin = view.origin(end.slot) if end.slot is not None and end.slot >= 0 else None
        if end.slot is None or end.slot < 0 or origin is not None or not end.targets:
            source = end.row + 1 if origin is None else int(np.where(view.active, origin, 0).max())
            doubts = self._doubted(end.row, source or end.row + 1, group.doubts)
            group.doubts = doubts
            return [(end.targets[0][1] if end.targets else end.fall, group)]
        word = np.broadcast_to(view.flat(view.value(end.slot)), group.mask.shape).astype(np.int64)
        word = np.where(word >= 1 << 31, word - (1 << 32), word)
        left = group.mask.copy()
        found: list[tuple[int | None, Group]] = []
        for address, index in end.targets:
            here = left & ((word == address) | (word + end.offset == address))
            if here.any():
                rows = here.any(axis=1)
                found.append((index, self._part(group.rows[rows], here[rows], group, group.doubts)))
                left &= ~here
        if left.any():
            doubts = self._doubted(end.row, end.row + 1, group.doubts)
            rows = left.any(axis=1)
            found.append((end.targets[0][1], self._part(group.rows[rows], left[rows], group, doubts)))
        return found

    def _exit(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        group = view.group
        conditions = (*((end.guard,) if end.guard else ()), *end.conditions)
        if not conditions:
            self._die(group, group.mask)
            return []
        taken, unknown = self.condition(conditions, view)
        doubts = group.doubts
        if unknown is not None:
            origin = int(np.where(view.active, unknown, 0).max())
            unknown = view.flat(unknown)
            taken = np.where(unknown != 0, self.decide(self, view, end, unknown), view.flat(taken))
            doubts = self._doubted(end.row, origin, doubts)
        taken = view.flat(taken)
        gone = group.mask & taken
        if not gone.any():
            group.doubts = doubts
            return [(end.fall, group)]
        stays = group.mask & ~taken
        was_full = group.is_full
        self._die(group, gone)
        here = stays.any(axis=1)
        if not here.any():
            return []
        rows = group.rows[here]
        whole = len(rows) == self.batch.n_warps
        return [(end.fall, Group(rows, stays[here], is_whole=whole, is_full=was_full, doubts=doubts))]

    def _die(self, group: Group, gone: Bits) -> None:
        self.live[group.rows] &= ~gone
        self.batch.all_live = self.batch.all_live and not gone.any()
        for index in list(self.meeting):
            self._meet(index, group.rows, group.doubts)
        self._release_barriers(np.unique(self.batch.ctas[group.rows]))

    def _sync(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        group = view.group
        masks = self.barrier_masks(end.barrier)[group.rows]
        live = lane_words(self.live[group.rows])[:, None]
        own = lane_words(group.mask)[:, None]
        missing = np.where(group.mask, masks & live & ~own, 0)
        index = self._segment_of(end)
        if not missing.any() and index not in self.meeting:
            return [(end.fall, group)]
        waiting = self.meeting.setdefault(index, {})
        for row, mask in zip(group.rows.tolist(), group.mask, strict=True):
            held = waiting.get(row)
            waiting[row] = mask if held is None else held | mask
        view.flush()
        self._meet(index, group.rows, group.doubts)
        return []

    def _segment_of(self, end: End) -> int:
        block = self.kernel.cfg.block_of[end.row]
        first = self.kernel.entry_of[block]
        while self.kernel.segments[first].end is not end:
            first += 1
        return first

    def _warp_sync(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        """All lanes of a warp meet; those of the mask are taken to be all that live."""
        group = view.group
        if group.is_full:
            return [(end.fall, group)]
        index = self._segment_of(end)
        waiting = self.meeting.setdefault(index, {})
        rows, masks = [], []
        for row, mask in zip(group.rows.tolist(), group.mask, strict=True):
            held = mask if row not in waiting else waiting[row] | mask
            if (held == self.live[row]).all():
                waiting.pop(row, None)
                rows.append(row)
                masks.append(held)
            else:
                waiting[row] = held
        if not waiting:
            self.meeting.pop(index, None)
        if rows:
            view.flush()
            self._send(end.fall, np.array(rows, dtype=np.int64), np.array(masks), group.doubts)
        return []

    # ---- barriers of a CTA, where shared memory is kept ------------------------------------------

    def _cta_barrier(self, end: End, view: View) -> list[tuple[int | None, Group]]:
        group = view.group
        view.flush()
        ctas = self.batch.ctas[group.rows]
        if self._all_came(group, ctas, end):
            return [(end.fall, group)]
        passed: list[tuple[int | None, Group]] = []
        for cta in np.unique(ctas).tolist():
            here = ctas == cta
            part = self._part(group.rows[here], group.mask[here], group, group.doubts)
            key = (cta, end.barrier)
            arrived = self.arrived.setdefault(key, np.zeros_like(self.live))
            arrived[part.rows] |= part.mask
            if end.arrives_only:
                passed.append((end.fall, part))
            else:
                self.waiting.setdefault(key, []).append((end.fall if end.fall is not None else -1, part))
            self._open_barrier(key, end.count)
        return passed

    def _all_came(self, group: Group, ctas: IntArray, end: End) -> bool:
        """All live warps of these CTAs come to the barrier at once, and nobody was there before."""
        if not group.is_full or end.arrives_only or self.arrived:
            return False
        n_ctas = len(self.batch.cta_numbers)
        came = np.bincount(ctas, minlength=n_ctas)
        alive = np.bincount(self.batch.ctas, weights=self.live.any(axis=1), minlength=n_ctas)
        return bool(((came == 0) | (came == alive)).all())

    def _open_barrier(self, key: tuple[int, int], count: int | None) -> None:
        """Let those at a barrier go on once enough threads have come."""
        arrived = self.arrived.get(key)
        if arrived is None:
            return
        members = self.batch.ctas == key[0]
        live = int(self.live[members].sum())
        wanted = live if count is None else min(count, live)
        if int((arrived[members] & self.live[members]).sum()) < wanted:
            return
        del self.arrived[key]
        for index, part in self.waiting.pop(key, []):
            self.enter(index, part)

    def _release_barriers(self, ctas: NDArray[np.int64]) -> None:
        if self.arrived:
            for key in [key for key in self.arrived if key[0] in set(ctas.tolist())]:
                self._open_barrier(key, None)

    def _release_stuck(self) -> bool:
        """Nobody can go on: let the first that wait go on, as hardware would hang."""
        if self.waiting:
            key = next(iter(self.waiting))
            self.arrived.pop(key, None)
            for index, part in self.waiting.pop(key):
                self.enter(index, part)
            return True
        if self.meeting:
            index = next(iter(self.meeting))
            waiting = self.meeting.pop(index)
            rows = np.array(list(waiting), dtype=np.int64)
            self._send(self.kernel.segments[index].end.fall, rows, np.array(list(waiting.values())), ())
            return True
        return False


def lane_words(mask: Bits) -> Words:
    """[n, 32] lanes as one word per warp."""
    packed = np.packbits(np.ascontiguousarray(mask), axis=1, bitorder="little")
    words: Words = packed.view(np.uint32).reshape(-1)
    return words


def _lane_bits(word: int) -> Bits:
    bits: Bits = (np.uint32(word) >> np.arange(WARP_LANES, dtype=np.uint32)) & np.uint32(1) == 1
    return bits


def _whole_warp(origin: Origins, active: Bits) -> Origins:
    """Lanes mix: one unknown active lane makes the warp's result unknown."""
    found: Origins = np.where(active, origin, 0).max(axis=-1, keepdims=True).astype(np.int32)
    return found


def _together(groups: list[Group], n_warps: int) -> tuple[list[Group], list[Group]]:
    """Join groups of distinct warps; those that share a warp go one after the other."""
    if len(groups) == 1:
        return groups, []
    by_doubt: dict[tuple[Doubt, ...], list[Group]] = {}
    for group in groups:
        by_doubt.setdefault(group.doubts, []).append(group)
    if len(by_doubt) > 1:
        first, *others = by_doubt.values()
        return _together(first, n_warps)[0], [
            *_together(first, n_warps)[1],
            *(group for other in others for group in other),
        ]
    rows = np.concatenate([group.rows for group in groups])
    if len(np.unique(rows)) < len(rows):
        return groups[:1], groups[1:]
    order = np.argsort(rows, kind="stable")
    mask = np.concatenate([group.mask for group in groups])[order]
    whole = len(rows) == n_warps
    full = all(group.is_full for group in groups)
    return [Group(rows[order], mask, is_whole=whole, is_full=full, doubts=groups[0].doubts)], []
