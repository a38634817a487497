"""What AMALI and its figures say, found again in our models on real dumps."""

import math

import pytest
from kernel_launches import KernelLaunch, make_model_input, predict_with_model
from msgspec.structs import replace
from paths import TRACES

from analyzer.baselines import amali
from analyzer.baselines.interval_model import IntervalOptions, WarpOverlap, predict_by_intervals
from analyzer.baselines.launch_latency import compute_cold_miss_shares, compute_launch_latency_cycles
from analyzer.baselines.warp_selection import RepresentedWarps, select_representative_warp
from analyzer.hardware.parameter_edits import ParameterSetting, with_settings
from analyzer.models.interface import Stall
from analyzer.models.registry import list_models

SQUARE = TRACES / "triton" / "sm_80" / "matmul_square_tile.sass"
LARGE_90 = TRACES / "triton" / "sm_90" / "matmul_large_tile.sass"
REPORT16 = TRACES / "cuda" / "sm_80" / "report16.sass"
CUBE = tuple(f"{place}=4096" for place in range(3, 9))
GEMM = KernelLaunch(SQUARE, "matmul", "a100", (1024,), None, CUBE)
COPY = KernelLaunch(REPORT16, "vector_add", "a100", (10_000,), (256,), ("3=2560000",))
PADDED = KernelLaunch(REPORT16, "vector_add", "a100", (10_000,), (256,), (f"3={100 * 256}",))
FEW = KernelLaunch(REPORT16, "vector_add", "a100", (100,), (256,), (f"3={100 * 256}",))
TEXTURE = KernelLaunch(
    TRACES / "cuda" / "sm_80" / "textures.sass",
    "sample_bilinear",
    "a100",
    (128, 128),
    (16, 16),
    ("2=2048", "3=2048"),
)
FMA = "tensor.f16.fma_per_cycle_per_sm"

TABLE_1 = {
    "selected",
    "wait",
    "long_scoreboard",
    "short_scoreboard",
    "math_pipe_throttle",
    "tex_throttle",
    "lg_throttle",
    "mio_throttle",
    "no_instructions",
    "imc_miss",
}


def math_throttle(launched: KernelLaunch, model: str, fma: float) -> float:
    """Cycles of math_pipe_throttle with so many multiply-adds per cycle and SM."""
    edited = with_settings(launched.gpu, (ParameterSetting(FMA, fma),))
    return predict_with_model(make_model_input(launched, edited), model).cpi_stack.get(
        Stall.MATH_PIPE_THROTTLE, 0.0
    )


def test_launch_latency_has_the_published_coefficients() -> None:
    """Equations 27 and 28 with section 6.2's figures, CTA size in warps; minus and k as in the authors' code."""
    situation = make_model_input(COPY)
    slope = 0.0036 * 8**2 - 0.0366 * 8 + 1.1891
    assert compute_launch_latency_cycles(situation, 1410.0) == pytest.approx(slope * 10_000 + 1980)
    assert sum(compute_cold_miss_shares(situation).values()) == pytest.approx(1.0)


def test_launch_latency_shows_as_cold_caches() -> None:
    stack = predict_with_model(make_model_input(COPY), "amali").cpi_stack
    cold = stack[Stall.IMC_MISS] + stack[Stall.NO_INSTRUCTIONS]
    assert cold == pytest.approx(compute_launch_latency_cycles(make_model_input(COPY), 1410.0))


@pytest.mark.parametrize("fma", [512.0, 1024.0])
def test_figure_16_twice_the_tensor_rate_halves_the_math_pipe_throttle(fma: float) -> None:
    """A tensor-bound GEMM's; the paper draws 128, 256 and 512 FMA per tensor core, four to an SM.

    By equation 12 it is the time of the products less that of issue, so somewhat less than half is left.
    """
    ratio = math_throttle(GEMM, "amali", 2 * fma) / math_throttle(GEMM, "amali", fma)
    assert 0.3 < ratio < 0.5


@pytest.mark.parametrize("model", ["amali", "steady"])
def test_figure_16_a_memory_bound_kernel_does_not_care(model: str) -> None:
    cycles = [math_throttle(COPY, model, fma) for fma in (512.0, 1024.0, 2048.0)]
    assert cycles[0] == cycles[1] == cycles[2]


def test_figure_15_gcom_says_the_same_for_every_tensor_rate() -> None:
    """But for the clock that the power of the work allows, at which DRAM's cycles are counted."""
    found = [
        predict_with_model(
            make_model_input(GEMM, with_settings(GEMM.gpu, (ParameterSetting(FMA, fma),))), "gcom"
        ).cycles
        for fma in (512.0, 1024.0, 2048.0)
    ]
    assert found == pytest.approx([found[0]] * len(found), rel=0.002)


def test_gcom_overestimates_the_tensor_throttle() -> None:
    """An HMMA.16816 takes it 32 cycles where the A100 takes 8."""
    gcom, amali = (
        predict_with_model(make_model_input(GEMM), model).cpi_stack[Stall.MATH_PIPE_THROTTLE]
        for model in ("gcom", "amali")
    )
    assert gcom > 3 * amali


