"""A matrix product for the tensor core of a B200, from its plainest form to what libraries ship."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
from paths import TRACES

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.frontend.cuda_tools import find_tool
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.arrays import FloatArray
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.opcode import Semantics
from analyzer.ir.scheduling import TensorRate
from analyzer.models.interface import ModelInput
from analyzer.models.sm.resource_demand import ResourceDemand
from analyzer.models.sm.warp_program import WarpProgram, build_warp_program
from analyzer.models.timeline_warp import InstructionTiming
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import KernelReport, PredictionEntry

pytestmark = pytest.mark.skipif(
    find_tool("cuobjdump") is None or find_tool("nvdisasm") is None,
    reason="cuobjdump and nvdisasm are not installed here",
)

N = 4096
KB = 1024
B200 = "b200"
MODELS = ("sm", "roofline")
WARP_LANES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A cubin of traces/blackwell, launched for N x N x N; cluster: CTAs that multiply together; tensor: what
    both of its tensors are said to be; columns: the argument that says how many there are."""

    cubin: str
    grid: int
    block: int
    shared_kb: int
    cluster: int = 1
    tensor: str = "tensormap"
    columns: str = f"4={N}"

    @property
    def n_warps(self) -> int:
        return self.grid * self.block // WARP_LANES


PLAIN = Step(cubin="products_1_columns512", grid=1024, block=128, shared_kb=32)
SWIZZLED = Step(cubin="products_2_swizzled", grid=1024, block=128, shared_kb=32)
STAGES = Step(cubin="products_3_stages", grid=512, block=128, shared_kb=192)
WARPS = Step(cubin="products_4_warps", grid=512, block=192, shared_kb=192)
PAIRS = Step(cubin="products_5_pairs", grid=512, block=192, shared_kb=128, cluster=2)
PERSISTENT = Step(cubin="products_6_persistent", grid=148, block=192, shared_kb=128, cluster=2)
STEPS = (PLAIN, SWIZZLED, STAGES, WARPS, PAIRS, PERSISTENT)
EARLY = tuple(replace(PERSISTENT, cubin=f"products_6_early{behind}") for behind in (1, 2))
each_step = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.cubin)


@cache
def report_of(step: Step) -> KernelReport:
    arguments = (f"0={step.tensor}", f"1={step.tensor}", "2=ptr", f"3={N}", step.columns, f"5={N}")
    launch = Launch(
        grid=Dim3(step.grid),
        block=Dim3(step.block),
        cluster=Dim3(step.cluster),
        dynamic_shared_bytes=step.shared_kb * KB,
        arguments=tuple(map(parse_argument, filter(None, arguments))),
    )
    path = TRACES / "blackwell" / f"{step.cubin}.cubin"
    (kernel,) = analyzer.analyze(str(path), B200, options=Options(launch=launch, models=MODELS)).kernels
    return kernel


def predicted(step: Step, model: str = "sm") -> PredictionEntry:
    return next(one for one in report_of(step).predictions if one.model == model)


def least_cycles() -> float:
    """What the tensor cores need where all of them work all the time."""
    gpu = load_gpu(B200)
    rate = gpu.find_tensor_fma_per_cycle(TensorRate.F16)
    assert rate is not None
    return N**3 / (gpu.sm_count * rate.value)


@pytest.mark.parametrize("step", [PLAIN, SWIZZLED], ids=["512 columns", "128 columns"])
def test_a_cta_that_keeps_the_right_to_allocate_is_alone_on_its_sm(step: Step) -> None:
    """They give it up behind their products: no other CTA can start before, however few columns it wants."""
    found = predicted(step)
    assert found.ctas_per_sm == 1
    assert found.occupancy_limiter == "tensor memory"
    assert any("relinquish_alloc_permit" in note for note in found.assumptions)


def test_ctas_that_give_up_the_right_to_allocate_share_an_sm() -> None:
    """Triton's product gives it up behind its allocation of 128 columns or more."""
    dump = str(TRACES / "triton" / "sm_100" / "matmul.sass")
    launch = Launch(grid=Dim3(1024), block=Dim3(128))
    (kernel,) = analyzer.analyze(dump, B200, options=Options(launch=launch, models=("roofline",))).kernels
    assert kernel.predictions[0].ctas_per_sm > 1
    assert not any("relinquish_alloc_permit" in note for note in kernel.predictions[0].assumptions)


@each_step
def test_each_step_does_all_products(step: Step) -> None:
    assert report_of(step).tensor_fma * step.n_warps == pytest.approx(N**3, rel=1e-9)


@each_step
@pytest.mark.parametrize("model", MODELS)
def test_no_step_is_faster_than_the_tensor_cores(step: Step, model: str) -> None:
    found = predicted(step, model)
    assert found.time_us * found.clock_mhz >= least_cycles()


def test_waiting_for_each_copy_and_each_product_is_slowest() -> None:
    times = {step.cubin: predicted(step).time_us for step in STEPS}
    assert max(times, key=times.__getitem__) == PLAIN.cubin


@pytest.mark.parametrize(
    ("before", "after"),
    [(STAGES, WARPS), (WARPS, PAIRS), (PAIRS, PERSISTENT)],
    ids=["warps with parts", "pairs", "persistent"],
)
def test_each_step_is_no_slower_than_the_one_before(before: Step, after: Step) -> None:
    slow, fast = predicted(before).time_us, predicted(after).time_us
    assert fast <= 1.02 * slow


