"""Element-wise operators: host's floor, bytes, and rows of NeuSight's data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import ElementwiseBatch
from analyzer.operators.families.elementwise import FAMILY
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator

_PARAMETERS = FAMILY.initial_parameters


def compute_terms(gpu, elements, inputs, dtype=DataType.FP32):
    """Return the terms of one size."""
    batch = ElementwiseBatch(
        Operator.ELEMENTWISE, dtype, np.array([elements * 1.0]), np.array([inputs * 1.0])
    )
    return FAMILY.compute_terms(batch, read_operator_hardware(load_gpu(gpu)), _PARAMETERS)


def test_a_small_input_takes_what_the_host_needs():
    assert compute_terms("a100-40gb-pcie", 1000, 2).total_us[0] == pytest.approx(
        _PARAMETERS["host_us"], rel=0.05
    )


def test_a_second_input_costs_half_as_much_again():
    one, two = (compute_terms("v100-pcie", 1 << 32, inputs).total_us[0] for inputs in (1, 2))
    assert two == pytest.approx(1.5 * one, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "rows", "columns", "time_us"),
    [("a100-40gb-pcie", 1572864, 1024, 13916), ("t4", 65536, 4096, 13200)],
)
def test_large_additions_take_their_bytes_over_the_bandwidth(gpu, rows, columns, time_us):
    """Of nv_test the share of the datasheet's bandwidth: .87 on A100, .76 on T4."""
    assert compute_terms(gpu, rows * columns, 2).total_us[0] == pytest.approx(time_us, rel=0.06)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(("a100-80gb-pcie", "h100-sxm", "l4", "p4", "b200")),
    st.integers(1, 1 << 33),
    st.sampled_from((1.0, 2.0)),
    st.sampled_from((DataType.BF16, DataType.FP32)),
)
def test_times_and_features_are_finite_and_more_elements_take_no_less(gpu, elements, inputs, dtype):
    hardware = read_operator_hardware(load_gpu(gpu))
    batch = ElementwiseBatch(
        Operator.ELEMENTWISE, dtype, np.array([elements, 2.0 * elements]), np.array([inputs, inputs])
    )
    terms = FAMILY.compute_terms(batch, hardware, _PARAMETERS)
    features = FAMILY.compute_features(batch, hardware, terms)
    assert features.shape == (2, len(FAMILY.feature_names))
    assert np.isfinite(features).all()
    assert 0.0 < terms.total_us[0] <= terms.total_us[1] < np.inf
