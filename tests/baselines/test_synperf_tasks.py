"""Decomposers: counts of tasks against closed forms, and features of a small product by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.baselines.synperf.features import (
    KernelCategory,
    compute_synperf_features,
    decompose,
    find_category,
    list_feature_names,
)
from analyzer.baselines.work import count_work
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import AttentionBatch, MoeBatch, ProductBatch, RaggedLengths, RowwiseBatch
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import AttentionKind, DataType, MoeProduct, Operator
from analyzer.operators.pipe_figures import PipeFigures, read_pipe_figures
from analyzer.operators.scheduling import SchedulingPolicy, distribute_tasks
from analyzer.operators.task_demand import Pipe


def figures_of(gpu: str, dtype: DataType) -> PipeFigures:
    return read_pipe_figures(read_operator_hardware(load_gpu(gpu)), dtype)


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def product(m: float, n: float, k: float, dtype: DataType = DataType.FP8_BLOCK) -> ProductBatch:
    return ProductBatch(Operator.SCALED_MM, dtype, column(m), column(n), column(k), column(1))


def attention(
    kind: AttentionKind, q: list[float], kv: list[float], heads: float, kv_heads: float
) -> AttentionBatch:
    offsets = np.array([0, len(q)])
    return AttentionBatch(
        Operator.ATTENTION,
        DataType.BF16,
        kind,
        RaggedLengths(column(*q), offsets),
        RaggedLengths(column(*kv), offsets),
        column(heads),
        column(kv_heads),
        column(128),
    )


def moe(m: float, experts: float, topk: float) -> MoeBatch:
    sizes = (column(m), column(experts), column(topk), column(2048), column(768))
    return MoeBatch(Operator.MOE, DataType.BF16, MoeProduct.W13, *sizes)


def test_scaled_product_rounds_tiles_up_to_pairs() -> None:
    figures = figures_of("h20", DataType.FP8_BLOCK)
    tasks = decompose(product(m=288, n=896, k=4096), KernelCategory.SCALED_MM, figures)
    spread = distribute_tasks(tasks, figures.sm_count)
    assert spread.n_tasks.tolist() == [3 * 8]  # seven tiles along n take the place of eight
    assert spread.total[0, Pipe.TENSOR] == 24 * 2 * 128 * 128 * 4096
    assert spread.max_sm[0, Pipe.TENSOR] == 2 * 128 * 128 * 4096
    assert tasks.policy is SchedulingPolicy.PERSISTENT


def test_published_efficiencies_of_fused_moe_are_those_of_padded_products() -> None:
    # underperforming_A100-80GB_SXM.csv: M = 993, E = 128, topk = 8, H = 4096, N = 3072, time and efficiency
    figures = figures_of("a100-80gb-sxm", DataType.BF16)
    sizes = (column(993), column(128), column(8), column(4096), column(3072))
    batch = MoeBatch(Operator.MOE, DataType.BF16, MoeProduct.W13, *sizes)
    features = compute_synperf_features(
        decompose(batch, KernelCategory.MOE, figures), KernelCategory.MOE, figures
    )
    assert features.theoretical_us[0] / 4026.8952 == pytest.approx(0.3283128994978301, rel=1e-3)


@pytest.mark.parametrize(
    ("m", "blocks", "block_n"),
    [(32, 32, 32), (33, 32, 64), (1024, 64, 64)],  # 32 experts, topk 4: 16 rows to a block up to 32 tokens
)
def test_fused_moe_takes_small_blocks_for_few_tokens(m: float, blocks: int, block_n: int) -> None:
    figures = figures_of("a100-80gb-sxm", DataType.BF16)
    tasks = decompose(moe(m, 32, 4), KernelCategory.MOE, figures)
    assert tasks.repeats.tolist() == [blocks * 2 * 768 / block_n]


def test_fa2_does_not_cut_keys_when_tiles_fill_the_gpu() -> None:
    figures = figures_of("a100-80gb-sxm", DataType.BF16)
    batch = attention(AttentionKind.FA2_RAGGED, [4096.0] * 16, [4096.0] * 16, heads=32, kv_heads=8)
    tasks = decompose(batch, KernelCategory.ATTENTION, figures)
    spread = distribute_tasks(tasks, figures.sm_count)
    assert spread.n_tasks[0] == 16 * (4096 * 4 / 128) * 8
    exact = count_work(batch).flops[0]
    assert exact <= spread.total[0, Pipe.TENSOR] <= 1.05 * exact  # steps of 64 keys at the diagonal


def test_fa2_cuts_keys_of_decode_to_fill_the_gpu() -> None:
    figures = figures_of("a100-80gb-sxm", DataType.BF16)
    batch = attention(AttentionKind.FA2_PAGED, [1.0], [20000.0], heads=8, kv_heads=1)
    tasks = decompose(batch, KernelCategory.ATTENTION, figures)
    n_tasks = distribute_tasks(tasks, figures.sm_count).n_tasks[0]
    assert n_tasks == pytest.approx(20000 / 128, abs=1)  # no chunk is shorter than 128
    assert tasks.demand[:, Pipe.TENSOR].max() == 4 * 16 * 128 * 128


def test_fa3_balances_by_a_min_heap() -> None:
    figures = figures_of("h800-sxm", DataType.BF16)
    q, kv = [100.0, 5000.0, 900.0], [3000.0, 5000.0, 20000.0]
    tasks = decompose(attention(AttentionKind.FA3_PAGED, q, kv, 8, 8), KernelCategory.ATTENTION, figures)
    assert tasks.policy is SchedulingPolicy.MIN_HEAP
    spread = distribute_tasks(tasks, figures.sm_count)
    assert spread.n_tasks[0] == 8 * (1 + 40 + 8)
    mean = spread.total[0, Pipe.TENSOR] / figures.sm_count
    assert mean <= spread.max_sm[0, Pipe.TENSOR] <= mean + tasks.demand[:, Pipe.TENSOR].max()


@given(st.integers(1, 4000), st.integers(1, 5000), st.integers(0, 3000), st.sampled_from([1, 4, 8]))
@settings(max_examples=60, deadline=None)
def test_attention_covers_all_scores(q: int, n_heads: int, extra: int, group: int) -> None:
    heads = float(1 + n_heads % 16) * group
    batch = attention(AttentionKind.FA2_PAGED, [float(q)], [float(q + extra)], heads, heads / group)
    figures = figures_of("a40", DataType.BF16)
    spread = distribute_tasks(decompose(batch, KernelCategory.ATTENTION, figures), figures.sm_count)
    assert spread.total[0, Pipe.TENSOR] >= count_work(batch).flops[0] * (1 - 1e-9)
    assert spread.max_sm[0, Pipe.TENSOR] >= spread.total[0, Pipe.TENSOR] / figures.sm_count * (1 - 1e-9)


def test_features_follow_equations_4_and_5() -> None:
    figures = figures_of("h800-sxm", DataType.FP8_BLOCK)
    batch = product(m=128, n=256, k=1024)
    features = compute_synperf_features(
        decompose(batch, KernelCategory.SCALED_MM, figures), KernelCategory.SCALED_MM, figures
    )
    found = dict(zip(list_feature_names(KernelCategory.SCALED_MM), 2 ** features.values[0] - 1, strict=True))
    ops = 2 * 128 * 128 * 1024.0
    assert found["tensor_ops_gpu"] == pytest.approx(2 * ops)
    assert found["tensor_cycles_max_sm"] == pytest.approx(ops / figures.tensor_ops_per_cycle)
    assert found["tensor_cycles_gpu"] == pytest.approx(
        2 * ops / (figures.sm_count * figures.tensor_ops_per_cycle)
    )
    loads = 1024 * (128 + 128) + 4 * 8 * 129.0
    assert found["bytes_gpu"] == pytest.approx(2 * loads)
    assert found["shared_cycles_max_sm"] == pytest.approx(loads / 128)


def test_silu_has_two_special_functions_per_output() -> None:
    figures = figures_of("a40", DataType.BF16)
    batch = RowwiseBatch(Operator.SILU_MUL, DataType.BF16, column(100), column(2048))
    spread = distribute_tasks(decompose(batch, KernelCategory.SILU_MUL, figures), figures.sm_count)
    assert spread.total[0, Pipe.XU] == 100 * 1024 * 2
    assert spread.total[0, Pipe.LOADS] == 100 * 2048 * 2
    assert spread.max_sm[0, Pipe.XU] == 2 * 1024 * 2  # 100 rows on 84 SMs


def test_categories_are_those_of_the_paper() -> None:
    assert find_category(product(8, 8, 8)) is KernelCategory.SCALED_MM
    assert find_category(product(8, 8, 8, DataType.BF16)) is KernelCategory.GEMM
    assert find_category(product(8, 8, 8, DataType.FP32)) is KernelCategory.GEMM_FP32
    assert find_category(product(8, 8, 8, DataType.INT8)) is None
    softmax = RowwiseBatch(Operator.SOFTMAX, DataType.BF16, column(1), column(8))
    assert find_category(softmax) is None


# NeuSight's profile: kernel names and grids of V100 and A100 (m, n, k, batch; tile of rows x columns)
@pytest.mark.parametrize(
    ("gpu", "operator", "shape", "tile"),
    [
        ("v100-pcie", Operator.BMM, (313, 915, 233, 199), (64, 64)),
        ("a100-40gb-pcie", Operator.BMM, (27, 390, 21, 6), (128, 128)),
        ("a100-40gb-pcie", Operator.GEMM, (174, 1496, 11, 1), (32, 128)),
        ("l4", Operator.GEMM, (174, 1496, 11, 1), (32, 128)),  # no profile: sm_80 is the most similar
    ],
)
def test_fp32_products_take_the_tiles_of_profiles(
    gpu: str, operator: Operator, shape: tuple[int, ...], tile: tuple[int, int]
) -> None:
    m, n, k, batch = shape
    figures = figures_of(gpu, DataType.FP32)
    given = ProductBatch(operator, DataType.FP32, column(m), column(n), column(k), column(batch))
    tasks = decompose(given, KernelCategory.GEMM_FP32, figures)
    assert tasks.repeats.tolist() == [-(-m // tile[0]) * -(-n // tile[1]) * batch]
    assert tasks.demand[0, Pipe.FMA] == tile[0] * tile[1] * -(-k // 32) * 32
    assert tasks.demand[0, Pipe.TENSOR] == 0
