"""How values depend on the CTA's place in the grid: not at all, evenly, or in another way.

If every predicate compares values that grow evenly along each axis of the grid, each is monotone along each
axis; where it is the same at all corners of a box of CTAs, it is the same in the whole box. So a box whose
corners run alike, lane by lane and predicate by predicate, runs alike throughout. What is computed in
steps that round is taken to grow in a box as it did between some CTAs, or not at all; that then is part of
what corners must agree on.

Words in shared memory depend on the place as what is stored there does. Where each instruction reaches is not
known before some CTAs have run (`Seen`); without that any may reach anywhere.
"""

from collections.abc import Iterator
from enum import IntEnum
from itertools import chain

from msgspec import Struct

from analyzer.execution.frames import frame_storage
from analyzer.execution.program import Access, Action, ActionKind, CompiledKernel, End, EndKind, Segment
from analyzer.execution.returning import sure_calls
from analyzer.execution.slicing import Guard
from analyzer.execution.step import AffineRule, ConstantRead, Read, SpecialRead, Step
from analyzer.execution.sweeps import Sweeps
from analyzer.execution.watching import Seen
from analyzer.ir.opcode import OpKind, Space
from analyzer.isa.roles import PREDICATE_BASE, STORAGE_SIZE


class Dependence(IntEnum):
    """On the CTA's place: FIXED in a box whose corners run alike, EVEN along each axis, else OTHER.

    ZERO: a word that nobody knows, for which zero stands (see `unknown_words`), or a product with one, but
    for a float's sign: fixed, whatever it is multiplied by.
    """

    ZERO = 0
    FIXED = 1
    EVEN = 2
    OTHER = 3


_PLACES = frozenset({"SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z"})
_COMBINING = frozenset({OpKind.ATOMIC, OpKind.REDUCTION})
_RANKS = frozenset({"SR_CgaCtaId"})
_WORD_BYTES = 4
_MOST_WORDS = 4  # of one access


