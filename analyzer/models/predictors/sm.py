"""Predict a launch by simulating its busiest SM event by event.

The simulation has the schedulers and their pipes, the load/store path, the SM's part of the rates of L2 and
DRAM, atomics that queue at one unit of the L2, barriers, and CTAs that follow each other in their slots. The
cycles are at least those of each resource alone, and of the dispatch of all CTAs. The stall stack has the
proportions of the simulated warps' own cycles.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.opcode_costs import PIPES
from analyzer.ir.arrays import FloatArray
from analyzer.ir.scheduling import SM_LEVEL_PIPES
from analyzer.models.bounds import (
    ATOMICS_BOUND,
    DRAM_BOUND,
    ISSUE_BOUND,
    L2_BOUND,
    LATENCY_BOUND,
    LOAD_STORE_BOUND,
    REGISTER_PORTS_BOUND,
    convert_to_bytes_per_cycle,
)
from analyzer.models.composition import LAUNCH_BOUND
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.launch_overhead import compute_cta_dispatch_cycles, compute_idle_launch_cycles
from analyzer.models.miss_rates import estimate_miss_rates
from analyzer.models.model_result import (
    CycleRange,
    ModelResult,
    SmScaling,
    find_clock_mhz,
    make_prediction,
)
from analyzer.models.power import find_launch_clock, has_power_figures, make_clock_figure
from analyzer.models.residuals import LaunchTraits, load_residuals, measure_guessed_share
from analyzer.models.sm.launch_simulation import LaunchSimulation, WarpCycles, simulate_launch
from analyzer.models.sm.resource_demand import OUTGOING_KINDS, StepKind
from analyzer.models.sm.simulation_state import NO_INSTRUCTIONS_COLUMN, NOT_SELECTED_COLUMN
from analyzer.models.sm.sm_simulator import MOST_STEPS
from analyzer.models.sm.warp_program import WarpProgram
from analyzer.models.stalls import StallAccumulator
from analyzer.models.timeline import WarpTimeline
from analyzer.models.timeline_builder import build_warp_timeline
from analyzer.models.wait_causes import N_WAIT_CAUSES, REGISTER_PORTS_INDEX, STALL_BY_CAUSE, WaitCause

NAME = "sm"
_MIN_BINDING_SHARE = 0.8
_CLOCK_TOLERANCE = 0.03
_CLOCK_STEPS = 6_000  # of a simulation that only says which clock a launch has
_SHARED_BOUNDS = frozenset({L2_BOUND, DRAM_BOUND, ATOMICS_BOUND})


def predict(model_input: ModelInput) -> ModelResult:
    """Predict cycles, stall stack and time of one kernel on one GPU.

    Where power decides the clock, part of the launch is simulated at that of a launch whose binding unit
    never waits. Its pace says which clock the launch has, and the whole launch whether it does have that.
    """
    is_given = model_input.clock_mhz is not None or model_input.settled_clock is not None
    if is_given or not has_power_figures(model_input):
        return _predict_at_clock(model_input)
    part = _simulate_at_clock(model_input, _CLOCK_STEPS)
    at_clock = _settle_clock(model_input, model_input, part.cycles + part.overhead_cycles)
    result = _predict_at_clock(at_clock)
    settled = _settle_clock(model_input, at_clock, result.prediction.cycles)
    return result if settled is at_clock else _predict_at_clock(settled)


def _settle_clock(model_input: ModelInput, at_clock: ModelInput, cycles: float) -> ModelInput:
    """Return a launch at the clock that its power leaves, or as it is if it takes so many cycles at that."""
    clock = find_clock_mhz(at_clock)
    state = find_launch_clock(model_input, cycles, clock)
    if state is None or abs(state.clock_mhz / clock - 1.0) < _CLOCK_TOLERANCE:
        return at_clock
    return replace(model_input, settled_clock=make_clock_figure(state.clock_mhz))


class _SimulatedLaunch(Struct, frozen=True, eq=False):
    """A simulation with what else bounds the cycles of a launch."""

    simulation: LaunchSimulation
    bounds: dict[str, float]  # cycles that each resource of the busiest SM is busy
    dispatch_cycles: float  # of all CTAs
    cycles: float
    overhead_cycles: float  # of the launch, in which no SM works


def _simulate_at_clock(model_input: ModelInput, most_steps: float = MOST_STEPS) -> _SimulatedLaunch:
    """Simulate a launch at the clock that is known of it so far, see `simulate_ctas`."""
    clock, miss_rates = find_clock_mhz(model_input), estimate_miss_rates(model_input)
    simulation = simulate_launch(model_input, miss_rates, clock, most_steps)
    bounds, dispatch = _compute_resource_bounds(simulation), compute_cta_dispatch_cycles(model_input, clock)
    cycles = max(simulation.cycles, dispatch, *bounds.values())
    overhead = compute_idle_launch_cycles(model_input, clock, cycles)
    return _SimulatedLaunch(simulation, bounds, dispatch, cycles, overhead)


def _predict_at_clock(model_input: ModelInput) -> ModelResult:
    """Predict a launch at the clock that is known of it so far."""
    clock, miss_rates = find_clock_mhz(model_input), estimate_miss_rates(model_input)
    found = _simulate_at_clock(model_input)
    simulation, bounds, dispatch, cycles = found.simulation, found.bounds, found.dispatch_cycles, found.cycles
    accumulator = StallAccumulator(len(model_input.kernel))
    is_dispatch = dispatch >= _MIN_BINDING_SHARE * cycles and dispatch > max(bounds.values(), default=0.0)
    warp_cycles = simulation.sum_warp_cycles(accumulator.n_rows)
    empty = cycles * _compute_empty_slot_share(simulation, warp_cycles) if is_dispatch else 0.0
    _add_warp_cycles(accumulator, simulation, warp_cycles, cycles - empty)
    accumulator.add_unattributed_cycles(Stall.LAUNCH, empty)
    accumulator.add_unattributed_cycles(Stall.LAUNCH, found.overhead_cycles)
    stalls = accumulator.build_profile()
    name = max(bounds, key=lambda which: bounds[which], default=LATENCY_BOUND)
    bound = name if bounds.get(name, 0.0) >= _MIN_BINDING_SHARE * cycles else LATENCY_BOUND
    bound = LAUNCH_BOUND if found.overhead_cycles > cycles or is_dispatch else bound
    low, high = load_residuals().find_factors(
        LaunchTraits(
            time_us=stalls.total_cycles / clock,
            bound=bound,
            busy={which: limit / stalls.total_cycles for which, limit in bounds.items()},
            stalls=stalls.sum_by_stall(),
            guessed_share=measure_guessed_share(model_input),
        )
    )
    mean_ctas = model_input.grid_ctas * (1.0 - simulation.idle_cta_share) / model_input.gpu.sm_count

    timeline = build_warp_timeline(model_input, model_input.execution_counts, miss_rates)

    def predict_balanced_cycles(ctas_per_sm: int) -> float:
        ratio = ctas_per_sm / simulation.n_ctas
        shared_ratio = ratio / simulation.mean_load_share
        scaled = (
            limit * (shared_ratio if which in _SHARED_BOUNDS else ratio) for which, limit in bounds.items()
        )
        dispatched = dispatch * ctas_per_sm / mean_ctas
        return max(simulation.estimate_balanced_cycles(ctas_per_sm), dispatched, *scaled)

    return ModelResult(
        model_input=model_input,
        prediction=make_prediction(
            model_input,
            NAME,
            stalls,
            bound=bound,
            bounds_cycles=bounds,
            cycle_range=CycleRange(
                stalls.total_cycles * low, stalls.total_cycles * high, includes_model_error=True
            ),
            miss_rates=miss_rates,
            cold_share=simulation.resource_demand.cold_share,
            notes=simulation.notes,
        ),
        cold_share=simulation.resource_demand.cold_share,
        stalls=stalls,
        n_simulated_steps=simulation.simulated.n_steps,
        timeline=timeline,
        role_timeline=_make_role_timeline(warp_cycles, timeline) if simulation.parameters.pipelines else None,
        sm_scaling=SmScaling(mean_ctas, cycles, predict_balanced_cycles),
        dram_bytes=bounds.get(DRAM_BOUND, 0.0)
        * convert_to_bytes_per_cycle(model_input.gpu.dram_read_gbps.value, clock),
    )


def _make_role_timeline(warp_cycles: WarpCycles, timeline: WarpTimeline) -> WarpTimeline:
    """Return the waits for one execution of each instruction in the simulation.

    There a warp waits for a buffer that others fill while it does other work: less than alone, where each
    round waits for its own copies and products.
    """
    executions = np.maximum(warp_cycles.selected, 1e-9)[:, np.newaxis]
    waits = warp_cycles.waits[:, :N_WAIT_CAUSES] / executions
    others = warp_cycles.waits[:, N_WAIT_CAUSES:].sum(axis=1) + warp_cycles.stall_count_cycles
    waits[:, WaitCause.WAIT] += others / executions[:, 0]
    waits[warp_cycles.selected <= 0] = 0.0
    return WarpTimeline(waits, timeline.producers)


def _compute_empty_slot_share(simulation: LaunchSimulation, warp_cycles: WarpCycles) -> float:
    """Return the part of the time of an SM's slots in which no CTA has been launched yet."""
    of_cta = warp_cycles.total_cycles / len(simulation.parameters.role_by_warp)
    slots = min(simulation.parameters.ctas_per_sm, simulation.n_ctas)
    return max(0.0, 1.0 - of_cta * simulation.n_ctas / slots / simulation.cycles)


