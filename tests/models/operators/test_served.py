"""Operators as a served model meets them, and what holds on GPUs that taught nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import find_gpu_paths, load_gpu
from analyzer.models.operators import ours
from analyzer.models.operators.served import predict_served
from analyzer.operators.batches import AttentionBatch, MoeBatch, ProductBatch, RowwiseBatch
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import AttentionKind, Backend, DataType, MoeProduct, Operator
from analyzer.operators.operator_rows import make_ragged
from analyzer.operators.sustained_rates import find_sustained_rates


def make_product(m, n, k, dtype=DataType.BF16, backend=Backend.SGLANG):
    sizes = (np.array([float(size)]) for size in (m, n, k))
    return ProductBatch(Operator.GEMM, dtype, *sizes, np.ones(1), backend)


@pytest.mark.parametrize("key", sorted(find_gpu_paths()))
def test_no_answer_exceeds_the_peak_of_a_gpu_that_taught_nothing(key):
    gpu = load_gpu(key)
    hardware = read_operator_hardware(gpu)
    sizes = (np.array([float(size)]) for size in (16384, 8, 2, 4096, 14336))
    experts = MoeBatch(Operator.MOE, DataType.FP8, MoeProduct.BOTH, *sizes)
    products = [make_product(16384, 8192, 8192, dtype) for dtype in (DataType.BF16, DataType.INT8)]
    for batch, flops in (
        (experts, 2 * 16384 * 2 * 3 * 4096 * 14336),
        *((p, 2 * 16384 * 8192**2) for p in products),
    ):
        tflops = flops / ours.predict(batch, gpu).time_us[0] / 1e6
        weights = ours.find_weights(ours.find_family(batch), batch)
        if not ours.knows_gpu(weights, gpu):
            assert tflops <= hardware.find_peak_tflops(batch.dtype) * (1 + 1e-9)


@pytest.mark.parametrize("key", ["a40", "l20", "h20", "h100-pcie", "rtx-4090"])
@pytest.mark.parametrize("backend", [Backend.SGLANG, Backend.VLLM])
def test_large_products_reach_the_sustained_rate(key, backend):
    gpu = load_gpu(key)
    found = predict_served(make_product(32768, 8192, 8192, backend=backend), gpu)
    expected_us = 2 * 32768 * 8192**2 / find_sustained_rates(gpu).tensor_tflops / 1e6
    assert found.time_us[0] == pytest.approx(expected_us)
    assert found.low_us[0] < found.time_us[0] < found.high_us[0]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 64),
    st.integers(512, 16384),
    st.integers(512, 16384),
    st.sampled_from(["l40s", "h100", "l20"]),
)
def test_cold_weights_never_shorten_a_small_product(m, n, k, key):
    gpu, batch = load_gpu(key), make_product(m, n, k, backend=Backend.TRTLLM)
    warm, cold = ours.predict(batch, gpu).time_us[0], predict_served(batch, gpu).time_us[0]
    assert cold > 0.9 * warm  # the level of the sustained rate is the rest
    assert cold > 2.0 * n * k / gpu.file.memory.bandwidth_gbps.value / 1e3


def test_weights_that_the_l2_holds_are_read_from_dram_when_served():
    """Weights of 32 MiB stay in an L40S's 96 MiB from call to call, not from layer to layer."""
    gpu, batch = load_gpu("l40s"), make_product(8, 4096, 4096, backend=Backend.TRTLLM)
    assert predict_served(batch, gpu).time_us[0] > 1.5 * ours.predict(batch, gpu).time_us[0]


def test_what_streams_is_the_same_served():
    batch = RowwiseBatch(Operator.SILU_MUL, DataType.BF16, np.array([4096.0]), np.array([28672.0]))
    gpu = load_gpu("h800")
    assert predict_served(batch, gpu).time_us[0] == ours.predict(batch, gpu).time_us[0]


@pytest.mark.parametrize("key", ["h100", "h20"])
def test_flash_attention_3_computes_query_heads_that_share_keys_together(key):
    def time_us(heads):
        return ours.predict(
            AttentionBatch(
                Operator.ATTENTION,
                DataType.BF16,
                AttentionKind.FA3_PAGED,
                make_ragged([[1.0] * 8]),
                make_ragged([[3500.0] * 8]),
                np.array([float(heads)]),
                np.array([8.0]),
                np.array([128.0]),
            ),
            load_gpu(key),
        ).time_us[0]

    assert time_us(40) < 1.4 * time_us(8)
