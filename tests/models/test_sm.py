"""The simulated SM: what a launch costs where one resource decides, in closed form."""

import math
from pathlib import Path
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_launches import KernelLaunch, make_model_input, predict_with_model
from msgspec.structs import replace
from paths import TRACES, format_dump

import analyzer
from analyzer.demand.opcode_costs import PIPE_INDEX
from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.scheduling import Pipe
from analyzer.models.interface import ModelInput, Prediction, Stall
from analyzer.models.miss_rates import ALL_IN_DRAM, ALL_IN_L1, MissRates, compute_memory_latency_cycles
from analyzer.models.model_result import find_clock_mhz
from analyzer.models.sm.iteration_plan import find_listed_share, plan_warp
from analyzer.models.sm.launch_simulation import simulate_launch
from analyzer.models.sm.launch_tail import SmLoad, count_gathered_ctas, simulate_waves
from analyzer.models.sm.resource_demand import StepKind
from analyzer.models.sm.simulation_state import (
    N_WAIT_COLUMNS,
    PipelineParameters,
    SimulationResult,
    SmParameters,
)
from analyzer.models.sm.sm_simulator import MOST_STEPS, simulate_ctas
from analyzer.models.sm.warp_program import WHOLE_CTA_KEY, CtaBarrier, OuterLoop, StepSequence, WarpProgram
from analyzer.models.sm.warp_roles import find_warp_roles
from analyzer.models.wait_causes import WaitCause
from analyzer.pipeline import Options

CUDA = TRACES / "cuda"
ADDED = 1 << 24
FIGURES = SmParameters(
    n_subcores=4,
    role_by_warp=(0,) * 32,
    ctas_per_sm=1,
    load_store_queue_cycles=100.0,
    l2_burst_cycles=100.0,
    dram_burst_cycles=100.0,
    dram_load_cycles=0.0,
    cta_start_interval_cycles=0.0,
    cta_end_interval_cycles=0.0,
    cta_turnover_cycles=0.0,
    read_release_cycles=10.0,
)
RTX_2080_TI = (CUDA / "sm_75" / "report16.sass", "rtx-2080-ti")
RTX_4070 = (CUDA / "sm_89" / "report16.sass", "rtx-4070")
A100 = (CUDA / "sm_80" / "report16.sass", "a100")
ATOMICS_75 = (CUDA / "sm_75" / "atomics.sass", "t4")
ATOMICS_90 = (CUDA / "sm_90" / "atomics.sass", "h100")


def report16(
    place: tuple[object, str],
    kernel: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    *arguments: str,
) -> KernelLaunch:
    path, gpu = place
    return KernelLaunch(path, kernel, gpu, grid, block, arguments)  # type: ignore[arg-type]