def _add_warp_cycles(
    accumulator: StallAccumulator, simulation: LaunchSimulation, warp_cycles: WarpCycles, cycles_of_sm: float
) -> None:
    """Divide the busiest SM's cycles in the proportions of its warps' cycles."""
    total, waits = warp_cycles.total_cycles, warp_cycles.waits
    scale = cycles_of_sm / total if total else 0.0
    accumulator.add_row_cycles(Stall.SELECTED, warp_cycles.selected * scale)
    accumulator.add_row_cycles(Stall.WAIT, warp_cycles.stall_count_cycles * scale)
    accumulator.add_row_cycles(Stall.NOT_SELECTED, waits[:, NOT_SELECTED_COLUMN] * scale)
    accumulator.add_row_cycles(Stall.NO_INSTRUCTIONS, waits[:, NO_INSTRUCTIONS_COLUMN] * scale)
    is_global = np.isin(
        simulation.resource_demand.step_kind,
        (int(StepKind.LOAD), int(StepKind.STORE), int(StepKind.BULK_COPY_OUT)),
    )
    for cause, stall in STALL_BY_CAUSE.items():
        cycles: FloatArray = waits[:, cause] * scale
        if stall is Stall.MIO_THROTTLE:
            accumulator.add_row_cycles(Stall.LG_THROTTLE, np.where(is_global, cycles, 0.0))
            cycles = np.where(is_global, 0.0, cycles)
        accumulator.add_row_cycles(stall, cycles)


