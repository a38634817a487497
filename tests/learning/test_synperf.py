"""SynPerf's networks: what is learned, what numpy makes of it, and how files keep it."""

from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fit_synperf import SynperfOptions, SynperfRows, learn_category, learn_network

from analyzer.baselines.synperf.features import KernelCategory
from analyzer.baselines.synperf.model import load_synperf, measure_gap_with_ceiling, save_synperf
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import RowwiseBatch
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, Operator
from analyzer.text.errors import UsageError

# Looked for, not imported: every process that collects this file would wait for seconds.
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="the learn extra is not installed")
FAST = SynperfOptions(epochs=25, batch_rows=32)


def make_rows(n: int, noise: float) -> SynperfRows:
    random = np.random.default_rng(1)
    features = random.uniform(0, 20, (n, 3))
    efficiency = 0.1 + 0.7 / (1 + np.exp(-0.5 * (features[:, 0] - 10))) * (1 - noise * random.random(n))
    return SynperfRows(features, efficiency, np.ones(n), np.zeros(n, np.int64), np.arange(n))


def test_network_learns_an_efficiency_and_ceiling_lies_above_it() -> None:
    rows = make_rows(400, noise=0.0)
    found = learn_network(rows, FAST).predict(rows.features)
    assert np.mean(np.abs(found / rows.efficiency - 1)) < 0.1
    noisy = make_rows(400, noise=0.6)
    ceiling = learn_network(noisy, SynperfOptions(target="ceiling", epochs=25, batch_rows=32)).predict(
        noisy.features
    )
    assert 0.65 < np.mean(noisy.efficiency < ceiling) < 0.95


def test_learning_is_repeatable() -> None:
    rows = make_rows(200, noise=0.2)
    options = SynperfOptions(epochs=3, batch_rows=32)
    first, second = (learn_network(rows, options).predict(rows.features) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def make_measured(gpu: str, n: int) -> MeasuredBatch:
    random = np.random.default_rng(len(gpu))
    rows, columns = 2.0 ** random.uniform(4, 14, n), 256.0 * random.integers(2, 40, n)
    hardware = read_operator_hardware(load_gpu(gpu))
    time_us = 3.0 + rows * columns * 3.0 / (0.85e3 * hardware.dram_gbps)
    batch = RowwiseBatch(Operator.SILU_MUL, DataType.BF16, np.floor(rows), columns)
    return MeasuredBatch("made up", gpu, batch, time_us, np.arange(n), Timing.KERNEL)


def test_a_category_is_learned_kept_and_read_again(tmp_path: Path) -> None:
    measured = [make_measured(gpu, 60) for gpu in ("a40", "h800-sxm")]
    weights = learn_category(measured, KernelCategory.SILU_MUL, FAST)
    assert weights.card.taught == ("a40", "h800-sxm")
    assert weights.card.n_rows == 120
    low, high = weights.card.unseen_interval
    assert low <= 0.0 <= high
    path = tmp_path / "synperf-silu_mul.safetensors"
    save_synperf(weights, path)
    again = load_synperf(path)
    assert again.card == weights.card
    features = np.array([weights.card.feature_low, weights.card.feature_high])
    # not to the digit: float32 sums depend on where the arrays lie in memory
    np.testing.assert_allclose(again.network.predict(features), weights.network.predict(features), rtol=1e-6)
    assert path.stat().st_size < 1 << 20


def test_rows_far_below_the_ceiling_underperform() -> None:
    measured = [make_measured("a40", 200)]
    ceiling = learn_category(
        measured, KernelCategory.SILU_MUL, msgspec.structs.replace(FAST, target="ceiling")
    )
    assert ceiling.card.target == "ceiling"
    assert ceiling.card.left_out == ()
    gpu, batch, time_us = load_gpu("a40"), measured[0].batch, measured[0].time_us
    usual = measure_gap_with_ceiling(ceiling, batch, gpu, time_us)
    np.testing.assert_allclose(usual.gap, usual.ceiling - usual.efficiency)
    slow = measure_gap_with_ceiling(ceiling, batch, gpu, 4.0 * time_us)
    assert slow.underperforms.sum() > usual.underperforms.sum()
    assert (slow.underperforms == (slow.gap > 0.1)).all()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"not one")
    with pytest.raises(UsageError, match="no set of weights"):
        load_synperf(path)
