"""Transfer without code: closed forms of Algorithm 1, and what must hold of ours for any launch."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Timing
from analyzer.models.transfer.algorithm1 import compute_report_occupancy, predict_algorithm1
from analyzer.models.transfer.analytic import Limit, TransferEstimate, find_occupancy, predict_transfer
from analyzer.models.transfer.gpu_figures import TransferFigures, read_transfer_figures
from analyzer.models.transfer.measured_launch import MeasuredLaunch
from analyzer.models.transfer.residuals import find_code_interval_us, find_interval_us
from analyzer.models.transfer.static_ratio import StaticTime, predict_by_code
from analyzer.text.errors import HardwareError

GPUS = ("titan-v", "rtx-2080-ti", "rtx-4070", "a100-40gb-pcie", "h100-sxm", "rtx-5090")


def figures(key: str) -> TransferFigures:
    return read_transfer_figures(load_gpu(key))


def launch(**given_fields: object) -> MeasuredLaunch:
    fields = {
        "grid_ctas": 65_536,
        "block_threads": 256,
        "registers": 12,
        "shared_bytes": 0,
        "flops": 0.0,
        "moved_bytes": 2e8,
        "time_us": 374.0,
    }
    return MeasuredLaunch(**(fields | given_fields))  # type: ignore[arg-type]


launches = st.builds(
    launch,
    grid_ctas=st.integers(1, 10**6),
    block_threads=st.sampled_from([32, 64, 128, 256, 1024]),
    registers=st.one_of(st.none(), st.integers(8, 64)),
    shared_bytes=st.integers(0, 40_000),
    flops=st.one_of(st.none(), st.floats(0, 1e13)),
    moved_bytes=st.one_of(st.none(), st.floats(0, 1e10)),
    time_us=st.floats(0.5, 1e6),
    timing=st.sampled_from(list(Timing)),
)


def test_algorithm_1_of_pure_memory_traffic_is_the_ratio_of_bandwidths() -> None:
    found = predict_algorithm1(launch(), figures("rtx-2080-ti"), figures("rtx-4070"))
    assert found == pytest.approx(374.0 * 616 / 504)


def test_algorithm_1_of_arithmetic_is_the_ratio_of_peaks_and_occupancies() -> None:
    one = launch(flops=1e12, moved_bytes=1e6, block_threads=1024)
    found = predict_algorithm1(one, figures("rtx-2080-ti"), figures("rtx-4070"))
    # One CTA of 32 warps: all that Turing holds, two thirds of Ada's 48.
    assert found == pytest.approx(374.0 * 13.4 / 29.1 / (32 / 48))


@pytest.mark.parametrize(
    ("fields", "occupancy"),
    [
        ({"registers": 64}, 1.0),  # 65536 / (64 x 256) = 4 CTAs of 8 warps, of 32
        ({"registers": 65}, 0.75),
        ({"shared_bytes": 20_000}, 0.75),  # 65536 / 20000 = 3 CTAs
        ({"registers": 255, "block_threads": 1024}, 0.0),
    ],
)
def test_occupancy_of_the_report(fields: dict[str, int], occupancy: float) -> None:
    assert compute_report_occupancy(launch(**fields), figures("rtx-2080-ti").limits) == occupancy


def test_algorithm_1_needs_operations_and_bytes() -> None:
    source, target = figures("titan-v"), figures("rtx-4070")
    assert predict_algorithm1(launch(flops=None), source, target) is None
    assert predict_algorithm1(launch(moved_bytes=None), source, target) is None


def test_streaming_beyond_both_caches_follows_the_sustained_bandwidth() -> None:
    source, target = figures("rtx-2080-ti"), figures("rtx-4070")
    found = predict_transfer(launch(), source, target)
    assert found.limit is Limit.MEMORY
    assert found.time_us == pytest.approx(374 * source.sustained_gbps / target.sustained_gbps, rel=0.05)


def test_data_that_fit_the_larger_cache_only_are_faster_there() -> None:
    source, target = figures("rtx-2080-ti"), figures("rtx-4070")
    one = launch(moved_bytes=3e7, time_us=60.0, grid_ctas=8192)
    there = predict_transfer(one, source, target)
    by_bandwidth = predict_algorithm1(one, source, target)
    assert by_bandwidth is not None
    assert there.limit is Limit.LEVEL
    assert there.time_us < 0.6 * by_bandwidth


def test_a_profiler_that_flushes_the_cache_sees_device_memory() -> None:
    source, target = figures("rtx-2080-ti"), figures("rtx-4070")
    one = launch(moved_bytes=3e7, time_us=60.0, grid_ctas=8192, timing=Timing.NCU)
    assert predict_transfer(one, source, target).time_us >= 3e7 / target.sustained_gbps * 1e-3


def test_named_atomics_go_with_the_clock_alone() -> None:
    source, target = figures("rtx-2080-ti"), figures("titan-v")
    found = predict_transfer(launch(kernel="atomic_hotspot", moved_bytes=4.0, time_us=5000.0), source, target)
    assert found.limit is Limit.ATOMICS
    assert found.time_us == pytest.approx(5000.0 * source.clock_mhz / target.clock_mhz, rel=0.01)


def test_nothing_is_faster_than_the_launch_interval() -> None:
    source, target = figures("rtx-2080-ti"), figures("rtx-4070")
    found = predict_transfer(launch(moved_bytes=1e5, time_us=3.4, grid_ctas=64), source, target)
    assert found.time_us == target.interval_us
    assert found.limit is Limit.LAUNCH


@given(one=launches, key=st.sampled_from(GPUS))
def test_transfer_to_the_same_gpu_returns_the_measured_time(one: MeasuredLaunch, key: str) -> None:
    here = figures(key)
    if not find_occupancy(one, here).ctas_per_sm:
        return
    found = predict_transfer(one, here, here)
    roof_us = (
        here.compute_memory_us(one.moved_bytes or 0.0, 1.0) + (one.flops or 0) / here.sustained_gflops / 1e3
    )
    if found.limit is not Limit.LAUNCH and one.time_us > 2 * here.overhead_us + 10 * roof_us:
        assert found.time_us == pytest.approx(one.time_us, rel=0.01)


@given(one=launches, source=st.sampled_from(GPUS), target=st.sampled_from(GPUS))
def test_times_are_positive_inside_their_interval_and_no_less_than_the_roofs(
    one: MeasuredLaunch, source: str, target: str
) -> None:
    here, there = figures(source), figures(target)
    if not (find_occupancy(one, here).ctas_per_sm and find_occupancy(one, there).ctas_per_sm):
        return
    found = predict_transfer(one, here, there)
    low_us, high_us = find_interval_us(found)
    assert 0 < low_us <= found.time_us <= high_us < math.inf
    assert found.time_us >= 0.999 * (one.flops or 0.0) / there.sustained_gflops * 1e-3


def test_what_took_longer_takes_longer_there() -> None:
    source, target = figures("rtx-4070"), figures("titan-v")
    times = [
        predict_transfer(launch(time_us=450.0 * 1.1**step), source, target).time_us for step in range(40)
    ]
    assert times == sorted(times)


def test_the_static_ratio_carries_a_part_of_what_the_model_missed() -> None:
    source, target = figures("rtx-2080-ti"), figures("rtx-4070")
    static = (StaticTime(200.0, "L1"), StaticTime(100.0, "L1"))
    exact = predict_by_code(launch(time_us=200.0), *static, source, target)
    slower = predict_by_code(launch(time_us=240.0), *static, source, target)
    assert exact.time_us == pytest.approx(100.0)
    assert slower.time_us == pytest.approx(100.0 * math.sqrt(1.2), rel=0.01)


def test_a_measurement_at_the_launch_floor_says_nothing_of_the_model() -> None:
    source, target = figures("rtx-4070"), figures("rtx-2080-ti")
    static = (StaticTime(8.7, "launch"), StaticTime(6.0, "L1"))
    assert predict_by_code(launch(time_us=9.0), *static, source, target).time_us == pytest.approx(6.0)


def test_gpus_that_taught_the_static_model_nothing_widen_the_interval() -> None:
    estimate = TransferEstimate(100.0, Limit.CODE)
    low_us, high_us = find_code_interval_us(estimate, "rtx-2080-ti", "rtx-4070")
    wide_low_us, wide_high_us = find_code_interval_us(estimate, "rtx-2080-ti", "titan-v")
    assert wide_low_us < low_us < 100.0 < high_us < wide_high_us


def test_a_gpu_without_figures_of_its_sms_is_refused() -> None:
    with pytest.raises(HardwareError, match="operator models only"):
        figures("p100-pcie")