def _compute_resource_bounds(simulation: LaunchSimulation) -> dict[str, float]:
    """Compute the cycles that each resource of the busiest SM is busy."""
    subcores, factor = simulation.parameters.n_subcores, simulation.parameters.l2_store_factor
    found: dict[str, float] = {}

    def add(name: str, cycles: float) -> None:
        if cycles:
            part = simulation.schedule_factor if name in _SHARED_BOUNDS else 1.0
            found[name] = found.get(name, 0.0) + cycles * simulation.n_ctas * part

    for warp_program, n_warps in simulation.iterate_programs():
        executions = _count_step_executions(warp_program)
        add(ISSUE_BOUND, n_warps * float(executions @ warp_program.issue_slots) / subcores)
        is_dispatched = np.equal(warp_program.kind, int(StepKind.DISPATCHED_RESULT))
        is_dispatched |= np.array(warp_program.is_cached_load, dtype=np.bool_)
        dispatches = float(executions[is_dispatched] @ np.array(warp_program.share)[is_dispatched])
        path = float(executions @ warp_program.load_store_cycles)
        add(LOAD_STORE_BOUND, n_warps * max(path, dispatches * simulation.parameters.dispatch_cycles))
        is_store = np.isin(warp_program.kind, OUTGOING_KINDS)
        l2 = executions * warp_program.l2_cycles
        loaded, stored = float(l2[~is_store].sum()), float(l2[is_store].sum())
        others = float(
            l2[np.not_equal(warp_program.kind, int(StepKind.BULK_COPY_IN))].sum()
        )  # copies have a stream of their own, see `L2Share`
        both = others + stored * (factor - 1.0)
        add(L2_BOUND, n_warps * max(loaded, stored, both))
        add(DRAM_BOUND, n_warps * float(executions @ warp_program.dram_cycles))
        add(ATOMICS_BOUND, n_warps * float(executions @ warp_program.atomic_cycles))
        for step, matrix in enumerate(warp_program.async_mma_cycles):
            if matrix:
                pipe = PIPES[warp_program.async_mma_pipe[step]]
                units = 1 if pipe in SM_LEVEL_PIPES else subcores
                add(pipe.value, n_warps * float(executions[step]) * matrix / units)
        for step, pipes in enumerate(warp_program.pipe_cycles):
            for number, cycles, _ in pipes:
                name = REGISTER_PORTS_BOUND if number == REGISTER_PORTS_INDEX else PIPES[number].value
                add(name, n_warps * float(executions[step]) * cycles / subcores)
    return found


def _count_step_executions(warp_program: WarpProgram) -> FloatArray:
    """Count the executions of each step, [step]."""
    found = np.zeros(len(warp_program))
    for sequence in warp_program.sequences:
        found[sequence.start : sequence.stop] = sequence.iterations
    return found
