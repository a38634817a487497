"""List the sequences of a program in the order in which a warp executes them.

A program gives each sequence once, with its iterations in all. Here they become a tree of loops: each node
has its iterations per iteration of the loop around it. Then the tree is walked. The innermost loop is one
entry with its number of iterations; a loop around others is listed iteration by iteration.

The invariant: of a sequence with r iterations per outer iteration, floor(r * n) come in the first n outer
iterations. Example: A once in 2 outer iterations, B 3 times in each, 4 outer iterations: B3, A B3, B3, A B3.
"""

from math import floor

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp
from analyzer.models.sm.warp_program import StepSequence, WarpProgram

_MAX_ENTRIES = 200_000.0  # of a plan; deeper nests of loops are cut, the outermost first
_MIN_KEPT_ITERATIONS = 2.0  # of a loop that is cut
_ROUNDING = 1e-9


class WarpPlan(Struct, frozen=True, eq=False):
    """What a warp executes, in order.

    Entries with equal numbers are equal, so a stretch of entries that repeats is a loop.
    """

    sequences: list[StepSequence]
    kinds: NDArray[np.int64]  # [entry]
    loop_starts: frozenset[int]  # kinds of entries with which an iteration of a loop around others begins
    n_outer_starts: NDArray[np.int64]  # [entry + 1]: iterations of outermost loops that begin before it
    n_steps: NDArray[np.int64]  # [entry + 1]: steps of all entries before it

    def count_steps(self, entry: int, iterations: int) -> int:
        """Count the steps before an entry, and those of so many iterations of it."""
        steps = int(self.n_steps[entry])
        if iterations:
            steps += iterations * (self.sequences[entry].stop - self.sequences[entry].start)
        return steps

    def count_repeated_entries(self, first: int, last: int) -> int:
        """Count the entries from the earliest one of the kind of `last`, not before `first`, to `last`."""
        same = np.flatnonzero(self.kinds[first:last] == self.kinds[last])
        return last - first - int(same[0]) if len(same) else 0

    def count_repetitions(self, first: int, length: int) -> int:
        """Count how often the entries [first - length, first) come again from `first` on."""
        differs = np.flatnonzero(self.kinds[first - length : -length] != self.kinds[first:])
        return (int(differs[0]) if len(differs) else len(self.kinds) - first) // length


class _LoopPlan(Struct, eq=False):
    """A loop of the tree; the root is the whole program with one iteration."""

    last_sequence: int
    iterations_per_outer: float  # for one iteration of the loop around it
    iterations: float  # in all, before any is cut
    items: "list[_LoopPlan | _SequencePlan]" = field(default_factory=list)  # in order
    n_begun: int = 0  # iterations listed so far
    n_planned: int = 1  # iterations to list in all


class _SequencePlan(Struct, eq=False):
    """A sequence in the tree of loops."""

    index: int  # among the program's sequences
    iterations_per_outer: float
    ramp: PipelineRamp | None  # outer iterations in which it is left out, where it does not come in each


class _Iteration(Struct, frozen=True):
    """Number of an iteration, among those of one entry of a loop or among all."""

    number: int
    total: int


class _Listing(Struct, eq=False):
    """Entries listed so far."""

    sequences: list[StepSequence]
    loop_starts: list[int]  # entries with which an iteration of a loop begins
    outer_starts: list[int]  # likewise, of an outermost one


def find_listed_share(warp_program: WarpProgram) -> float:
    """Return the share of a program's iterations that a plan can list: 1 but for deep nests of long loops."""
    return min(1.0, _MAX_ENTRIES / max(1.0, _count_entries(_build_loop_tree(warp_program))))


def plan_warp(warp_program: WarpProgram, share: float = 1.0) -> WarpPlan:
    """List such a share of all iterations in order; outer loops are cut first, inner ones as needed."""
    root = _build_loop_tree(warp_program)
    if share < 1.0:
        _scale_iterations(root, share)
    _set_planned_iterations(root)
    listing = _Listing([], [], [])
    _append_iteration(root, _Iteration(0, 1), warp_program, listing)
    numbers: dict[StepSequence, int] = {}
    kinds = [numbers.setdefault(one, len(numbers)) for one in listing.sequences]
    starts = frozenset(kinds[entry] for entry in listing.loop_starts if entry < len(kinds))
    outer = np.searchsorted(listing.outer_starts, np.arange(len(kinds) + 1), side="left")
    steps = [0, *((one.stop - one.start) * one.iterations for one in listing.sequences)]
    return WarpPlan(
        listing.sequences, np.array(kinds, dtype=np.int64), starts, outer, np.cumsum(steps, dtype=np.int64)
    )


