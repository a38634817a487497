"""Rounded step times against the steps they stand for."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from exact_clock import ExactClock
from hypothesis import given
from hypothesis import strategies as st

from analyzer.forecast.operator_calls import Phase
from analyzer.forecast.step_clock import (
    KNOTS_PER_OCTAVE,
    ROWS_PER_OCTAVE,
    BucketedClock,
    StepLengths,
    StepShape,
    StepTable,
    choose_lengths,
    round_shape,
)
from analyzer.forecast.step_times import StepTime


def make_step(phase: Phase, queries: Sequence[int], kv_lengths: Sequence[int]) -> SimpleNamespace:
    """A step that keeps its lengths."""
    return SimpleNamespace(phase=phase, queries=np.array(queries), kv_lengths=np.array(kv_lengths))


def time_affinely(steps: Sequence[SimpleNamespace]) -> list[StepTime]:
    """Affine in rows and KV tokens."""
    totals_us = (
        5_000.0 + 30.0 * float(step.queries.sum()) + 0.02 * float(step.kv_lengths.sum()) for step in steps
    )
    return [StepTime(total_us, ()) for total_us in totals_us]


def count_pairs(lengths: StepLengths) -> float:
    return sum(
        query * (kv - query + (query + 1) / 2)
        for query, kv in zip(lengths.query_lengths, lengths.kv_lengths, strict=True)
    )


def make_shape(prefills: Sequence[tuple[int, int]], decodes: Sequence[int]) -> StepShape:
    """The shape of prefills (context, tokens) and of decoding requests by their KV lengths."""
    return StepShape(
        prefills=len(prefills),
        prefill_tokens=sum(tokens for _, tokens in prefills),
        prefill_pairs=sum(tokens * (context + (tokens + 1) / 2) for context, tokens in prefills),
        decodes=len(decodes),
        decode_kv_tokens=sum(decodes),
    )


prefill_lists = st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 4_000)), min_size=1, max_size=8)
decode_lists = st.lists(st.integers(1, 30_000), max_size=40)


def test_decode_steps_of_an_affine_time_are_exact() -> None:
    table, exact = StepTable(make_step, time_affinely), ExactClock(make_step, time_affinely)
    clock = BucketedClock(table)
    kv_lengths = (100, 900, 4_000, 77)
    found, wanted = (
        each.time_decode_run(make_shape([], kv_lengths), lambda: StepLengths((1,) * 4, kv_lengths), 3_000)
        for each in (clock, exact)
    )
    assert found == pytest.approx(wanted)
    assert table.n_timed <= 4 * KNOTS_PER_OCTAVE
    assert exact.n_timed == 3_000


def test_times_are_asked_for_once() -> None:
    table = StepTable(make_step, time_affinely)
    clock = BucketedClock(table)
    shape = make_shape([(0, 1_000)], [500] * 8)
    times = [clock.time_step(shape, lambda: pytest.fail("lengths are not needed")) for _ in range(3)]
    clock.time_decode_run(make_shape([], [1_000, 2_000]), pytest.fail, 10)
    asked = table.n_timed
    clock.time_decode_run(make_shape([], [1_001, 2_001]), pytest.fail, 10)
    assert (times[0], table.n_timed) == (times[2], asked)


@given(prefills=prefill_lists, decodes=decode_lists)
def test_equal_lengths_have_the_tokens_and_pairs_of_a_shape(
    prefills: list[tuple[int, int]], decodes: list[int]
) -> None:
    shape = make_shape(prefills, decodes)
    lengths = choose_lengths(shape)
    assert len(lengths.query_lengths) == len(prefills) + len(decodes)
    assert sum(lengths.query_lengths[: len(prefills)]) == shape.prefill_tokens
    assert sum(lengths.kv_lengths[len(prefills) :]) == shape.decode_kv_tokens
    chunks = StepLengths(lengths.query_lengths[: len(prefills)], lengths.kv_lengths[: len(prefills)])
    # The context is a whole number of tokens: half of one for each query, at most.
    assert count_pairs(chunks) == pytest.approx(shape.prefill_pairs, abs=shape.prefill_tokens)


@given(prefills=prefill_lists, decodes=decode_lists)
def test_rounding_moves_rows_by_half_an_interval_and_is_stable(
    prefills: list[tuple[int, int]], decodes: list[int]
) -> None:
    shape = make_shape(prefills, decodes)
    rounded = round_shape(shape)
    half = 2 ** (0.5 / ROWS_PER_OCTAVE) - 1
    assert abs(rounded.rows - shape.rows) <= half * shape.rows + 1
    assert rounded.phase is shape.phase or rounded.decodes == 0
    assert rounded.prefills >= 1
    lengths = choose_lengths(rounded)
    assert min(lengths.query_lengths) >= 1
    assert all(kv >= query for query, kv in zip(lengths.query_lengths, lengths.kv_lengths, strict=True))
