"""Execution told to a recorder, warp by warp: the rows that run, the lanes that guards leave, addresses.

Guards of instructions outside of the slice are told only where their predicate is computed all the same:
every write of it that may come before is in the slice. The others run in all lanes of their block.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from weakref import proxy

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.access_log import Addresses, MemoryLog
from analyzer.execution.budget import Budget, StopExecution
from analyzer.execution.convergence import Onward
from analyzer.execution.guesses import Guesser
from analyzer.execution.image import ConstantImage
from analyzer.execution.lanes import UNEVEN, Group, Origins, View
from analyzer.execution.machine import Machine
from analyzer.execution.program import Access, Action, CompiledKernel, EndKind, Segment
from analyzer.execution.record import Lanes, Recorder, Warps
from analyzer.execution.returning import followers_of
from analyzer.execution.shared_memory import Loaded
from analyzer.execution.slicing import Guard, guard_of
from analyzer.execution.stand_ins import StandIns
from analyzer.execution.step import Bits, Step, Words
from analyzer.execution.unknown_words import Trust
from analyzer.execution.warps import Batch, Shape, within_memory
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import OpKind
from analyzer.isa.roles import PREDICATE_BASE, may_write_fewer
from analyzer.text.errors import UsageError

_CHUNK_WARPS = 4096
_MAX_STEPS = 200_000_000
_SHORTER = "--trip gives loops an end, --ctas N records the first N thread blocks alone"

IntArray = NDArray[np.int64]


class GuardTable(Struct, frozen=True, eq=False):
    """Guards of a kernel's instructions.

    known[segment]: guards whose lanes execution knows, by row; None for one that is always false.
    blind: rows whose guards it does not know.
    """

    known: tuple[tuple[tuple[int, Guard | None], ...], ...]
    blind: tuple[int, ...]


@lru_cache(maxsize=4)
def guard_table(kernel: CompiledKernel) -> GuardTable:
    """Which guards execution knows."""
    stale = _stale_predicates(kernel)
    known, blind = [], []
    for segment in kernel.segments:
        acts = {action.row for action in segment.actions} | {segment.end.row}
        found: list[tuple[int, Guard | None]] = []
        for row in range(segment.start, segment.stop):
            form = kernel.cfg.kernel.form(row)
            guard = guard_of(form)
            if form.is_never:
                found.append((row, None))
            elif guard is not None and (row in acts or not stale[row] >> guard[0] & 1):
                found.append((row, guard))
            elif guard is not None:
                blind.append(row)
        known.append(tuple(found))
    return GuardTable(tuple(known), tuple(blind))


def _stale_predicates(kernel: CompiledKernel) -> list[int]:
    """For each row a mask of the predicates that may differ from what hardware has there."""
    cfg = kernel.cfg
    effects = [_effect(kernel, row) for row in range(len(cfg.kernel))]
    followers = followers_of(cfg)
    at_entry = [0] * len(cfg.blocks)
    work = list(range(len(cfg.blocks)))
    found = [0] * len(cfg.kernel)
    while work:
        index = work.pop()
        stale, block = at_entry[index], cfg.blocks[index]
        for row in range(block.start, block.stop):
            found[row] = stale
            spoils, settles = effects[row]
            stale = stale & ~settles | spoils
        for follower in followers[index]:
            if stale & ~at_entry[follower]:
                at_entry[follower] |= stale
                work.append(follower)
    return found


def _effect(kernel: CompiledKernel, row: int) -> tuple[int, int]:
    """Predicates that the instruction makes stale, and those that it makes right."""
    form = kernel.cfg.kernel.form(row)
    if form.is_never:
        return 0, 0
    written = sum(1 << slot for slot in set(form.written) if slot >= PREDICATE_BASE)
    if not kernel.slice.rows[row]:
        return written, 0
    is_partial = guard_of(form) is not None or may_write_fewer(form.operands)
    return 0, 0 if is_partial else written


class _Telling(Struct, eq=False):
    """One run of a segment while it goes on."""

    warps: Warps
    mask: Lanes
    guards: Iterator[tuple[int, Guard | None]]
    ahead: tuple[int, Guard | None] | None = None
    open_end: bool = False


class RecordedMachine(Machine):
    """A machine that tells a recorder what it does. It must not close loops.

    stand_ins: random words for unknown ones. Addresses that hang on these alone are told, and those in which
    zeros stand for unknown words, where `UnknownWords` trusts them.
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        batch: Batch,
        decide: Guesser,
        recorder: Recorder,
        budget: Budget,
        *,
        stand_ins: StandIns | None = None,
    ) -> None:
        super().__init__(kernel, batch, decide, budget)
        self.recorder = recorder
        self.stand_ins = stand_ins
        self.least_trust = Trust.ALL if stand_ins is None else Trust.PLACE
        self.numbers: Warps = batch.cta_numbers[batch.ctas] * batch.shape.warps_per_cta + batch.warps
        self.guards = guard_table(kernel)
        self.telling = _Telling(self.numbers, self.live, iter(()))
        self.tally.memory = _TellingLog(self)

    def execute(self, segment: Segment, group: Group) -> None:
        """See `Machine`."""
        guards = iter(self.guards.known[segment.index])
        self.telling = _Telling(self.numbers[group.rows], group.mask, guards)
        if segment.start < segment.stop:
            self.recorder.run(segment.start, segment.stop, self.telling.warps, group.mask)
            self.telling.ahead = next(guards, None)
        super().execute(segment, group)

    def _act(self, action: Action, view: View) -> None:
        self._tell_guards(action.row, view)
        super()._act(action, view)

    def _leave(self, segment: Segment, view: View) -> Onward:
        end, telling = segment.end, self.telling
        self._tell_guards(end.row, view, is_branch=end.kind in (EndKind.BRANCH, EndKind.EXIT))
        ahead = super()._leave(segment, view)
        if telling.open_end:
            # a guess decided: lanes that took the branch are those that did not fall through
            stayed = np.zeros_like(telling.mask)
            for index, part in ahead:
                if index == end.fall and index != end.target:
                    stayed[np.searchsorted(view.group.rows, part.rows)] |= part.mask
            self.recorder.guard(end.row, telling.warps, telling.mask & ~stayed)
        return ahead

    def _tell_guards(self, row: int, view: View, *, is_branch: bool = False) -> None:
        """Guards of rows up to this one, whose predicates have the values that those rows see."""
        telling = self.telling
        while telling.ahead is not None and telling.ahead[0] <= row:
            at, guard = telling.ahead
            telling.ahead = next(telling.guards, None)
            if guard is None:
                self.recorder.guard(at, telling.warps, np.zeros_like(telling.mask))
                continue
            lanes, unknown = self.guard(guard, view)
            if unknown is not None and is_branch and at == row:
                telling.open_end = True
                continue
            if unknown is not None:
                lanes = lanes | (unknown != 0)
            own = self._spread_out(lanes, view)
            if (own != telling.mask).any():
                self.recorder.guard(at, telling.warps, own)

    def loses(self, step: Step, view: View, lanes: Bits | None, unknown: Origins | None) -> bool:
        """See `Machine`; random words are worked with."""
        return self.stand_ins is None and super().loses(step, view, lanes, unknown)

    def lose(self, access: Access, view: View, at: Addresses | None, source: int, lanes: Bits | None) -> None:
        """See `Machine`."""
        if self.stand_ins is None or at is None or not self.stand_ins.stands_for(access.row):
            super().lose(access, view, at, source, lanes)
            return
        origin = np.full((1, 1), source, dtype=np.int32)
        mask = None if lanes is None else self._within(lanes, view)
        words = self.stand_ins.words(access, at, is_even=source < UNEVEN)
        for slot, word in zip(access.results, words, strict=True):
            if slot >= 0:
                view.write(slot, word, origin, None, mask)

    def _load(
        self, access: Access, view: View, addresses: Addresses, lanes: Bits | None
    ) -> list[Loaded] | None:
        """Zeros that shared and local memory hold for unknown words are none to go by."""
        loaded = super()._load(access, view, addresses, lanes)
        if self.stand_ins is None or loaded is None or not self.stand_ins.stands_for(access.row):
            return loaded
        words = self.stand_ins.words(access, addresses, is_even=False)
        return [_filled(known, word) for known, word in zip(loaded, words, strict=True)]

    def _spread_out(self, lanes: Bits, view: View) -> Lanes:
        found: Lanes = np.broadcast_to(view.flat(lanes), self.telling.mask.shape) & self.telling.mask
        return found

    def tell_access(
        self, access: Access, active: Lanes, addresses: Addresses | None, unknown: Lanes | None
    ) -> None:
        """Of a copy to shared memory the global side alone: a trace tells nothing of the other."""
        kind = self.kernel.cfg.kernel.opcode(access.row).kind
        if kind is OpKind.ASYNC_COPY and access.kind is OpKind.STORE:
            return
        warps = self.telling.warps
        if addresses is None or access.bulk is not None:
            self.recorder.lost(access.row, warps, active)
            return
        if self.stand_ins is not None:
            addresses = self.stand_ins.placed(access, addresses)
        if unknown is None:
            self.recorder.access(access.row, warps, active, addresses)
            return
        lost: NDArray[np.bool_] = np.any(active & unknown, axis=1)
        if not lost.all():
            self.recorder.access(access.row, warps[~lost], active[~lost], addresses[~lost])
        if lost.any():
            self.recorder.lost(access.row, warps[lost], active[lost])


