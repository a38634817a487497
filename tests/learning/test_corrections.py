"""Learning on rows whose law is known: what is learned, on what, and what the intervals cover."""

import numpy as np
import pytest
from msgspec.structs import replace

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.corrections import fit_known, learn_weights, stack_rows
from analyzer.learning.fit_trees import fit_trees
from analyzer.learning.options import LearningOptions
from analyzer.learning.splits import assign_folds
from analyzer.models.learned.correction import Situation
from analyzer.models.learned.weights import load_weights, save_weights
from analyzer.models.operators.ours import predict_with_weights
from analyzer.operators.batches import RowwiseBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, ReferenceTerms
from analyzer.operators.hardware_figures import compute_hardware_features, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, Operator

_TREES_ALONE = LearningOptions(
    n_trees=40,
    tree_rate=0.2,
    tree_depth=3,
    transfer_trees=20,
    transfer_depth=3,
    n_perceptrons=0,
    min_leaf_rows=5,
    n_folds=3,
)
_GPUS = ("a100-80gb-sxm", "h20", "h100-sxm", "l40s")


def _compute_terms(batch, hardware, parameters):
    dram_us = batch.rows * batch.columns * 4.0 / (hardware.dram_gbps * 1e3 * parameters["share"])
    launch_us = np.full(len(batch), parameters["launch_us"])
    return ReferenceTerms(
        ("dram", "launch"),
        np.stack([dram_us, launch_us], axis=1),
        dram_us + launch_us,
        np.zeros(len(batch)),
        batch.rows * batch.columns * 4.0,
    )


FAMILY = OperatorFamily(
    name="copy",
    operators=frozenset({Operator.SOFTMAX}),
    parameters=(FittedParameter("share", 0.9, 0.3, 1.0), FittedParameter("launch_us", 1.0, 0.2, 20.0)),
    feature_names=("log2 rows", "log2 columns"),
    compute_terms=_compute_terms,
    compute_features=lambda batch, hardware, terms: np.log2(np.stack([batch.rows, batch.columns], axis=1)),
    choose_weights=lambda batch: f"copy-{batch.dtype}",
)


def _measure(gpu: str, n_rows: int, seed: int) -> MeasuredBatch:
    """Return times of 70 % of the bandwidth, 3 us of launch, a tenth more for wide rows, 2 % of noise."""
    random = np.random.default_rng(seed)
    batch = RowwiseBatch(
        Operator.SOFTMAX,
        DataType.BF16,
        np.floor(2 ** random.uniform(4, 16, n_rows)),
        np.floor(2 ** random.uniform(7, 14, n_rows)),
    )
    terms = _compute_terms(batch, read_operator_hardware(load_gpu(gpu)), {"share": 0.7, "launch_us": 3.0})
    wide = 1.0 + 0.1 * (batch.columns > 2048)
    noise = np.exp(random.normal(0.0, 0.02, n_rows))
    return MeasuredBatch(
        "synthetic", gpu, batch, terms.total_us * wide * noise, np.arange(n_rows), Timing.KERNEL
    )


@pytest.fixture(scope="module")
def learned():
    measured = [_measure(gpu, 400, i) for i, gpu in enumerate(_GPUS)]
    return learn_weights(FAMILY, measured, _TREES_ALONE, name="copy-bf16")


def test_the_references_parameters_are_found(learned):
    assert learned.weights.parameters["share"] == pytest.approx(0.7, rel=0.1)
    assert learned.weights.parameters["launch_us"] == pytest.approx(3.0, rel=0.15)


@pytest.mark.parametrize(
    ("gpu", "situation"),
    [("h20", Situation.KNOWN), ("h200-sxm", Situation.SIBLING), ("b200", Situation.UNSEEN)],
)
def test_times_of_known_and_other_gpus_follow_the_law(learned, gpu, situation):
    asked = _measure(gpu, 500, 99)
    hardware = read_operator_hardware(load_gpu(gpu))
    assert learned.weights.find_situation(gpu, hardware.architecture) is situation
    found = predict_with_weights(asked.batch, load_gpu(gpu), FAMILY, learned.weights)
    error = np.abs(found.time_us / asked.time_us - 1.0)
    assert error.mean() < 0.035
    covered = np.mean((asked.time_us >= found.low_us) & (asked.time_us <= found.high_us))
    assert 0.65 <= covered <= 0.95


