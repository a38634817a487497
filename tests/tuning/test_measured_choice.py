"""Choices that take over measured times: by hand on a machine whose predictions are known."""

import numpy as np
import pytest
from paths import ROOT

from analyzer.text.errors import UsageError
from analyzer.tuning.chooser import Chooser
from analyzer.tuning.measured_choice import choose_with_samples
from analyzer.tuning.samples import Samples

SHAPE = (512, 4096, 4096)


@pytest.fixture(scope="module")
def chooser():
    return Chooser(ROOT / "traces/h100/gemm_wavetune.npz")


def measure(chooser, times, shape=SHAPE):
    """Return samples of (macro, micro) -> time."""
    macros, micros = ([key[part] for key in times] for part in (0, 1))
    return Samples(
        chooser.space,
        chooser.artifact.description.gpu,
        np.array([shape] * len(times)),
        np.array(macros),
        np.array(micros),
        np.array(list(times.values())),
    )


def list_ranked(chooser):
    """Return (macro, micro, predicted) of all macro configurations, fastest first."""
    ranked = chooser.rank(SHAPE)
    n_macro = len(chooser.space.macro_parameters)
    for macro, micro, time_us in zip(ranked.macro_ids, ranked.micro_ids, ranked.time_us, strict=True):
        values = tuple(chooser.get_config(int(macro), int(micro)).values())
        yield values[:n_macro], values[n_macro:], float(time_us)


def test_without_a_row_of_the_input_it_is_the_chooser_s(chooser):
    macro, micro, time_us = next(list_ranked(chooser))
    other = measure(chooser, {(macro, micro): 1.0}, shape=(16, 16, 64))
    for samples in (None, [other]):
        choice = choose_with_samples(chooser, samples, SHAPE)
        assert choice.config == chooser.choose(*SHAPE)
        assert (choice.time_us, choice.is_measured, choice.n_measured) == (pytest.approx(time_us), False, 0)


def test_a_slow_first_levels_the_others_and_stays_until_one_is_measured_faster(chooser):
    (first, micro, predicted_us), (second, second_micro, _), *_ = list_ranked(chooser)
    times = {(first, micro): 2.0 * predicted_us}
    choice = choose_with_samples(chooser, [measure(chooser, times)], SHAPE)
    assert choice.is_measured
    assert choice.time_us == 2.0 * predicted_us
    times[second, second_micro] = 1.5 * predicted_us
    choice = choose_with_samples(chooser, [measure(chooser, times)], SHAPE)
    assert tuple(choice.config.values()) == (*second, *second_micro)
    assert choice.n_measured == 2


def test_predictions_are_levelled_by_the_geometric_mean(chooser):
    (first, micro, first_us), *others, (last, last_micro, last_us) = list_ranked(chooser)
    times = {(first, micro): 100.0 * first_us, (last, last_micro): 100.0 * last_us}
    choice = choose_with_samples(chooser, [measure(chooser, times)], SHAPE)
    assert choice.is_measured  # all are a hundred times as slow as predicted: the first is still the first
    times[last, last_micro] = 0.01 * last_us  # the mean of 100 and 0.01 is 1
    times[first, micro] = 100.0 * first_us
    level_one = choose_with_samples(chooser, [measure(chooser, times)], SHAPE)
    assert level_one.time_us == pytest.approx(min(0.01 * last_us, others[0][2]))


def test_an_unknown_micro_configuration_stands_with_its_time(chooser):
    macro, micro, predicted_us = next(list_ranked(chooser))
    other = (*micro[:-1], micro[-1] + 7)
    choice = choose_with_samples(chooser, [measure(chooser, {(macro, other): predicted_us / 2})], SHAPE)
    assert tuple(choice.config.values()) == (*macro, *other)


def test_rows_of_another_gpu_are_refused(chooser):
    macro, micro, _ = next(list_ranked(chooser))
    samples = measure(chooser, {(macro, micro): 1.0})
    other = Samples(samples.space, "a100-80gb-sxm", *(getattr(samples, name) for name in (
        "shapes", "macros", "micros", "time_us")))  # fmt: skip
    with pytest.raises(UsageError, match="gemm on h100-sxm"):
        choose_with_samples(chooser, [other], SHAPE)
