"""Operators as fields: what becomes a batch, and why a row cannot be answered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.operators.batches import select
from analyzer.operators.names import AttentionKind, DataType, MoeProduct, Operator
from analyzer.operators.operator_rows import OPERATOR_COLUMNS, read_operator_rows

_COLUMNS = ("operator", "gpu", "dtype", "m", "n", "k", "q_lengths", "kv_lengths", "heads", "kv_heads", "kind")


def _read(*rows: tuple[str, ...]):
    return read_operator_rows(_COLUMNS, rows)


def test_rows_of_one_operator_gpu_and_type_become_one_batch_in_their_order():
    found = _read(
        ("gemm", "h100", "bf16", "1", "2", "3"),
        ("gemm", "a100", "bf16", "4", "5", "6"),
        ("gemm", "h100", "bfloat16", "7", "8", "9"),
    )
    assert [(part.gpu, part.places.tolist()) for part in found.batches] == [("h100", [0, 2]), ("a100", [1])]
    batch = found.batches[0].batch
    assert (batch.operator, batch.dtype) == (Operator.GEMM, DataType.BF16)
    assert batch.m.tolist() == [1, 7]
    assert batch.batch.tolist() == [1, 1]


def test_lists_of_lengths_keep_their_rows():
    found = _read(
        ("attention", "a40", "", "", "", "", "[1, 1]", "[900, 77]", "32", "8", "fa2_paged"),
        ("attention", "a40", "", "", "", "", "128", "4096", "32", "8", "fa2_paged"),
    )
    batch = found.batches[0].batch
    assert batch.kind is AttentionKind.FA2_PAGED
    assert batch.kv_lengths.sum_rows(batch.kv_lengths.values).tolist() == [977, 4096]
    assert batch.kv_lengths.max_rows(batch.kv_lengths.values).tolist() == [900, 4096]
    again = select(batch, np.array([1, 0]))
    assert again.q_lengths.values.tolist() == [128, 1, 1]
    assert again.q_lengths.counts.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("conv", "h100"), "no operator 'conv'"),
        (("", "h100"), "no operator"),
        (("gemm", ""), "no gpu"),
        (("gemm", "h100", "fp7", "1", "1", "1"), "no data type 'fp7'"),
        (("gemm", "h100", "", "1", "1"), "no k"),
        (("gemm", "h100", "", "1", "1", "x"), "k 'x' is no number"),
        (("gemm", "h100", "", "1", "1", "-4"), "no whole number"),
        (("gemm", "h100", "", "1", "1", "1.5"), "no whole number"),
        (("gemm", "h100", "", "1", "1", "nan"), "no whole number"),
        (("gemm", "h100", "", "1", "1", "1e300"), "no whole number"),
        (("attention", "h100", "", "", "", "", "[1", "[1]", "8", "8"), "no list"),
        (("attention", "h100", "", "", "", "", "[]", "[]", "8", "8"), "0 lengths"),
        (("attention", "h100", "", "", "", "", "[1]", "[1, 2]", "8", "8"), "1 q_lengths, but 2 kv_lengths"),
        (("attention", "h100", "", "", "", "", "[1]", "[0]", "8", "8"), "at least 1"),
        (("attention", "h100", "", "", "", "", "[1]", "[1]", "8", "8", "fa9"), "kind 'fa9'"),
        (("attention", "h100", "", "", "", "", '["a"]', "[1]", "8", "8"), "no list"),
    ],
)
def test_a_row_that_cannot_be_read_has_a_reason_and_leaves_the_others(row, reason):
    found = _read(row, ("gemm", "h100", "bf16", "1", "2", "3"))
    assert reason in found.problems[0]
    assert [part.places.tolist() for part in found.batches] == [[1]]


@given(st.lists(st.lists(st.text(max_size=12), max_size=11), max_size=8))
def test_any_fields_are_either_a_row_of_a_batch_or_a_problem(rows):
    found = read_operator_rows(_COLUMNS, rows)
    places = sorted(
        [place for part in found.batches for place in part.places.tolist()] + list(found.problems)
    )
    assert places == list(range(len(rows)))


def test_every_operator_has_columns_and_makes_a_batch():
    assert set(OPERATOR_COLUMNS) == set(Operator)
    for operator, columns in OPERATOR_COLUMNS.items():
        names = ["operator", "gpu", *(size.name for size in columns.sizes), "q_lengths", "kv_lengths"]
        found = read_operator_rows(names, [[operator, "h100", *["8"] * len(columns.sizes), "[4]", "[16]"]])
        assert not found.problems
        assert len(found.batches[0].batch) == 1


def test_moe_means_both_products_unless_it_says_which():
    columns = ("operator", "gpu", "m", "experts", "topk", "hidden", "intermediate", "which")
    found = read_operator_rows(columns, [("moe", "a40", "8", "8", "2", "64", "64", w) for w in ("", "w13")])
    assert [part.batch.which for part in found.batches] == [MoeProduct.BOTH, MoeProduct.W13]
