"""Products by their frameworks' dispatch tables: which tile, laws of the reference, measured rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import ProductBatch
from analyzer.operators.dispatched_tiles import find_dispatched_tiles
from analyzer.operators.families.dispatched_product import FAMILY
from analyzer.operators.family import find_family
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import Backend, DataType, Operator

_PARAMETERS = FAMILY.initial_parameters
_GPUS = ("l40s", "h100-sxm", "b200", "rtx-pro-6000-blackwell-server", "h20")
_BACKENDS = (Backend.VLLM, Backend.SGLANG)


def _make(backend: Backend, *shapes: tuple[float, float, float]) -> ProductBatch:
    m, n, k = (np.array(column, dtype=float) for column in zip(*shapes, strict=True))
    return ProductBatch(Operator.GEMM, DataType.FP8, m, n, k, np.ones(len(shapes)), backend)


def _compute(gpu: str, batch: ProductBatch):
    return FAMILY.compute_terms(batch, read_operator_hardware(load_gpu(gpu)), _PARAMETERS)


@pytest.mark.parametrize(
    ("backend", "architecture", "shape", "tile"),
    [
        (Backend.VLLM, "sm_89", (16, 8192, 4096), (16, 64, 128)),
        (Backend.VLLM, "sm_89", (16, 8193, 4096), (16, 128, 64)),  # 16,384 as a power of two
        (Backend.VLLM, "sm_89", (257, 5000, 4096), (256, 128, 64)),
        (Backend.VLLM, "sm_90", (64, 1281, 4096), (64, 64, 256)),
        (Backend.VLLM, "sm_90", (8192, 4096, 6144), (256, 128, 128)),
        (Backend.VLLM, "sm_90", (8192, 4096, 6143), (128, 128, 128)),
        (Backend.VLLM, "sm_100", (64, 4096, 4095), (64, 64, 128)),
        (Backend.VLLM, "sm_100", (63, 4096, 4095), (64, 64, 256)),
        (Backend.VLLM, "sm_103", (257, 4096, 4096), (128, 128, 128)),  # the next older table
        (Backend.VLLM, "sm_86", (257, 4096, 4096), (128, 128, 64)),  # older than all
        (Backend.SGLANG, "sm_90", (128, 4096, 4096), (64, 64, 128)),
        (Backend.SGLANG, "sm_90", (129, 4096, 4096), (128, 128, 128)),
        (Backend.SGLANG, "sm_120", (128, 64, 4096), (128, 64, 128)),
    ],
)
def test_a_product_takes_the_first_row_that_fits(backend, architecture, shape, tile):
    found = find_dispatched_tiles(_make(backend, shape), architecture)
    assert (found.rows[0], found.columns[0], found.depth[0]) == tile


def test_only_frameworks_with_a_table_are_served():
    batch = _make(Backend.VLLM, (16, 4096, 4096))
    assert find_family(batch) is FAMILY
    for other in (
        _make(Backend.TRTLLM, (16, 4096, 4096)),
        ProductBatch(Operator.GEMM, DataType.BF16, *[np.ones(1)] * 4, Backend.VLLM),
        ProductBatch(Operator.GEMM, DataType.FP8, *[np.ones(1)] * 4),
    ):
        assert find_family(other).name == "gemm"


def test_a_narrow_product_leaves_sms_idle():
    """Two CTAs of 64 steps: a quarter of the columns takes as long, where a best tile would be a quarter."""
    wide, narrow = _compute("h100-sxm", _make(Backend.VLLM, (128, 512, 8192), (128, 128, 8192))).total_us
    assert narrow > 0.95 * wide


# us, of aiconfigurator (vLLM 0.24, SGLang 0.5.14); nothing here is learned
_MEASURED = [
    (Backend.VLLM, "h100-sxm", (1024, 1024, 1024), 14.8),
    (Backend.VLLM, "h100-sxm", (64, 128, 8192), 10.7),
    (Backend.VLLM, "b200", (256, 4096, 4096), 12.0),
    (Backend.VLLM, "l40s", (512, 1024, 1024), 18.1),
    (Backend.SGLANG, "h100-sxm", (4096, 4096, 4096), 119.4),
    (Backend.SGLANG, "h100-sxm", (129, 128, 8192), 25.3),
    (Backend.SGLANG, "b200", (2048, 4096, 4096), 35.3),  # 58.2 on the B200, 35.3 on the GB200
    (Backend.SGLANG, "l40s", (1024, 4096, 4096), 99.7),
]


@pytest.mark.parametrize(("backend", "gpu", "shape", "measured_us"), _MEASURED)
def test_the_reference_is_near_measured_rows(backend, gpu, shape, measured_us):
    assert _compute(gpu, _make(backend, shape)).total_us[0] == pytest.approx(measured_us, rel=0.35)


@settings(max_examples=60, deadline=None)
@given(
    gpu=st.sampled_from(_GPUS),
    backend=st.sampled_from(_BACKENDS),
    m=st.integers(1, 32768),
    n=st.integers(8, 32768),
    k=st.integers(16, 32768),
)
def test_laws(gpu, backend, m, n, k):
    """More depth takes longer; no product is faster than what its tensor cores and its DRAM take alone."""
    batch = _make(backend, (m, n, k), (m, n, 2 * k))
    terms = _compute(gpu, batch)
    assert np.isfinite(terms.total_us).all()
    assert (terms.total_us > 0).all()
    is_same_tile = np.ptp(find_dispatched_tiles(batch, load_gpu(gpu).code[0]).depth) == 0
    assert terms.total_us[1] >= terms.total_us[0] or not is_same_tile
    assert (terms.total_us >= np.maximum(terms.find_term("tensor"), terms.find_term("dram"))).all()
    assert ((terms.sm_share >= 0) & (terms.sm_share <= 1)).all()
    features = FAMILY.compute_features(batch, read_operator_hardware(load_gpu(gpu)), terms)
    assert np.isfinite(features).all()
    assert features.shape == (2, len(FAMILY.feature_names))