@pytest.mark.parametrize(
    ("gpu", "takes_known"),
    [("h100-sxm", True), ("h800-sxm", True), ("h200-sxm", True), ("h100-pcie", False), ("b200", False)],
)
def test_gpus_with_nearly_the_same_figures_take_each_others_correction(learned, gpu, takes_known):
    weights = replace(learned.weights, takes_siblings_correction=False)
    hardware = read_operator_hardware(load_gpu(gpu))
    figures = compute_hardware_features(hardware)
    assert weights.find_known_share(gpu, hardware.architecture, figures) == float(takes_known)


def test_rows_far_from_those_that_taught_are_out_of_range(learned):
    batch = RowwiseBatch(Operator.SOFTMAX, DataType.BF16, np.array([1e3, 1e12]), np.array([1e3, 1e3]))
    found = predict_with_weights(batch, load_gpu("h100-sxm"), FAMILY, learned.weights)
    assert found.in_range.tolist() == [True, False]


def test_weights_come_back_from_their_file_as_they_were(learned, tmp_path):
    save_weights(learned.weights, tmp_path / "copy.safetensors")
    again = load_weights(tmp_path / "copy.safetensors")
    batch = _measure("h100-sxm", 50, 5).batch
    before = predict_with_weights(batch, load_gpu("h100-sxm"), FAMILY, learned.weights)
    after = predict_with_weights(batch, load_gpu("h100-sxm"), FAMILY, again)
    np.testing.assert_array_equal(before.time_us, after.time_us)
    np.testing.assert_array_equal(before.high_us, after.high_us)


def test_learning_again_gives_the_same_weights(learned):
    measured = [_measure(gpu, 400, i) for i, gpu in enumerate(_GPUS)]
    again = learn_weights(FAMILY, measured, _TREES_ALONE, name="copy-bf16")
    assert again.weights.parameters == learned.weights.parameters
    np.testing.assert_array_equal(again.weights.known.trees.leaves, learned.weights.known.trees.leaves)


def test_trees_as_arrays_equal_scikit_learns(tmp_path):
    from sklearn.ensemble import HistGradientBoostingRegressor

    random = np.random.default_rng(3)
    rows = random.normal(size=(3000, 5)).astype(np.float32).astype(np.float64)
    target = np.sin(rows[:, 0]) + (rows[:, 1] > 0.3) * rows[:, 2]
    ours = fit_trees(rows, target, np.ones(3000), n_trees=30, depth=5, rate=0.1, min_leaf_rows=20, seed=0)
    model = HistGradientBoostingRegressor(
        max_iter=30,
        max_depth=5,
        max_leaf_nodes=32,
        learning_rate=0.1,
        min_samples_leaf=20,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=0,
    ).fit(rows.astype(np.float32), target, sample_weight=np.ones(3000))
    fresh = random.normal(size=(500, 5)).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(ours.predict(fresh), model.predict(fresh.astype(np.float32)), atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_folds_are_even_and_the_same_in_every_run(seed):
    keys = np.arange(20_000)
    folds = assign_folds(keys, 4, seed)
    assert np.bincount(folds) == pytest.approx([5000] * 4, rel=0.05)
    np.testing.assert_array_equal(folds[::3], assign_folds(keys[::3], 4, seed))
    assert (folds != assign_folds(keys, 4, seed + 1)).mean() > 0.5


def test_shapes_with_many_rows_count_no_more_than_others():
    """One tree of one leaf predicts the weighted mean: of rows, or of shapes."""
    rows = stack_rows(FAMILY, [_measure("h20", 100, seed=1)], FAMILY.initial_parameters)
    is_rare = np.arange(100) >= 90
    rows = replace(rows, shape_keys=is_rare.astype(np.int64), log_ratio=np.where(is_rare, 1.0, 0.0))
    one_leaf = replace(_TREES_ALONE, n_trees=1, tree_depth=1, tree_kind="extra", min_leaf_rows=100)
    inputs = np.hstack([rows.features, rows.hardware])
    by_row = fit_known(rows, one_leaf).predict(inputs)
    by_shape = fit_known(rows, replace(one_leaf, weighs_shapes_alike=True)).predict(inputs)
    assert by_row == pytest.approx(np.full(100, 0.1), abs=1e-6)
    assert by_shape == pytest.approx(np.full(100, 0.5), abs=1e-6)
