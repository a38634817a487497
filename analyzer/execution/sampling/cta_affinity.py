"""Affinity analysis: how each value depends on the index of its CTA.

A value is invariant if it is the same in all CTAs, and affine if it grows by a constant from one CTA to the
next along each axis of the grid. A comparison of affine values is monotone along each axis. So if it has the
same result at all corners of a box of CTAs, it has this result in the whole box: if the corners are
equivalent, lane by lane and predicate by predicate, all CTAs of the box are, and a few represent all of it.

The analysis is a forward data-flow analysis over the kernel's segments. A state maps each register to an
`AffinityKind`; states are joined by taking the maximum.

- Steps that round (a shift to the right, a division) keep values affine only for some CTAs. Their results
  count as affine if they were observed to grow by a constant between some CTAs. Corners must confirm that.
- Words of shared memory have the affinity of what is stored there. The range that each instruction accesses
  is known only after some CTAs have run (`CtaObservations`); until then, any may access all of it.

Invariant: a register of kind INVARIANT or AFFINE is so in every CTA of a box whose corners agree on all
`compared_steps`, as long as `AffinityChecks` of `steps_to_check` pass.

Example: with R0 = SR_CTAID.X * 128 + SR_TID.X, R0 is affine and P0 = (R0 >= n) invariant in such boxes. After
R1 = R0 * R0 (no affine product) R1 is non-affine, and a branch on it rules the proof out.
"""

from collections.abc import Iterator
from enum import IntEnum
from itertools import chain

from msgspec import Struct

from analyzer.execution.lowering.call_returns import find_returning_calls
from analyzer.execution.lowering.guarded_liveness import Guard
from analyzer.execution.lowering.segments import (
    Action,
    ActionKind,
    CompiledKernel,
    LoweredAccess,
    Segment,
    Terminator,
    TerminatorKind,
)
from analyzer.execution.lowering.spill_slots import find_first_spill_slot
from analyzer.execution.lowering.step import AffineRule, ConstantRead, SpecialRead, Step, StepInput
from analyzer.execution.lowering.worklist import Worklist
from analyzer.execution.sampling.cta_observers import CtaObservations
from analyzer.execution.sampling.wrap_checks import needs_wrap_check
from analyzer.ir.opcode import AddressSpace, OpKind
from analyzer.isa.register_operands import N_REGISTER_UNITS, PREDICATE_BASE


class AffinityKind(IntEnum):
    """Dependence of a value on the index of its CTA, in a box whose corners are equivalent; best first."""

    # An unknown word, represented by zero (see `unknown_words`), or a product with one (up to the sign of a
    # float): invariant, whatever it is multiplied by.
    ZERO = 0
    INVARIANT = 1  # the same in all CTAs
    AFFINE = 2  # grows by a constant along each axis of the grid
    NON_AFFINE = 3  # depends in another way


_CTA_INDEX_REGISTERS = frozenset({"SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z"})
_READ_MODIFY_WRITE_KINDS = frozenset({OpKind.ATOMIC, OpKind.REDUCTION})
_CLUSTER_RANK_REGISTERS = frozenset({"SR_CgaCtaId"})
_WORD_BYTES = 4
_MAX_ACCESS_WORDS = 8


