"""Collectives: limits by hand, order of links, and NCCL's own rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import CollectiveBatch
from analyzer.operators.families.collective import FAMILY
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator

_PARAMETERS = FAMILY.initial_parameters


def compute_terms(gpu, message_bytes, gpus, operator=Operator.ALL_REDUCE):
    """Return the terms of one message."""
    batch = CollectiveBatch(
        operator, DataType.BF16, np.array([float(message_bytes)]), np.array([float(gpus)])
    )
    return FAMILY.compute_terms(batch, read_operator_hardware(load_gpu(gpu)), _PARAMETERS)


def test_large_messages_take_the_rings_bytes_over_the_links_share():
    message = 1e12
    for gpus in (4, 8):
        sent = message * 2 * (gpus - 1) / gpus
        rate = 300e3 * _PARAMETERS["nvlink_share"]  # bytes per microsecond, A100
        assert compute_terms("a100-80gb-sxm", message, gpus).total_us[0] == pytest.approx(
            sent / rate, rel=0.01
        )
    sent_once = compute_terms("a100-80gb-sxm", message, 2, Operator.SEND_RECV)
    assert sent_once.total_us[0] == pytest.approx(message / rate, rel=0.01)


def test_one_gpu_sends_nothing():
    terms = compute_terms("h100-sxm", 1 << 30, 1)
    assert terms.find_term("wire")[0] == 0.0
    assert terms.total_us[0] == pytest.approx(_PARAMETERS["launch_us"])


def test_eight_hoppers_let_the_switch_add():
    hopper, ampere = (
        compute_terms(gpu, 1 << 30, 4).total_us[0] / compute_terms(gpu, 1 << 30, 8).total_us[0]
        for gpu in ("h100-sxm", "a100-80gb-sxm")
    )
    assert hopper > 1.0 > ampere


def test_a_bridge_joins_two_boards_and_pcie_the_rest():
    pair = compute_terms("a40", 1 << 28, 2).find_term("wire")[0]
    four = compute_terms("a40", 1 << 28, 4).find_term("wire")[0]
    assert four > 3.0 * pair


@pytest.mark.parametrize(
    ("gpu", "gpus", "mebibytes", "time_us"),
    [  # shared/facts/interconnect.md, NCCL in CUDA graphs
        ("a100-80gb-sxm", 4, 256, 1926.6),
        ("a100-80gb-sxm", 8, 256, 2182.5),
        ("h100-sxm", 2, 256, 881.3),
        ("h100-sxm", 8, 256, 1092.1),
        ("b200", 4, 256, 659.1),
    ],
)
def test_measured_rows_without_any_fit(gpu, gpus, mebibytes, time_us):
    assert compute_terms(gpu, mebibytes * 2**20, gpus).total_us[0] == pytest.approx(time_us, rel=0.25)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 2**34),
    st.integers(1, 16),
    st.sampled_from(["a40", "h800-sxm", "gb200", "t4"]),
    st.sampled_from([Operator.ALL_REDUCE, Operator.SEND_RECV]),
)
def test_time_grows_with_bytes_and_features_are_finite(message_bytes, gpus, gpu, operator):
    less = compute_terms(gpu, message_bytes, gpus, operator)
    more = compute_terms(gpu, message_bytes * 2, gpus, operator)
    assert more.total_us[0] >= less.total_us[0]
    batch = CollectiveBatch(
        operator, DataType.BF16, np.array([float(message_bytes)]), np.array([float(gpus)])
    )
    features = FAMILY.compute_features(batch, read_operator_hardware(load_gpu(gpu)), less)
    assert features.shape == (1, len(FAMILY.feature_names))
    assert np.isfinite(features).all()
