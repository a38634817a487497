"""Any sizes that a row may have get a finite time with its interval, or a reason; no warning of numpy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.operators.names import AttentionKind, DataType, MoeProduct, Operator
from analyzer.operators.operator_rows import OPERATOR_COLUMNS
from analyzer.pipeline.operator_prediction import predict_rows

_GPUS = ("h100", "p4", "b300", "rtx-2060", "mi300x", "titan-v")
_SIZES = st.one_of(st.integers(1, 300), st.sampled_from([2**20, 10**9, 10**12]))


@st.composite
def _rows(draw: st.DrawFn, operator: Operator) -> tuple[list[str], list[str]]:
    columns = OPERATOR_COLUMNS[operator]
    fields = {"operator": operator.value, "gpu": draw(st.sampled_from(_GPUS))}
    fields["dtype"] = draw(st.sampled_from([dtype.value for dtype in DataType]))
    fields |= {size.name: str(draw(_SIZES)) for size in columns.sizes}
    if columns.has_lengths:
        q_lengths = draw(st.lists(_SIZES, min_size=1, max_size=4))
        fields["q_lengths"] = str(q_lengths)
        fields["kv_lengths"] = str([length + draw(_SIZES) - 1 for length in q_lengths])
    fields["kind"] = draw(st.sampled_from([kind.value for kind in AttentionKind]))
    fields["which"] = draw(st.sampled_from([which.value for which in MoeProduct]))
    return list(fields), list(fields.values())


@pytest.mark.parametrize("operator", list(Operator))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_row_has_a_finite_time_or_a_reason(operator, data):
    columns, fields = data.draw(_rows(operator))
    with np.errstate(all="raise", under="ignore"):
        answers = predict_rows(columns, [fields])
    if answers.reasons[0]:
        assert math.isnan(answers.time_us[0])
        return
    assert 0 < answers.low_us[0] <= answers.time_us[0] <= answers.high_us[0] < math.inf
