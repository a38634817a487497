"""Abstract execution: many warps at once, 32 lanes wide, only the slice that control and addresses need.

Warps that stand at the same segment go on together as a `Group`. Lanes of a warp part at a branch and meet
where hardware lets them: at BSYNC with the lanes that its barrier register holds, at WARPSYNC. Groups whose
segment comes first in reverse postorder run first, so that those ahead wait for those behind.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.axes import AxesFinder
from analyzer.execution.branches import leave
from analyzer.execution.budget import Budget
from analyzer.execution.bulk import parts_of
from analyzer.execution.convergence import Convergence, Onward
from analyzer.execution.evenness import Evenness
from analyzer.execution.hearing import Ears
from analyzer.execution.lanes import (
    UNEVEN,
    Doubt,
    Group,
    LaneState,
    Origins,
    Rows,
    View,
    joined,
    made_uneven,
    same_warps,
    smallest,
    uneven,
    where_active,
)
from analyzer.execution.memory import Addresses, Overwritten, TrackedMemory, lane_addresses
from analyzer.execution.program import Access, Action, ActionKind, CompiledKernel, End, Segment
from analyzer.execution.shared_memory import Loaded
from analyzer.execution.slicing import Guard
from analyzer.execution.step import Bits, ConstantRead, Read, SpecialRead, Step, Value
from analyzer.execution.tally import new_tally
from analyzer.execution.unknown_words import lost_origin
from analyzer.execution.warps import Batch
from analyzer.execution.watching import Watcher
from analyzer.flow.loops import Loop
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind, Space
from analyzer.isa.roles import PREDICATE_BASE

IntArray = NDArray[np.int64]
Decide = Callable[["Machine", View, End, Origins], Bits]

_LAST = 1 << 30
_LARGE = 4096
_PER_WARP = 2  # dimensions of an array of some warps' lanes
_CHANGES = frozenset({OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION})


class Machine:
    """Executes a compiled kernel for a batch of warps.

    decide: what a branch does whose condition is unknown (see `analyzer.execution.guesses`).
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        batch: Batch,
        decide: Decide,
        budget: Budget,
    ) -> None:
        self.kernel, self.batch, self.decide, self.budget = kernel, batch, decide, budget
        self.state = LaneState((*batch.cta_shape, batch.shape.warps_per_cta))
        self.has_columns = 1 not in batch.cta_shape
        self.axes_finder: AxesFinder | None = None
        self.live: Bits = batch.live.copy()
        self.tally = new_tally(kernel, batch)
        self.queue: dict[int, list[Group]] = {}
        self.convergence = Convergence(self)
        self.kept_spaces = kernel.slice.kept_spaces
        self.tracked = TrackedMemory(batch) if self.kept_spaces else None
        self.overwritten = Overwritten(batch.image.allocations)
        self.watcher: Watcher | None = None
        self.left_at: dict[int, IntArray] = {}  # header runs when a loop was last left on assumption
        self.evenness: Evenness | None = None
        self.ears: Ears | None = None
        self.on_header: Callable[[Segment, Group], bool] | None = None
        self.headers = {kernel.entry_of[loop.header]: loop for loop in kernel.nest.loops}
        # a header waits for all that is still inside its loop, so that warps do not run ahead
        self.header_ranks = {
            kernel.entry_of[loop.header]: self._last_rank(loop) for loop in kernel.nest.loops
        }

    def _last_rank(self, loop: Loop) -> tuple[int, int]:
        """Behind all blocks of a loop."""
        first = self.kernel.entry_of
        return max(self.kernel.segments[first[block]].rank[0] for block in loop.blocks), _LAST

    def runs_of(self, index: int) -> IntArray:
        """How often each warp ran a segment."""
        runs: IntArray = self.tally.segments[index]
        return runs

    def left_before(self, loop: int) -> IntArray | None:
        """Header runs of each warp when it last left a loop on assumption, None where none has."""
        return self.left_at.get(loop)

    # ---- scheduling ------------------------------------------------------------------------------

    def start(self) -> None:
        """Put all warps at the entry."""
        rows = np.arange(self.batch.n_warps, dtype=np.int64)
        self.enter(self.kernel.entry_of[0], self.made(rows, self.live.copy(), (), is_full=True))

    def run(self) -> None:
        """Execute until no warp is left. Raises StopExecution where the budget is used up."""
        with np.errstate(all="ignore"):
            while self.step():
                pass

    def step(self) -> bool:
        """Run the groups of the first segment that has some; False where none is left."""
        if not self.queue and not self.convergence.release_stuck():
            return False
        segments = self.kernel.segments
        index = min(self.queue, key=lambda i: self.header_ranks.get(i, segments[i].rank))
        groups, later = self._together(self.queue.pop(index))
        if later:
            self.queue[index] = later
        segment = segments[index]
        for group in groups:
            if segment.is_first and index in self.headers and self.at_header(segment, group):
                continue
            self.execute(segment, group)
        return True

    def _together(self, groups: list[Group]) -> tuple[list[Group], list[Group]]:
        """Join groups of distinct warps; those that share a warp go one after the other."""
        if len(groups) == 1:
            return groups, []
        by_doubt: dict[tuple[Doubt, ...], list[Group]] = {}
        for group in groups:
            by_doubt.setdefault(group.doubts, []).append(group)
        if len(by_doubt) > 1:
            first, *others = by_doubt.values()
            now, later = self._together(first)
            return now, [*later, *(group for other in others for group in other)]
        if all(group.warps is not None for group in groups):
            whole = self._joined([group.warps for group in groups if group.warps is not None], groups)
            return ([whole], []) if whole is not None else (groups[:1], groups[1:])
        rows = np.concatenate([group.rows for group in groups])
        order = np.argsort(rows, kind="stable")
        if not (np.diff(rows[order]) > 0).all():
            return groups[:1], groups[1:]
        mask = np.concatenate([group.mask for group in groups])[order]
        full = all(group.is_full for group in groups)
        return [self.made(rows[order], mask, groups[0].doubts, is_full=full)], []

    def _joined(self, warps: list[Rows], groups: list[Group]) -> Group | None:
        """Groups of these warps of every CTA as one; None where they share some."""
        every = np.concatenate(warps)
        order = np.argsort(every)
        numbers = every[order]
        if bool((numbers[1:] == numbers[:-1]).any()):
            return None
        n_ctas, per_cta = len(self.batch.cta_numbers), self.batch.shape.warps_per_cta
        rows = (np.arange(n_ctas, dtype=np.int64)[:, None] * per_cta + numbers).reshape(-1)
        full = all(group.is_full for group in groups)
        if full:
            mask = self.live[rows]
        else:
            masks = [group.mask.reshape(n_ctas, -1, WARP_LANES) for group in groups]
            mask = np.concatenate(masks, axis=1)[:, order].reshape(-1, WARP_LANES)
        return self.made(rows, mask, groups[0].doubts, is_full=full, warps=numbers)

    def at_header(self, segment: Segment, group: Group) -> bool:
        """Called before a group runs a loop's header; True where it has nothing to run."""
        return self.on_header is not None and self.on_header(segment, group)

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
            unknown = np.full((1, 1), doubt.origin | UNEVEN, dtype=np.int32)
            for slot in written:
                if needed >> slot & 1:
                    view.write(slot, view.value(slot), unknown)
            for slot in self.tracked.doubtful if self.tracked else ():
                view.write(slot, view.value(slot), unknown)
            view.flush()
            group.doubts = group.doubts[:place]
            return

    def execute(self, segment: Segment, group: Group) -> None:
        """Run one segment and send the group on."""
        view = View(self.state, group, all_lanes=group.is_full and self.batch.all_live)
        self.tally.count(segment, view, self.batch)
        if self.ears is not None:
            self.ears.note_run(segment, view)
        for action in segment.actions:
            self._act(action, view)
        self._pay(segment, view)
        ahead = self._leave(segment, view)
        view.flush()
        for index, part in ahead:
            loop = self.headers.get(index) if index is not None else None
            if loop is not None and segment.block not in loop.blocks:
                self.tally.entries[loop.index, part.rows] += 1
            self.enter(index, part)

    def _pay(self, segment: Segment, view: View) -> None:
        """Steps of a whole group cost what they write; all else is done row by row."""
        n_actions, n_lanes = len(segment.actions), len(view.group.rows) * WARP_LANES
        if not view.group.is_whole:
            self.budget.spend(n_actions, n_actions * n_lanes)
            return
        by_row = 1 + sum(action.step is None or action.step.uses_mask for action in segment.actions)
        self.budget.spend(n_actions, view.n_written + by_row * n_lanes // 2)

    def _leave(self, segment: Segment, view: View) -> Onward:
        return leave(self, segment.end, view)

    # ---- actions ---------------------------------------------------------------------------------

    def _act(self, action: Action, view: View) -> None:  # noqa: C901 - calls would cost as much as actions
        lanes: Bits | None = None
        unknown: Origins | None = None
        if action.guard is not None:
            lanes, unknown = self.guard(action.guard, view)
            unknown = where_active(unknown, view.active)
            if unknown is None:
                if not (lanes & view.active).any():
                    return
                if lanes.all():
                    lanes = None
            else:
                lanes = lanes | (unknown != 0)
                unknown = made_uneven(unknown)
        match action.kind:
            case ActionKind.STEP if action.step is not None:
                self.apply(action.step, view, lanes, unknown)
            case ActionKind.ACCESS:
                for access in action.accesses:
                    self._access(access, view, lanes, unknown)
            case ActionKind.FORGET:
                self.forget(action.writes, view, uneven(action.row), lanes)
            case ActionKind.PASS | ActionKind.ALLOCATE:
                self._pass(action, view, lanes)
            case ActionKind.SIGNAL:
                self.tell_signal(action, view, lanes)
                self._pass(action, view, lanes)
            case _:
                self.convergence.converge(action, view, lanes)

    def tell_signal(self, action: Action, view: View, lanes: Bits | None) -> None:
        """Something is said to an mbarrier."""
        if self.ears is not None and action.signal is not None:
            self.ears.hear(action.signal, view, lanes)

    def guard(self, guard: Guard, view: View) -> tuple[Bits, Origins | None]:
        """Lanes whose guard is true, and the origin of what is not known of it."""
        slot, negated = guard
        value = view.value(slot)
        return (~value if negated else value), view.origin(slot)

    def forget(self, writes: Iterable[int], view: View, origin: int, lanes: Bits | None) -> None:
        """Results become unknown; see `UnknownWords` for their values."""
        unknown = np.full((1, 1), origin, dtype=np.int32)
        mask = None if lanes is None else self._within(lanes, view)
        for slot in writes:
            if slot >= 0:
                nothing = np.zeros((1, 1), dtype=bool if slot >= PREDICATE_BASE else np.uint32)
                view.write(slot, nothing, unknown, None, mask)

    def _pass(self, action: Action, view: View, lanes: Bits | None) -> None:
        """Waits end: the predicate says so; a state word is opaque."""
        mask = None if lanes is None else self._within(lanes, view)
        for slot in action.writes:
            if slot >= PREDICATE_BASE:
                view.write(slot, np.ones((1, 1), dtype=bool), None, None, mask)
            elif slot >= 0:
                is_opaque = action.kind is not ActionKind.ALLOCATE
                origin = np.full((1, 1), uneven(action.row), np.int32) if is_opaque else None
                view.write(slot, np.zeros((1, 1), dtype=np.uint32), origin, None, mask)

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

    def read_all(self, step: Step, view: View, unknown: Origins | None) -> tuple[list[Value], Origins | None]:
        """What a step reads, and the joint origin of `unknown` and all that is not known of it."""
        guard, found = unknown, [self.read(what, view) for what in step.reads]
        words, sources = [value for value, _ in found], [source for _, source in found]
        for source in sources:
            if source is not None:
                unknown = joined(unknown, source)
        if step.is_equality and guard is None and self.batch.unknown_words.is_told(words, sources, view):
            return words, None
        if unknown is not None and self.batch.unknown_words.makes_uneven(step, words, sources, unknown):
            unknown = made_uneven(unknown)
        return words, unknown

    def loses(self, step: Step, view: View, lanes: Bits | None, unknown: Origins | None) -> bool:
        """Whether nothing is known of what a step reads: its results are not worked out then."""
        origin = lost_origin(step, view, unknown)
        if origin is not None:
            self.forget(step.writes, view, origin, lanes)
        return origin is not None

    def apply(self, step: Step, view: View, lanes: Bits | None, unknown: Origins | None) -> None:
        """Carry out one compiled instruction."""
        if self.loses(step, view, lanes, unknown):
            return
        step = settled(step, view, unknown)
        words, origin = self.read_all(step, view, unknown)
        if step.uses_mask:
            active = view.active if lanes is None else view.active & lanes
            rows = np.broadcast_to(view.flat(active), (len(view.group.rows), WARP_LANES))
            results = tuple(map(view.shaped, step.apply(rows, *map(view.flat, words))))
            if origin is not None:
                origin = _whole_warp(origin, active)
        else:
            results = step.apply(*words)
            if self.watcher is not None:
                self.watcher.see(step, words, results, view)
            if self.evenness is not None:
                self.evenness.check(step, words, view, self.batch)
            if self.axes_finder is not None and view.group.is_whole:
                self.axes_finder.look(words, results)
            if self.has_columns:
                results = tuple(map(_narrowed, results))
        mask = None if lanes is None else self._within(lanes, view)
        for slot, result in zip(step.writes, results, strict=True):
            if slot >= 0:
                view.write(slot, result, origin, None, mask)

    def access_lanes(
        self, access: Access, view: View, lanes: Bits | None, unknown: Origins | None
    ) -> tuple[Bits, Origins | None]:
        """Lanes that may take part in an access, and the origin of what is not known of that."""
        active = view.active if lanes is None else view.active & lanes
        for guard in access.masks:
            more, source = self.guard(guard, view)
            if source is not None:
                more, unknown = more | (source != 0), joined(unknown, source)
            active = active & more
        return active, where_active(unknown, active)

    def _access(self, access: Access, view: View, lanes: Bits | None, unknown: Origins | None) -> None:
        active, unknown = self.access_lanes(access, view, lanes, unknown)
        for part in parts_of(access, view, active, self.batch.image.tensors):
            self.touch(part.access, view, lanes, part.active, unknown)

    def touch(
        self, access: Access, view: View, lanes: Bits | None, active: Bits, unknown: Origins | None
    ) -> None:
        """Log an access of these active lanes, and change what it changes."""
        addresses = origin = None
        if access.address is not None:
            addresses, origin = lane_addresses(access.address, view)
            origin = where_active(origin, active)
        if self.watcher is not None and access.space is Space.SHARED and access.space in self.kept_spaces:
            self.watcher.reach(access, active, addresses if origin is None else None)
        self.tally.memory.record(access, view.group, active, addresses, origin, unknown)
        self._transfer(access, view, lanes, addresses, origin)

    def _transfer(
        self,
        access: Access,
        view: View,
        lanes: Bits | None,
        addresses: Addresses | None,
        origin: Origins | None,
    ) -> None:
        """Contents: of buffers, and of shared and local memory where the slice keeps them."""
        mask = None if lanes is None else self._within(lanes, view)
        if access.results:
            loaded = None
            is_awaited = access.row in self.kernel.awaited
            if addresses is not None and access.kind is OpKind.LOAD and not is_awaited:
                loaded = self._load(access, view, addresses, lanes)
            if loaded is None:
                source = self.batch.unknown_words.origin_of(access, view.active, addresses, origin)
                self.lose(access, view, addresses, source, lanes)
            else:
                for slot, word in zip(access.results, loaded, strict=True):
                    view.write(slot, word.value, joined(word.origin, origin), word.delta, mask)
        if access.kind not in _CHANGES:
            return
        known = addresses if origin is None else None
        active = view.active if lanes is None else view.active & lanes
        if access.space in GLOBAL_SPACES:
            self.overwritten.store(access, active, known)
        if self.tracked is not None and access.space in self.kept_spaces:
            self.tracked.store(access, view, active, known)

    def lose(self, access: Access, view: View, at: Addresses | None, source: int, lanes: Bits | None) -> None:
        """Nothing is known of what an access brings; source: the origin of its words."""
        self.forget(access.results, view, source, lanes)

    def _load(
        self, access: Access, view: View, addresses: Addresses, lanes: Bits | None
    ) -> list[Loaded] | None:
        if access.space in GLOBAL_SPACES:
            return self.overwritten.hide(access, addresses, self.batch.load_global(access, addresses))
        if self.tracked is not None and access.space in self.kept_spaces:
            return self.tracked.load(access, view, addresses, lanes)
        return None

    # ---- groups ----------------------------------------------------------------------------------

    def made(
        self,
        rows: Rows,
        mask: Bits,
        doubts: tuple[Doubt, ...],
        *,
        is_full: bool,
        warps: Rows | None = None,
    ) -> Group:
        """A group of these warps and lanes, of which it is known whether all are there.

        warps: those of every CTA, if that is known.
        """
        if len(rows) == self.batch.n_warps:
            return Group(rows, mask, is_whole=True, is_full=is_full, doubts=doubts)
        n_ctas = len(self.batch.cta_numbers)
        if warps is None or n_ctas == 1:
            warps = same_warps(rows, n_ctas, self.batch.shape.warps_per_cta)
        return Group(rows, mask, is_whole=False, is_full=is_full, doubts=doubts, warps=warps)

    def group(self, rows: Rows, mask: Bits, doubts: tuple[Doubt, ...]) -> Group:
        """A group of these warps and lanes."""
        return self.made(rows, mask, doubts, is_full=bool((mask == self.live[rows]).all()))

    def part(self, rows: Rows, mask: Bits, group: Group, doubts: tuple[Doubt, ...]) -> Group:
        """Some warps and lanes of a group."""
        full = group.is_full and bool((mask == self.live[rows]).all())
        return self.made(rows, mask, doubts, is_full=full)

    def note_lost(self, row: int) -> None:
        """How it goes on from this instruction is not known: no count can be trusted."""
        self.tally.doubted.update(range(len(self.kernel.cfg.blocks)))
        self.tally.hanging.setdefault(row, 0.0)
        self.batch.note_origin(row, row + 1)

    def die(self, group: Group, gone: Bits) -> None:
        """These lanes end."""
        self.live[group.rows] &= ~gone
        self.batch.all_live = self.batch.all_live and not gone.any()
        self.convergence.gone(group)


def settled(step: Step, view: View, unknown: Origins | None) -> Step:
    """Of a step that combines lanes, what it comes to where all of them hold the same known word."""
    if step.alike is None or unknown is not None or not isinstance(first := step.reads[0], int):
        return step
    arrays = (view.value(first), view.delta(first))
    is_same = view.origin(first) is None and all(array is None or array.shape[-1] == 1 for array in arrays)
    return step.alike if is_same else step


def _narrowed(value: Value) -> Value:
    """What depends on the CTA alone, or is large, held once along axes on which it is the same."""
    is_of_ctas = value.ndim > _PER_WARP and value.shape[2:] == (1, 1) and 1 not in value.shape[:2]
    return smallest(value) if is_of_ctas or value.size >= _LARGE else value


def _whole_warp(origin: Origins, active: Bits) -> Origins:
    """Lanes mix: one unknown active lane makes the warp's result unknown."""
    found: Origins = np.where(active, origin, 0).max(axis=-1, keepdims=True).astype(np.int32)
    return found
