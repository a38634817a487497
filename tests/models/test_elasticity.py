"""Elasticities: what a noisy model resolves, what it does not, and how few runs that takes."""

import hashlib
import math
from collections.abc import Callable

import pytest
from kernel_launches import KernelLaunch, make_model_input
from paths import TRACES

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_edits import ParameterSetting, find_hardware_parameter, with_settings
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.models.elasticity import compute_elasticities, measure_resolution
from analyzer.models.registry import find_model

GPU = load_gpu("a100")
DRAM, CLOCK, L2_LATENCY = "memory.bandwidth_gbps", "clock.boost_mhz", "memory.l2_latency_cycles"
MANY = 60  # runs


def model(noise: float, **powers: float) -> Callable[[Gpu], float]:
    """Return the change of a time that follows three figures, and jumps where any figure changes."""
    followed = {DRAM: -0.8, CLOCK: -0.2, L2_LATENCY: 0.05} | powers

    def measure_change(gpu: Gpu) -> float:
        held = repr([figure.value for figure in collect_parameters(gpu).values()]).encode()
        jump = int.from_bytes(hashlib.sha256(held).digest()[:4], "little") / 2**32 - 0.5
        parts = (
            power
            * math.log(find_hardware_parameter(gpu, key).value / find_hardware_parameter(GPU, key).value)
            for key, power in followed.items()
        )
        return noise * jump + sum(parts)

    return measure_change


def test_without_noise_all_that_matters_is_found() -> None:
    found = compute_elasticities(GPU, model(0.0), MANY, is_simulated=False)
    assert found.by_key == pytest.approx({DRAM: -0.8, CLOCK: -0.2, L2_LATENCY: 0.05}, abs=1e-6)
    assert list(found.by_key) == [DRAM, CLOCK, L2_LATENCY]
    assert not found.of_others
    assert found.resolution < 1e-9


def test_what_noise_exceeds_is_left_out() -> None:
    found = compute_elasticities(GPU, model(0.08), MANY, is_simulated=True)
    assert DRAM in found.by_key
    assert set(found.by_key) <= {DRAM, CLOCK}  # the third moves the time by 2 %
    assert found.by_key[DRAM] == pytest.approx(-0.8, abs=0.2)
    assert 0.01 < found.resolution < 0.1


@pytest.mark.parametrize("n_runs", [8, 12, 30])
def test_no_search_takes_more_runs_than_it_has_and_what_it_leaves_has_the_rest(n_runs: int) -> None:
    runs, measure_change = 0, model(0.0)

    def counted(gpu: Gpu) -> float:
        nonlocal runs
        runs += 1
        return measure_change(gpu)

    found = compute_elasticities(GPU, counted, n_runs, (DRAM, CLOCK), is_simulated=False)
    assert runs <= n_runs
    assert set(found.by_key) <= {DRAM, CLOCK, L2_LATENCY}
    total = sum(map(abs, found.by_key.values())) + sum(found.of_others.values())
    assert total == pytest.approx(1.05, abs=1e-6)


def test_a_figure_in_the_wrong_direction_is_the_model_s_noise() -> None:
    perverse = model(0.0, **{DRAM: 0.3, CLOCK: -0.9})  # more bandwidth costs time
    found = compute_elasticities(GPU, perverse, MANY, (DRAM, CLOCK), is_simulated=False)
    assert list(found.by_key) == [CLOCK]
    assert found.resolution > 0.01


@pytest.mark.parametrize(("noise", "least"), [(0.0, 0.0), (0.1, 0.01)])
def test_the_resolution_is_what_figures_that_hardly_move_change(noise: float, least: float) -> None:
    assert least <= measure_resolution(GPU, model(noise)) <= noise + 0.002


# ---- figures that decide times -------------------------------------------------------------------

CUDA, TRITON = TRACES / "cuda" / "sm_90" / "report16.sass", TRACES / "triton" / "sm_90"
LARGE = KernelLaunch(CUDA, "vector_add", "h100", (40000,), (256,), ("3=10240000",))  # beyond the L2
MEDIUM = KernelLaunch(CUDA, "vector_add", "h100", (10000,), (256,), ("3=2560000",))  # 30 of 50 MB
SMALL = KernelLaunch(CUDA, "vector_add", "h100", (1,), (256,), ("3=256",))
PRODUCT = KernelLaunch(
    TRITON / "matmul_large_tile.sass", "matmul", "h100", (32,), None, tuple(f"{n}=1024" for n in range(3, 9))
)
NAIVE = KernelLaunch(CUDA, "matmul_naive", "h100", (16, 16), (16, 16), ("3=256",))
DECIDING = [
    (LARGE, "memory.bandwidth_gbps", 0.5),
    (LARGE, "memory.sustained_gbps", 0.5),
    (LARGE, "memory.streaming_gbps", 0.5),
    (LARGE, "memory.bus_bits", 0.5),
    (MEDIUM, "l2.size_bytes", 0.5),
    (LARGE, "l2.bandwidth_gbps", 0.2),
    (PRODUCT, "tensor.f16.fma_per_cycle_per_sm", 0.5),
    (PRODUCT, "peak.fp16_tensor_tflops", 0.5),
    (PRODUCT, "clock.boost_mhz", 0.5),
    (PRODUCT, "sm.count", 0.1),
    (NAIVE, "memory.shared_bytes_per_cycle_per_sm", 0.5),
    (NAIVE, "peak.fp32_tflops", 0.1),
    (SMALL, "memory.l2_latency_cycles", 30.0),  # below, the interval of launches in a stream hides it
    (SMALL, "launch.overhead_us", 2.0),
]


HIDDEN_IN_STEADY = {  # it has another bound there
    "l2.bandwidth_gbps",
    "l2.size_bytes",
    "memory.l2_latency_cycles",
    "memory.shared_bytes_per_cycle_per_sm",
    "peak.fp32_tflops",
}


@pytest.mark.parametrize(
    ("launched", "key", "factor", "name"),
    [
        pytest.param(*row, name, id=f"{row[1]}-{name}")
        for row in DECIDING
        for name in ("sm", "steady")
        if name == "sm" or row[1] not in HIDDEN_IN_STEADY
    ],
)
def test_a_figure_that_decides_moves_the_time(
    launched: KernelLaunch, key: str, factor: float, name: str
) -> None:
    """A worse figure costs time, in a simulation and in sums of maxima."""
    predict = find_model(name)
    edited = with_settings(launched.gpu, (ParameterSetting(key, factor, is_factor=True),))
    before = predict(make_model_input(launched)).prediction.time_us
    after = predict(make_model_input(launched, edited)).prediction.time_us
    assert after > 1.02 * before
