"""Tables of measured times, and their division."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuned_profiles import make_samples

from analyzer.text.errors import InputError
from analyzer.tuning.kernel_space import find_kernel
from analyzer.tuning.measured_table import MeasuredTable, split_shapes, tabulate
from analyzer.tuning.samples import Samples

ROOT = Path(__file__).resolve().parents[2]


def test_rows_become_a_table_and_rows_again() -> None:
    samples = make_samples("grouped_gemm")
    table = tabulate(samples)
    assert table.time_us.shape == (20, 6)
    again = table.list_samples()
    assert len(again) == len(samples)
    assert np.array_equal(tabulate(again).time_us, table.time_us)


def test_what_failed_is_told_from_what_was_not_measured() -> None:
    samples = make_samples()
    time_us = samples.time_us.copy()
    time_us[0] = np.nan
    kept = np.arange(len(samples)) != 1
    table = tabulate(
        Samples(samples.space, samples.gpu, samples.shapes, samples.macros, samples.micros, time_us).select(
            kept
        )
    )
    assert np.isinf(table.time_us).sum() == 1
    assert np.isnan(table.time_us).sum() == 1


def test_of_repeated_measurements_the_least_counts() -> None:
    samples = make_samples()
    columns = (np.concatenate([each, each]) for each in (samples.shapes, samples.macros, samples.micros))
    twice = Samples(
        samples.space, samples.gpu, *columns, np.concatenate([samples.time_us, samples.time_us * 2])
    )
    assert np.array_equal(tabulate(twice).time_us, tabulate(samples).time_us)


def test_unlisted_entries_are_capped_and_never_better_than_the_list() -> None:
    table = tabulate(make_samples())
    best = table.find_best_us()
    listed = MeasuredTable(
        table.space, table.gpu, table.shapes, table.configs,
        np.where(table.time_us <= 1.01 * best[:, None], table.time_us, np.nan),
    )  # fmt: skip
    filled = listed.fill_unlisted(1.03)
    assert np.isfinite(filled.time_us).all()
    assert np.array_equal(filled.find_best_us(), best)
    assert filled.time_us.max() <= 1.03 * best.max()


@given(seed=st.integers(0, 1000), share=st.sampled_from([0.25, 0.5, 0.75]))
def test_a_model_is_never_on_both_sides(seed: int, share: float) -> None:
    table = tabulate(make_samples("grouped_gemm"))
    learns = split_shapes(table, share, seed)
    models = {tuple(shape[1:]): set() for shape in table.shapes.tolist()}
    for shape, side in zip(table.shapes.tolist(), learns.tolist(), strict=True):
        models[tuple(shape[1:])].add(side)
    assert all(len(sides) == 1 for sides in models.values())
    assert learns.mean() == share


def test_the_division_does_not_depend_on_other_shapes() -> None:
    table = tabulate(make_samples("grouped_gemm"))
    learns = split_shapes(table, 0.5, 3)
    fewer = table.select_shapes(table.shapes[:, 0] > 16)
    assert np.array_equal(split_shapes(fewer, 0.5, 3), learns[table.shapes[:, 0] > 16])


def test_one_model_cannot_be_divided() -> None:
    table = tabulate(make_samples("grouped_gemm"))
    one = table.select_shapes((table.shapes[:, 1:] == table.shapes[0, 1:]).all(axis=1))
    with pytest.raises(InputError, match="cannot be divided"):
        split_shapes(one, 0.5, 0)
    assert 0 < split_shapes(one, 0.5, 0, by_group=False).sum() < len(one.shapes)


def test_the_committed_division_of_the_published_lists_is_what_is_made() -> None:
    with open(ROOT / "bench" / "splits" / "moe_tuning.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    space = find_kernel("grouped_gemm").space
    names = ("experts", "topk", "hidden", "intermediate")
    models = [tuple(int(row[name]) for name in names) for row in rows]
    shapes = np.array([(m, e, t, 2 * n, h) for m in (1, 64) for e, t, h, n in models], dtype=np.int64)
    macros, micros = np.tile([[16, 32, 64]], (len(shapes), 1)), np.tile([[1, 4, 3]], (len(shapes), 1))
    table = tabulate(Samples(space, "a40", shapes, macros, micros, np.ones(len(shapes))))
    learns = split_shapes(table, 0.5, 47)
    made = {
        (e, t, h, n // 2): side
        for (_, e, t, n, h), side in zip(table.shapes.tolist(), learns.tolist(), strict=True)
    }
    assert made == {model: row["half"] == "teaches" for model, row in zip(models, rows, strict=True)}
    assert sum(made.values()) == 8
