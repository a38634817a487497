"""Element-wise kernels in 16 bits: limits by hand, data types, and Vidur's additions."""

import numpy as np
import pytest

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import ElementwiseBatch
from analyzer.operators.families.elementwise_kernel import FAMILY
from analyzer.operators.family import find_family
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator


def compute_terms(gpu, elements, inputs=2.0, dtype=DataType.FP16):
    """Return the terms of some sizes."""
    elements = np.atleast_1d(elements) * 1.0
    batch = ElementwiseBatch(Operator.ELEMENTWISE, dtype, elements, np.full(len(elements), inputs))
    return FAMILY.compute_terms(batch, read_operator_hardware(load_gpu(gpu)), FAMILY.initial_parameters)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (DataType.FP32, "elementwise"),
        (DataType.BF16, "elementwise-kernel"),
        (DataType.FP8, "elementwise-kernel"),
    ],
)
def test_fp32_alone_has_the_hosts_time_in_it(dtype, name):
    batch = ElementwiseBatch(Operator.ELEMENTWISE, dtype, np.ones(1), np.ones(1))
    assert find_family(batch).name == name


def test_large_inputs_move_their_bytes_at_the_sustained_bandwidth():
    hardware = read_operator_hardware(load_gpu("h100-sxm"))
    for inputs, dtype, element_bytes in ((2.0, DataType.BF16, 2), (1.0, DataType.FP8, 1)):
        moved = (inputs + 1.0) * 2e9 * element_bytes
        found = compute_terms("h100-sxm", 2e9, inputs, dtype).total_us[0]
        assert found == pytest.approx(moved / (hardware.sustained_dram_gbps * 1e3), rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "elements", "time_us"),
    [  # data/vidur/compute_mlp.parquet, `add`: whole microseconds; nothing of them was fitted
        ("a40", 2326528, 23.0),
        ("a40", 33554432, 350.0),
        ("a100-80gb-sxm", 2326528, 6.0),
        ("a100-80gb-sxm", 4915200, 15.0),
        ("a100-80gb-sxm", 33554432, 112.0),
    ],
)
def test_vidurs_additions_are_met_within_a_tenth(gpu, elements, time_us):
    assert compute_terms(gpu, elements).total_us[0] == pytest.approx(time_us, rel=0.1)


def test_features_are_finite_and_more_elements_take_no_less():
    for gpu in ("p4", "b200", "rtx-pro-6000-blackwell-server"):
        terms = compute_terms(gpu, 2.0 ** np.arange(0, 34))
        assert (np.diff(terms.total_us) >= 0.0).all()
        batch = ElementwiseBatch(
            Operator.ELEMENTWISE, DataType.FP16, 2.0 ** np.arange(0, 34), np.full(34, 2.0)
        )
        features = FAMILY.compute_features(batch, read_operator_hardware(load_gpu(gpu)), terms)
        assert features.shape == (34, len(FAMILY.feature_names))
        assert np.isfinite(features).all()