def vector_add(place: tuple[object, str], n: int) -> KernelLaunch:
    return report16(place, "vector_add", (n // 256,), (256,), f"3={n}")


def test_streaming_takes_its_bytes_over_the_sustained_rate() -> None:
    situation = make_model_input(vector_add(RTX_2080_TI, ADDED))
    found = predict_with_model(situation, "sm")
    rate_gbps = situation.gpu.sustained_dram_gbps.value
    assert found.time_us == pytest.approx(3 * 4 * ADDED / rate_gbps / 1e3, rel=0.1)
    assert found.bound == "DRAM"


def test_waiting_by_looking_again_and_again_costs_no_bandwidth() -> None:
    """On sm_80 the library's pipelines poll shared memory, and sleep between their looks."""
    place = (CUDA / "sm_80" / "pipelines.sass", "a100")
    blocks, rounds = 4096, 64
    situation = make_model_input(report16(place, "pipelined_sums", (blocks,), (256,), f"2={rounds}"))
    found = predict_with_model(situation, "sm")
    rate_gbps = situation.gpu.sustained_dram_gbps.value
    assert found.time_us == pytest.approx(blocks * rounds * 4096 / rate_gbps / 1e3, rel=0.15)
    assert found.bound == "DRAM"


@pytest.mark.parametrize(
    ("place", "n", "measured_us"),
    [(RTX_2080_TI, 1 << 18, 5.704), (RTX_2080_TI, 1 << 20, 15.489), (RTX_4070, 1 << 20, 13.671)],
    ids=["2080_ti_small", "2080_ti", "4070"],
)
def test_barriers_take_the_path_to_memory(place: tuple[object, str], n: int, measured_us: float) -> None:
    """Block sums with a barrier at each halving: rows of suite report16 of bench/kernels that teach."""
    situation = make_model_input(report16(place, "reduce_sum", (n // 512,), (256,), f"2={n}"))
    memory = situation.arch.memory
    free = replace(memory, barrier_path_cycles=replace(memory.barrier_path_cycles, value=0.0))
    found = predict_with_model(situation, "sm").time_us
    assert found == pytest.approx(measured_us, rel=0.05)
    assert (
        predict_with_model(replace(situation, arch=replace(situation.arch, memory=free)), "sm").time_us
        < 0.97 * found
    )


def test_what_the_last_launch_left_in_the_l2_is_not_read_again() -> None:
    launched = vector_add(RTX_4070, 1 << 21)  # 24 MB of 36
    warm = make_model_input(launched)
    cold = replace(warm, l2_is_cold=True)
    assert predict_with_model(cold, "sm").time_us > 1.5 * predict_with_model(warm, "sm").time_us


def test_loads_of_what_the_last_launch_left_wait_for_the_l2() -> None:
    """Of four CTAs nothing queues: a warp waits for one load after another."""
    place = (CUDA / "sm_80" / "exactness.sass", "a100")
    warm = make_model_input(report16(place, "vector_add_grid_stride", (4,), (32,), f"3={4 * 32 * 400}"))
    cold = replace(warm, l2_is_cold=True)
    memory = warm.arch.memory
    waits = [
        predict_with_model(situation, "sm").cpi_stack[Stall.LONG_SCOREBOARD] for situation in (warm, cold)
    ]
    latencies = memory.l2_latency_cycles.value / memory.dram_latency_cycles.value
    assert waits[0] / waits[1] == pytest.approx(latencies, rel=0.1)


def test_the_next_launch_finds_a_part_of_what_hardly_fits_in_the_l2() -> None:
    """A100's has two halves: of 36.6 MB of 40 a part is lost."""
    launched = vector_add(A100, 3_200_000 // 256 * 256)
    some = make_model_input(launched)
    l2 = some.gpu.file.l2
    assert l2.kept_share is not None
    assert l2.lost_share is not None
    all_kept = replace(l2, kept_share=l2.lost_share)
    warm = replace(some, gpu=replace(some.gpu, file=replace(some.gpu.file, l2=all_kept)))
    cold = replace(some, l2_is_cold=True)
    times = [predict_with_model(situation, "sm").time_us for situation in (warm, some, cold)]
    assert 1.2 * times[0] < times[1] < times[2] / 1.1
    (kernel,) = launched.report("sm").kernels
    assert any("of the data are in the L2" in note for note in kernel.predictions[0].assumptions)


def test_stores_share_the_rate_of_the_l2_with_loads() -> None:
    """Of 24 MB in the L2, two thirds are loaded."""
    situation = make_model_input(report16(A100, "vector_add", (1 << 12,), (512,), f"3={1 << 21}"))
    gpu = situation.gpu
    l2, factor = gpu.file.l2, gpu.file.l2.store_factor
    assert l2.bandwidth_gbps is not None
    assert factor is not None
    dearer = replace(l2, store_factor=replace(factor, value=2 * factor.value))
    slower = replace(situation, gpu=replace(gpu, file=replace(gpu.file, l2=dearer)))
    one, other = (predict_with_model(each, "sm") for each in (situation, slower))
    loads_us = 4 * (1 << 21) / l2.bandwidth_gbps.value / 1e3
    assert one.bound == "L2"
    assert one.time_us > (2 + factor.value) * loads_us
    assert other.time_us - one.time_us == pytest.approx(factor.value * loads_us, rel=0.2)


@pytest.mark.parametrize("busy", [0.1, 0.5, 1.0])
def test_an_sm_gets_of_the_l2_what_those_without_ctas_leave(busy: float) -> None:
    """As much as comes through its port; the copy streams a few CTAs' worth of words."""
    gpu = make_model_input(vector_add(RTX_4070, 1 << 20)).gpu
    ctas = round(busy * gpu.sm_count)
    situation = make_model_input(report16(RTX_4070, "vector_add", (ctas,), (256,), f"3={256 * ctas}"))
    memory = situation.arch.memory
    share = memory.l2_bytes_per_cycle_per_sm.value * gpu.sm_count / ctas
    found = simulate_launch(situation, ALL_IN_DRAM, find_clock_mhz(situation)).resource_demand
    (each,) = {round(cycles, 6) for cycles in found.l2_cycles[found.step_kind == StepKind.LOAD].tolist()}
    assert each == pytest.approx(128 / min(share, memory.l2_port_bytes_per_cycle.value))


def test_requests_to_one_line_queue_at_the_l2() -> None:
    launched = report16(RTX_2080_TI, "atomic_hotspot", (4096,), (256,), "1=100")
    situation = make_model_input(launched)
    requests = 4096 * 8 * 100
    cycles = requests * situation.arch.memory.atomic_line_cycles.value
    found = predict_with_model(situation, "sm")
    assert found.cycles == pytest.approx(cycles, rel=0.05)
    assert found.bound == "atomics"


@pytest.mark.parametrize(
    ("place", "kernel"), [(ATOMICS_75, "add_floats"), (ATOMICS_90, "add_floats"), (ATOMICS_75, "add_longs")]
)
def test_lanes_that_add_to_one_word_take_turns(place: tuple[object, str], kernel: str) -> None:
    situation = make_model_input(report16(place, kernel, (4096,), (256,), f"1={1 << 20}"))
    memory = situation.arch.memory
    line = memory.atomic_line_cycles.value
    one_by_one = line + 31 * memory.atomic_float_cycles.value
    combined = line * 32 / memory.atomic_combined_lanes.value
    cycles = one_by_one if kernel == "add_floats" else combined
    found = predict_with_model(situation, "sm")
    assert found.cycles == pytest.approx(4096 * 8 * cycles, rel=0.1)
    assert found.bound == "atomics"


def test_lanes_that_add_to_words_of_their_own_take_none() -> None:
    """Eight requests of a CTA go to eight lines, four sectors each, of one unit of the L2."""
    situation = make_model_input(report16(ATOMICS_75, "add_columns", (4096,), (256,), f"1={1 << 20}"))
    cycles = 4096 * 8 * situation.arch.memory.atomic_line_cycles.value * 2.5
    assert predict_with_model(situation, "sm").cycles == pytest.approx(cycles, rel=0.1)


def test_time_follows_the_clock_where_the_sm_decides() -> None:
    launched = report16(RTX_2080_TI, "matmul_naive", (32, 32), (16, 16), "3=512")
    situation = make_model_input(launched)
    slow, fast = (
        predict_with_model(replace(situation, clock_mhz=clock), "sm").time_us for clock in (1000.0, 2000.0)
    )
    assert slow / fast == pytest.approx(2.0, rel=0.1)


def test_dram_takes_its_time_at_any_clock() -> None:
    situation = make_model_input(report16(RTX_2080_TI, "matmul_naive", (32, 32), (16, 16), "3=512"))
    usual = find_clock_mhz(situation)
    at_l2, at_dram = MissRates(1.0, 0.0), MissRates(1.0, 1.0)
    slow = replace(situation, clock_mhz=usual / 2)
    assert compute_memory_latency_cycles(slow, at_l2) == compute_memory_latency_cycles(situation, at_l2)
    beyond, beyond_slow = (
        compute_memory_latency_cycles(one, at_dram) - compute_memory_latency_cycles(one, at_l2)
        for one in (situation, slow)
    )
    assert beyond_slow == pytest.approx(beyond / 2)


def test_ctas_without_work_cost_little() -> None:
    needed, ten_times = (
        report16(RTX_2080_TI, "vector_add", (ctas,), (256,), f"3={1 << 22}") for ctas in (1 << 14, 10 << 14)
    )
    one, other = (
        predict_with_model(make_model_input(launched), "sm").time_us for launched in (needed, ten_times)
    )
    assert one <= other * 1.05
    assert other < 2.5 * one  # ten times the CTAs are handed out


def test_partial_writes_cost_turing_twice() -> None:
    n = 1 << 24
    launched = report16(RTX_2080_TI, "strided_copy_8", (n // 8 // 256,), (256,), f"2={n}")
    situation = make_model_input(launched)
    sectors = 2 * n // 8 * 32  # read once, written once
    least_us = sectors / situation.gpu.sustained_dram_gbps.value / 1e3
    assert predict_with_model(situation, "sm").time_us > 1.3 * least_us


def test_short_kernels_take_the_launch_interval() -> None:
    situation = make_model_input(vector_add(RTX_4070, 1 << 10))
    interval = situation.gpu.file.launch.interval_us
    assert interval is not None
    found = predict_with_model(situation, "sm")
    assert found.time_us == pytest.approx(interval.value)
    assert found.bound == "launch"
    assert found.cpi_stack[Stall.LAUNCH] > 0.5 * found.cycles


def test_a_cut_loop_takes_as_long_as_its_visits() -> None:
    times = [
        predict_with_model(
            make_model_input(report16(RTX_2080_TI, "matmul_tiled", (32, 32), (32, 32), f"3={n}")), "sm"
        ).cycles
        for n in (1024, 2048)
    ]
    assert times[1] / times[0] == pytest.approx(2.0, rel=0.1)  # the same CTAs, twice the trips


def test_it_is_the_default_where_the_launch_is_known() -> None:
    path, gpu = RTX_2080_TI
    launch = Launch(grid=Dim3(1024), block=Dim3(256), clock_mhz=1500.0)
    report = analyzer.analyze(str(path), gpu, options=Options(launch=launch, kernels=("saxpy",)))
    (prediction,) = report.kernels[0].predictions
    assert (prediction.model, prediction.clock_mhz) == ("sm", 1500.0)


PASSES = {
    "wait_scoreboards": (), "depbar_waits": None, "max_pending_groups": -1, "issue_slots": 1.0, "stall_cycles": 1.0, "pipe_cycles": (), "kind": 0, "tail_cycles": 1.0,
    "load_store_cycles": 0.0, "tag_cycles": 0.0, "l2_cycles": 0.0, "dram_cycles": 0.0, "atomic_cycles": 0.0, "latency_cycles": 0.0, "share": 1.0,
    "write_scoreboard": -1, "read_scoreboard": -1, "async_mma_cycles": 0.0, "async_mma_pipe": 0, "ends_wgmma_group": False, "is_long": False,
    "is_ldgsts": False, "is_ldgdepbar": False, "wide_waits": (), "write_cycles": 0.0,
    "fetch_cycles": 0.0, "code_lines": (), "first_row": 0, "last_row": 0, "pipeline": -1, "arrivals": 1.0, "iteration_share": 1.0, "predicated_ramp": None, "barriers": CtaBarrier(WHOLE_CTA_KEY, 0, waits=True),
}  # fmt: skip


def script_of(*steps: dict[str, object]) -> WarpProgram:
    """Steps that do nothing but what is said of them, gone through once."""
    script = WarpProgram()
    for step in steps:
        for column, value in (PASSES | step).items():
            getattr(script, column).append(value)
    script.sequences.append(StepSequence(0, len(steps), 1))
    return script


def test_what_is_left_out_of_a_visit_does_not_arrive() -> None:
    """Of three visits the first one: who waits for two phases goes on after the third."""
    odd = PipelineRamp(leading_skips=1, trailing_skips=0, is_per_loop_entry=True, is_predicated=True)
    arrives = script_of(
        {
            "kind": int(StepKind.MBARRIER_ARRIVE),
            "pipeline": 0,
            "stall_cycles": 1000.0,
            "tail_cycles": 1000.0,
            "predicated_ramp": odd,
        }
    )
    waits = script_of(*[{"kind": int(StepKind.MBARRIER_WAIT), "pipeline": 0}] * 2)
    figures = replace(
        FIGURES, role_by_warp=(0, 1), pipelines=(PipelineParameters(arrivals_per_phase=1.0, n_free_waits=0),)
    )
    waited = []
    for left_out in ((), (odd,)):
        arrives.sequences = [StepSequence(0, 1, 3, predicated_ramps=left_out)]
        played = simulate_ctas((arrives, waits), figures, 1)
        waited.append(
            played.waits[1][WaitCause.BARRIER] + played.waits[1][N_WAIT_COLUMNS + WaitCause.BARRIER]
        )
    assert waited[1] == pytest.approx(waited[0] + 1000.0, rel=0.01)


@pytest.mark.parametrize(
    ("ends", "done"),
    [
        ({"leading_skips": 2, "trailing_skips": 1}, {2, 3, 4, 5, 6}),
        (
            {"leading_skips": 0, "trailing_skips": 15, "n_active_iterations": 1},
            {0},
        ),  # of 16 rounds that were heard the first one
        (
            {"leading_skips": 12, "trailing_skips": 1, "n_active_iterations": 3},
            {4, 5, 6},
        ),  # the last but one, and two before
    ],
)
def test_a_longer_loop_has_the_same_odd_ends(ends: dict[str, int], done: set[int]) -> None:
    odd = PipelineRamp(**ends, is_per_loop_entry=True, is_predicated=False)
    assert {number for number in range(8) if not odd.is_skipped_in_iteration(number, 8)} == done
    assert odd.compute_active_share(8) == len(done) / 8


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_loop_is_planned_with_what_its_ends_leave_out(is_guarded: bool) -> None:
    """Of eight rounds the first one and the last two."""
    odd = PipelineRamp(leading_skips=1, trailing_skips=2, is_per_loop_entry=True, is_predicated=is_guarded)
    script = script_of({}, {})
    ends = {"predicated_ramps": (odd,)} if is_guarded else {"ramp": odd}
    script.sequences = [
        StepSequence(0, 1, 8),
        StepSequence(1, 2, 8 if is_guarded else 5, **ends),
    ]
    script.outer_loops = (OuterLoop(0, 1, 8.0),)
    rounds: list[list[StepSequence]] = []
    for run in plan_warp(script).sequences:
        rounds += [[]] if run.start == 0 else []
        rounds[-1].append(run)
    done = [len(round_) == 2 and not round_[1].skipped_ramps for round_ in rounds]
    assert done == [False, *[True] * 5, False, False]


@pytest.mark.parametrize("part", [0.5, 1e-7])
def test_who_waits_in_a_part_of_the_visits_waits_that_part_once(part: float) -> None:
    """However often others issue between the wait and the instruction that follows it."""
    result = {"kind": int(StepKind.RESULT), "latency_cycles": 1000.0, "write_scoreboard": 0}
    script = script_of(result, {"wait_scoreboards": (0,), "share": part}, *({} for _ in range(100)))
    played = simulate_ctas((script,), FIGURES, 1)
    n_warps = len(FIGURES.role_by_warp)
    waited = played.waits[0][N_WAIT_COLUMNS + WaitCause.SHORT_SCOREBOARD] / n_warps
    assert 0.8 * part * 1000.0 <= waited <= part * 1000.0


def test_a_warp_waits_for_the_phase_that_another_ends() -> None:
    arrives = script_of({"latency_cycles": 1000.0, "kind": int(StepKind.MBARRIER_ARRIVE), "pipeline": 0})
    waits = script_of({"kind": int(StepKind.MBARRIER_WAIT), "pipeline": 0})
    figures = replace(
        FIGURES, role_by_warp=(0, 1), pipelines=(PipelineParameters(arrivals_per_phase=1.0, n_free_waits=0),)
    )
    assert simulate_ctas((arrives, waits), figures, 1).waits[1][WaitCause.BARRIER] == pytest.approx(
        1000.0, rel=0.01
    )
    free = replace(figures, pipelines=(PipelineParameters(arrivals_per_phase=1.0, n_free_waits=1),))
    assert simulate_ctas((arrives, waits), free, 1).waits[1][WaitCause.BARRIER] == 0.0


@pytest.mark.parametrize(("ends_at", "until"), [(500.0, 2000.0), (5000.0, 5000.0)])
def test_who_looks_at_a_barrier_waits_when_it_needs_to_know(ends_at: float, until: float) -> None:
    arrives = script_of({"latency_cycles": ends_at, "kind": int(StepKind.MBARRIER_ARRIVE), "pipeline": 0})
    look, works = (
        {"kind": int(StepKind.MBARRIER_WAIT), "pipeline": 0, "write_scoreboard": 0},
        {"stall_cycles": 2000.0},
    )
    figures = replace(
        FIGURES, role_by_warp=(0, 1), pipelines=(PipelineParameters(arrivals_per_phase=1.0, n_free_waits=0),)
    )
    played = simulate_ctas((arrives, script_of(look, works, {"wait_scoreboards": (0,)})), figures, 1)
    waited = played.waits[1][2 * N_WAIT_COLUMNS + WaitCause.BARRIER]
    assert waited == pytest.approx(until - 2000.0, abs=10.0)
    assert sum(played.waits[1]) == pytest.approx(waited, abs=10.0)


def test_a_wait_that_is_left_out_asks_for_nothing() -> None:
    odd = PipelineRamp(
        leading_skips=0, trailing_skips=0, is_per_loop_entry=True, is_predicated=True, n_active_iterations=1
    )
    waits = script_of(
        {"kind": int(StepKind.MBARRIER_WAIT), "pipeline": 0, "write_scoreboard": 0, "predicated_ramp": odd},
        {"wait_scoreboards": (0,)},
    )
    waits.sequences = [StepSequence(0, 2, 4, predicated_ramps=(odd,))]
    arrives = script_of({"latency_cycles": 500.0, "kind": int(StepKind.MBARRIER_ARRIVE), "pipeline": 0})
    figures = replace(
        FIGURES, role_by_warp=(0, 1), pipelines=(PipelineParameters(arrivals_per_phase=1.0, n_free_waits=0),)
    )
    played = simulate_ctas((arrives, waits), figures, 1)
    assert played.waits[1][N_WAIT_COLUMNS + WaitCause.BARRIER] == pytest.approx(500.0, abs=10.0)


def test_arrivals_ahead_of_time_count_for_later_phases() -> None:
    """One warp announces two phases at once, the second of which comes late; another takes part in both."""
    soon, late = (
        {"latency_cycles": at, "kind": int(StepKind.MBARRIER_ARRIVE), "pipeline": 0} for at in (100.0, 5000.0)
    )
    ahead, slow = (
        script_of(soon, late),
        script_of({"latency_cycles": 500.0, "kind": int(StepKind.MBARRIER_ARRIVE), "pipeline": 0}),
    )
    waits = script_of({"kind": int(StepKind.MBARRIER_WAIT), "pipeline": 0})
    figures = replace(FIGURES, role_by_warp=(0, 1, 2))
    phases = PipelineParameters(arrivals_per_phase=2.0, n_free_waits=0, arrivals_by_role=(1.0, 1.0, 0.0))
    played = simulate_ctas((ahead, slow, waits), replace(figures, pipelines=(phases,)), 1)
    assert played.waits[2][WaitCause.BARRIER] == pytest.approx(500.0, rel=0.05)


def test_a_phase_that_nobody_ends_does_not_stop_the_simulation() -> None:
    waits = script_of(
        {"kind": int(StepKind.MBARRIER_WAIT), "pipeline": 0},
        {"kind": int(StepKind.MBARRIER_WAIT), "pipeline": 0},
    )
    figures = replace(
        FIGURES,
        role_by_warp=(0, 0),
        pipelines=(PipelineParameters(arrivals_per_phase=math.inf, n_free_waits=0),),
    )
    assert simulate_ctas((waits,), figures, 3).ended_ctas == [1, 2, 3]


def test_warps_that_meet_in_pairs_do_not_wait_for_all() -> None:
    """A warp that comes late holds up the one other that its barrier takes."""
    late = script_of(
        {"latency_cycles": 5000.0, "kind": int(StepKind.RESULT), "write_scoreboard": 0},
        {"wait_scoreboards": (0,)},
        *PAIR,
    )
    figures = replace(FIGURES, role_by_warp=(0, 0, 0, 1))
    played = simulate_ctas((script_of(*PAIR), late), figures, 1)
    assert played.waits[0][WaitCause.BARRIER] == pytest.approx(5000.0, rel=0.02)  # of one of the three


def test_a_group_of_copies_waits_for_the_bandwidth_that_they_take() -> None:
    """LDGSTS raise no scoreboard: what closes their group does, when the last of them is done."""
    copy = {"kind": int(StepKind.LOAD), "l2_cycles": 500.0, "latency_cycles": 100.0, "is_ldgsts": True}
    close = {
        "kind": int(StepKind.SHARED_MEMORY),
        "latency_cycles": 100.0,
        "is_ldgdepbar": True,
        "write_scoreboard": 0,
    }
    figures = replace(FIGURES, role_by_warp=(0,))
    played = simulate_ctas((script_of(*[copy] * 10, close, {"wait_scoreboards": (0,)}),), figures, 1)
    assert sum(played.waits[0]) == pytest.approx(10 * 500.0 - FIGURES.l2_burst_cycles + 100.0, rel=0.02)


def test_the_dram_takes_more_at_once_than_the_l2() -> None:
    """A batch waits for its own bytes less the burst: other SMs do not ask at the same time."""
    copy = {"kind": int(StepKind.LOAD), "dram_cycles": 500.0, "latency_cycles": 100.0, "is_ldgsts": True}
    copy["l2_cycles"] = 1.0
    close = {
        "kind": int(StepKind.SHARED_MEMORY),
        "latency_cycles": 100.0,
        "is_ldgdepbar": True,
        "write_scoreboard": 0,
    }
    figures = replace(FIGURES, role_by_warp=(0,), dram_burst_cycles=2000.0)
    played = simulate_ctas((script_of(*[copy] * 10, close, {"wait_scoreboards": (0,)}),), figures, 1)
    assert sum(played.waits[0]) == pytest.approx(10 * 500.0 - 2000.0 + 100.0, rel=0.02)


def dram_load(dram_cycles: float) -> dict[str, object]:
    return {
        "kind": int(StepKind.LOAD),
        "l2_cycles": 1.0,
        "dram_cycles": dram_cycles,
        "latency_cycles": 500.0,
        "write_scoreboard": 0,
    }


def test_a_loaded_dram_takes_longer() -> None:
    load = dram_load(50.0)
    script = script_of(*[load, {"wait_scoreboards": (0,)}] * 50)
    alone = simulate_ctas((script,), replace(FIGURES, role_by_warp=(0,), dram_load_cycles=100.0), 1).cycles
    assert alone == pytest.approx(50 * 500.0, rel=0.05)
    busy = replace(FIGURES, role_by_warp=(0,) * 8)
    extra = (
        simulate_ctas((script,), replace(busy, dram_load_cycles=100.0), 1).cycles
        - simulate_ctas((script,), busy, 1).cycles
    )
    assert extra > 50 * 100.0


def test_what_is_written_keeps_the_dram_busy_for_loads_too() -> None:
    load = dram_load(1.0)
    store: dict[str, object] = {"kind": int(StepKind.STORE), "l2_cycles": 1.0, "dram_cycles": 250.0}
    figures = replace(FIGURES, role_by_warp=(0,), dram_load_cycles=100.0)
    waits: list[dict[str, object]] = [load, {"wait_scoreboards": (0,)}]
    alone, beside = (
        simulate_ctas((script_of(*steps * 50),), figures, 1) for steps in (waits, [store, *waits])
    )
    assert beside.cycles - alone.cycles > 50 * 60.0


_ADDRESS = ("S2R R0, SR_CTAID.X", "S2R R3, SR_TID.X", "IMAD R0, R0, 0x80, R3")


@pytest.mark.parametrize(
    ("instruction", "lane_bytes", "lines", "cycles"),
    [
        ("STG.E desc[UR4][R2.64], R3", 4, 1, 1.0),
        ("STG.E desc[UR4][R2.64+0x10], R3", 4, 2, 2.0),  # an H100 has 1.5 for a mean of 1.4 lines
        ("STG.E desc[UR4][R2.64], R3", 64, 16, 16.0),  # 18 by its counters
        ("STG.E desc[UR4][R2.64], R3", 128, 32, 32.0),  # 34
        ("LDG.E.U16 R4, desc[UR4][R2.64]", 16, 4, 4.0),
    ],
)
def test_lines_take_the_path_as_counters_say(
    tmp_path: Path, instruction: str, lane_bytes: int, lines: int, cycles: float
) -> None:
    path = tmp_path / "lines.sass"
    path.write_text(
        format_dump(
            "sm_90",
            *_ADDRESS,
            f"MOV R5, {lane_bytes:#x}",
            "IMAD.WIDE R2, R0, R5, c[0x0][0x210]",
            instruction,
            "EXIT",
        )
    )
    situation = make_model_input(KernelLaunch(path, "kernel", "h100", (1024,), (128,)))
    memory = situation.arch.memory
    no_fills = replace(memory, line_fill_cycles=replace(memory.line_fill_cycles, value=0.0))
    situation = replace(situation, arch=replace(situation.arch, memory=no_fills))
    assert situation.profile is not None
    (access,) = situation.profile.accesses
    assert (access.lines or 0) / access.requests == pytest.approx(lines)
    found = simulate_launch(situation, ALL_IN_DRAM, 1980.0).resource_demand.load_store_cycles
    assert found[access.row] == pytest.approx(cycles, abs=0.1)


def test_lines_of_a_request_keep_the_tags_busy_and_shared_memory_goes_on() -> None:
    """What takes longest decides: the path, which both take, or the tags, which global memory alone needs."""
    load = {"kind": int(StepKind.LOAD), "load_store_cycles": 2.0, "latency_cycles": 30.0}
    shared = {"kind": int(StepKind.SHARED_MEMORY), "load_store_cycles": 2.0, "latency_cycles": 30.0}

    def cycles(tags: float, n_shared: int) -> float:
        script = script_of(*[load | {"tag_cycles": tags}, *[shared] * n_shared] * 50)
        return simulate_ctas((script,), FIGURES, 1).cycles

    requests = 50 * len(FIGURES.role_by_warp)
    assert cycles(20.0, 0) == pytest.approx(requests * 20.0, rel=0.02)
    assert cycles(20.0, 4) == pytest.approx(requests * 20.0, rel=0.05)
    assert cycles(20.0, 19) == pytest.approx(requests * 40.0, rel=0.02)
    assert cycles(0.0, 4) == pytest.approx(requests * 10.0, rel=0.02)


@pytest.mark.parametrize("latency", [2000.0, 12000.0])
def test_few_waves_tell_what_all_take(latency: float) -> None:
    """CTAs that load before they work: the first wave waits together, later ones behind each other."""
    load = {
        "kind": int(StepKind.LOAD),
        "load_store_cycles": 2.0,
        "latency_cycles": latency,
        "write_scoreboard": 0,
    }
    work = {"kind": int(StepKind.SHARED_MEMORY), "load_store_cycles": 2.0, "latency_cycles": 30.0}
    script = script_of(load, {"wait_scoreboards": (0,)}, *[work] * 2000)
    figures = replace(FIGURES, role_by_warp=(0,) * 2, ctas_per_sm=8)
    whole = simulate_ctas((script,), figures, 100, skips=False).cycles
    found = simulate_ctas((script,), figures, 100)
    assert found.cycles == pytest.approx(whole, rel=0.02)
    assert found.ended_ctas[-1] == 100
    assert len(found.ended_ctas) < 50


@given(
    rounds=st.integers(1, 400),
    latency=st.floats(10.0, 2000.0),
    l2_cycles=st.floats(0.0, 60.0),
    n_ctas=st.integers(1, 12),
    meets=st.booleans(),
)
def test_skipped_iterations_take_what_they_would(
    rounds: int, latency: float, l2_cycles: float, n_ctas: int, *, meets: bool
) -> None:
    """Loops that load, meet or not, and work: bound by latency, by the L2 or by the pipe."""
    load = {"kind": int(StepKind.LOAD), "load_store_cycles": 2.0, "l2_cycles": l2_cycles}
    load |= {"latency_cycles": latency, "write_scoreboard": 0}
    barrier = {"kind": int(StepKind.CTA_BARRIER)} if meets else {}
    work = {"pipe_cycles": ((FMA, 24.0, 2.0),), "issue_slots": 12.0, "stall_cycles": 12.0}
    script = script_of(load, {"wait_scoreboards": (0,)} | barrier, work)
    script.sequences = [StepSequence(0, 3, rounds)]
    figures = replace(FIGURES, role_by_warp=(0,) * 8, ctas_per_sm=3)
    whole, found = (simulate_ctas((script,), figures, n_ctas, skips=skips) for skips in (False, True))
    assert found.cycles == pytest.approx(whole.cycles, rel=0.03)
    assert found.n_steps <= whole.n_steps


FMA = PIPE_INDEX[Pipe.FMA]


def waits_of(played: SimulationResult) -> list[float]:
    """All that the warps of each script waited."""
    return [sum(waits) for waits in played.waits]


def test_of_warps_that_are_ready_the_youngest_issues() -> None:
    script = script_of(*[{"pipe_cycles": ((FMA, 10.0, 10.0),), "stall_cycles": 10.0}] * 100)
    older, younger = waits_of(
        simulate_ctas((script, script), replace(FIGURES, n_subcores=1, role_by_warp=(0, 1)), 1)
    )
    assert younger < 50.0  # but for an instruction of the other one, which it does not interrupt
    assert older == pytest.approx(100 * 10.0, rel=0.1)


def test_where_the_path_is_full_the_request_of_the_oldest_goes_first() -> None:
    script = script_of(*[{"kind": int(StepKind.LOAD), "load_store_cycles": 20.0}] * 100)
    older, younger = waits_of(simulate_ctas((script, script), replace(FIGURES, role_by_warp=(0, 1)), 1))
    assert younger > 1.5 * older


def nest(rounds: float, inner: int) -> WarpProgram:
    """A loop that loads and meets in a barrier, and then works in an inner loop."""
    load = {
        "kind": int(StepKind.LOAD),
        "load_store_cycles": 2.0,
        "latency_cycles": 1000.0,
        "write_scoreboard": 0,
    }
    work = {"pipe_cycles": ((FMA, 24.0, 2.0),), "issue_slots": 12.0, "stall_cycles": 12.0}
    script = script_of(load, {"wait_scoreboards": (0,), "kind": int(StepKind.CTA_BARRIER)}, work, work)
    visits = int(rounds)
    script.sequences = [
        StepSequence(0, 2, visits),
        StepSequence(2, 4, visits * inner),
    ]
    script.outer_loops = (OuterLoop(0, 1, rounds),)
    return script


def test_loops_in_a_loop_are_played_in_their_order() -> None:
    """Waiting for loads and work lie beside each other, not all that is loaded first."""
    figures = replace(FIGURES, role_by_warp=(0,) * 4, ctas_per_sm=4)
    script = nest(200, 20)
    assert [run.start for run in plan_warp(script).sequences] == [0, 2] * 200
    found = simulate_ctas((script,), figures, 12)
    assert found.cycles == pytest.approx(simulate_ctas((script,), figures, 12, skips=False).cycles, rel=0.03)
    assert found.cycles == pytest.approx(12 * 200 * 20 * 2 * 24.0, rel=0.05)
    assert found.n_steps < 0.5 * 12 * 4 * 200 * (2 + 20 * 2)


def test_a_nest_of_long_loops_takes_what_its_iterations_do() -> None:
    """Ten million iterations around others are not listed one by one."""
    figures = replace(FIGURES, role_by_warp=(0,) * 4)
    script = nest(10**7, 20)
    assert find_listed_share(script) < 0.02
    assert len(plan_warp(script, find_listed_share(script)).sequences) <= 200_000
    found = simulate_ctas((script,), figures, 1)
    assert found.cycles == pytest.approx(
        1000 * simulate_ctas((nest(10**4, 20),), figures, 1).cycles, rel=0.01
    )


def test_a_few_iterations_tell_what_a_whole_product_takes() -> None:
    path = TRACES / "measured" / "sm_89" / "mma_matmul-k3_0-4090-4096.sass"
    arguments = tuple(f"{place}=4096" for place in (3, 4, 5))
    situation = make_model_input(KernelLaunch(path, "mma_stages", "l40s", (64, 64), (16, 16), arguments))
    simulation = simulate_launch(situation, MissRates(1.0, 0.05), 2000.0)
    programs, parameters, n_ctas = simulation.warp_programs, simulation.parameters, simulation.n_ctas
    whole, found = (simulate_ctas(programs, parameters, n_ctas, skips=skips) for skips in (False, True))
    # one CTA of four is simulated: others start at other places, and orders change
    assert found.cycles == pytest.approx(whole.cycles, rel=0.025)
    assert found.n_steps < 0.25 * whole.n_steps


PAIR: tuple[dict[str, object], ...] = (
    {"kind": int(StepKind.CTA_BARRIER), "barriers": CtaBarrier(1, 2, waits=True)},
)
BLACKWELL = TRACES / "blackwell"


def test_products_of_the_tensor_core_come_at_their_interval() -> None:
    """Batches of 32, each from the issue of the first to the end of the wait: latency and 31 intervals."""
    batches, depth = 1000, 32
    path = BLACKWELL / "umma_128x128_32.sass"
    situation = make_model_input(KernelLaunch(path, "umma", "b200", (1,), (128,), (f"0={batches}",)))
    product = next(
        one for one in situation.arch.tensor_core_product if (one.a, one.ctas, one.m) == ("shared", 1, 128)
    )
    interval = max(64.0, product.operand_cycles + 128 * product.operand_column_cycles)
    latency = product.latency_cycles + 128 * product.latency_column_cycles
    wanted = batches * (latency + (depth - 1) * interval)
    assert predict_with_model(situation, "sm").cycles == pytest.approx(wanted, rel=0.06)


def test_the_copy_engine_fills_the_bandwidth_with_enough_in_flight() -> None:
    copies, tile_bytes = 1771, 16384
    path = BLACKWELL / "tma_4x16k.sass"
    launched = KernelLaunch(path, "tma", "b200", (148,), (32,), ("0=tensormap", f"1={copies}"))
    situation = replace(make_model_input(launched), l2_is_cold=True)
    rate_gbps = situation.gpu.sustained_dram_gbps.value
    found = predict_with_model(situation, "sm")
    assert found.time_us == pytest.approx(148 * copies * tile_bytes / rate_gbps / 1e3, rel=0.05)
    assert found.bound == "DRAM"


def test_fewer_buffers_show_the_latency_of_copies() -> None:
    launched = KernelLaunch(
        BLACKWELL / "mainloop_128x128x64_4.sass",
        "mainloop",
        "b200",
        (1,),
        (128,),
        ("0=tensormap", "1=tensormap", "2=1024"),
    )
    situation = make_model_input(launched)
    assert situation.mbarrier_pipelines is not None
    four = predict_with_model(situation, "sm")
    rings = tuple(
        replace(ring, n_free_waits=1) if ring.n_free_waits else ring
        for ring in situation.mbarrier_pipelines.pipelines
    )
    one = predict_with_model(
        replace(situation, mbarrier_pipelines=replace(situation.mbarrier_pipelines, pipelines=rings)), "sm"
    )
    assert four.bound == "L2"
    assert 1.8 < one.cycles / four.cycles < 4.0


def test_warps_that_do_more_are_roles_of_their_own_and_no_work_is_lost() -> None:
    situation = make_model_input(report16(RTX_2080_TI, "reduce_sum", (4096,), (256,), f"2={4096 * 512}"))
    crew = find_warp_roles(situation)

    assert crew.role_by_warp[0] != crew.role_by_warp[-1]  # the first warp adds up what the others leave
    assert (
        crew.execution_counts[crew.role_by_warp[0]].sum() > crew.execution_counts[crew.role_by_warp[-1]].sum()
    )
    every = sum(crew.execution_counts[role] for role in crew.role_by_warp) / len(crew.role_by_warp)
    assert every == pytest.approx(situation.execution_counts)


@pytest.mark.parametrize("n", [33, 36])
def test_warps_without_work_at_the_rim_leave_the_work_as_it_is(n: int) -> None:
    """Of five rows of CTAs the last one has one busy warp of eight, or four; one of the others is played."""
    situation = make_model_input(report16(RTX_2080_TI, "matmul_naive", (2, 5), (32, 8), f"3={n}"))
    crew = find_warp_roles(situation)
    every = (
        sum(crew.execution_counts[role] for role in crew.role_by_warp)
        * crew.n_busy_ctas
        * crew.mean_work_share
    )
    assert every.sum() == pytest.approx(situation.execution_counts.sum() * 8 * 10, rel=1e-3)


def test_a_launch_takes_as_long_as_its_longest_cta() -> None:
    """Rows of a triangle: where 100 CTAs have an SM each, the last one decides, and so it does among 120."""
    place = (CUDA / "sm_80" / "exactness.sass", "a100")
    times = [
        predict_with_model(
            make_model_input(report16(place, "triangular_row_sums", (ctas,), (64,), f"2={64 * ctas}")), "sm"
        ).time_us
        for ctas in (100, 120, 220)
    ]
    assert times == [pytest.approx(times[0] * share, rel=0.1) for share in (1.0, 1.2, 2.2)]


def parted_and_joined(situation: ModelInput, patch: pytest.MonkeyPatch) -> tuple[Prediction, Prediction]:
    """With a role for each warp that does more than others, and with the mean warp."""
    crew = find_warp_roles(situation)
    mean = replace(
        crew, execution_counts=(situation.execution_counts,), role_by_warp=(0,) * len(crew.role_by_warp)
    )
    parted = predict_with_model(situation, "sm")
    patch.setattr("analyzer.models.sm.launch_simulation.find_warp_roles", lambda _: mean)
    return parted, predict_with_model(situation, "sm")


def window(case: str, grid: tuple[int, ...], block: tuple[int, ...]) -> ModelInput:
    """CTAs that load rows, 14 columns wider than they are: of the warps of a row the first goes round twice."""
    path = TRACES / "measured" / "sm_86" / f"cm15-a4000-{case}.sass"
    return make_model_input(
        KernelLaunch(path, "convolution", "rtx-a4000", grid, block, ("0=ptr", "1=ptr", "2=ptr"))
    )


def test_a_cta_waits_for_its_slowest_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    parted, joined = parted_and_joined(window("5c6c88cb6734", (40,), (64,)), monkeypatch)
    assert parted.cycles > 1.02 * joined.cycles
    assert parted.cpi_stack[Stall.BARRIER] > 5 * joined.cpi_stack[Stall.BARRIER]


def test_so_does_each_of_a_few_that_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    situation = window("84fe30dd5282", (37, 512), (112, 2))
    situation = replace(situation, occupancy=replace(situation.occupancy, ctas_per_sm=3))
    parted, joined = parted_and_joined(situation, monkeypatch)
    assert parted.cpi_stack[Stall.BARRIER] > 2 * joined.cpi_stack[Stall.BARRIER]


# ---- how CTAs follow each other, and the last wave ----

N_SMS, N_WARPS, ROUNDS = 132, 4, 50
DRAM_CYCLES, ISSUE_CYCLES = 80.0, 60.0  # of a warp's round; of the DRAM where all SMs load
ALONE = replace(FIGURES, role_by_warp=(0,))


def find_load(n_ctas: int, n_slots: int = 1) -> SmLoad:
    mean = n_ctas / N_SMS
    busiest = -(-n_ctas // N_SMS)
    return SmLoad(busiest, n_slots, mean, N_SMS, mean_load_share=mean / busiest, min_l2_share=0.5)


def estimate(n_ctas: int) -> float:
    """Return the cycles of so many CTAs on SMs of one slot."""
    load = find_load(n_ctas)
    fetch: dict[str, object] = {
        "kind": int(StepKind.LOAD),
        "l2_cycles": 0.1,
        "dram_cycles": DRAM_CYCLES * load.mean_load_share,
        "write_scoreboard": 0,
    }
    work: dict[str, object] = {
        "issue_slots": ISSUE_CYCLES,
        "stall_cycles": ISSUE_CYCLES,
        "wait_scoreboards": (0,),
    }
    script = script_of(*[fetch, work] * ROUNDS)
    figures = replace(ALONE, role_by_warp=(0,) * N_WARPS)
    return simulate_waves((script,), figures, load, MOST_STEPS).cycles


def test_last_wave_has_the_shares_that_it_leaves_unused() -> None:
    """A CTA among few is bound by its own work, one of a full wave by the DRAM; each wave has its own time."""
    full = estimate(N_SMS)
    assert full == pytest.approx(N_WARPS * ROUNDS * DRAM_CYCLES, rel=0.1)
    assert estimate(2 * N_SMS) == pytest.approx(2 * full, rel=0.05)
    assert estimate(N_SMS + 1) == pytest.approx(full + ROUNDS * ISSUE_CYCLES, rel=0.1)
    times = [estimate(N_SMS + n) for n in (1, 40, 80, 120, N_SMS)]
    assert times == sorted(times)


def test_ctas_of_a_last_wave_gather_where_the_l2_binds() -> None:
    """Three CTAs of an SM share its port to the L2: 116 after a wave of them take it as long once more.

    An SM's part of the L2 is half of its port, and the last wave has a third of the SMs.
    """
    access: dict[str, object] = {
        "kind": int(StepKind.LOAD),
        "l2_cycles": 8.0,
        "write_scoreboard": 0,
        "wait_scoreboards": (0,),
    }
    times = []
    for n_ctas in (396, 396 + 116):
        load = find_load(n_ctas, 3)
        script = script_of(*[access | {"l2_cycles": 8.0 * load.mean_load_share}] * 40 * ROUNDS)
        times.append(simulate_waves((script,), replace(ALONE, ctas_per_sm=3), load, MOST_STEPS).cycles)
    assert times[1] == pytest.approx(1.5 * times[0], rel=0.05)


def test_slots_that_free_first_get_the_next_ctas() -> None:
    """An SM gets as many CTAs as it holds where its own end closer together than SMs are apart."""
    pace = NormalDist(1.0, 0.003)
    assert count_gathered_ctas((0.0, 10.0, 20.0), 100_000.0, 116, pace, N_SMS) == 3
    assert count_gathered_ctas((0.0, 10_000.0, 20_000.0), 100_000.0, 116, pace, N_SMS) == 1
    assert count_gathered_ctas((0.0, 10_000.0, 20_000.0), 100_000.0, 232, pace, N_SMS) == 2


@pytest.mark.parametrize("n_slots", [1, 2])
def test_next_cta_begins_a_turn_after_the_last_one_has_ended(n_slots: int) -> None:
    figures = replace(ALONE, ctas_per_sm=n_slots, cta_turnover_cycles=300.0)
    work = script_of({"issue_slots": 1.0, "stall_cycles": 1000.0})
    assert simulate_ctas((work,), figures, 4 * n_slots).cycles == pytest.approx(4 * 1000 + 3 * 300, rel=0.01)


def test_ends_of_ctas_are_counted_one_by_one() -> None:
    """All begin at once and end at once, but the last end is known only after so many intervals."""
    work = script_of({"issue_slots": 1.0, "stall_cycles": 1000.0})
    figures = replace(ALONE, ctas_per_sm=8, cta_start_interval_cycles=20.0)
    apart = replace(figures, cta_end_interval_cycles=150.0)
    assert simulate_ctas((work,), figures, 8).cycles == pytest.approx(1000 + 7 * 20, rel=0.01)
    assert simulate_ctas((work,), apart, 8).cycles == pytest.approx(1000 + 7 * 150, rel=0.01)


@pytest.mark.parametrize(
    ("loads", "measured"),
    [
        (("LDG.E R{}, desc[UR4][R2.64]", "LDG.E.U8 R{}, desc[UR4][R2.64+0x4]"), 3.0),
        (("LDS R{}, [R2]", "LDS R{}, [R2+0x80]"), 2.2),
    ],
)
def test_conversions_take_their_turns_with_loads(
    tmp_path: Path, loads: tuple[str, str], measured: float
) -> None:
    """Two LDG to a F2I: on an H200 three cycles of the SM, where each unit alone would need two."""
    body = []
    for n in range(0, 96, 3):
        body += [loads[0].format(8 + n), loads[1].format(9 + n), f"F2I.U32.TRUNC.NTZ R{10 + n}, R4"]
    path = tmp_path / "loads.sass"
    path.write_text(format_dump("sm_90", *body * 8, "EXIT"))
    situation = make_model_input(KernelLaunch(path, "kernel", "h200", (4 * 132,), (512,)))
    memory = situation.arch.memory
    assert memory.dispatch_cycles is not None
    apart = replace(situation, arch=replace(situation.arch, memory=replace(memory, dispatch_cycles=None)))
    cycles, before = (
        simulate_launch(one, ALL_IN_L1, 1980.0).cycles / (4 * 16 * 8 * 32) for one in (situation, apart)
    )
    assert (before, cycles) == (pytest.approx(2.2, abs=0.2), pytest.approx(measured, abs=0.2))


def test_what_is_on_its_way_into_the_l1_is_looked_up_twice() -> None:
    """A naive product: the warps of a CTA load the same lines, and wait for the fills of one of them."""
    situation = make_model_input(report16(A100, "matmul_naive", (32, 128), (32, 8), "3=1024"))
    memory = situation.arch.memory
    each = replace(memory.line_fill_cycles, value=0.5)
    twice = replace(situation, arch=replace(situation.arch, memory=replace(memory, second_look_cycles=each)))
    assert situation.cache_rates is not None
    assert situation.profile is not None
    assert not simulate_launch(situation, ALL_IN_L1, 1410.0).resource_demand.tag_cycles.any()
    found = simulate_launch(twice, ALL_IN_L1, 1410.0).resource_demand
    loads = [access for access in situation.profile.accesses if not access.is_store and access.sectors]
    assert {round((access.sectors or 0) / access.requests) for access in loads} == {1, 4}
    for access in loads:
        rates = situation.cache_rates.by_row.get(access.row)
        waiting = 0.0 if rates is None else max(0.0, 1.0 - rates.l1_request_share - rates.l1_miss_rate)
        lines = (access.sectors or 0) / access.requests / 4
        assert found.tag_cycles[access.row] == pytest.approx(1.0 + 0.5 * lines * waiting)


def test_a_warp_keeps_the_port_until_it_waits_so_that_warps_stay_in_step() -> None:
    """Loads from the L2 and 128 FFMA: an H100 takes 521 cycles a round with one warp of a sub-core, 663 with two.

    With four it takes 906. Where the youngest goes first, one warp's FFMA fill the waits of the others.
    """
    run: dict[str, object] = {"issue_slots": 8.0, "stall_cycles": 8.0}
    alone: dict[str, object] = {"issue_slots": 1.0, "stall_cycles": 6.0}
    load = {"kind": int(StepKind.LOAD), "latency_cycles": 340.0, "write_scoreboard": 0} | alone
    steps = [load, run | {"wait_scoreboards": (0,)}, *[run] * 15, *[alone] * 8]
    script, n_rounds = script_of(*steps), 32
    script.sequences[0] = StepSequence(0, len(steps), n_rounds)

    def time_round(n_warps: int, *, in_runs: bool) -> float:
        figures = replace(FIGURES, n_subcores=1, role_by_warp=(0,) * n_warps, issues_in_runs=in_runs)
        return simulate_ctas((script,), figures, 1).cycles / n_rounds

    for n_warps, measured in ((1, 521.0), (2, 663.0), (4, 906.0)):
        assert time_round(n_warps, in_runs=True) == pytest.approx(measured, rel=0.06)
    assert time_round(4, in_runs=False) < 0.85 * 906.0
