"""Roofline, linear regression and copy of the nearest GPU, on rows with known times."""

from pathlib import Path

import numpy as np
import pytest
from copied_times import copy_measured
from fit_linear import fit_lines

from analyzer.baselines import roofline
from analyzer.baselines.linear import load_lines, predict_with_lines, save_lines
from analyzer.baselines.nearest import find_nearest_gpu
from analyzer.baselines.work import count_work
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import ElementwiseBatch, MoeBatch, ProductBatch
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, MoeProduct, Operator
from analyzer.text.errors import UsageError


def hardware_of(gpu: str) -> OperatorHardware:
    return read_operator_hardware(load_gpu(gpu))


def products(n_rows: int, seed: int = 0) -> ProductBatch:
    m, n, k = 2.0 ** np.random.default_rng(seed).integers(4, 14, (3, n_rows))
    return ProductBatch(Operator.GEMM, DataType.BF16, m, n, k, np.ones(n_rows))


def measure(gpu: str, batch: ProductBatch) -> MeasuredBatch:
    """Times of a GPU that reaches 80 % of its peak and 90 % of its bandwidth, one after the other, and 2 us."""
    work, hardware = count_work(batch), hardware_of(gpu)
    compute_us = work.flops / (0.8e6 * hardware.find_peak_tflops(batch.dtype))
    time_us = 2.0 + compute_us + work.bytes_moved / (0.9e3 * hardware.dram_gbps)
    return MeasuredBatch("made up", gpu, batch, time_us, np.arange(len(batch)), Timing.KERNEL)


def test_roofline_is_the_larger_of_two_roofs() -> None:
    gpu = load_gpu("a100-80gb-sxm")
    hardware = read_operator_hardware(gpu)
    large = ProductBatch(Operator.GEMM, DataType.BF16, *(np.array([8192.0]),) * 3, np.ones(1))
    peak = hardware.find_peak_tflops(DataType.BF16)
    found = roofline.predict(large, gpu)
    assert found.time_us[0] == pytest.approx(2 * 8192**3 / (peak * 1e6))
    assert found.low_us[0] <= found.time_us[0] < found.high_us[0]
    sums = ElementwiseBatch(Operator.ELEMENTWISE, DataType.BF16, np.array([1e8]), np.array([2.0]))
    assert roofline.predict(sums, gpu).time_us[0] == pytest.approx(6e8 / (hardware.dram_gbps * 1e3))


def test_linear_regression_finds_rates_and_carries_them_to_another_gpu() -> None:
    lines = fit_lines([measure(gpu, products(200)) for gpu in ("a40", "l40s")])
    asked = products(50, seed=1)
    for gpu in ("a40", "a100-80gb-sxm"):  # taught, and not
        expected = measure(gpu, asked).time_us
        found = predict_with_lines(asked, gpu, hardware_of(gpu), lines)
        np.testing.assert_allclose(found.time_us, expected, rtol=1e-3)
        assert (found.low_us <= found.time_us).all()


def test_lines_are_kept_in_a_file(tmp_path: Path) -> None:
    lines = fit_lines([measure("a40", products(50))])
    save_lines(lines, tmp_path / "linear.safetensors")
    assert load_lines(tmp_path / "linear.safetensors") == lines


def test_the_nearest_gpu_is_of_the_same_architecture() -> None:
    batch = products(1)
    keys = ["a100-80gb-sxm", "l20", "rtx-6000-ada", "b200"]
    assert find_nearest_gpu(batch, hardware_of("l40"), keys) in ("l20", "rtx-6000-ada")
    assert find_nearest_gpu(batch, hardware_of("gb200"), keys) == "b200"


def test_times_are_copied_from_the_nearest_other_gpu() -> None:
    shapes = products(40)
    measured = [measure(gpu, shapes) for gpu in ("h800-sxm", "a40", "h100-sxm")]
    copied = copy_measured(shapes, hardware_of("h800-sxm"), measured)
    assert copied.gpu == "h100-sxm"
    assert (copied.distance == 0).all()
    np.testing.assert_array_equal(copied.time_us, measured[2].time_us)
    with pytest.raises(UsageError, match="no other GPU"):
        copy_measured(shapes, hardware_of("a40"), measured[1:2])


def test_work_of_fused_experts_counts_used_experts_alone() -> None:
    def work(m: float) -> tuple[float, float]:
        sizes = (np.array([value]) for value in (m, 64.0, 4.0, 1024.0, 512.0))
        found = count_work(MoeBatch(Operator.MOE, DataType.BF16, MoeProduct.BOTH, *sizes))
        return float(found.flops[0]), float(found.bytes_moved[0])

    one, many = work(1), work(1000)
    assert one[0] * 1000 == many[0] == 2 * 1000 * 4 * 3 * 1024 * 512
    expert_bytes = 3 * 1024 * 512 * 2
    assert one[1] == pytest.approx(4 * expert_bytes, rel=0.01)
    assert many[1] > 64 * expert_bytes