def _filled(loaded: Loaded, word: Words) -> Loaded:
    """The word where zero stands for what is not known."""
    if loaded.origin is None:
        return loaded
    is_empty = (loaded.origin != 0) & (loaded.value == 0)
    return Loaded(np.where(is_empty, word, loaded.value), loaded.origin, loaded.delta)


class _TellingLog(MemoryLog):
    """A log that tells of requests, and keeps none: nobody adds up what was recorded."""

    def __init__(self, machine: RecordedMachine) -> None:
        super().__init__(machine.batch)
        self.machine: RecordedMachine = proxy(machine)  # which owns this

    def record(
        self,
        access: Access,
        group: Group,
        active: Bits,
        addresses: Addresses | None,
        origin: Origins | None,
        unknown: Origins | None,
        steps: IntArray | None = None,
    ) -> None:
        """See `MemoryLog`."""
        self.machine.tell_access(
            access,
            self._rows(active, group) & group.mask,
            None if addresses is None else self._rows(addresses, group),
            self._lost(origin, active, group),
        )

    def _lost(self, origin: Origins | None, active: Bits, group: Group) -> Lanes | None:
        """Lanes whose addresses nobody knows."""
        if origin is None or self.batch.unknown_words.trust(origin, active) >= self.machine.least_trust:
            return None
        if self.machine.stand_ins is not None and self.machine.stand_ins.explain(origin, active):
            return None
        lost: Lanes = self._rows(origin, group) != 0
        return lost

    def _rows(self, array: NDArray[Any], group: Group) -> NDArray[Any]:
        """One row per warp of the group."""
        if array.ndim > 2:
            n_warps = len(group.rows) // len(self.batch.cta_numbers)
            shape = (*self.batch.cta_shape, n_warps, WARP_LANES)
            return np.broadcast_to(array, shape).reshape(-1, WARP_LANES)
        own = (len(group.rows), WARP_LANES)
        return array if array.shape == own else np.broadcast_to(array, own)


class Recorded(Struct, frozen=True, eq=False):
    """How a recording came about: `hanging` are rows of branches that a guess decided."""

    n_ctas: int
    hanging: tuple[int, ...]


def record_launch(
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: Shape,
    guesser: Guesser,
    recorder: Recorder,
    n_ctas: int | None = None,
) -> Recorded:
    """Execute a grid, or its first CTAs, and tell the recorder. Raises UsageError where it does not end."""
    count = min(shape.grid.count, n_ctas or shape.grid.count)
    size = within_memory(kernel, shape, _CHUNK_WARPS // shape.warps_per_cta)
    hanging: set[int] = set()
    for first in range(0, count, size):
        numbers = np.arange(first, min(count, first + size), dtype=np.int64)
        batch = Batch(kernel, image, shape, numbers, np.ones(len(numbers)))
        machine = RecordedMachine(kernel, batch, guesser, recorder, Budget(_MAX_STEPS))
        machine.start()
        try:
            machine.run()
        except StopExecution as stop:
            raise UsageError(f"the launch cannot be recorded: {stop}", hint=_SHORTER) from None
        hanging.update(machine.tally.hanging)
    return Recorded(count, tuple(sorted(hanging)))
