"""Analytic times and features of attention and MLA."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import AttentionBatch, MlaBatch, RaggedLengths, select
from analyzer.operators.families import attention, mla
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import AttentionKind, DataType, Operator

# SynPerf's own rows (zksainx/pipeweave @55e03178): GPU, kind, q, kv, heads, KV heads, head_dim, us
_MEASURED = (
    ("a100-80gb-sxm", "fa2_paged", [285, 1497, 4929, 9345], [1536, 2337, 13185, 18945], 32, 2, 128, 15929.0),
    ("a100-80gb-sxm", "fa2_paged", [21, 2625], [99, 19329], 32, 4, 128, 4424.6),
    ("a40", "fa2_ragged", [8, 37, 96, 291], [1281, 363, 12801, 411], 128, 8, 128, 1221.5),
    ("a40", "fa2_paged", [15, 993], [1449, 1689], 16, 1, 128, 144.1),
    ("l20", "fa2_ragged", [68, 86, 483, 561], [74, 321, 512, 6177], 10, 2, 128, 260.7),
    ("l20", "fa2_paged", [1] * 6, [9, 21, 681, 114, 297, 12801], 14, 2, 128, 13.9),
    ("h800-sxm", "fa2_paged", [1] * 4, [4353, 423, 47, 256], 20, 4, 128, 12.4),
)
_KINDS = tuple(AttentionKind)


def _make_lengths(lists) -> RaggedLengths:
    offsets = np.concatenate(([0], np.cumsum([len(each) for each in lists])))
    return RaggedLengths(np.concatenate([np.array(each, dtype=np.float64) for each in lists]), offsets)


def _make_batch(rows, kind=AttentionKind.GENERIC, dtype=DataType.BF16) -> AttentionBatch:
    """Return a batch of rows (q lengths, kv lengths, heads, KV heads, head_dim)."""
    heads, kv_heads, head_dim = (np.array([float(row[i]) for row in rows]) for i in (2, 3, 4))
    q, kv = (_make_lengths([row[i] for row in rows]) for i in (0, 1))
    return AttentionBatch(Operator.ATTENTION, dtype, kind, q, kv, heads, kv_heads, head_dim)


def _make_mla(rows) -> MlaBatch:
    """Return a batch of rows (q lengths, kv lengths, heads) of DeepSeek's dimensions."""
    q, kv = (_make_lengths([row[i] for row in rows]) for i in (0, 1))
    heads = np.array([float(row[2]) for row in rows])
    latent, rope, expanded = (np.full(len(rows), size) for size in (512.0, 64.0, 128.0))
    return MlaBatch(Operator.MLA, DataType.BF16, q, kv, heads, latent, rope, expanded)


def _compute(batch, gpu="h100-sxm"):
    family = attention.FAMILY if isinstance(batch, AttentionBatch) else mla.FAMILY
    hardware = read_operator_hardware(load_gpu(gpu))
    terms = family.compute_terms(batch, hardware, family.initial_parameters)
    return terms, family.compute_features(batch, hardware, terms)


@pytest.mark.parametrize("row", _MEASURED, ids=lambda row: f"{row[0]}-{row[-1]}")
def test_rows_that_were_measured_come_out_near_without_a_fit(row):
    gpu, kind, *shape, time_us = row
    terms, _ = _compute(_make_batch([shape], AttentionKind(kind)), gpu)
    assert terms.total_us[0] == pytest.approx(time_us, rel=0.3)


def test_operations_and_bytes_are_those_of_the_definition():
    terms, _ = _compute(_make_batch([([1000], [1000], 16, 4, 128)], AttentionKind.FA2_RAGGED))
    assert terms.flops[0] == 4 * 128 * 16 * 1000 * 1001 / 2
    assert terms.dram_bytes[0] == 1000 * 128 * 2 * (2 * 16 + 2 * 4)


def test_a_decode_of_many_keys_takes_what_the_cache_takes_to_stream():
    hardware = read_operator_hardware(load_gpu("h100-sxm"))
    terms, _ = _compute(_make_batch([([1] * 64, [8192] * 64, 32, 8, 128)]))
    stream_us = 64 * 8192 * 8 * 128 * 4 / (hardware.dram_gbps * 1e3)
    assert stream_us < terms.total_us[0] < 1.6 * stream_us


