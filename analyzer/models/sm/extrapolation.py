"""Estimate the cycles of an SM from the simulation of some of its CTAs and loop iterations.

A simulation takes time for each step of each warp, so its steps have a budget. In this order:

1. Warps that pass work to each other (mbarriers): the resident CTAs do a part of all iterations in order; a
   line through two such parts gives all of them.
2. Few steps: all CTAs to their end.
3. Several waves of CTAs fit in the budget: these to their end; later CTAs come at the same interval.
4. Tensor core code and loop nests: some waves with fewer iterations of long loops, twice, and a line again.
5. Else long loops are truncated, until more iterations change the estimate by little; their pace gives the
   iterations that were left out.

Example of a line: 12 iterations take 5000 cycles and 6 take 2600, so each takes 400, and 100 iterations take
5000 + 88 * 400 = 40200.
"""

import math
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from analyzer.models.sm.iteration_plan import (
    MIN_OUTER_ITERATIONS,
    count_outer_iterations,
    count_truncated_iterations,
    has_long_loop_nest,
    plan_sequences,
    plan_truncated_sequences,
)
from analyzer.models.sm.simulation_state import SimulationResult, SmParameters
from analyzer.models.sm.sm_simulator import TENSOR_PIPE_INDEX, simulate_ctas
from analyzer.models.sm.warp_program import StepSequence, WarpProgram

# Steps of a simulation: more change predictions by little and take longer.
STEP_BUDGET = 80_000
_PIPELINE_STEP_BUDGET = (
    12_000  # the iterations of a pipeline soon are the same: docs/blackwell.md is the same as with 40,000
)
ALL_ITERATIONS = 10**12
_MIN_ITERATIONS = 6
_MAX_ITERATIONS = 24
_DEFAULT_WAVES, _MAX_WAVES = 2, 8
_CONVERGED_CHANGE_SHARE = 0.005
# Waves of CTAs that are simulated to their end where CTAs are more than a few, within so many steps; where no
# loop would be truncated, within twice as many, and never fewer than show the pace.
_MAX_WHOLE_WAVES, _MIN_WHOLE_WAVES = 8, 3
_WHOLE_STEP_BUDGET = 3 * STEP_BUDGET
_UNTRUNCATED_STEP_BUDGET = 2 * _WHOLE_STEP_BUDGET
_MIN_WAVES_STEP_BUDGET = (
    5 * STEP_BUDGET
)  # of the fewest waves: about what two simulations with fewer iterations take
_FEW_CTAS_PER_SM = 4  # with so few, nothing hides that one CTA follows another
# Of long loops whose CTAs share the tensor core, or that have others inside, where waves to their end are too
# many steps. The further apart two simulations are, the less a line through them errs: for 30 products and
# attention kernels, 12 and 6 iterations were up to 29 % off the whole simulation, 24 and 6 up to 13 %.
_EXTRAPOLATED_ITERATIONS = (24, 12, 6, 4)
_MAX_LISTED_ITERATIONS = 200_000.0  # of all loops together
_FEWER_ITERATIONS_DIVISOR = 4


class SmEstimate(Struct, frozen=True, eq=False):
    """Cycles of an SM, and the simulation that they come from."""

    cycles: float
    simulated: SimulationResult  # the waits come from it
    max_iterations: int  # of each sequence in it
    # By role, iterations of the sequence at each first step, where sequences were simulated in their order.
    simulated_iterations: tuple[Mapping[int, int], ...] = ()
    # Of the simulated CTAs, in order, and of all iterations where a line gives them.
    cta_end_cycles: tuple[float, ...] = ()

    def count_simulated_iterations(self, role: int, sequence: StepSequence) -> int:
        """Return the iterations of a sequence that were simulated."""
        if self.simulated_iterations:
            return self.simulated_iterations[role][sequence.start]
        return sequence.limit_iterations(self.max_iterations)


