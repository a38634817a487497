"""Row-wise operators: limits by hand, order of operators, and rows of SynPerf's data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import RowwiseBatch
from analyzer.operators.families.rowwise import FAMILY
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator

# fitted on all rows of SynPerf's data, rounded
_FITTED = FAMILY.initial_parameters | {
    "norm_start_cycles": 3070.0,
    "gated_start_cycles": 2265.0,
    "start_l2_latencies": 2.57,
    "norm_dram_share": 0.936,
    "gated_dram_share": 1.0,
    "gated_l2_share": 1.18,
    "kept_share": 0.786,
    "kept_share_partitioned": 0.56,
    "gated_kept_factor": 1.27,
    "gated_miss_power": 1.88,
    "norm_cta_cycles": 555.0,
    "gated_cta_bytes_per_cycle": 36.0,
    "second_pass_penalty": 0.67,
    "overlap_power": 1.72,
}


def compute_terms(operator, gpu, rows, columns, dtype=DataType.BF16):
    """Return the terms of shapes."""
    batch = RowwiseBatch(operator, dtype, np.atleast_1d(rows) * 1.0, np.atleast_1d(columns) * 1.0)
    return FAMILY.compute_terms(batch, read_operator_hardware(load_gpu(gpu)), _FITTED)


@pytest.mark.parametrize(
    ("operator", "tensors"), [("fused_add_rmsnorm", 4), ("rmsnorm", 2), ("silu_mul", 1.5)]
)
def test_large_inputs_move_their_tensors_at_the_sustained_bandwidth(operator, tensors):
    operator = Operator(operator)
    hardware = read_operator_hardware(load_gpu("h800-sxm"))
    kind = "gated" if operator is Operator.SILU_MUL else "norm"
    gbps = hardware.sustained_dram_gbps * _FITTED[f"{kind}_dram_share"]
    found = compute_terms(operator, "h800-sxm", 1e6, 4096)
    assert found.find_term("dram")[0] == pytest.approx(tensors * 1e6 * 4096 * 2 / (gbps * 1e3), rel=1e-3)
    assert found.total_us[0] == pytest.approx(found.find_term("dram")[0], rel=0.1)


def test_a_tiny_input_takes_the_start_and_one_cta():
    found = compute_terms(Operator.FUSED_ADD_RMSNORM, "l20", 1, 128)
    assert found.find_term("dram")[0] == 0.0
    assert found.total_us[0] == pytest.approx(found.find_term("start")[0], rel=0.2)


def test_what_fits_the_l2_costs_no_dram_traffic():
    """Three fifths of the L2 of L20 stay in it, six times its size do not."""
    kept, lost = (
        compute_terms(Operator.FUSED_ADD_RMSNORM, "l20", rows, 3072).find_term("dram")[0]
        for rows in (4915, 49152)
    )
    assert kept == 0.0
    assert lost > 0.0


def test_data_types_of_the_same_bytes_take_the_same_time():
    bf16, fp16 = (
        compute_terms(Operator.SILU_MUL, "a40", 512, 8192, dtype).total_us[0]
        for dtype in (DataType.BF16, DataType.FP16)
    )
    assert bf16 == fp16


@pytest.mark.parametrize(
    ("operator", "gpu", "rows", "columns", "time_us"),
    [  # pipeweave/rows: DRAM, L2 and start of GPUs of four architectures
        ("fused_add_rmsnorm", "a100-80gb-sxm", 65025, 4096, 1259.15),
        ("fused_add_rmsnorm", "h800-sxm", 4161, 4096, 44.3859),
        ("fused_add_rmsnorm", "l20", 11649, 2304, 141.088),
        ("fused_add_rmsnorm", "rtx-6000-ada", 459, 2048, 3.0544),
        ("silu_mul", "a40", 28545, 12288, 1841.47),
        ("silu_mul", "h20", 43521, 5504, 209.5),
        ("silu_mul", "l20", 1536, 9728, 10.6836),
        ("silu_mul", "h800-sxm", 102, 1216, 1.7296),
    ],
)
def test_measured_rows_are_met_within_a_tenth_or_so(operator, gpu, rows, columns, time_us):
    found = compute_terms(Operator(operator), gpu, rows, columns)
    assert found.total_us[0] == pytest.approx(time_us, rel=0.15)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(FAMILY.operators)),
    st.sampled_from(("a40", "h20", "rtx-pro-6000-blackwell-server", "b200", "t4", "p4")),
    st.integers(1, 1 << 20),
    st.integers(1, 1 << 17),
    st.sampled_from((DataType.BF16, DataType.FP32)),
)
def test_times_and_features_are_finite_and_more_rows_take_no_less(operator, gpu, rows, columns, dtype):
    hardware = read_operator_hardware(load_gpu(gpu))
    batch = RowwiseBatch(
        operator, dtype, np.array([rows, 4.0 * rows]), np.array([columns, columns], dtype=np.float64)
    )
    terms = FAMILY.compute_terms(batch, hardware, _FITTED)
    features = FAMILY.compute_features(batch, hardware, terms)
    assert features.shape == (2, len(FAMILY.feature_names))
    assert np.isfinite(features).all()
    assert np.isfinite(terms.total_us).all()
    assert 0.0 < terms.total_us[0] <= terms.total_us[1]
