"""Simulate the busiest SM of a launch.

A launch ends when the SM with most CTAs ends. Its warps are grouped into roles, each role gets a program (see
`warp_program`), and the SM runs these programs in as many CTAs as it gets. The waits of all simulated warps,
scaled to all iterations, are the shares of the stall stack.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.demand.opcode_costs import PIPE_INDEX
from analyzer.execution.profile.mbarrier_pipelines import MbarrierPipeline
from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import is_warpgroup_mma
from analyzer.ir.scheduling import Pipe
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import MissRates, compute_memory_latency_cycles
from analyzer.models.sm.cta_schedule import MAX_SCHEDULED_CTAS, SmSlots, compute_schedule_factor
from analyzer.models.sm.instruction_fetch import find_fetch_parameters
from analyzer.models.sm.issue_order import issues_in_runs
from analyzer.models.sm.launch_tail import SmLoad, scale_shared_cycles, simulate_waves
from analyzer.models.sm.resource_demand import (
    ResourceDemand,
    StepKind,
    find_min_l2_share,
    measure_resource_demand,
)
from analyzer.models.sm.simulation_state import (
    N_WAIT_COLUMNS,
    PipelineParameters,
    SimulationResult,
    SmParameters,
)
from analyzer.models.sm.sm_simulator import MOST_STEPS, simulate_ctas
from analyzer.models.sm.warp_program import WarpProgram, build_warp_program
from analyzer.models.sm.warp_roles import WarpRoles, find_warp_roles
from analyzer.models.timeline import TimelineOptions, compute_result_latencies
from analyzer.models.timeline_builder import make_timeline_options
from analyzer.models.timeline_warp import InstructionTiming

# Up to so many waves of CTAs, the longest CTA may decide the time of a launch.
_MAX_LONGEST_CTA_WAVES = 2
# Roles of a CTA with more steps, in long loops, are those of the loops that warps enter.
_MAX_ROLE_STEPS, _LONG_LOOP_ITERATIONS, _FEW_CTAS_PER_SM = 200_000, 32, 4
_SIMULATED_COUNTS = (1, 2, 3, 4, 8, 16)  # of CTAs on an SM, whose speed is simulated


class WarpCycles(Struct, frozen=True, eq=False):
    """Cycles of all warps by instruction; their proportions matter, not their sum."""

    selected: FloatArray  # [n]
    waits: FloatArray  # [n, N_WAIT_COLUMNS]
    stall_count_cycles: FloatArray  # [n]: stall counts beyond the issue slots

    @property
    def total_cycles(self) -> float:
        """Sum of all cycles."""
        return float(self.selected.sum() + self.waits.sum() + self.stall_count_cycles.sum())


class LaunchSimulation(Struct, frozen=True, eq=False):
    """The busiest SM of a launch with its CTAs, one after another in its slots."""

    warp_programs: tuple[WarpProgram, ...]  # by role
    resource_demand: ResourceDemand
    parameters: SmParameters
    n_ctas: int  # of this SM
    idle_cta_share: float  # of the grid's CTAs, those that find no work
    simulated: SimulationResult
    min_cycles: float = 0.0  # of the CTA with most work, where few others can hide it
    mean_load_share: float = 1.0  # work of the mean busy SM over that of this one
    schedule_factor: float = 1.0  # see `compute_schedule_factor`

    @property
    def cycles(self) -> float:
        """Cycles of this SM."""
        return max(self.simulated.cycles * self.schedule_factor, self.min_cycles)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the report."""
        notes = []
        cold_share = self.resource_demand.cold_share
        if not cold_share:
            notes.append(
                "all data are in the L2 from the last such launch: nothing comes from DRAM (--cold-l2)"
            )
        elif cold_share < 1.0:
            notes.append(
                f"{1.0 - cold_share:.0%} of the data are in the L2 from the last such launch (--cold-l2)"
            )
        if self.resource_demand.has_unknown_tiles:
            notes.append(
                "which tiles CTAs copy is not known: those of CTAs side by side are assumed to lie in a "
                "square (sizes by --arg WHICH=N, a table of tiles by --arg WHICH=@data.npy settle it)"
            )
        if self.idle_cta_share:
            idle = f"{self.idle_cta_share:.0%}"
            notes.append(
                f"{idle} of the CTAs find little or no work, and count for the time to hand them out"
            )
        return tuple(notes)

    def estimate_balanced_cycles(self, n_ctas: int) -> float:
        """Estimate the cycles of an SM with so many CTAs, where every other SM has as many.

        Then all SMs ask for their part of L2 and DRAM until the end, as they do in full waves.
        """
        if n_ctas % self.parameters.ctas_per_sm == 0 and n_ctas in self.simulated.ended_ctas:
            return self.simulated.cta_end_cycles[self.simulated.ended_ctas.index(n_ctas)]
        factor = self.schedule_factor / self.mean_load_share
        programs = tuple(scale_shared_cycles(one, factor) for one in self.warp_programs)
        return simulate_ctas(programs, self.parameters, n_ctas).cycles

    def iterate_programs(self) -> Iterator[tuple[WarpProgram, int]]:
        """Yield each program with the number of warps of a CTA that run it."""
        for number, warp_program in enumerate(self.warp_programs):
            yield warp_program, self.parameters.role_by_warp.count(number)

    def sum_warp_cycles(self, n_rows: int) -> WarpCycles:
        """Sum the cycles of all warps of the simulated CTAs by instruction."""
        selected, stall_count_cycles = np.zeros(n_rows), np.zeros(n_rows)
        waits = np.zeros((n_rows, N_WAIT_COLUMNS))
        for (warp_program, n_warps), found, simulated in zip(
            self.iterate_programs(), self.simulated.waits, self.simulated.iterations, strict=True
        ):
            table = np.array(found).reshape(len(warp_program), N_WAIT_COLUMNS)
            for sequence in warp_program.sequences:
                table[sequence.start : sequence.stop] *= (
                    n_warps * sequence.iterations / max(1, simulated[sequence.start])
                )
                for step in range(sequence.start, sequence.stop):
                    rows = slice(warp_program.first_row[step], warp_program.last_row[step] + 1)
                    times = n_warps * sequence.iterations
                    selected[rows] += times * warp_program.share[step]
                    extra_cycles = times * (warp_program.stall_cycles[step] - warp_program.issue_slots[step])
                    stall_count_cycles[rows] += extra_cycles / (rows.stop - rows.start)
            np.add.at(waits, np.array(warp_program.last_row, dtype=np.int64), table)
        return WarpCycles(selected, waits, np.maximum(stall_count_cycles, 0.0))