@pytest.mark.parametrize("step", EARLY, ids=lambda step: step.cubin)
def test_looking_at_a_buffer_before_it_is_needed_costs_little(step: Step) -> None:
    """Loops of two rounds at once, in each of which a warp looks one buffer ahead: in all rounds but a tile's
    last one, or behind the last of a tile at the next tile's first, which it looks at again. The code waits for
    the answer before it multiplies, so one buffer of the four is full for longer: copies that are waited for
    come by three at a time instead of four, at worst.
    """
    least = predicted(PERSISTENT).cycles
    assert least <= predicted(step).cycles <= 4 / 3 * least


@pytest.mark.parametrize("step", [STAGES, PAIRS], ids=lambda step: step.cubin)
def test_tiles_at_unknown_places_are_taken_to_be_shared_as_in_a_square(step: Step) -> None:
    """A table of tiles that nobody gives, or a number of columns, leaves the place of every tile open."""
    known, unknown = predicted(step), predicted(replace(step, columns=""))
    assert unknown.time_us == pytest.approx(known.time_us, rel=0.12)
    said = [
        any("which tiles CTAs copy is not known" in note for note in one.assumptions)
        for one in (known, unknown)
    ]
    assert said == [False, True]


def test_a_pair_that_does_not_stay_pays_for_its_first_copies_and_its_stores() -> None:
    """Of four tiles a pair each, none is stored while the next is multiplied: Modular's kernels of this form
    reach 1,429 and 1,493 TFLOPS on B200 where the persistent one reaches 1,772 (Matrix Multiplication on
    Blackwell, parts 3 and 4).
    """
    assert 1.12 <= predicted(PAIRS).cycles / predicted(PERSISTENT).cycles <= 1.30


def test_a_part_of_the_warps_arrives_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four warps that store tiles one says so: a quarter of an arrival for each tile, not one in four."""
    calls: list[tuple[ModelInput, FloatArray, InstructionTiming, ResourceDemand]] = []

    def spy(*call: Any) -> WarpProgram:
        calls.append(call)
        return build_warp_program(*call)

    monkeypatch.setattr("analyzer.models.sm.launch_simulation.build_warp_program", spy)
    report_of.__wrapped__(PERSISTENT)
    situation, weights, code, traffic = calls[-1]  # of the warps that store
    assert situation.mbarrier_pipelines is not None
    (row,) = (
        row
        for row, use in situation.mbarrier_pipelines.uses.items()
        if use.semantics is Semantics.MBARRIER_ARRIVE and weights[row] > 1
    )
    tiles = weights[row]
    block = situation.cfg.blocks[situation.cfg.block_of[row]]
    fewer = weights.copy()
    fewer[block.start : block.stop] /= 4
    script = build_warp_program(situation, fewer, code, traffic)
    arrives = script.pipeline.index(situation.mbarrier_pipelines.uses[row].pipeline)
    (run,) = (run for run in script.sequences if run.start <= arrives < run.stop)
    assert (run.iterations, script.arrivals[arrives]) == (
        round(tiles),
        pytest.approx(tiles / 4 / round(tiles)),
    )


SHORT_ROWS, WHOLE_ROWS = (f"tensormap:bf16:{N}x{N}:{box}" for box in ("8x128", "64x128"))


@pytest.mark.parametrize(("step", "tensor"), [(PLAIN, SHORT_ROWS), (SWIZZLED, WHOLE_ROWS)])
def test_boxes_that_nobody_described_are_told_by_their_places(step: Step, tensor: str) -> None:
    told = predicted(replace(step, tensor=tensor))
    assert predicted(step).cycles == pytest.approx(told.cycles, rel=0.02)


def test_rows_of_16_bytes_are_requests_of_their_own() -> None:
    """Two tiles of 128 rows of 128 bytes, each in rows of 16: eight times as many requests, one a cycle."""
    steps, requests = N // 64, 2 * 128 * 8
    ctas = -(-PLAIN.grid // load_gpu(B200).sm_count)
    assert predicted(PLAIN).cycles > ctas * steps * requests
    (note,) = (note for note in predicted(PLAIN).assumptions if "rows of 16 bytes" in note)
    assert "tensormap:TYPE" in note
    assert not any("side by side" in note for note in predicted(SWIZZLED).assumptions)


def test_one_warp_that_copies_ahead_nearly_keeps_up_with_two() -> None:
    one, two = predicted(STAGES).time_us, predicted(WARPS).time_us
    assert one <= 1.4 * two


@pytest.mark.parametrize("step", [WARPS, PERSISTENT], ids=lambda step: step.cubin)
def test_no_loop_takes_longer_than_the_kernel(step: Step) -> None:
    """Warps that copy, multiply and store work at the same time: each at most as long as the kernel."""
    loops = [loop for loop in report_of(step).loops if loop.depth == 1]
    assert len([loop for loop in loops if loop.warp_share < 1.0]) == 3
    for loop in loops:
        assert loop.cycles_per_iteration is not None
        assert loop.trip_count * loop.cycles_per_iteration <= 1.01 * predicted(step).cycles


@each_step
def test_a_busy_tensor_core_is_the_bound(step: Step) -> None:
    found = predicted(step)
    is_busy = least_cycles() >= 0.8 * found.cycles
    if is_busy or step is PERSISTENT:
        assert found.bound == "tc"


def test_shared_memory_that_the_launch_forgets_is_missed() -> None:
    """Four buffers of 48 KB: with none of them many CTAs seem to fit."""
    told = {kb: predicted(replace(WARPS, shared_kb=kb)).assumptions for kb in (0, 192)}
    assert [any("--dynamic-shared" in note for note in notes) for notes in told.values()] == [True, False]
