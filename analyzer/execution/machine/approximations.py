"""Results of approximate functions, and whether their last bits matter.

MUFU differs from the correct result by some units in the last place, in a way that is not documented. Code
around it often corrects that: a correctly rounded quotient is the same whatever it is. So a segment with
such a function is followed with three values for each of its results: as computed, and somewhat smaller and
larger. Where all three meet again, nothing depends on the last bits; where one is used that still differs, in
an address, a branch or a later segment, it is in doubt.

    MUFU.RCP R4, R3        R4: 0.33333334, below 0.33333331, above 0.33333337
    FFMA R5, R4, R6, R7    R5: 1.9999999, 2, 2.0000002
    F2I.TRUNC R5, R5       R5: 1, 2, 2: in doubt, once it is used
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from msgspec import Struct

from analyzer.execution.lowering.segments import Action, CompiledKernel, Segment
from analyzer.execution.lowering.slice_verification import find_action_reads
from analyzer.execution.lowering.step import Step, StepInput, Value
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.doubts import Doubt, DoubtKind
from analyzer.execution.machine.register_state import (
    RegisterView,
    UnknownOrigins,
    join_origins,
    make_doubt_origin,
)
from analyzer.ir.arrays import BoolArray

_EXPONENT_MASK = np.uint32(0x7F800000)


class OperandReader(Protocol):
    """Part of the machine that reads what steps read."""

    kernel: CompiledKernel
    batch: CtaBatch

    def read_operand(self, what: StepInput, view: RegisterView) -> tuple[Value, UnknownOrigins | None]:
        """Return a word that a step reads, and its origin where it is unknown."""


class _Sides(Struct, frozen=True, eq=False):
    """What a register would hold if an approximation were smaller, and if it were larger."""

    row: int  # of the approximation
    below: Value
    above: Value


class ApproximateResults:
    """Registers that depend on the last bits of approximations, while a group runs one segment."""

    def __init__(self, machine: OperandReader, view: RegisterView) -> None:
        self.machine, self.view = machine, view
        self.sides: dict[int, _Sides] = {}

    def prepare(self, action: Action) -> tuple[_Sides, ...]:
        """Return the sides of an action's results, which are to be kept once it has run.

        Registers that it uses otherwise, and that the sides differ in, are in doubt from now on.
        """
        step = action.step
        if action.guard is not None:
            self._settle((action.guard[0], *action.writes))
        if step is None or step.uses_active_mask:
            reads = find_action_reads(action, self.machine.kernel.slice.tracked_spaces)
            self._settle(slot for slot in tuple(self.sides) if reads >> slot & 1)
        elif step.error_ulps or any(what in self.sides for what in step.reads):
            return self._compute(action, step)
        return ()

    def keep(self, action: Action, found: tuple[_Sides, ...]) -> None:
        """Keep the sides of results that differ from what the action has given."""
        for slot in action.writes:
            self.sides.pop(slot, None)
        for slot, own in zip(action.writes, found, strict=bool(found)):
            if slot >= 0 and self._find_differing(slot, own).any():
                self.sides[slot] = own

    def finish(self, segment: Segment) -> None:
        """Put in doubt what the end of the segment, or what follows it, may use."""
        if not self.sides:
            return
        live, segments = 0, self.machine.kernel.segments
        for after in segment.terminator.successors:
            is_first = segments[after].is_first
            live |= self.machine.kernel.slice.live_in[segments[after].block] if is_first else -1
        self._settle((*segment.terminator.reads, *(slot for slot in self.sides if live >> slot & 1)))

    def _compute(self, action: Action, step: Step) -> tuple[_Sides, ...]:
        """Return the sides of a step's results from those of what it reads, and its own error."""
        lanes = None if action.guard is None else self.view.evaluate_guard(action.guard)[0]
        known = [self.sides.get(what) if isinstance(what, int) else None for what in step.reads]
        words = [self.machine.read_operand(what, self.view)[0] for what in step.reads]
        ends = []
        for name, direction in (("below", -1), ("above", 1)):
            own = [w if s is None else getattr(s, name) for w, s in zip(words, known, strict=True)]
            results = step.apply(*own)
            moved = [_move(word, direction * step.error_ulps) for word in results]
            pairs = zip(moved, step.writes, strict=True)
            ends.append([w if lanes is None or s < 0 else self._merge(lanes, w, s) for w, s in pairs])
        source = next((side.row for side in known if side is not None), action.row)
        return tuple(_Sides(source, below, above) for below, above in zip(*ends, strict=True))

    def _merge(self, lanes: BoolArray, word: Value, slot: int) -> Value:
        """Return what a register holds where the word is written to it in some lanes."""
        merged: Value = np.where(lanes, word, self.view.read_value(slot))
        return merged

    def _find_differing(self, slot: int, sides: _Sides) -> BoolArray:
        value = self.view.read_value(slot)
        found: BoolArray = ((sides.below != value) | (sides.above != value)) & self.view.active
        return found

    def _settle(self, slots: Iterable[int]) -> None:
        """Put registers in doubt where their sides differ."""
        for slot in slots:
            sides = self.sides.pop(slot, None)
            if sides is None:
                continue
            doubt = np.where(self._find_differing(slot, sides), make_doubt_origin(sides.row), 0)
            origin = join_origins(self.view.read_origin(slot), doubt.astype(np.int32))
            self.view.write(slot, self.view.read_value(slot), origin, self.view.read_delta(slot))
            doubts = self.machine.batch.unknown_words.doubts
            doubts.setdefault(sides.row, Doubt(DoubtKind.APPROXIMATE, sides.row))


def _move(word: Value, ulps: int) -> Value:
    """Return floats, given as words, so many units in the last place away from zero; 0, inf and NaN stay."""
    if not ulps:
        return word
    exponent = word & _EXPONENT_MASK
    moved: Value = np.where(
        (exponent == 0) | (exponent == _EXPONENT_MASK), word, word + np.uint32(ulps % (1 << 32))
    )
    return moved