def simulate_launch(
    model_input: ModelInput, miss_rates: MissRates, clock_mhz: float, most_steps: float = MOST_STEPS
) -> LaunchSimulation:
    """Simulate the SM that gets most CTAs, see `simulate_ctas`."""
    warp_roles = find_warp_roles(model_input)
    sms = model_input.gpu.sm_count
    mean_ctas = warp_roles.n_busy_ctas / sms
    n_ctas = max(1, math.ceil(mean_ctas - 1e-9))
    busy_ctas = warp_roles.n_busy_ctas / min(sms, max(1.0, warp_roles.n_busy_ctas))
    mean_load_share = min(1.0, busy_ctas / n_ctas)
    resource_demand = measure_resource_demand(
        model_input, miss_rates, clock_mhz, mean_load_share=mean_load_share * warp_roles.mean_work_share
    )
    options = make_timeline_options(
        model_input, model_input.execution_counts, miss_rates, cold_share=resource_demand.cold_share
    )
    timing = _time_instructions(model_input, options, resource_demand)
    parameters = _make_sm_parameters(model_input, warp_roles, options.read_release_cycles, clock_mhz)
    cta_programs = _build_cta_programs(model_input, warp_roles, timing, resource_demand, parameters, n_ctas)
    min_cycles = longest = 0.0
    is_longest_last = n_ctas <= _MAX_LONGEST_CTA_WAVES * parameters.ctas_per_sm
    work, busiest = _find_scheduled_work(model_input), warp_roles.busiest_cta
    if busiest is not None and is_longest_last:
        lighter = _scale_shared_demand(resource_demand, busiest.mean_work_share)
        min_cycles = _estimate_lone_cta(model_input, busiest, timing, lighter, parameters)
    if busiest is not None and work is not None:
        longest = _estimate_lone_cta(model_input, busiest, timing, resource_demand, parameters)
    factor = (
        1.0
        if work is None or not longest
        else _find_schedule_factor(model_input, work, warp_roles.n_busy_ctas, cta_programs, longest)
    )
    cta_programs = replace(
        cta_programs,
        warp_programs=tuple(scale_shared_cycles(one, 1.0 / factor) for one in cta_programs.warp_programs),
    )
    load = SmLoad(
        n_ctas=n_ctas,
        n_slots=parameters.ctas_per_sm,
        mean_ctas=mean_ctas if factor == 1.0 else n_ctas,
        n_sms=sms,
        mean_load_share=mean_load_share,
        min_l2_share=find_min_l2_share(model_input, clock_mhz),
    )
    return LaunchSimulation(
        warp_programs=cta_programs.warp_programs,
        resource_demand=resource_demand,
        parameters=cta_programs.parameters,
        n_ctas=n_ctas,
        idle_cta_share=1.0 - warp_roles.n_busy_ctas / max(1, model_input.grid_ctas),
        simulated=simulate_waves(cta_programs.warp_programs, cta_programs.parameters, load, most_steps),
        min_cycles=min_cycles,
        mean_load_share=mean_load_share,
        schedule_factor=factor,
    )