def simulates_whole_warps(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int
) -> bool:
    """Return whether warps are simulated from start to end, those of all CTAs or of some."""
    return not parameters.pipelines and (
        not _is_truncated(warp_programs)
        or _has_few_steps(warp_programs, parameters, n_ctas)
        or _count_whole_waves(warp_programs, parameters) >= _MIN_WHOLE_WAVES
    )


def _has_few_steps(warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int) -> bool:
    return _count_steps_per_cta(warp_programs, parameters, ALL_ITERATIONS) * n_ctas <= 2 * STEP_BUDGET


def _count_whole_waves(warp_programs: tuple[WarpProgram, ...], parameters: SmParameters) -> int:
    """Count the waves of CTAs that can be simulated to their end."""
    if parameters.ctas_per_sm <= _FEW_CTAS_PER_SM:
        return 0
    steps = _count_steps_per_cta(warp_programs, parameters, ALL_ITERATIONS) * parameters.ctas_per_sm
    if not _is_truncated(warp_programs):
        return max(_MIN_WHOLE_WAVES, min(_MAX_WHOLE_WAVES, int(_UNTRUNCATED_STEP_BUDGET / steps)))
    return min(_MAX_WHOLE_WAVES, int(_WHOLE_STEP_BUDGET / steps))


def estimate_sm_cycles(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int
) -> SmEstimate:
    """Estimate the cycles in which an SM runs so many CTAs, one after another in its slots."""
    slots = parameters.ctas_per_sm
    if parameters.pipelines:
        return _estimate_pipelined(warp_programs, parameters, n_ctas)
    if _has_few_steps(warp_programs, parameters, n_ctas):
        return _estimate_from_whole_ctas(
            warp_programs, replace(parameters, max_iterations=ALL_ITERATIONS), n_ctas, math.inf
        )
    if (whole_waves := _count_whole_waves(warp_programs, parameters)) >= _MIN_WHOLE_WAVES:
        return _estimate_from_whole_ctas(
            warp_programs, replace(parameters, max_iterations=ALL_ITERATIONS), n_ctas, whole_waves
        )
    are_truncated = _is_truncated(warp_programs)
    if are_truncated and (_uses_tensor_core(warp_programs) or any(map(has_long_loop_nest, warp_programs))):
        found = _extrapolate_iterations(
            warp_programs, replace(parameters, max_iterations=ALL_ITERATIONS), n_ctas
        )
        if found is not None:
            return found
    full, rest = divmod(n_ctas, slots)
    at_once, waves = min(n_ctas, slots), max(1, min(full, _DEFAULT_WAVES))
    max_iterations = _find_max_iterations(warp_programs, parameters, STEP_BUDGET / (at_once * waves))
    parameters = replace(parameters, max_iterations=_MIN_ITERATIONS)
    parameters, first = (
        _simulate_until_converged(warp_programs, parameters, at_once, max_iterations)
        if are_truncated
        else (parameters, None)
    )
    if first is None or parameters.max_iterations == max_iterations:
        per_wave = slots * _count_steps_per_cta(warp_programs, parameters, parameters.max_iterations)
        waves = max(waves, min(full, _MAX_WAVES, int(STEP_BUDGET / per_wave)))
    simulated = first if first and waves == 1 else simulate_ctas(warp_programs, parameters, at_once * waves)
    wave = simulated.cycles / waves + (
        _extrapolate_truncated_cycles(warp_programs, parameters, first) if first else 0.0
    )
    cycles = max(1, full) * wave
    if full and rest:
        tail = simulate_ctas(warp_programs, parameters, rest)
        cycles += min(tail.cycles + _extrapolate_truncated_cycles(warp_programs, parameters, tail), wave)
    ends = tuple(sorted(simulated.cta_end_cycles))
    return SmEstimate(cycles, simulated, parameters.max_iterations, cta_end_cycles=ends)


