"""The block-scaled product's reference: rounds in pairs of tiles, and measured rows of SynPerf."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import ProductBatch
from analyzer.operators.families.scaled_mm import FAMILY, count_rounds
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, Operator

_PARAMETERS = FAMILY.initial_parameters


def _make(*shapes: tuple[float, ...]) -> ProductBatch:
    m, n, k = (np.array(column, dtype=float) for column in zip(*shapes, strict=True))
    return ProductBatch(Operator.SCALED_MM, DataType.FP8_BLOCK, m, n, k, np.ones(len(shapes)))


def _time(gpu: str, *shapes: tuple[float, ...]) -> np.ndarray:
    return FAMILY.compute_terms(_make(*shapes), read_operator_hardware(load_gpu(gpu)), _PARAMETERS).total_us


def test_columns_of_tiles_count_in_pairs():
    hardware = read_operator_hardware(load_gpu("h20"))
    tiles, rounds = count_rounds(_make((2048, 384, 2048), (3072, 384, 2048), (3072, 257, 2048)), hardware)
    assert tiles.tolist() == [64, 96, 96]
    assert rounds.tolist() == [1, 2, 2]


# us, of SynPerf's rows (vLLM 0.11); nothing here is learned
_MEASURED = [
    ("h20", (2048, 384, 2048), 23.0),
    ("h20", (3072, 384, 2048), 42.6),
    ("h20", (192, 7168, 2304), 46.9),
    ("h20", (131072, 4096, 4096), 15854.2),
    ("h20", (128, 2304, 16384), 150.1),
    ("h800-sxm", (4, 2048, 512), 5.9),
    ("h800-sxm", (672, 4096, 4096), 33.0),
    ("h800-sxm", (12288, 8192, 1024), 206.3),
]


@pytest.mark.parametrize(("gpu", "shape", "measured_us"), _MEASURED)
def test_the_reference_is_near_measured_rows(gpu: str, shape: tuple[int, ...], measured_us: float):
    assert _time(gpu, shape)[0] == pytest.approx(measured_us, rel=0.1)


@settings(max_examples=50, deadline=None)
@given(m=st.integers(0, 500), n=st.integers(1, 60), k=st.integers(1, 16384), more=st.integers(1, 127))
def test_rows_within_a_tile_cost_nothing(m: int, n: int, k: int, more: int):
    hardware = read_operator_hardware(load_gpu("h800-sxm"))
    batch = _make((128 * m + 1, 128 * n, k), (128 * m + 1 + more, 128 * n, k))
    terms = FAMILY.compute_terms(batch, hardware, _PARAMETERS)
    sm_us = terms.find_term("sm")
    assert sm_us[0] == sm_us[1]
    assert np.isfinite(FAMILY.compute_features(batch, hardware, terms)).all()
    assert (
        terms.total_us >= np.maximum(sm_us, terms.find_term("dram")) + terms.find_term("launch") - 1e-9
    ).all()