def test_every_stall_of_table_1_has_its_name() -> None:
    assert {stall.value for stall in Stall} >= TABLE_1


def test_every_stall_of_table_1_appears() -> None:
    seen: set[str] = set()
    for launched in (GEMM, COPY, TEXTURE):
        for model in list_models():
            seen |= {stall.value for stall in predict_with_model(make_model_input(launched), model).cpi_stack}
    assert seen >= TABLE_1


@pytest.mark.parametrize(
    "launched",
    [GEMM, KernelLaunch(LARGE_90, "matmul", "h100", (512,), None, CUBE)],
    ids=["A100", "H100"],
)
def test_tensor_bound_loops_land_at_the_pipe_bound(launched: KernelLaunch) -> None:
    """Within 5 %, and the report says how busy the tensor pipe is."""
    (kernel,) = launched.report("steady").kernels
    loop = kernel.loops[0]
    assert loop.busiest == "tensor"
    assert 0.95 <= loop.busiest_share <= 1.0
    assert loop.cycles_per_iteration is not None
    assert math.isclose(loop.cycles_per_iteration, loop.bounds["tensor"], rel_tol=0.05)


def test_mdm_has_no_throttle_for_pipes() -> None:
    stack = predict_with_model(make_model_input(GEMM), "mdm").cpi_stack
    assert Stall.MATH_PIPE_THROTTLE not in stack
    assert stack[Stall.MIO_THROTTLE] > 0


def test_divergence_counts_the_sub_core_with_most_instructions() -> None:
    """Equation 29: 1,024 CTAs leave some SMs of 108 with ten, and 9.48 on the mean."""
    situation = make_model_input(GEMM)
    stack = predict_with_model(situation, "amali").cpi_stack
    per_cta = situation.demand.instructions  # one warp of each CTA on each sub-core
    assert stack[Stall.IDLE] == pytest.approx(per_cta * (10 - 1024 / 108), rel=0.01)


def sum_waits(launched: KernelLaunch, options: IntervalOptions) -> float:
    """Cycles of S_I's waits for memory."""
    found = predict_by_intervals(make_model_input(launched), options).prediction
    return found.cpi_stack.get(Stall.LONG_SCOREBOARD, 0.0)


def test_a_warp_of_the_ctas_that_work_stands_for_a_padded_grid() -> None:
    """9,900 of 10,000 CTAs leave at once: the others wait as long as in a grid of their own."""
    assert sum_waits(PADDED, amali.OPTIONS) == pytest.approx(sum_waits(FEW, amali.OPTIONS), rel=0.05)
    assert sum_waits(PADDED, amali.LETTER) < 0.1 * sum_waits(FEW, amali.OPTIONS)
    assert any(
        "leave at once" in note for note in predict_with_model(make_model_input(PADDED), "amali").assumptions
    )


def test_no_cta_of_a_product_is_idle() -> None:
    """All CTAs write a tile, and the two readings of the representative warp are the same."""
    situation = make_model_input(GEMM)
    every, working = (select_representative_warp(situation, which) for which in RepresentedWarps)
    assert every.n_ctas == working.n_ctas == situation.grid_ctas
    assert (every.execution_counts == working.execution_counts).all()


def test_stalls_of_the_representative_warp_are_hidden_added_or_compared() -> None:
    """GCoM's rule hides a part of them, AMALI's code none; the longer of both is at most their sum."""
    cycles = {
        overlap: predict_by_intervals(
            make_model_input(COPY), replace(amali.OPTIONS, overlap=overlap)
        ).prediction.cycles
        for overlap in WarpOverlap
    }
    assert cycles[WarpOverlap.HIDDEN] < cycles[WarpOverlap.SUM]
    assert cycles[WarpOverlap.LONGER] < cycles[WarpOverlap.SUM]


def test_products_that_do_not_wait_for_each_other_count_once() -> None:
    """The tensor core is what S_IP says, and the compiler's spacing of products is not counted beside it."""
    situation = make_model_input(GEMM)
    tensor = situation.costs.tensor_cycles[situation.kernel.opcode_ids] @ situation.execution_counts
    ctas = math.ceil(situation.grid_ctas / situation.gpu.sm_count)
    pipe_bound = float(tensor) * ctas  # one warp of each CTA on each sub-core
    assert pipe_bound < predict_with_model(situation, "amali").cycles < 1.3 * pipe_bound


def test_copies_that_bypass_the_l1_do_not_contend_for_it() -> None:
    """LDGSTS.BYPASS is no access of the L1 (equation 11): a product's operands cost it nothing."""
    stack = predict_with_model(make_model_input(GEMM), "amali").cpi_stack
    operands = 2 * 128 * 32 * 2 * (4096 // 32)  # bytes that a CTA copies
    waves = math.ceil(1024 / 108)
    assert stack[Stall.LG_THROTTLE] < 0.5 * waves * operands / 125  # bytes per cycle of an L1