class GridDependence:
    """Worst dependence of each register at the start of each block, and of decisions and addresses.

    Words of a frame of spilled registers are numbered behind the registers.

    to_check: logic operations taken to keep values even, which they do if they only join bits that do not
    overlap (pid * 1024 | lane); `Evenness` sees to that when they run. is_hopeful: so are steps that round,
    which may do so between CTAs that are far enough apart.
    compared: steps whose predicates compare what is even, so that boxes of CTAs must agree on them.
    branches_evenly: no branch depends on the place in another way than by such predicates;
    accesses_evenly: neither does a guard of a memory access or an address. lacks: something would depend less
    on the place if it were known where instructions reach, or how steps round. rests_on_paces: something is
    even if steps that round grow by their paces.
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        *,
        has_clusters: bool,
        has_buffers: bool,
        seen: Seen | None = None,
        is_hopeful: bool = False,
    ) -> None:
        self.kernel, self.seen, self.is_hopeful = kernel, seen or Seen(), is_hopeful
        self.lacks = self.rests_on_paces = False
        self.rank = Dependence.OTHER if has_clusters else Dependence.FIXED
        self.has_buffers = has_buffers
        self.branches_evenly = self.accesses_evenly = True
        self.compared: set[Step] = set()
        self.to_check: set[Step] = set()
        self.calls = _sure_calls(kernel)
        self._under: dict[tuple[int, Guard], int] = {}  # written since the segment began, by slot and guard
        self.is_followed = seen is not None
        # Words of shared memory: wherever they lie, and those that each instruction stores.
        self.anywhere = Dependence.OTHER if has_buffers or has_clusters else Dependence.FIXED
        self.stored: dict[int, int] = {}
        self.entries: list[bytearray | None] = []
        known = None
        while (self.anywhere, self.stored) != known:  # what is stored may be read before
            known = self.anywhere, dict(self.stored)
            self.entries = [None] * len(kernel.segments)
            self._solve()

    def _solve(self) -> None:
        self.entries[self.kernel.entry_of[0]] = bytearray([Dependence.FIXED]) * STORAGE_SIZE
        waiting = Sweeps([self.kernel.entry_of[0]])
        for index in waiting:
            waiting.add(self._pass(index))

    def _pass(self, index: int) -> list[int]:
        """Go through a segment; those behind it that find anything new."""
        entry = self.entries[index]
        assert entry is not None
        state = bytearray(entry)
        self._under.clear()
        for action in self.kernel.segments[index].actions:
            self._act(action, state)
        end = self.kernel.segments[index].end
        decided = (*end.conditions, *((end.guard,) if end.guard else ()))
        if any(_moves(state[slot]) for slot, _ in decided) or (
            end.slot is not None and end.slot >= 0 and _moves(state[end.slot])
        ):
            self.branches_evenly = False
        ahead = self._handed_on(self.kernel.segments[index], state)
        return [follower for follower, found in ahead if self._join(follower, found)]

    def _handed_on(self, segment: Segment, state: bytearray) -> Iterator[tuple[int, bytearray]]:
        """What segments that may come next find: what a function does not write is as its caller left it."""
        end = segment.end
        call = self.calls.get(segment.block) if end.kind is EndKind.BRANCH else None
        if call is not None and end.fall is not None:
            yield end.fall, _only(state, call.kept)
        for follower in end.followers:
            behind = self.calls.get(self.kernel.segments[follower].block - 1)
            if end.kind is not EndKind.INDIRECT or behind is None or follower == end.fall:
                yield follower, self._where(end, follower, state)
            elif segment.block in behind.inside:
                yield follower, _only(state, behind.written)

    def _where(self, end: End, follower: int, state: bytearray) -> bytearray:
        """What is found where a branch went one way: what was written under its condition is."""
        if end.kind is not EndKind.BRANCH or len(end.conditions) != 1 or end.target == end.fall:
            return state
        (condition,) = end.conditions
        guard = condition if follower == end.target else _opposite(condition)
        found = bytearray(state)
        for (written, under), value in self._under.items():
            if under == guard:
                found[written] = value
        return found

    def _join(self, index: int, state: bytearray) -> bool:
        known = self.entries[index]
        if known is None:
            self.entries[index] = bytearray(state)
            return True
        n_slots = max(len(known), len(state))
        known.extend([Dependence.FIXED] * (n_slots - len(known)))
        state.extend([Dependence.FIXED] * (n_slots - len(state)))
        joint = bytearray(map(max, known, state))
        if joint == known:
            return False
        self.entries[index] = joint
        return True

    def _act(self, action: Action, state: bytearray) -> None:
        if action.kind is ActionKind.STEP and action.step is not None:
            self._step(action.step, action, state)
            return
        if action.accesses and action.guard is not None and _moves(state[action.guard[0]]):
            self.accesses_evenly = False
        results: dict[int, int] = {}
        for access in action.accesses:
            results.update(self._access(access, action, state))
        for slot in action.writes:
            if slot >= 0:
                self._write(state, slot, results.get(slot, Dependence.FIXED), action)

    def _access(self, access: Access, action: Action, state: bytearray) -> dict[int, int]:
        """Dependence of what an access loads."""
        slots = [
            slot
            for term in (access.address.terms if access.address else ())
            for slot in ((term.slot, term.slot + 1) if term.pair else (term.slot,))
        ]
        place = max((self._found(slot, state, action.guard) for slot in slots), default=Dependence.FIXED)
        worst = place
        fixed = [slot for slot, _ in access.masks]
        if access.bulk is not None:
            fixed += access.bulk.sizing
            worst = max(worst, *(state[slot] for slot in access.bulk.placing))
        if worst == Dependence.OTHER or any(_moves(state[slot]) for slot in fixed):
            self.accesses_evenly = False
        if access.space is Space.LOCAL and self.kernel.slice.has_frame:
            return self._frame_access(access, action, state)
        if access.kind is not OpKind.LOAD and access.space in self.kernel.slice.kept_spaces:
            self._store(access, action, state, place)
        if access.space is Space.SHARED:
            result = self._loaded(access, place)
        elif access.space is Space.LOCAL or (_moves(worst) and self.has_buffers):
            result = Dependence.OTHER  # what was stored there is not followed
        else:
            result = Dependence.FIXED if self.has_buffers else Dependence.ZERO
        return dict.fromkeys(access.results, result)

    def _store(self, access: Access, action: Action, state: bytearray, place: int) -> None:
        """What is stored where shared memory may be."""
        if _moves(place) or access.space is Space.GENERIC:
            self.anywhere = Dependence.OTHER
            return
        stored = max((state[slot] for slot in access.data if slot >= 0), default=Dependence.FIXED)
        masks = (*access.masks, *((action.guard,) if action.guard else ()))
        is_mixed = access.width_bytes < _WORD_BYTES or access.kind in _COMBINING
        if any(_moves(state[slot]) for slot, _ in masks) or (_moves(stored) and is_mixed):
            stored = Dependence.OTHER
        if is_mixed and _moves(self._in_reach(access.row)):
            stored = Dependence.OTHER  # of words, some bytes become others
        self.stored[access.row] = max(self.stored.get(access.row, Dependence.FIXED), stored)

    def _loaded(self, access: Access, place: int) -> int:
        """What is loaded from shared memory: as it was stored, if it is loaded as words from one place."""
        found = self._in_reach(access.row)
        if not _moves(found) and not _moves(place):
            return found
        is_mixed = access.width_bytes < _WORD_BYTES or access.kind in _COMBINING
        return Dependence.OTHER if is_mixed or _moves(place) else found

    def _in_reach(self, row: int) -> int:
        """Of words that an instruction may meet."""
        found: int = self.anywhere
        if not self.is_followed:
            moves = any(map(_moves, self.stored.values()))
            self.lacks |= moves
            return Dependence.OTHER if moves else found
        own = self.seen.reaches.get(row)
        if own is None:
            return found
        for other, stored in self.stored.items():
            reach = self.seen.reaches.get(other)
            if reach is not None and reach.meets(own):
                in_words = reach.in_words and own.in_words
                found = max(found, stored if in_words or not _moves(stored) else Dependence.OTHER)
        return found

    def _frame_access(self, access: Access, action: Action, state: bytearray) -> dict[int, int]:
        """Spilled registers are followed word by word."""
        first = frame_storage(self.kernel.cfg.kernel.form(access.row))
        state.extend([Dependence.FIXED] * (first + _MOST_WORDS - len(state)))
        is_narrow = access.width_bytes < _WORD_BYTES
        for place, source in enumerate(access.data):
            stored = Dependence.FIXED if source < 0 else state[source]
            self._write(state, first + place, Dependence.OTHER if is_narrow else stored, action)
        return {
            slot: Dependence.OTHER if is_narrow else state[first + place]
            for place, slot in enumerate(access.results)
        }

    def _write(self, state: bytearray, slot: int, result: int, action: Action) -> None:
        guard = action.guard
        if guard is None:
            self._forget(slot, None)
            state[slot] = result
            return
        if _moves(state[guard[0]]):
            result = Dependence.OTHER
        self._forget(slot, guard[0])
        state[slot] = max(self._under.get((slot, _opposite(guard)), state[slot]), result)
        if guard[0] not in action.writes:
            self._under[slot, guard] = result

    def _forget(self, slot: int, predicate: int | None) -> None:
        """What was written to a register under other predicates, and under it where it is one itself."""
        gone = [(to, by) for to, by in self._under if (to == slot and by[0] != predicate) or by[0] == slot]
        for key in gone:
            del self._under[key]

    def _found(self, slot: int, state: bytearray, guard: Guard | None) -> int:
        """What is read under a guard: what was written under it before, if that was."""
        return state[slot] if guard is None else self._under.get((slot, guard), state[slot])

    def _read(self, read: Read, state: bytearray, guard: Guard | None) -> int:
        match read:
            case int():
                return self._found(read, state, guard)
            case SpecialRead(name=name):
                return (
                    Dependence.EVEN if name in _PLACES else self.rank if name in _RANKS else Dependence.FIXED
                )
            case ConstantRead(base=base):
                moves = base is not None and _moves(self._found(base, state, guard))
                return Dependence.OTHER if moves else Dependence.FIXED

    def _step(self, step: Step, action: Action, state: bytearray) -> None:
        inputs = self._inputs(step, state, action.guard)
        if Dependence.OTHER not in inputs:
            self.compared.add(step)
        results = self._results(step, inputs)
        kept = self._under_others(step, action, state)
        for slot, result in results.items():
            self._write(state, slot, result, action)
        self._under.update(kept)

    def _under_others(self, step: Step, action: Action, state: bytearray) -> dict[tuple[int, Guard], int]:
        """What results are where a predicate holds under which they were written before, and this step's does
        not say so."""
        own = None if action.guard is None else action.guard[0]
        found: dict[tuple[int, Guard], int] = {}
        for slot, under in list(self._under):
            if slot not in step.writes or under[0] == own or under[0] in step.writes:
                continue
            result = self._results(step, self._inputs(step, state, under))[slot]
            if own is not None:
                moves = _moves(self._found(own, state, under))
                result = Dependence.OTHER if moves else max(result, self._under[slot, under])
            found[slot, under] = result
        return found

    def _inputs(self, step: Step, state: bytearray, guard: Guard | None) -> list[int]:
        return [self._read(read, state, guard) for read in step.reads]

    def _results(self, step: Step, inputs: list[int]) -> dict[int, int]:
        """By register, of what a step reads."""
        worst = self._worst(step, inputs)
        for read, dependence in zip(step.reads, inputs, strict=True):
            if isinstance(read, int) and read >= PREDICATE_BASE and _moves(dependence):
                worst = Dependence.OTHER
        return {
            slot: self._result(step, inputs, worst, place)
            for place, slot in enumerate(step.writes)
            if slot >= 0
        }

    @staticmethod
    def _worst(step: Step, inputs: list[int]) -> int:
        """Of all inputs; of a product with zero what is added to it."""
        factors = [places for places in step.factors if places]
        if any(all(inputs[place] == Dependence.ZERO for place in places) for places in factors):
            multiplied = {place for places in factors for place in places}
            others = [dependence for place, dependence in enumerate(inputs) if place not in multiplied]
            return max(others, default=Dependence.ZERO)
        return max((Dependence.FIXED, *inputs))

    def _result(self, step: Step, inputs: list[int], worst: int, place: int) -> int:
        is_predicate = step.writes[place] >= PREDICATE_BASE
        if worst != Dependence.EVEN:
            return worst
        mixes = step.uses_mask and step.rule is not AffineRule.LINEAR
        if mixes or step.rule is AffineRule.FIXED:
            # a special register that is read as it is
            plain = len(step.reads) == 1 and isinstance(step.reads[0], SpecialRead) and not mixes
            return Dependence.EVEN if plain else Dependence.OTHER
        if step.rule is AffineRule.BITWISE:
            if is_predicate or sum(map(_moves, inputs)) > 1:
                return Dependence.OTHER
            self.to_check.add(step)
            return Dependence.EVEN
        if all(any(_moves(inputs[place]) for place in places) for places in step.factors):
            return Dependence.OTHER
        decided = step.rule is AffineRule.MONOTONE and step.watch is not None  # a sign that is extended
        if is_predicate or decided:  # compared or carried: monotone, and part of what makes CTAs alike
            return Dependence.FIXED
        return self._rounded(step) if place == step.rounded else self._even(step)

    def _rounded(self, step: Step) -> int:
        """A word that was rounded grows by its pace, if any, which is part of what makes CTAs alike."""
        if self.is_hopeful:
            self.to_check.add(step)
            return Dependence.EVEN
        self.lacks |= not self.is_followed
        pace = self.seen.paces.get(step)
        if pace is None:
            return Dependence.OTHER
        self.rests_on_paces |= any(pace)
        return Dependence.EVEN if any(pace) else Dependence.FIXED

    @staticmethod
    def _even(step: Step) -> int:
        return Dependence.OTHER if step.rule is AffineRule.MONOTONE else Dependence.EVEN


class _Call(Struct, frozen=True, eq=False):
    """A call that comes back behind it: blocks that run in between, and what they write and do not write."""

    inside: frozenset[int]
    written: frozenset[int]
    kept: frozenset[int]


def _sure_calls(kernel: CompiledKernel) -> dict[int, _Call]:
    """By block that ends in it."""
    every = frozenset(range(STORAGE_SIZE))
    found = {}
    for caller, inside in sure_calls(kernel.cfg).items():
        actions = [
            action for segment in kernel.segments if segment.block in inside for action in segment.actions
        ]
        written = every.intersection(chain.from_iterable(action.writes for action in actions))
        found[caller] = _Call(inside, written, every - written)
    return found


def _opposite(guard: Guard) -> Guard:
    return guard[0], not guard[1]


def _only(state: bytearray, slots: frozenset[int]) -> bytearray:
    """Of these registers, and of all words of the frame; the others come from elsewhere."""
    left = bytearray(state)
    for slot in range(STORAGE_SIZE):
        if slot not in slots:
            left[slot] = Dependence.ZERO
    return left


def _moves(dependence: int) -> bool:
    return dependence > Dependence.FIXED


__all__ = ["Dependence", "GridDependence"]