def _find_scheduled_work(model_input: ModelInput) -> FloatArray | None:
    """Return the work of each CTA, [grid], where CTAs have unequal work and follow each other; else None."""
    work = None if model_input.profile is None else model_input.profile.cta_work
    if work is None or not model_input.gpu.sm_count < len(work) <= MAX_SCHEDULED_CTAS:
        return None
    return work


def _find_schedule_factor(
    model_input: ModelInput,
    work: FloatArray,
    n_busy_ctas: float,
    cta_programs: "_CtaPrograms",
    longest_cycles: float,
) -> float:
    """Return the factor of CTAs of unequal work that follow each other.

    longest_cycles: of the CTA that has most work, alone on its SM, with the same demand for L2 and DRAM as
    the programs: CTAs that follow each other keep all SMs busy, so shorter ones leave the others no share.
    """
    sms, n_slots = model_input.gpu.sm_count, model_input.occupancy.ctas_per_sm
    programs, parameters = cta_programs.warp_programs, cta_programs.parameters
    alone = parameters.cta_turnover_cycles + simulate_ctas(programs, parameters, 1).cycles
    speeds = _measure_speeds(programs, parameters, n_slots, alone)
    mean, most = float(work.sum()) / n_busy_ctas, float(work.max())
    longer = max(0.0, longest_cycles + parameters.cta_turnover_cycles - alone)
    durations = np.maximum(alone + (work - mean) * longer / max(1.0, most - mean), 0.0)
    return compute_schedule_factor(durations, n_busy_ctas, SmSlots(sms, speeds))


def _measure_speeds(
    programs: tuple[WarpProgram, ...], parameters: SmParameters, n_slots: int, alone: float
) -> tuple[float, ...]:
    """Return the speed of an SM with 1, 2, ... CTAs over that with one; between some of them, by a line.

    Full attention (64x32, head size 64) on an H100: 1, 1.43, 1.63, 1.71, 1.75 with one to five CTAs.
    alone: cycles of one CTA with its turnover.
    """
    counts = sorted({count for count in _SIMULATED_COUNTS if count < n_slots} | {n_slots})
    turnover = parameters.cta_turnover_cycles
    speeds = [
        1.0 if count == 1 else count * alone / (turnover + simulate_ctas(programs, parameters, count).cycles)
        for count in counts
    ]
    found: list[float] = []
    for count, speed in enumerate(np.interp(range(1, n_slots + 1), counts, speeds).tolist(), 1):
        found.append(min(float(count), max(found[-1] if found else 1.0, speed)))
    return tuple(found)


def _time_instructions(
    model_input: ModelInput, options: TimelineOptions, resource_demand: ResourceDemand
) -> InstructionTiming:
    """Return the timing of each instruction, with the latency of spills and of bulk copies."""
    latency = compute_result_latencies(model_input.kernel, model_input.costs, options)
    latency = latency + resource_demand.spill_cycles
    for row in np.flatnonzero(resource_demand.step_kind == StepKind.BULK_COPY_IN).tolist():
        latency[row] += compute_memory_latency_cycles(
            model_input, MissRates(1.0, resource_demand.copied_miss_share)
        )
    waits = resource_demand.shared_copy_waits
    for row in np.flatnonzero(waits.miss_shares).tolist():
        miss_rates = MissRates(1.0, float(waits.miss_shares[row]))
        latency[row] = float(waits.batch_cycles[row]) + compute_memory_latency_cycles(model_input, miss_rates)
    return InstructionTiming(
        model_input.kernel,
        model_input.costs,
        model_input.control_codes,
        latency,
        options.read_release_cycles,
        constant_passes=options.constant_passes,
        early_waits=options.early_waits,
    )