def test_a_narrow_cache_takes_half_the_bytes():
    row = ([1] * 64, [8192] * 64, 32, 8, 128)
    wide, narrow = (_compute(_make_batch([row], dtype=d))[0] for d in (DataType.BF16, DataType.FP8))
    assert narrow.dram_bytes[0] == pytest.approx(wide.dram_bytes[0] / 2, rel=1e-3)
    assert narrow.total_us[0] < 0.7 * wide.total_us[0]


def test_fa3_waits_for_the_longest_request_that_it_does_not_split():
    rows = [([9], [8193], 8, 1, 128)]
    unsplit, _ = _compute(_make_batch(rows, AttentionKind.FA3_RAGGED))
    split, _ = _compute(_make_batch(rows, AttentionKind.FA2_RAGGED))
    assert unsplit.find_term("chain")[0] > 5 * split.find_term("chain")[0]
    assert unsplit.find_term("merge")[0] == 0 < split.find_term("merge")[0]


def test_only_a_frameworks_prefill_writes_the_cache_first():
    rows = [([512], [512], 8, 8, 128), ([1], [512], 8, 8, 128)]
    assert (_compute(_make_batch(rows))[0].find_term("append") > 0).tolist() == [True, False]
    assert not _compute(_make_batch(rows, AttentionKind.FA2_PAGED))[0].find_term("append").any()


def test_mlas_decode_reads_the_latent_once_for_all_heads():
    terms, _ = _compute(_make_mla([([1] * 8, [4096] * 8, 128)]))
    queries = 8 * 128 * 2 * (576 + 512)
    assert terms.dram_bytes[0] == 8 * 4096 * 576 * 2 + queries
    assert terms.flops[0] == 2 * (576 + 512) * 128 * 8 * 4096


def test_mlas_decode_before_hopper_grows_with_the_keys_of_one_request():
    batch = _make_mla([([1], [1024], 16), ([1], [65536], 16)])
    ampere, hopper = (_compute(batch, gpu)[0].total_us for gpu in ("a100-80gb-sxm", "h100-sxm"))
    assert ampere[1] / ampere[0] > 20
    assert hopper[1] / hopper[0] < 10


_LENGTHS = st.lists(
    st.integers(1, 20000).flatmap(lambda kv: st.tuples(st.integers(1, kv), st.just(kv))),
    min_size=1,
    max_size=5,
)
_ROWS = st.lists(
    st.tuples(_LENGTHS, st.integers(1, 8), st.integers(1, 128), st.sampled_from((64, 128, 256))),
    min_size=1,
    max_size=4,
)


@given(_ROWS, st.sampled_from(_KINDS), st.sampled_from(("a40", "h100-sxm", "b200")))
@settings(deadline=None, max_examples=40)
def test_any_mix_of_rows_has_finite_features_and_times_of_its_own(found, kind, gpu):
    rows = [
        ([q for q, _ in lengths], [kv for _, kv in lengths], kv_heads * group, kv_heads, head_dim)
        for lengths, kv_heads, group, head_dim in found
    ]
    batch = _make_batch(rows, kind)
    terms, features = _compute(batch, gpu)
    assert np.isfinite(features).all()
    assert features.shape == (len(rows), len(attention.FAMILY.feature_names))
    assert (terms.total_us > terms.find_term("launch")).all()
    last = np.array([len(rows) - 1])
    alone, its_features = _compute(select(batch, last), gpu)
    np.testing.assert_allclose(alone.total_us, terms.total_us[last])
    np.testing.assert_allclose(its_features, features[last])


@pytest.mark.parametrize(
    ("kind", "dtype", "name"),
    [
        ("fa2_ragged", "bf16", "attention-fa2"),
        ("fa3_paged", "bf16", "attention-fa3"),
        ("generic", "bf16", "attention-generic-bf16"),
        ("generic", "fp8", "attention-generic-fp8"),
    ],
)
def test_kinds_have_sets_of_weights_of_their_own(kind, dtype, name):
    batch = _make_batch([([1], [1], 1, 1, 128)], AttentionKind(kind), DataType(dtype))
    assert attention.FAMILY.choose_weights(batch) == name
