"""The reference of FP32 products: waves, splits, floors, and what a power limit leaves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import ProductBatch
from analyzer.operators.families.fp32_product import FAMILY, compute_sustained_tflops
from analyzer.operators.family import find_family
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator

PARAMETERS = FAMILY.initial_parameters
GPUS = ("p4", "p100-pcie", "v100-pcie", "t4", "a100-40gb-pcie", "h100-sxm", "l4", "mi210")
HARDWARE = {gpu: read_operator_hardware(load_gpu(gpu)) for gpu in GPUS}


def _products(m, n, k, batch=1.0, operator=Operator.GEMM) -> ProductBatch:
    columns = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (m, n, k, batch)))
    return ProductBatch(operator, DataType.FP32, *(np.atleast_1d(column).copy() for column in columns))


def _times(batch: ProductBatch, gpu: str):
    return FAMILY.compute_terms(batch, HARDWARE[gpu], PARAMETERS).total_us


def test_fp32_products_are_answered_by_this_family():
    assert find_family(_products(8, 8, 8)) is FAMILY
    assert (
        find_family(_products(8, 8, 8, 4, Operator.BMM)).choose_weights(_products(8, 8, 8, 4, Operator.BMM))
        == "fp32_product-bmm"
    )


@pytest.mark.parametrize("gpu", GPUS)
def test_large_products_run_below_the_sustained_peak_and_near_it(gpu):
    batch = _products(8192, 8192, 2048)
    rate = 2.0 * 8192 * 8192 * 2048 / _times(batch, gpu)[0] * 1e-6  # TFLOP/s
    sustained = compute_sustained_tflops(HARDWARE[gpu], PARAMETERS)
    assert 0.5 * sustained < rate < sustained <= HARDWARE[gpu].fp32_product_tflops


def test_a_power_limit_binds_on_t4_and_l4_and_hardly_on_h100():
    shares = {
        gpu: compute_sustained_tflops(HARDWARE[gpu], PARAMETERS) / HARDWARE[gpu].fp32_tflops for gpu in GPUS
    }
    assert shares["l4"] < shares["t4"] < 0.6
    assert shares["h100-sxm"] > 0.95


def test_one_tile_more_than_a_wave_costs_a_wave_more():
    """Batched products on A100 have tiles of 128 by 128: 108 fill the SMs once."""
    batch = _products(128, 128, 1024, [108.0, 109.0, 216.0], Operator.BMM)
    math_us = FAMILY.compute_terms(batch, HARDWARE["a100-40gb-pcie"], PARAMETERS).find_term("math")
    assert math_us[1] == pytest.approx(2.0 * math_us[0])
    assert math_us[2] == pytest.approx(math_us[1])


def test_few_tiles_with_a_long_reduction_are_split():
    terms = FAMILY.compute_terms(_products(64, 64, [64.0, 65536.0]), HARDWARE["v100-pcie"], PARAMETERS)
    assert terms.find_term("split")[0] == 0.0
    assert terms.find_term("split")[1] > 0.0


@given(
    st.sampled_from(GPUS),
    st.sampled_from([Operator.GEMM, Operator.BMM]),
    st.integers(1, 100_000),
    st.integers(1, 100_000),
    st.integers(1, 100_000),
    st.integers(1, 5000),
)
def test_times_are_above_the_floor_and_features_finite_whatever_the_shape(gpu, operator, m, n, k, batch):
    products = _products(m, n, k, batch if operator is Operator.BMM else 1.0, operator)
    terms = FAMILY.compute_terms(products, HARDWARE[gpu], PARAMETERS)
    features = FAMILY.compute_features(products, HARDWARE[gpu], terms)
    assert terms.total_us[0] > PARAMETERS["floor_us"]
    assert features.shape == (1, len(FAMILY.feature_names))
    assert np.isfinite(features).all()


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 20000))
def test_a_longer_reduction_takes_no_less_time(m, n, k):
    short, long = _times(_products(m, n, [float(k), 2.0 * k]), "v100-pcie")
    assert long >= short - 1e-9