class CtaAffinity:
    """Result of the affinity analysis of a kernel.

    Spill slots are numbered after the registers.

    steps_to_check: bitwise operations taken to keep values affine, which they do if they only combine bits
        that do not overlap (pid * 1024 | lane); `AffinityChecks` verifies that while they run. If
        is_optimistic, also steps that round: they keep values affine between CTAs that are far enough apart.
    compared_steps: steps without non-affine inputs; the corners of a box must agree on their predicates.
    monotone_steps: steps with affine inputs whose results are decided by comparing, carrying or rounding.
        They are monotone in the CTA index while no input wraps around 2^32 within a box, which a number that
        is hashed does; `AffinityChecks` verifies that too.
    has_affine_branches: all branches depend on the CTA by such predicates only.
    has_affine_accesses: so do guards of memory accesses, and all addresses are affine.
    needs_observations: observations of ranges or rounding could improve the result.
    relies_on_coefficients: some values are affine only if steps that round grow as observed.
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        *,
        has_clusters: bool,
        has_buffer_contents: bool,
        observations: CtaObservations | None = None,
        is_optimistic: bool = False,
    ) -> None:
        self.kernel, self.observations, self.is_optimistic = (
            kernel,
            observations or CtaObservations(),
            is_optimistic,
        )
        self.needs_observations = self.relies_on_coefficients = False
        self.cluster_rank_affinity = AffinityKind.NON_AFFINE if has_clusters else AffinityKind.INVARIANT
        self.has_buffer_contents = has_buffer_contents
        self.has_affine_branches = self.has_affine_accesses = True
        self.compared_steps: set[Step] = set()
        self.steps_to_check: set[Step] = set()
        self.monotone_steps: set[Step] = set()
        self.returning_calls = _find_returning_calls(kernel)
        # Affinity of what was written since the segment began, by slot and guard.
        self._guarded_writes: dict[tuple[int, Guard], int] = {}
        self.has_observations = observations is not None
        # Affinity of any word of shared memory, and of the words that each instruction stores, by row.
        self.shared_affinity = (
            AffinityKind.NON_AFFINE if has_buffer_contents or has_clusters else AffinityKind.INVARIANT
        )
        self.stored_affinities: dict[int, int] = {}
        # Affinity of what barriers compute of the predicates of all threads of a CTA.
        self.reduced_affinity = AffinityKind.INVARIANT
        self.entry_states: list[bytearray | None] = []
        known = None
        # loads may come before stores
        while (self.shared_affinity, self.reduced_affinity, self.stored_affinities) != known:
            known = self.shared_affinity, self.reduced_affinity, dict(self.stored_affinities)
            self.entry_states = [None] * len(kernel.segments)
            self._solve()

    def _solve(self) -> None:
        self.entry_states[self.kernel.entry_segments[0]] = (
            bytearray([AffinityKind.INVARIANT]) * N_REGISTER_UNITS
        )
        waiting = Worklist([self.kernel.entry_segments[0]])
        for index in waiting:
            waiting.add(self._transfer_segment(index))

    def _transfer_segment(self, index: int) -> list[int]:
        """Apply the actions of a segment; return the successors whose entry state changed."""
        entry = self.entry_states[index]
        assert entry is not None
        state = bytearray(entry)
        self._guarded_writes.clear()
        for action in self.kernel.segments[index].actions:
            self._transfer_action(action, state)
        end = self.kernel.segments[index].terminator
        decided = (*end.conditions, *((end.guard,) if end.guard else ()))
        if any(_is_cta_dependent(state[slot]) for slot, _ in decided) or (
            end.slot is not None and end.slot >= 0 and _is_cta_dependent(state[end.slot])
        ):
            self.has_affine_branches = False
        if end.reduction is not None:
            if end.reduction.vote is not None and _is_cta_dependent(state[end.reduction.vote[0]]):
                self.reduced_affinity = AffinityKind.NON_AFFINE
            for slot in end.reduction.result_slots:
                state[slot] = self.reduced_affinity
        if any(
            slot is not None and _is_cta_dependent(state[slot])
            for slot in (end.barrier_slot, end.n_threads_slot)
        ):
            self.has_affine_branches = False
        ahead = self._propagate_to_successors(self.kernel.segments[index], state)
        return [follower for follower, found in ahead if self._join_entry_state(follower, found)]

    def _propagate_to_successors(self, segment: Segment, state: bytearray) -> Iterator[tuple[int, bytearray]]:
        """Yield each segment that may come next, with the state that it receives.

        Registers that a function does not write reach the segment after its call from the caller directly.
        """
        end = segment.terminator
        call = self.returning_calls.get(segment.block) if end.kind is TerminatorKind.BRANCH else None
        if call is not None and end.fall_through is not None:
            yield end.fall_through, _keep_slots(state, call.preserved_slots)
        for follower in end.successors:
            call_before = self.returning_calls.get(self.kernel.segments[follower].block - 1)
            if end.kind is not TerminatorKind.INDIRECT or call_before is None or follower == end.fall_through:
                yield follower, self._refine_by_condition(end, follower, state)
            elif segment.block in call_before.callee_blocks:
                yield follower, _keep_slots(state, call_before.written_slots)

    def _refine_by_condition(self, end: Terminator, follower: int, state: bytearray) -> bytearray:
        """Return the state on one edge of a branch: what was written under its condition holds there."""
        if (
            end.kind is not TerminatorKind.BRANCH
            or len(end.conditions) != 1
            or end.target == end.fall_through
        ):
            return state
        (condition,) = end.conditions
        guard = condition if follower == end.target else _negate_guard(condition)
        found = bytearray(state)
        for (written, under), value in self._guarded_writes.items():
            if under == guard:
                found[written] = value
        return found

    def _join_entry_state(self, index: int, state: bytearray) -> bool:
        known = self.entry_states[index]
        if known is None:
            self.entry_states[index] = bytearray(state)
            return True
        n_slots = max(len(known), len(state))
        known.extend([AffinityKind.INVARIANT] * (n_slots - len(known)))
        state.extend([AffinityKind.INVARIANT] * (n_slots - len(state)))
        joint = bytearray(map(max, known, state))
        if joint == known:
            return False
        self.entry_states[index] = joint
        return True

    def _transfer_action(self, action: Action, state: bytearray) -> None:
        if action.kind is ActionKind.COMPUTE and action.step is not None:
            self._transfer_step(action.step, action, state)
            return
        if action.accesses and action.guard is not None and _is_cta_dependent(state[action.guard[0]]):
            self.has_affine_accesses = False
        results: dict[int, int] = {}
        for access in action.accesses:
            results.update(self._transfer_access(access, action, state))
        for slot in action.writes:
            if slot >= 0:
                self._write_register(state, slot, results.get(slot, AffinityKind.INVARIANT), action)

    def _transfer_access(self, access: LoweredAccess, action: Action, state: bytearray) -> dict[int, int]:
        """Apply an access; return the affinity of what it loads, by register."""
        slots = [
            slot
            for term in (access.address.terms if access.address else ())
            for slot in ((term.slot, term.slot + 1) if term.is_pair else (term.slot,))
        ]
        address = max(
            (self._read_register(slot, state, action.guard) for slot in slots), default=AffinityKind.INVARIANT
        )
        worst = address
        invariant_slots = [slot for slot, _ in access.lane_predicates]
        if access.bulk is not None:
            invariant_slots += access.bulk.size_registers
            worst = max(worst, *(state[slot] for slot in access.bulk.address_registers))
        if worst == AffinityKind.NON_AFFINE or any(
            _is_cta_dependent(state[slot]) for slot in invariant_slots
        ):
            self.has_affine_accesses = False
        if access.space is AddressSpace.LOCAL and self.kernel.slice.tracks_spill_slots:
            return self._transfer_spill(access, action, state)
        if access.kind is not OpKind.LOAD and access.space in self.kernel.slice.tracked_spaces:
            self._transfer_store(access, action, state, address)
        if access.space is AddressSpace.SHARED:
            result = self._find_loaded_affinity(access, address)
        elif access.space is AddressSpace.LOCAL or (_is_cta_dependent(worst) and self.has_buffer_contents):
            result = AffinityKind.NON_AFFINE  # stores to this memory are not tracked
        else:
            result = AffinityKind.INVARIANT if self.has_buffer_contents else AffinityKind.ZERO
        return dict.fromkeys(access.result_slots, result)

    def _transfer_store(self, access: LoweredAccess, action: Action, state: bytearray, address: int) -> None:
        """Record the affinity of what is stored to memory that may be shared memory."""
        if _is_cta_dependent(address) or access.space is AddressSpace.GENERIC:
            self.shared_affinity = AffinityKind.NON_AFFINE
            return
        stored = max((state[slot] for slot in access.data_slots if slot >= 0), default=AffinityKind.INVARIANT)
        masks = (*access.lane_predicates, *((action.guard,) if action.guard else ()))
        is_mixed = access.width_bytes < _WORD_BYTES or access.kind in _READ_MODIFY_WRITE_KINDS
        if any(_is_cta_dependent(state[slot]) for slot, _ in masks) or (
            _is_cta_dependent(stored) and is_mixed
        ):
            stored = AffinityKind.NON_AFFINE
        if is_mixed and _is_cta_dependent(self._find_reachable_affinity(access.row)):
            stored = AffinityKind.NON_AFFINE  # replaces some bytes of affine words
        self.stored_affinities[access.row] = max(
            self.stored_affinities.get(access.row, AffinityKind.INVARIANT), stored
        )

    def _find_loaded_affinity(self, access: LoweredAccess, address: int) -> int:
        """Return the affinity of what is loaded from shared memory.

        Words that are not invariant keep their affinity only if whole words are loaded, at an invariant
        address.
        """
        found = self._find_reachable_affinity(access.row)
        if not _is_cta_dependent(found) and not _is_cta_dependent(address):
            return found
        is_mixed = access.width_bytes < _WORD_BYTES or access.kind in _READ_MODIFY_WRITE_KINDS
        return AffinityKind.NON_AFFINE if is_mixed or _is_cta_dependent(address) else found

    def _find_reachable_affinity(self, row: int) -> int:
        """Return the worst affinity of the words of shared memory that an instruction may access."""
        found: int = self.shared_affinity
        if not self.has_observations:
            is_dependent = any(map(_is_cta_dependent, self.stored_affinities.values()))
            self.needs_observations |= is_dependent
            return AffinityKind.NON_AFFINE if is_dependent else found
        own = self.observations.shared_ranges.get(row)
        if own is None:
            return found
        for other, stored in self.stored_affinities.items():
            written = self.observations.shared_ranges.get(other)
            if written is not None and written.overlaps(own):
                in_words = written.is_word_aligned and own.is_word_aligned
                found = max(
                    found, stored if in_words or not _is_cta_dependent(stored) else AffinityKind.NON_AFFINE
                )
        return found

    def _transfer_spill(self, access: LoweredAccess, action: Action, state: bytearray) -> dict[int, int]:
        """Apply a spill or fill: spill slots are tracked word by word."""
        first = find_first_spill_slot(self.kernel.cfg.kernel.decode_form(access.row))
        state.extend([AffinityKind.INVARIANT] * (first + _MAX_ACCESS_WORDS - len(state)))
        is_narrow = access.width_bytes < _WORD_BYTES
        for place, source in enumerate(access.data_slots):
            stored = AffinityKind.INVARIANT if source < 0 else state[source]
            if is_narrow:  # the rest of the word stays
                stored = _classify_part(max(stored, state[first + place]))
            self._write_register(state, first + place, stored, action)
        return {
            slot: _classify_part(state[first + place]) if is_narrow else state[first + place]
            for place, slot in enumerate(access.result_slots)
        }

    def _write_register(self, state: bytearray, slot: int, result: int, action: Action) -> None:
        """Write a register; a guarded write is joined with what the register holds if the guard is false."""
        guard = action.guard
        if guard is None:
            self._drop_guarded_writes(slot, None)
            state[slot] = result
            return
        if _is_cta_dependent(state[guard[0]]):
            result = AffinityKind.NON_AFFINE
        self._drop_guarded_writes(slot, guard[0])
        state[slot] = max(self._guarded_writes.get((slot, _negate_guard(guard)), state[slot]), result)
        if guard[0] not in action.writes:
            self._guarded_writes[slot, guard] = result

    def _drop_guarded_writes(self, slot: int, predicate: int | None) -> None:
        """Forget guarded writes that a write of a register makes out of date.

        These are its writes under other predicates than this and, if it is a predicate, all writes under it.
        """
        gone = [
            (to, by)
            for to, by in self._guarded_writes
            if (to == slot and by[0] != predicate) or by[0] == slot
        ]
        for key in gone:
            del self._guarded_writes[key]

    def _read_register(self, slot: int, state: bytearray, guard: Guard | None) -> int:
        """Return the affinity of a register where a guard holds: of what was written under it, if any."""
        return state[slot] if guard is None else self._guarded_writes.get((slot, guard), state[slot])

    def _read_operand(self, read: StepInput, state: bytearray, guard: Guard | None) -> int:
        """Return the affinity of an operand where a guard holds."""
        match read:
            case int():
                return self._read_register(read, state, guard)
            case SpecialRead(name=name):
                return (
                    AffinityKind.AFFINE
                    if name in _CTA_INDEX_REGISTERS
                    else self.cluster_rank_affinity
                    if name in _CLUSTER_RANK_REGISTERS
                    else AffinityKind.INVARIANT
                )
            case ConstantRead(base=base):
                is_dependent = base is not None and _is_cta_dependent(self._read_register(base, state, guard))
                return AffinityKind.NON_AFFINE if is_dependent else AffinityKind.INVARIANT

    def _transfer_step(self, step: Step, action: Action, state: bytearray) -> None:
        inputs = self._read_inputs(step, state, action.guard)
        if AffinityKind.NON_AFFINE not in inputs:
            self.compared_steps.add(step)
            if AffinityKind.AFFINE in inputs and needs_wrap_check(step):
                self.monotone_steps.add(step)
        results = self._compute_results(step, inputs)
        kept = self._find_guarded_results(step, action, state)
        for slot, result in results.items():
            self._write_register(state, slot, result, action)
        self._guarded_writes.update(kept)

    def _find_guarded_results(
        self, step: Step, action: Action, state: bytearray
    ) -> dict[tuple[int, Guard], int]:
        """Return the results of a step under another guard, for registers that were written under it before.

        Example: after `@P0 R1 = a` and `R1 = R1 + c`, R1 is a + c where P0 holds, whatever it was before.
        """
        own = None if action.guard is None else action.guard[0]
        found: dict[tuple[int, Guard], int] = {}
        for slot, under in list(self._guarded_writes):
            if slot not in step.writes or under[0] == own or under[0] in step.writes:
                continue
            result = self._compute_results(step, self._read_inputs(step, state, under))[slot]
            if own is not None:
                is_dependent = _is_cta_dependent(self._read_register(own, state, under))
                joined = max(result, self._guarded_writes[slot, under])
                result = AffinityKind.NON_AFFINE if is_dependent else joined
            found[slot, under] = result
        return found

    def _read_inputs(self, step: Step, state: bytearray, guard: Guard | None) -> list[int]:
        return [self._read_operand(read, state, guard) for read in step.reads]

    def _compute_results(self, step: Step, inputs: list[int]) -> dict[int, int]:
        """Return the affinities of a step's results, by register."""
        worst = self._join_inputs(step, inputs)
        for read, affinity in zip(step.reads, inputs, strict=True):
            if isinstance(read, int) and read >= PREDICATE_BASE and _is_cta_dependent(affinity):
                worst = AffinityKind.NON_AFFINE
        return {
            slot: self._compute_result(step, inputs, worst, place)
            for place, slot in enumerate(step.writes)
            if slot >= 0
        }

    @staticmethod
    def _join_inputs(step: Step, inputs: list[int]) -> int:
        """Return the worst affinity of the inputs; for a product with zero, of what is added to it."""
        factors = [places for places in step.factors if places]
        if any(all(inputs[place] == AffinityKind.ZERO for place in places) for places in factors):
            multiplied = {place for places in factors for place in places}
            others = [affinity for place, affinity in enumerate(inputs) if place not in multiplied]
            return max(others, default=AffinityKind.ZERO)
        return max((AffinityKind.INVARIANT, *inputs))

    def _compute_result(self, step: Step, inputs: list[int], worst: int, place: int) -> int:
        """Return the affinity of one result of a step.

        worst: the worst affinity of the inputs.
        place: index of the result in `step.writes`.
        """
        is_predicate = step.writes[place] >= PREDICATE_BASE
        if worst != AffinityKind.AFFINE:
            return worst
        mixes = step.uses_active_mask and step.affine_rule is not AffineRule.LINEAR
        if mixes or step.affine_rule is AffineRule.UNKNOWN:
            # a move of a special register keeps its affinity
            plain = len(step.reads) == 1 and isinstance(step.reads[0], SpecialRead) and not mixes
            return AffinityKind.AFFINE if plain else AffinityKind.NON_AFFINE
        if step.affine_rule is AffineRule.BITWISE:
            if is_predicate or sum(map(_is_cta_dependent, inputs)) > 1:
                return AffinityKind.NON_AFFINE
            self.steps_to_check.add(step)
            return AffinityKind.AFFINE
        if all(any(_is_cta_dependent(inputs[place]) for place in places) for places in step.factors):
            return AffinityKind.NON_AFFINE
        decided = (
            step.affine_rule is AffineRule.MONOTONE and step.compute_invariants is not None
        )  # a sign that is extended
        if is_predicate or decided:  # a comparison or a carry: monotone, and corners must agree on it
            return AffinityKind.INVARIANT
        return self._classify_rounded(step) if place == step.rounded_index else self._classify_linear(step)

    def _classify_rounded(self, step: Step) -> int:
        """Return the affinity of a rounded word.

        It grows by its observed coefficients, on which corners must agree.
        """
        if self.is_optimistic:
            self.steps_to_check.add(step)
            return AffinityKind.AFFINE
        self.needs_observations |= not self.has_observations
        coefficients = self.observations.coefficients.get(step)
        if coefficients is None:
            return AffinityKind.NON_AFFINE
        self.relies_on_coefficients |= any(coefficients)
        return AffinityKind.AFFINE if any(coefficients) else AffinityKind.INVARIANT

    @staticmethod
    def _classify_linear(step: Step) -> int:
        return AffinityKind.NON_AFFINE if step.affine_rule is AffineRule.MONOTONE else AffinityKind.AFFINE


