"""NeuSight's equations on closed forms: tiles, waves, roofline, utilization, fused chains, rings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.baselines.neusight.model import predict, predict_ring_us
from analyzer.baselines.neusight.tiled_work import compute_roofline_us, cut_tiles
from analyzer.baselines.neusight.tiles import GpuTiles, choose_tiles, describe_gpu
from analyzer.baselines.neusight.utilization import (
    LEAST_UTILIZATION,
    NeuSightForm,
    UtilizationNetwork,
    compute_inputs,
    compute_utilization,
)
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import (
    CollectiveBatch,
    MlaBatch,
    ProductBatch,
    RaggedLengths,
)
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator

V100 = read_operator_hardware(load_gpu("v100-pcie"))


def _column(*values: float):
    return np.array(values, dtype=np.float64)


def _product(m: float, n: float, k: float, batch: float = 1.0) -> ProductBatch:
    operator = Operator.BMM if batch > 1 else Operator.GEMM
    return ProductBatch(operator, DataType.FP32, _column(m), _column(n), _column(k), _column(batch))


def _make_network(alpha: float, beta: float) -> UtilizationNetwork:
    """Return a network without inputs' influence."""
    logits = np.log(_column(alpha, beta) / (1.0 - _column(alpha, beta)))
    return UtilizationNetwork(
        NeuSightForm.CODE,
        low=np.full(4, -1e9),
        high=np.full(4, 1e9),
        mean=np.zeros(4),
        deviation=np.ones(4),
        weights=(np.zeros((4, 2)),),
        biases=(logits,),
    )


def test_tiles_and_waves_are_ceilings_of_the_output():
    work = cut_tiles(_product(1000, 1000, 64, batch=3), np.array([[64.0, 128.0]]))
    assert work.tiles == 3 * 16 * 8
    assert work.count_waves(V100) == 5
    assert work.flops_per_tile == 2 * 64 * 128 * 64
    assert work.bytes_per_tile == 4 * (64 * 64 + 128 * 64 + 64 * 128)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000), st.sampled_from([32.0, 64.0, 128.0]))
def test_no_time_is_below_the_roofline_of_the_whole_operator(m, n, k, tile):
    work = cut_tiles(_product(m, n, k), np.array([[tile, tile]]))
    least = max(work.flops[0] / (V100.fp32_tflops * 1e6), work.bytes[0] / (V100.dram_gbps * 1e3))
    assert compute_roofline_us(work, V100, DataType.FP32)[0] >= least * (1 - 1e-9)


def test_utilization_grows_with_the_waves_from_alpha_less_beta_to_alpha():
    waves = _column(1, 8, 1e9)
    found = compute_utilization(np.zeros((3, 4)), waves, _make_network(0.9, 0.4))
    np.testing.assert_allclose(found, [0.5, 0.85, 0.9], rtol=1e-6)


def test_utilization_has_a_floor_where_beta_exceeds_alpha():
    assert compute_utilization(np.zeros((1, 4)), _column(1), _make_network(0.2, 0.9)) == LEAST_UTILIZATION


def test_the_papers_inputs_are_those_of_the_code_and_the_memory_size():
    work = cut_tiles(_product(512, 512, 512), np.array([[128.0, 128.0]]))
    paper = compute_inputs(work, V100, DataType.FP32, NeuSightForm.PAPER)
    code = compute_inputs(work, V100, DataType.FP32, NeuSightForm.CODE)
    np.testing.assert_array_equal(paper[:, :4], code)
    in_memory = work.bytes_per_tile * V100.sm_count / V100.dram_bytes
    assert paper[0, 4] == pytest.approx(np.log2(in_memory[0]))


def test_tiles_are_those_of_the_nearest_gpu_and_shape():
    t4 = read_operator_hardware(load_gpu("t4"))
    shapes = np.log2(np.array([[1.0, 64, 64, 64], [1.0, 4096, 4096, 64]]))
    table = (
        GpuTiles(describe_gpu(V100), shapes, np.array([[32.0, 32.0], [128.0, 128.0]])),
        GpuTiles(describe_gpu(t4), shapes, np.array([[64.0, 64.0], [128.0, 64.0]])),
    )
    asked = np.array([[1.0, 3000, 5000, 100], [1.0, 80, 50, 60]])
    np.testing.assert_array_equal(choose_tiles(table, asked, V100), [[128, 128], [32, 32]])
    a100 = read_operator_hardware(load_gpu("a100-40gb-pcie"))
    np.testing.assert_array_equal(choose_tiles(table, asked, a100), [[128, 128], [32, 32]])


def test_a_ring_passes_its_message_twice_less_a_share():
    batch = CollectiveBatch(Operator.ALL_REDUCE, DataType.BF16, _column(8e6, 8e6), _column(2, 8))
    np.testing.assert_allclose(predict_ring_us(batch, 100.0, 0.8), [100.0, 175.0])
    send = CollectiveBatch(Operator.SEND_RECV, DataType.BF16, _column(8e6), _column(2))
    np.testing.assert_allclose(predict_ring_us(send, 100.0, 0.8), [100.0])


def test_an_operator_without_a_family_counts_as_memory_bound():
    lengths = RaggedLengths(_column(1), np.array([0, 1]))
    cached = RaggedLengths(_column(4096), np.array([0, 1]))
    batch = MlaBatch(
        Operator.MLA, DataType.BF16, lengths, cached, _column(16), _column(512), _column(64), _column(128)
    )
    found = predict(batch, load_gpu("v100-pcie"))
    cache_bytes = 2 * 4096 * (512 + 64)
    assert found.time_us[0] >= cache_bytes / (V100.dram_gbps * 1e3)
    assert found.time_us[0] < 1.5 * cache_bytes / (V100.dram_gbps * 1e3)
    assert not found.in_range[0]
