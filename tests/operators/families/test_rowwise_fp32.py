"""Layer norm and softmax in fp32: host's floor, further reads, and rows of NeuSight's data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import RowwiseBatch
from analyzer.operators.families.rowwise_fp32 import FAMILY
from analyzer.operators.family import find_family
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator

_PARAMETERS = FAMILY.initial_parameters


def compute_terms(operator, gpu, rows, columns):
    """Return the terms of one shape."""
    batch = RowwiseBatch(operator, DataType.FP32, np.array([rows * 1.0]), np.array([columns * 1.0]))
    return FAMILY.compute_terms(batch, read_operator_hardware(load_gpu(gpu)), _PARAMETERS)


def test_the_family_is_that_of_fp32_alone():
    def find(dtype):
        return find_family(RowwiseBatch(Operator.SOFTMAX, dtype, np.ones(1), np.ones(1))).name

    assert find(DataType.FP32) == "rowwise-fp32"
    assert find(DataType.BF16) == "rowwise"


@pytest.mark.parametrize("operator", [Operator.LAYERNORM, Operator.SOFTMAX])
def test_a_small_input_takes_what_the_host_needs(operator):
    found = compute_terms(operator, "v100-pcie", 16, 256)
    assert found.total_us[0] == pytest.approx(_PARAMETERS[f"{operator}_host_us"], rel=0.1)


@pytest.mark.parametrize(
    ("operator", "columns", "tensors"),
    [
        (Operator.LAYERNORM, 1024, 2),  # the L1 keeps rows for the second read
        (Operator.LAYERNORM, 16384, 3),  # read twice
        (Operator.SOFTMAX, 1024, 2),  # in registers
        (Operator.SOFTMAX, 65536, 4),  # read three times
    ],
)
def test_rows_beyond_the_l1_are_read_again_from_dram(operator, columns, tensors):
    elements = 1 << 30
    found = compute_terms(operator, "a100-40gb-pcie", elements / columns, columns)
    gbps = 1555.0 * _PARAMETERS["hbm_share"]
    assert found.find_term("dram")[0] == pytest.approx(tensors * 4 * elements / (gbps * 1e3), rel=0.05)


@pytest.mark.parametrize(
    ("operator", "gpu", "rows", "columns", "time_us"),
    [  # nv_test: the fully missed and the fully kept
        (Operator.LAYERNORM, "a100-40gb-pcie", 65536, 16384, 9406),
        (Operator.LAYERNORM, "v100-pcie", 131072, 8192, 15747),
        (Operator.SOFTMAX, "a100-40gb-pcie", 1310720, 1024, 7844),
        (Operator.SOFTMAX, "v100-pcie", 65536, 16384, 22044),
    ],
)
def test_measured_rows_are_met_within_a_tenth_or_so(operator, gpu, rows, columns, time_us):
    assert compute_terms(operator, gpu, rows, columns).total_us[0] == pytest.approx(time_us, rel=0.13)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(FAMILY.operators)),
    st.sampled_from(("a100-80gb-pcie", "h100-sxm", "l4", "t4", "p4", "p100-pcie")),
    st.integers(1, 1 << 21),
    st.integers(1, 1 << 15),
)
def test_times_and_features_are_finite_and_more_rows_take_no_less(operator, gpu, rows, columns):
    hardware = read_operator_hardware(load_gpu(gpu))
    batch = RowwiseBatch(
        operator, DataType.FP32, np.array([rows, 64.0 * rows]), np.array([columns, columns], dtype=np.float64)
    )
    terms = FAMILY.compute_terms(batch, hardware, _PARAMETERS)
    features = FAMILY.compute_features(batch, hardware, terms)
    assert features.shape == (2, len(FAMILY.feature_names))
    assert np.isfinite(features).all()
    assert 0.0 < terms.total_us[0] <= terms.total_us[1] < np.inf
