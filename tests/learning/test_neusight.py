"""NeuSight learns a law that its equations can express, and comes back from its file as it was."""

from importlib.util import find_spec

import numpy as np
import pytest
from fit_neusight import NeuSightProfile, NeuSightSettings, learn_neusight

from analyzer.baselines.neusight.model import predict_neusight_us
from analyzer.baselines.neusight.tiled_work import NeuSightFamily, compute_roofline_us, cut_tiles
from analyzer.baselines.neusight.utilization import NeuSightForm
from analyzer.baselines.neusight.weights import load_neusight, save_neusight
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import RowwiseBatch
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator

# Looked for, not imported: every process that collects this file would wait for seconds.
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="the learn extra is not installed")
_ALPHA, _BETA = 0.8, 0.5


def _profile(gpu: str, seed: int) -> NeuSightProfile:
    """Return softmaxes whose utilization is 0.8 - 0.5 / waves, four rows of the matrix to a tile."""
    random = np.random.default_rng(seed)
    hardware = read_operator_hardware(load_gpu(gpu))
    rows, columns = np.floor(2 ** random.uniform(6, 16, 400)), np.floor(2 ** random.uniform(7, 12, 400))
    batch = RowwiseBatch(Operator.SOFTMAX, DataType.FP32, rows, columns)
    tiles = np.full((400, 1), 4.0)
    work = cut_tiles(batch, tiles)
    utilization = _ALPHA - _BETA / work.count_waves(hardware)
    time_us = compute_roofline_us(work, hardware, DataType.FP32) / utilization
    return NeuSightProfile(gpu, hardware, batch, tiles, time_us)


@pytest.fixture(scope="module")
def learned():
    profiles = [_profile(gpu, seed) for seed, gpu in enumerate(("v100-pcie", "t4"))]
    settings = NeuSightSettings(form=NeuSightForm.CODE, hidden=(16,), n_steps=400, batch_rows=128)
    return learn_neusight(NeuSightFamily.SOFTMAX, profiles, settings, dataset="synthetic")


@pytest.mark.parametrize(("gpu", "most"), [("t4", 0.1), ("a100-40gb-pcie", 0.25)])
def test_the_law_is_found_and_holds_on_a_gpu_that_taught_nothing(learned, gpu, most):
    asked = _profile(gpu, 9)
    error = np.abs(predict_neusight_us(asked.batch, asked.hardware, learned) / asked.time_us - 1.0)
    assert np.median(error) < most


def test_weights_come_back_from_their_file(learned, tmp_path):
    save_neusight(learned, tmp_path / "softmax.safetensors")
    again = load_neusight(tmp_path / "softmax.safetensors")
    asked = _profile("t4", 5)
    before, after = (predict_neusight_us(asked.batch, asked.hardware, each) for each in (learned, again))
    np.testing.assert_allclose(after, before, rtol=1e-4)
    assert (again.gpus, again.n_rows, again.family) == (learned.gpus, 800, NeuSightFamily.SOFTMAX)
