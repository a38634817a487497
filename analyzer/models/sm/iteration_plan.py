"""A role's runs in the order in which a warp comes to them, loop by loop, all of them or a part.

Warps that hand work to each other must meet in that order, and what a loop does beside the loops inside of it
overlaps in that order; for others the order of whole loops does.
"""

from math import floor

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp
from analyzer.models.sm.warp_program import SHORT_LOOP_MAX_ITERATIONS, StepSequence, WarpProgram

MIN_OUTER_ITERATIONS = 2.0  # of a loop of which only a part is played
_MAX_TOTAL_ITERATIONS = 2000.0  # of all loops together, where short ones are played whole
_ROUNDING = 1e-9


class _LoopPlan(Struct, eq=False):
    """times: rounds for one round of the loop around it; items: runs by place, and loops inside; planned:
    rounds of the plan in all.
    """

    last_sequence: int
    iterations_per_outer: float
    iterations: float
    items: "list[_LoopPlan | _SequencePlan]" = field(default_factory=list)
    n_begun: int = 0
    n_planned: int = 1


class _SequencePlan(Struct, eq=False):
    index: int
    iterations_per_outer: float
    ramp: PipelineRamp | None


class _Iteration(Struct, frozen=True):
    """A round of a loop among those of one time that it is gone through, or among all."""

    number: int
    total: int


def plan_sequences(warp_program: WarpProgram, part: float, inner: float | None = None) -> list[StepSequence]:
    """About such a part of all visits, in order: outer loops are cut first, inner ones where it must be.

    inner: the part of inner loops, where these are cut by themselves.
    """
    root = _build_loop_tree(warp_program)
    _scale_iterations(root, part, inner)
    return _list_sequences(root, warp_program)


def plan_truncated_sequences(warp_program: WarpProgram, max_iterations: int) -> list[StepSequence]:
    """The visits in order, of each long loop so many rounds at most; of all loops, where short ones within
    each other are many rounds.
    """
    root = _build_loop_tree(warp_program)
    _limit_iterations(root, SHORT_LOOP_MAX_ITERATIONS, max_iterations)
    if _count_iterations(root) > _MAX_TOTAL_ITERATIONS:
        _limit_iterations(root, max_iterations, max_iterations)
    return _list_sequences(root, warp_program)


def has_long_loop_nest(warp_program: WarpProgram) -> bool:
    """Whether a loop that is cut short has more than one run inside."""
    return any(span.iterations > SHORT_LOOP_MAX_ITERATIONS for span in warp_program.outer_loops)


def count_outer_iterations(warp_program: WarpProgram) -> float:
    """Rounds of the loop that has others inside, the most; 0 where there is none."""
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
    for index, run in enumerate(warp_program.sequences):
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
        times = run.iterations / enclosing_loops[-1].iterations
        enclosing_loops[-1].items.append(_SequencePlan(index, times, run.ramp if times < 1.0 else None))
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
    """Of all loops inside, for one round of this one."""
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
    """One round of a loop; what does not come in every round comes evenly spread over them, where it is not
    known in which it does.
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
            times = 0 if item.ramp.is_skipped(here.number, here.total) else 1
        run = warp_program.sequences[item.index]
        if run.predicated_ramps:
            plan += _make_predicated_iterations(run, _Iteration(number, loop.n_planned), iteration, times)
        elif times:
            plan.append(StepSequence(run.start, run.stop, times, run.has_barrier))


def _make_predicated_iterations(
    run: StepSequence, overall_iteration: _Iteration, entry_iteration: _Iteration, times: int
) -> list[StepSequence]:
    """So many visits of a run, with what is left out in each."""
    found: list[StepSequence] = []
    for iteration in range(times):
        own = _Iteration(iteration, times) if times > 1 else None
        places = [
            own or (entry_iteration if odd.is_per_loop_entry else overall_iteration)
            for odd in run.predicated_ramps
        ]
        pairs = zip(run.predicated_ramps, places, strict=True)
        left_out = tuple(odd for odd, at in pairs if odd.is_skipped(at.number, at.total))
        if found and found[-1].skipped_ramps == left_out:
            found[-1] = replace(found[-1], iterations=found[-1].iterations + 1)
        else:
            found.append(StepSequence(run.start, run.stop, 1, run.has_barrier, skipped_ramps=left_out))
    return found