def _estimate_from_whole_ctas(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int, waves: float
) -> SmEstimate:
    """Simulate all CTAs, or some waves of them, to their end; later ones come at the same interval."""
    slots, max_ctas = parameters.ctas_per_sm, waves * parameters.ctas_per_sm
    in_order = _order_long_nests(warp_programs)
    simulated = simulate_ctas(in_order, parameters, int(min(n_ctas, max_ctas)))
    cycles = simulated.cycles
    if n_ctas > max_ctas:
        cycles += (n_ctas - max_ctas) * _compute_cta_interval_cycles(sorted(simulated.cta_end_cycles), slots)
    simulated_iterations = (
        tuple(_count_iterations(warp_program.sequences) for warp_program in in_order)
        if in_order is not warp_programs
        else ()
    )
    ends = tuple(sorted(simulated.cta_end_cycles))
    return SmEstimate(cycles, simulated, parameters.max_iterations, simulated_iterations, ends)


def _order_long_nests(warp_programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    """Put sequences inside long loops in the order of iterations.

    Then a load for a later iteration comes before the products of this one, not before all of them.
    """
    return (
        _truncate_iterations(warp_programs, ALL_ITERATIONS)
        if any(map(has_long_loop_nest, warp_programs))
        else warp_programs
    )


def _count_affordable_waves(steps_per_cta: float, parameters: SmParameters) -> int:
    """Count the waves of CTAs that can be simulated, and no fewer than show the pace."""
    affordable = int(_WHOLE_STEP_BUDGET / (steps_per_cta * parameters.ctas_per_sm))
    return max(_MIN_WHOLE_WAVES, min(_MAX_WHOLE_WAVES, affordable))


def _extrapolate_iterations(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int
) -> SmEstimate | None:
    """Simulate some waves of CTAs to their end, or twice with fewer iterations of long loops.

    A straight line then gives the cycles of all iterations. None where that would be too many steps.
    """
    least_ctas = min(n_ctas, _MIN_WHOLE_WAVES * parameters.ctas_per_sm)
    per_cta = _count_steps_per_cta(warp_programs, parameters, ALL_ITERATIONS)
    if per_cta * least_ctas <= _MIN_WAVES_STEP_BUDGET:
        return _estimate_from_whole_ctas(
            warp_programs, parameters, n_ctas, _count_affordable_waves(per_cta, parameters)
        )
    for iterations in _EXTRAPOLATED_ITERATIONS:
        if any(count_truncated_iterations(one, iterations) > _MAX_LISTED_ITERATIONS for one in warp_programs):
            continue
        fewer, more = (
            _truncate_iterations(warp_programs, most)
            for most in (iterations // _FEWER_ITERATIONS_DIVISOR, iterations)
        )
        steps = _StepCounts(
            *(_count_steps_per_cta(some, parameters, ALL_ITERATIONS) for some in (warp_programs, more, fewer))
        )
        if steps.simulated * least_ctas <= _WHOLE_STEP_BUDGET:
            waves = _count_affordable_waves(steps.simulated, parameters)
            break
    else:
        return None
    found = _estimate_from_whole_ctas(more, parameters, n_ctas, waves)
    shorter = _estimate_from_whole_ctas(fewer, parameters, n_ctas, waves) if steps.give_line else found
    return SmEstimate(
        steps.extrapolate_cycles(found.cycles, shorter.cycles),
        found.simulated,
        ALL_ITERATIONS,
        tuple(_count_iterations(warp_program.sequences) for warp_program in more),
        tuple(sorted(map(steps.extrapolate_cycles, found.cta_end_cycles, shorter.cta_end_cycles))),
    )


class _StepCounts(Struct, frozen=True):
    """Steps of a CTA: all, simulated ones, and those of a simulation with fewer iterations."""

    all_steps: float
    simulated: float
    fewer: float

    @property
    def give_line(self) -> bool:
        """True if steps are left that a line through both simulations gives."""
        return self.all_steps > self.simulated > self.fewer

    def extrapolate_cycles(self, cycles: float, fewer_cycles: float) -> float:
        """Extrapolate to all steps, on a line through two simulations.

        cycles: of the simulation with more iterations.
        """
        if not self.give_line:
            return cycles
        longer = max(0.0, cycles - fewer_cycles)
        return cycles + longer * (self.all_steps - self.simulated) / (self.simulated - self.fewer)


def _truncate_iterations(
    warp_programs: tuple[WarpProgram, ...], max_iterations: int
) -> tuple[WarpProgram, ...]:
    """List the iterations of each program in order, which leaves no outer loops."""
    return tuple(
        replace(
            warp_program, sequences=plan_truncated_sequences(warp_program, max_iterations), outer_loops=()
        )
        for warp_program in warp_programs
    )


def _compute_cta_interval_cycles(ends: list[float], slots: int) -> float:
    """Compute the cycles between the ends of CTAs, from the first wave to the last but one.

    CTAs of the first wave load at the same time, and those of the last have an SM that empties: neither shows
    how long a CTA takes among others at different places.
    """
    last = len(ends) - slots
    return (sum(ends[last - slots : last]) - sum(ends[:slots])) / slots / (last - slots)


def _is_truncated(warp_programs: tuple[WarpProgram, ...]) -> bool:
    """Return whether a sequence is long enough to be truncated where CTAs are not simulated to their end."""
    return any(
        sequence.limit_iterations(_MIN_ITERATIONS) < sequence.iterations
        for warp_program in warp_programs
        for sequence in warp_program.sequences
    )


def _simulate_until_converged(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int, max_iterations: int
) -> tuple[SmParameters, SimulationResult]:
    """Simulate one wave with more and more iterations, until the estimate converges or at the most."""
    simulated = simulate_ctas(warp_programs, parameters, n_ctas)
    before, now = 0.0, simulated.cycles + _extrapolate_truncated_cycles(warp_programs, parameters, simulated)
    while parameters.max_iterations < max_iterations and abs(now - before) > _CONVERGED_CHANGE_SHARE * now:
        parameters = replace(parameters, max_iterations=2 * parameters.max_iterations)
        simulated = simulate_ctas(warp_programs, parameters, n_ctas)
        before, now = (
            now,
            simulated.cycles + _extrapolate_truncated_cycles(warp_programs, parameters, simulated),
        )
    return parameters, simulated


def _estimate_pipelined(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int
) -> SmEstimate:
    """Estimate warps that pass work to each other: their loops run together, so all are cut together."""
    at_once = min(n_ctas, parameters.ctas_per_sm)
    pipelines = _PipelinedCtas(warp_programs, replace(parameters, max_iterations=ALL_ITERATIONS), at_once)
    outer_iterations = max(map(count_outer_iterations, warp_programs))
    part = min(
        1.0,
        (STEP_BUDGET if outer_iterations else _PIPELINE_STEP_BUDGET) / pipelines.count_steps(warp_programs),
    )
    if part < 1.0 and outer_iterations * part / 2 < MIN_OUTER_ITERATIONS <= outer_iterations:
        cycles, simulated, plan = _extrapolate_outer_iterations(pipelines, outer_iterations, part)
    else:
        cycles, simulated, plan = _extrapolate_parts(pipelines, part)
    simulated_iterations = tuple(_count_iterations(warp_program.sequences) for warp_program in plan)
    return SmEstimate(cycles * n_ctas / at_once, simulated, ALL_ITERATIONS, simulated_iterations)


class _PipelinedCtas(Struct, frozen=True, eq=False):
    """Programs of the roles of a CTA, and how many CTAs are resident."""

    warp_programs: tuple[WarpProgram, ...]
    parameters: SmParameters
    n_ctas: int

    def plan(self, part: float, inner: float | None = None) -> tuple[WarpProgram, ...]:
        """See `plan_sequences`."""
        return tuple(
            replace(warp_program, sequences=plan_sequences(warp_program, part, inner))
            for warp_program in self.warp_programs
        )

    def count_steps(self, warp_programs: tuple[WarpProgram, ...]) -> float:
        return _count_steps_per_cta(warp_programs, self.parameters, ALL_ITERATIONS) * self.n_ctas

    def simulate(self, warp_programs: tuple[WarpProgram, ...]) -> SimulationResult:
        return simulate_ctas(warp_programs, self.parameters, self.n_ctas)


def _extrapolate_parts(
    pipelines: _PipelinedCtas, part: float
) -> tuple[float, SimulationResult, tuple[WarpProgram, ...]]:
    """Extrapolate from two parts of the iterations by a straight line."""
    whole = pipelines.plan(part)
    simulated = pipelines.simulate(whole)
    if part == 1.0:
        return simulated.cycles, simulated, whole
    half = pipelines.plan(part / 2)
    steps = _StepCounts(*map(pipelines.count_steps, (pipelines.warp_programs, whole, half)))
    shorter = pipelines.simulate(half) if steps.give_line else simulated
    return steps.extrapolate_cycles(simulated.cycles, shorter.cycles), simulated, whole


def _extrapolate_outer_iterations(
    pipelines: _PipelinedCtas, outer_iterations: float, part: float
) -> tuple[float, SimulationResult, tuple[WarpProgram, ...]]:
    """Extrapolate outer iterations that are too long to be simulated whole.

    Three simulations give the two unknowns, cycles of an outer iteration and of the loops inside it: two
    outer iterations with a part of their inner loops, with half of that part, and a third outer iteration.
    """
    inner = min(1.0, outer_iterations * part / MIN_OUTER_ITERATIONS)
    first = MIN_OUTER_ITERATIONS / outer_iterations
    plan = pipelines.plan(first, inner)
    simulated = pipelines.simulate(plan)
    fewer = pipelines.simulate(pipelines.plan(first, inner / 2)).cycles
    more = pipelines.simulate(
        pipelines.plan((MIN_OUTER_ITERATIONS + 1.0) / outer_iterations, inner / 2)
    ).cycles
    whole_inner = max(0.0, simulated.cycles - fewer) / MIN_OUTER_ITERATIONS / (inner / 2)
    outer_iteration = max(0.0, more - fewer - whole_inner * inner / 2) + whole_inner
    left = (outer_iterations - MIN_OUTER_ITERATIONS) * outer_iteration + MIN_OUTER_ITERATIONS * (
        1.0 - inner
    ) * whole_inner
    return simulated.cycles + left, simulated, plan


def _count_iterations(plan: list[StepSequence]) -> Counter[int]:
    iterations: Counter[int] = Counter()
    for sequence in plan:
        iterations[sequence.start] += sequence.iterations
    return iterations


def _count_steps_per_cta(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, max_iterations: int
) -> float:
    per = [
        sum(
            (sequence.stop - sequence.start) * sequence.limit_iterations(max_iterations)
            for sequence in warp_program.sequences
        )
        for warp_program in warp_programs
    ]
    return float(sum(per[role] for role in parameters.role_by_warp))


def _find_max_iterations(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, steps_per_cta: float
) -> int:
    """Return the most iterations of a sequence with which a CTA takes no more steps than given."""
    iterations = _MIN_ITERATIONS
    while (
        iterations < _MAX_ITERATIONS
        and _count_steps_per_cta(warp_programs, parameters, iterations * 2) <= steps_per_cta
    ):
        iterations *= 2
    return iterations


def _uses_tensor_core(warp_programs: tuple[WarpProgram, ...]) -> bool:
    return any(
        pipe == TENSOR_PIPE_INDEX
        for warp_program in warp_programs
        for pipes in warp_program.pipe_cycles
        for pipe, *_ in pipes
    )


def _extrapolate_truncated_cycles(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, simulated: SimulationResult
) -> float:
    """Return the cycles of the iterations that were left out, of the role that has most."""
    most = 0.0
    for number, warp_program in enumerate(warp_programs):
        total = 0.0
        for index, sequence in enumerate(warp_program.sequences):
            progress = simulated.iteration_progress.get((number, index, 0))
            if progress is not None:
                total += (sequence.iterations - parameters.max_iterations) * progress.cycles_per_iteration
        most = max(most, total)
    return most