def _make_sm_parameters(
    model_input: ModelInput, warp_roles: WarpRoles, read_release_cycles: float, clock_mhz: float
) -> SmParameters:
    """Return the parameters of an SM of this GPU; pipelines of mbarriers come with the programs."""
    memory, gpu = model_input.arch.memory, model_input.gpu
    launch = gpu.file.launch
    contention = model_input.arch.warpgroup_contention
    return SmParameters(
        n_subcores=int(model_input.arch.limits.subcores_per_sm.value),
        role_by_warp=warp_roles.role_by_warp,
        ctas_per_sm=model_input.occupancy.ctas_per_sm,
        load_store_queue_cycles=memory.path_queue_cycles.value,
        l2_burst_cycles=memory.l2_burst_cycles.value,
        dram_burst_cycles=(memory.dram_burst_cycles or memory.l2_burst_cycles).value,
        dram_load_cycles=memory.dram_load_cycles.value,
        cta_start_interval_cycles=memory.cta_start_cycles.value,
        cta_end_interval_cycles=gpu.sm_count * clock_mhz / launch.ctas_per_us.value,
        cta_turnover_cycles=memory.cta_turnover_cycles.value,
        read_release_cycles=read_release_cycles,
        l2_store_factor=gpu.find_l2_store_factor(),
        pipe_slowdowns=_find_pipe_slowdowns(model_input),
        max_queued_products=0 if contention is None else int(contention.max_queued_products.value),
        dispatch_cycles=memory.dispatch_cycles.value if memory.dispatch_cycles is not None else 0.0,
        issues_in_runs=issues_in_runs(model_input),
        fetch=find_fetch_parameters(model_input),
    )


def _find_pipe_slowdowns(model_input: ModelInput) -> Mapping[int, float]:
    """Return factors on the cycles of pipes while a warpgroup's product runs; none without such products."""
    contention, kernel = model_input.arch.warpgroup_contention, model_input.kernel
    if contention is None or not kernel.form_table.make_opcode_mask(is_warpgroup_mma).any():
        return {}
    return {PIPE_INDEX[Pipe.ALU]: contention.alu_factor.value}


class _CtaPrograms(Struct, frozen=True, eq=False):
    """Programs of the warps of a CTA, and parameters of the SM with their roles."""

    warp_programs: tuple[WarpProgram, ...]
    parameters: SmParameters


def _build_cta_programs(
    model_input: ModelInput,
    warp_roles: WarpRoles,
    timing: InstructionTiming,
    resource_demand: ResourceDemand,
    parameters: SmParameters,
    n_ctas: int,
) -> _CtaPrograms:
    warp_programs = _build_warp_programs(model_input, warp_roles, timing, resource_demand)
    # A warp that left no line in the trace has no steps.
    traced = tuple(role for role in warp_roles.role_by_warp if warp_programs[role].sequences)
    parameters = replace(
        parameters,
        role_by_warp=traced,
        pipelines=_make_all_pipeline_parameters(model_input, warp_programs, warp_roles),
    )
    if (
        warp_roles.merged_by_loops is not None
        and not parameters.pipelines
        and _count_steps(warp_programs, parameters, n_ctas) > _MAX_ROLE_STEPS
        and _has_long_loop(warp_programs)
    ):
        # Over many iterations warps of one loop share out what each does more than others.
        return _build_cta_programs(
            model_input, warp_roles.merged_by_loops, timing, resource_demand, parameters, n_ctas
        )
    return _CtaPrograms(warp_programs, parameters)


def _has_long_loop(warp_programs: tuple[WarpProgram, ...]) -> bool:
    return any(
        one.iterations > _LONG_LOOP_ITERATIONS for program in warp_programs for one in program.sequences
    )


def _count_steps(warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int) -> int:
    """Count the steps of so many CTAs, of three waves of many at most."""
    by_role = [
        sum((one.stop - one.start) * one.iterations for one in program.sequences) for program in warp_programs
    ]
    most = 3 * parameters.ctas_per_sm if parameters.ctas_per_sm > _FEW_CTAS_PER_SM else n_ctas
    return min(n_ctas, most) * sum(by_role[role] for role in parameters.role_by_warp)