class _ReturningCall(Struct, frozen=True, eq=False):
    """A call whose callee returns to the block after it."""

    callee_blocks: frozenset[int]  # blocks that run until it returns
    written_slots: frozenset[int]  # registers that these write
    preserved_slots: frozenset[int]  # registers that they do not write


def _find_returning_calls(kernel: CompiledKernel) -> dict[int, _ReturningCall]:
    """Find the calls that return, by the block that ends in the call."""
    every = frozenset(range(N_REGISTER_UNITS))
    found = {}
    for caller, inside in find_returning_calls(kernel.cfg).items():
        actions = [
            action for segment in kernel.segments if segment.block in inside for action in segment.actions
        ]
        ends = [segment.terminator for segment in kernel.segments if segment.block in inside]
        changed = chain((action.writes for action in actions), (end.writes for end in ends))
        written = every.intersection(chain.from_iterable(changed))
        found[caller] = _ReturningCall(inside, written, every - written)
    return found


def _classify_part(affinity: int) -> int:
    """Return the affinity of a part of a word, or of a word of which a part is replaced."""
    return AffinityKind.NON_AFFINE if _is_cta_dependent(affinity) else AffinityKind.INVARIANT


def _negate_guard(guard: Guard) -> Guard:
    return guard[0], not guard[1]


def _keep_slots(state: bytearray, slots: frozenset[int]) -> bytearray:
    """Return the state of these registers and all spill slots; others are ZERO and join from elsewhere."""
    left = bytearray(state)
    for slot in range(N_REGISTER_UNITS):
        if slot not in slots:
            left[slot] = AffinityKind.ZERO
    return left


def _is_cta_dependent(affinity: int) -> bool:
    return affinity > AffinityKind.INVARIANT


__all__ = ["AffinityKind", "CtaAffinity"]
