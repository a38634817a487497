"""Fused mixtures of experts: tiles by hand, limits of the terms, and rows that were measured."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_edits import parse_setting, with_settings
from analyzer.operators.batches import MoeBatch
from analyzer.operators.expert_tiles import TileConfiguration, compute_tile_terms, cut_tiles
from analyzer.operators.families.moe import FAMILY, choose_default_configuration, describe_product
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType, MoeProduct, Operator

_PARAMETERS = FAMILY.initial_parameters


def make_batch(rows, which=MoeProduct.W13, dtype=DataType.BF16):
    """Return a batch of rows (m, experts, topk, hidden, intermediate)."""
    return MoeBatch(Operator.MOE, dtype, which, *np.array(rows, dtype=np.float64).T)


def make_configuration(*columns):
    """Return one row of BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, num_warps, num_stages."""
    return TileConfiguration(*(np.array([float(column)]) for column in columns))


def time_tiles(shape, configuration, hardware):
    """Return the terms of a product under a configuration."""
    return compute_tile_terms(cut_tiles(shape, configuration, hardware), hardware, _PARAMETERS)


def find_hardware(gpu):
    """Return the figures of a GPU by its key."""
    return read_operator_hardware(load_gpu(gpu))


def test_tasks_of_the_modules_example():
    batch = make_batch([(512, 128, 6, 4096, 2048)])
    shape = describe_product(batch, MoeProduct.W13)
    configuration, hardware = choose_default_configuration(batch), find_hardware("a100-80gb-sxm")
    launch, terms = cut_tiles(shape, configuration, hardware), time_tiles(shape, configuration, hardware)
    assert launch.tasks[0] == 128 * 64
    assert launch.steps[0] == 128
    assert launch.fill[0] == pytest.approx(24 / 64)
    assert terms.flops[0] == 2.0 * 3072 * 4096 * 4096


def test_uneven_pairs_take_one_block_more_only_where_needed():
    # 130 pairs on 2 experts are 65 each, two blocks of 64; 129 are 65 and 64: three blocks
    hardware = find_hardware("a40")
    configuration = make_configuration(64, 64, 32, 8, 4, 3)
    for m, blocks in ((128, 2), (129, 3), (130, 4)):
        batch = make_batch([(m, 2, 1, 256, 32)])
        launch = cut_tiles(describe_product(batch, MoeProduct.W13), configuration, hardware)
        assert launch.tasks[0] == blocks


def test_the_default_configuration_depends_on_tokens_against_experts():
    configuration = choose_default_configuration(
        make_batch([(64, 64, 6, 2048, 1024), (65, 64, 6, 2048, 1024)])
    )
    assert configuration.block_m.tolist() == [16.0, 64.0]
    assert configuration.block_k.tolist() == [64.0, 32.0]
    fp8 = choose_default_configuration(make_batch([(65, 64, 6, 2048, 1024)], dtype=DataType.FP8))
    assert fp8.block_n.tolist() == [256.0]


def test_shared_memory_holds_one_buffer_less_than_stages():
    batch = make_batch([(4096, 8, 2, 4096, 2048)])
    shape = describe_product(batch, MoeProduct.W13)
    large = cut_tiles(shape, make_configuration(128, 256, 64, 8, 8, 3), find_hardware("a40"))
    assert large.code.resident[0] == 1  # 96 KiB of the 100
    small = cut_tiles(shape, make_configuration(64, 64, 32, 8, 4, 3), find_hardware("a40"))
    assert small.code.resident[0] > 2


@pytest.mark.parametrize(
    ("gpu", "row", "time_us"),
    [  # SynPerf's rows: rows/moe.csv
        ("a100-80gb-sxm", (34, 60, 4, 2048, 1408), 398.95),
        ("a100-80gb-sxm", (512, 128, 6, 4096, 2048), 2556.7),
        ("a100-80gb-sxm", (5313, 128, 8, 4096, 3072), 13661.3),
        ("a40", (12, 64, 8, 3584, 2560), 3986.9),
        ("a40", (3585, 32, 6, 3072, 1024), 3783.0),
        ("h800-sxm", (76, 8, 2, 1024, 512), 8.05),
        ("h800-sxm", (1536, 128, 8, 4096, 3072), 2239.0),
        ("h800-sxm", (5697, 64, 6, 3072, 2048), 1828.5),
    ],
)
def test_measured_rows_without_any_fit(gpu, row, time_us):
    terms = FAMILY.compute_terms(make_batch([row]), find_hardware(gpu), _PARAMETERS)
    assert terms.total_us[0] == pytest.approx(time_us, rel=0.2)


def test_the_a40_gains_from_large_blocks_as_measured():
    # 6,144 tokens: 22.6 ms with 128 x 256 x 64, against a default whose undisturbed rows take 1.4 as long
    batch = make_batch([(6144, 128, 8, 4096, 3072)])
    hardware = find_hardware("a40")
    best = time_tiles(
        describe_product(batch, MoeProduct.W13), make_configuration(128, 256, 64, 64, 8, 3), hardware
    )
    assert best.total_us[0] == pytest.approx(22632.6, rel=0.2)
    assert FAMILY.compute_terms(batch, hardware, _PARAMETERS).total_us[0] > 1.2 * best.total_us[0]


def test_what_the_l2_keeps_is_the_chips_and_an_edit_moves_it():
    gpu = load_gpu("a100-80gb-sxm")
    batch = make_batch([(4, 16, 2, 1536, 768)])  # 38 MB of weights, .9 of the L2
    as_is, all_kept, none_kept = (
        FAMILY.compute_terms(batch, read_operator_hardware(each), _PARAMETERS).find_term("dram")[0]
        for each in (
            gpu,
            with_settings(gpu, [parse_setting("l2.kept_share=0.99"), parse_setting("l2.lost_share=2")]),
            with_settings(gpu, [parse_setting("l2.kept_share=0.1"), parse_setting("l2.lost_share=0.2")]),
        )
    )
    assert all_kept < 0.2 * none_kept
    assert all_kept < as_is < none_kept


_SIZES = st.tuples(
    st.integers(1, 20_000),
    st.sampled_from([1, 8, 60, 128, 512]),
    st.integers(1, 8),
    st.sampled_from([1, 1024, 3584]),
    st.sampled_from([1, 704, 2048]),
)


@settings(max_examples=60, deadline=None)
@given(_SIZES, st.sampled_from(["a40", "h800-sxm", "rtx-pro-6000-blackwell-server"]), st.integers(1, 5000))
def test_no_term_shrinks_with_more_tokens(row, gpu, more):
    configuration = make_configuration(32, 128, 128, 1, 8, 3)
    few, many = (
        time_tiles(
            describe_product(make_batch([(m, *row[1:])]), MoeProduct.W13), configuration, find_hardware(gpu)
        )
        for m in (row[0], row[0] + more)
    )
    for name in ("sms_us", "l2_us", "dram_us", "launch_us"):
        assert getattr(many, name)[0] >= getattr(few, name)[0] * (1.0 - 1e-9), name
    assert many.total_us[0] >= 0.97 * few.total_us[0]  # a fuller wave has a shorter tail


@settings(max_examples=60, deadline=None)
@given(
    _SIZES,
    st.sampled_from(list(MoeProduct)),
    st.sampled_from(list(DataType)),
    st.sampled_from(["a40", "h800-sxm", "b200", "t4"]),
)
def test_features_are_finite_and_terms_add_up(row, which, dtype, gpu):
    batch = make_batch([row], which, dtype)
    hardware = find_hardware(gpu)
    terms = FAMILY.compute_terms(batch, hardware, _PARAMETERS)
    features = FAMILY.compute_features(batch, hardware, terms)
    assert features.shape == (1, len(FAMILY.feature_names))
    assert np.isfinite(features).all()
    assert terms.terms_us.max() <= terms.total_us[0] * (1.0 + 1e-9)
    assert terms.total_us[0] <= terms.terms_us.sum() * (1.0 + 1e-9)


def test_both_products_take_longer_than_each_and_have_weights_of_their_own():
    row = [(300, 64, 6, 3072, 2048)]
    hardware = find_hardware("h100-sxm")
    first, second, both = (
        FAMILY.compute_terms(make_batch(row, which), hardware, _PARAMETERS).total_us[0]
        for which in (MoeProduct.W13, MoeProduct.W2, MoeProduct.BOTH)
    )
    assert both > first + second
    assert FAMILY.choose_weights(make_batch(row, MoeProduct.W2)) == "moe-product-bf16"
    assert FAMILY.choose_weights(make_batch(row, MoeProduct.BOTH)) == "moe-both-bf16"