def _build_loop_tree(warp_program: WarpProgram) -> _LoopPlan:
    root = _LoopPlan(len(warp_program.sequences), 1.0, 1.0)
    outer_loops = list(warp_program.outer_loops)
    enclosing_loops = [root]
    for index, sequence in enumerate(warp_program.sequences):
        while enclosing_loops[-1].last_sequence < index:
            enclosing_loops.pop()
        while outer_loops and outer_loops[0].first_sequence == index:
            outer_loop = outer_loops.pop(0)
            outer = enclosing_loops[-1]
            inner = _LoopPlan(
                outer_loop.last_sequence, outer_loop.iterations / outer.iterations, outer_loop.iterations
            )
            outer.items.append(inner)
            enclosing_loops.append(inner)
        times = sequence.iterations / enclosing_loops[-1].iterations
        enclosing_loops[-1].items.append(_SequencePlan(index, times, sequence.ramp if times < 1.0 else None))
    return root


def _count_entries(loop: _LoopPlan) -> float:
    """Count the entries of one iteration of a loop."""
    return sum(
        item.iterations_per_outer * _count_entries(item) if isinstance(item, _LoopPlan) else 1.0
        for item in loop.items
    )


def _scale_iterations(loop: _LoopPlan, share: float) -> None:
    for item in loop.items:
        left = max(min(item.iterations_per_outer, _MIN_KEPT_ITERATIONS), item.iterations_per_outer * share)
        if isinstance(item, _LoopPlan):
            _scale_iterations(item, share * item.iterations_per_outer / left)
        item.iterations_per_outer = left


def _set_planned_iterations(loop: _LoopPlan) -> None:
    for item in loop.items:
        if isinstance(item, _LoopPlan):
            item.n_planned = floor(item.iterations_per_outer * loop.n_planned + _ROUNDING)
            _set_planned_iterations(item)


def _append_iteration(
    loop: _LoopPlan, iteration: _Iteration, warp_program: WarpProgram, listing: _Listing
) -> None:
    """Append one iteration of a loop.

    What does not come in every iteration is spread evenly over them, unless its ramp is known.
    """
    number = loop.n_begun
    loop.n_begun += 1
    for item in loop.items:
        times = floor(item.iterations_per_outer * (number + 1) + _ROUNDING) - floor(
            item.iterations_per_outer * number + _ROUNDING
        )
        if isinstance(item, _LoopPlan):
            for inner in range(times):
                listing.loop_starts.append(len(listing.sequences))
                if loop.last_sequence == len(warp_program.sequences):  # the root
                    listing.outer_starts.append(len(listing.sequences))
                _append_iteration(item, _Iteration(inner, times), warp_program, listing)
            continue
        if item.ramp is not None:
            here = iteration if item.ramp.is_per_loop_entry else _Iteration(number, loop.n_planned)
            times = 0 if item.ramp.is_skipped_in_iteration(here.number, here.total) else 1
        sequence = warp_program.sequences[item.index]
        if sequence.predicated_ramps:
            listing.sequences += _make_predicated_iterations(
                sequence, _Iteration(number, loop.n_planned), iteration, times
            )
        elif times:
            listing.sequences.append(StepSequence(sequence.start, sequence.stop, times))


def _make_predicated_iterations(
    sequence: StepSequence, overall_iteration: _Iteration, entry_iteration: _Iteration, times: int
) -> list[StepSequence]:
    """Return so many iterations of a sequence, with the steps that each leaves out."""
    found: list[StepSequence] = []
    for iteration in range(times):
        own = _Iteration(iteration, times) if times > 1 else None
        numbers = [
            own or (entry_iteration if ramp.is_per_loop_entry else overall_iteration)
            for ramp in sequence.predicated_ramps
        ]
        pairs = zip(sequence.predicated_ramps, numbers, strict=True)
        skipped = tuple(ramp for ramp, one in pairs if ramp.is_skipped_in_iteration(one.number, one.total))
        if found and found[-1].skipped_ramps == skipped:
            found[-1] = replace(found[-1], iterations=found[-1].iterations + 1)
        else:
            found.append(StepSequence(sequence.start, sequence.stop, 1, skipped_ramps=skipped))
    return found
