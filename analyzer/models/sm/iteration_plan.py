"""List the sequences of a program in the order in which a warp executes them, all of them or a part.

A program gives each sequence once, with its iterations in all. Here they become a tree of loops: each node
has its iterations per iteration of the loop around it. Iterations are cut there, and then the tree is
walked. Warps that pass work to each other need that order, and so does a loop whose other work overlaps
with the loops inside it. For all others each sequence can do all its iterations at once.

The invariant: of a sequence with r iterations per outer iteration, floor(r * n) come in the first n outer
iterations. Example: A once in 2 outer iterations, B 3 times in each, 4 outer iterations: B3, A B3, B3, A B3.
"""

from math import floor

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp
from analyzer.models.sm.warp_program import SHORT_LOOP_MAX_ITERATIONS, StepSequence, WarpProgram

MIN_OUTER_ITERATIONS = 2.0  # of a loop of which only a part is simulated
_MAX_TOTAL_ITERATIONS = 2000.0  # of all loops together, where short ones are simulated whole
_ROUNDING = 1e-9


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


def plan_sequences(warp_program: WarpProgram, part: float, inner: float | None = None) -> list[StepSequence]:
    """List about such a part of all iterations in order; outer loops are cut first, inner ones as needed.

    inner: the part of inner loops, where it is not the rest.
    """
    root = _build_loop_tree(warp_program)
    _scale_iterations(root, part, inner)
    return _list_sequences(root, warp_program)


def plan_truncated_sequences(warp_program: WarpProgram, max_iterations: int) -> list[StepSequence]:
    """List iterations in order, at most `max_iterations` of each long loop.

    Short loops are cut as well where they are many iterations inside each other.
    """
    return _list_sequences(_truncate_loops(warp_program, max_iterations), warp_program)


def count_truncated_iterations(warp_program: WarpProgram, max_iterations: int) -> float:
    """Count the iterations of all loops that `plan_truncated_sequences` lists: deep nests have very many."""
    return _count_iterations(_truncate_loops(warp_program, max_iterations))


def _truncate_loops(warp_program: WarpProgram, max_iterations: int) -> _LoopPlan:
    root = _build_loop_tree(warp_program)
    _limit_iterations(root, SHORT_LOOP_MAX_ITERATIONS, max_iterations)
    if _count_iterations(root) > _MAX_TOTAL_ITERATIONS:
        _limit_iterations(root, max_iterations, max_iterations)
    return root


def has_long_loop_nest(warp_program: WarpProgram) -> bool:
    """Return whether a loop that is truncated has more than one sequence inside."""
    return any(span.iterations > SHORT_LOOP_MAX_ITERATIONS for span in warp_program.outer_loops)


def count_outer_iterations(warp_program: WarpProgram) -> float:
    """Return the most iterations of a loop that has others inside; 0 where there is none."""
    loops = [item for item in _build_loop_tree(warp_program).items if isinstance(item, _LoopPlan)]
    return max((loop.iterations_per_outer for loop in loops if _has_inner_loops(loop)), default=0.0)


def _has_inner_loops(loop: _LoopPlan) -> bool:
    return any(
        isinstance(item, _LoopPlan) or item.iterations_per_outer >= MIN_OUTER_ITERATIONS
        for item in loop.items
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


def _scale_iterations(loop: _LoopPlan, part: float, inner: float | None) -> None:
    for item in loop.items:
        left = max(min(item.iterations_per_outer, MIN_OUTER_ITERATIONS), item.iterations_per_outer * part)
        if isinstance(item, _LoopPlan):
            _scale_iterations(
                item, part * item.iterations_per_outer / left if inner is None else inner, inner
            )
        item.iterations_per_outer = left


def _limit_iterations(loop: _LoopPlan, longest: int, max_iterations: int) -> None:
    for item in loop.items:
        if isinstance(item, _LoopPlan):
            _limit_iterations(item, longest, max_iterations)
        if item.iterations_per_outer > longest:
            item.iterations_per_outer = min(item.iterations_per_outer, max_iterations)


def _count_iterations(loop: _LoopPlan) -> float:
    """Count the iterations of all loops inside, for one iteration of this one."""
    return sum(
        item.iterations_per_outer * (1.0 + _count_iterations(item))
        if isinstance(item, _LoopPlan)
        else item.iterations_per_outer
        for item in loop.items
    )


def _list_sequences(root: _LoopPlan, warp_program: WarpProgram) -> list[StepSequence]:
    plan: list[StepSequence] = []
    _set_planned_iterations(root)
    _append_iteration(root, _Iteration(0, 1), warp_program, plan)
    return plan


def _set_planned_iterations(loop: _LoopPlan) -> None:
    for item in loop.items:
        if isinstance(item, _LoopPlan):
            item.n_planned = floor(item.iterations_per_outer * loop.n_planned + _ROUNDING)
            _set_planned_iterations(item)


def _append_iteration(
    loop: _LoopPlan, iteration: _Iteration, warp_program: WarpProgram, plan: list[StepSequence]
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
                _append_iteration(item, _Iteration(inner, times), warp_program, plan)
            continue
        if item.ramp is not None:
            here = iteration if item.ramp.is_per_loop_entry else _Iteration(number, loop.n_planned)
            times = 0 if item.ramp.is_skipped_in_iteration(here.number, here.total) else 1
        sequence = warp_program.sequences[item.index]
        if sequence.predicated_ramps:
            plan += _make_predicated_iterations(
                sequence, _Iteration(number, loop.n_planned), iteration, times
            )
        elif times:
            plan.append(StepSequence(sequence.start, sequence.stop, times, sequence.has_barrier))


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
            found.append(
                StepSequence(sequence.start, sequence.stop, 1, sequence.has_barrier, skipped_ramps=skipped)
            )
    return found