def _estimate_lone_cta(
    model_input: ModelInput,
    warp_roles: WarpRoles,
    timing: InstructionTiming,
    resource_demand: ResourceDemand,
    parameters: SmParameters,
) -> float:
    """Estimate the cycles of one CTA that has its SM for itself."""
    found = _build_cta_programs(model_input, warp_roles, timing, resource_demand, parameters, 1)
    return simulate_ctas(found.warp_programs, found.parameters, 1).cycles


def _scale_shared_demand(resource_demand: ResourceDemand, mean_work_share: float) -> ResourceDemand:
    """Scale the demand of the busiest CTA: others with less work leave it their share of L2 and DRAM."""
    return replace(
        resource_demand,
        l2_cycles=resource_demand.l2_cycles * mean_work_share,
        dram_cycles=resource_demand.dram_cycles * mean_work_share,
        atomic_cycles=resource_demand.atomic_cycles * mean_work_share,
    )


def _build_warp_programs(
    model_input: ModelInput, warp_roles: WarpRoles, timing: InstructionTiming, resource_demand: ResourceDemand
) -> tuple[WarpProgram, ...]:
    return tuple(
        build_warp_program(model_input, weights, timing, resource_demand)
        for weights in warp_roles.execution_counts
    )


_ARRIVAL_KINDS = frozenset(
    {int(StepKind.MBARRIER_ARRIVE), int(StepKind.MBARRIER_COMMIT), int(StepKind.BULK_COPY_IN)}
)


def _make_all_pipeline_parameters(
    model_input: ModelInput, warp_programs: tuple[WarpProgram, ...], warp_roles: WarpRoles
) -> tuple[PipelineParameters, ...]:
    """Count the arrivals that end a phase of each pipeline, per warp and in all.

    A warp that waits goes through every phase, so these are all arrivals over the waits of one warp.
    """
    if model_input.mbarrier_pipelines is None:
        return ()
    arrival_counts = np.zeros((len(model_input.mbarrier_pipelines.pipelines), len(warp_programs)))
    wait_counts = np.zeros_like(arrival_counts)
    for number, warp_program in enumerate(warp_programs):
        for sequence in warp_program.sequences:
            for step in range(sequence.start, sequence.stop):
                pipeline = warp_program.pipeline[step]
                if pipeline >= 0 and warp_program.kind[step] in _ARRIVAL_KINDS:
                    arrival_counts[pipeline, number] += (
                        sequence.iterations * warp_program.arrivals[step] * warp_program.iteration_share[step]
                    )
                elif pipeline >= 0:
                    wait_counts[pipeline, number] += (
                        sequence.iterations * warp_program.share[step] * warp_program.iteration_share[step]
                    )
    n_warps = np.array([warp_roles.role_by_warp.count(number) for number in range(len(warp_programs))])
    return tuple(
        _make_pipeline_parameters(pipeline, arrival_counts[number], float(wait_counts[number].max()), n_warps)
        for number, pipeline in enumerate(model_input.mbarrier_pipelines.pipelines)
    )


def _make_pipeline_parameters(
    pipeline: MbarrierPipeline, arrival_counts: FloatArray, waits: float, n_warps: NDArray[np.int64]
) -> PipelineParameters:
    each = [
        _compute_arrivals_per_phase(arrivals, waits, pipeline.n_stages)
        for arrivals in arrival_counts.tolist()
    ]
    if all(arrivals.is_integer() for arrivals in each):
        return PipelineParameters(float(np.dot(each, n_warps)), pipeline.n_free_waits, tuple(each))
    return PipelineParameters(
        _compute_arrivals_per_phase(float(arrival_counts @ n_warps), waits, pipeline.n_stages),
        pipeline.n_free_waits,
    )


_RAMP_ARRIVAL_TOLERANCE = 0.03  # of arrivals, where loops are counted in the mean


def _compute_arrivals_per_phase(arrivals: float, waits: float, n_stages: int) -> float:
    """Compute the arrivals at one phase.

    Warps that fill a pipeline before its first wait leave as many phases at its end without a wait: so there
    may be up to n_stages more phases than waits.
    """
    if not waits:
        return math.inf
    each = arrivals / waits
    if abs(each - round(each)) < _RAMP_ARRIVAL_TOLERANCE * each:
        return float(round(each))
    fewest = arrivals / (waits + n_stages)
    return float(math.floor(each)) if math.floor(each) >= fewest else each
