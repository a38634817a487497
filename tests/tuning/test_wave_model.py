"""The fit recovers what it should, wave by wave."""

import numpy as np
import pytest
from tuning_cases import N_SMS, make_samples, rise_by_waves

from analyzer.text.errors import InputError
from analyzer.tuning.chooser import Chooser
from analyzer.tuning.wave_model import FitOptions, FitVariant, fit, measure_fit_error


@pytest.mark.parametrize("is_relative", [False, True])
def test_times_bilinear_in_each_wave_are_recovered(is_relative: bool) -> None:
    tables = fit(make_samples(rise_by_waves), N_SMS, FitOptions(is_relative=is_relative))
    assert tables.max_wave == 4
    for wave in range(1, 5):
        wanted = [0.02 + 0.01 * wave, 0.3 * wave, 0.5, 2.0 * wave]
        assert tables.coefficients[0, wave - 1] == pytest.approx(wanted, rel=1e-7, abs=1e-8)
    assert (tables.ranks == 4).all()


def test_the_extrapolation_is_fitted_to_the_last_waves_alone() -> None:
    def bend(wave, grid, loops):  # type: ignore[no-untyped-def]
        early = 100.0 * grid * loops
        late = 0.5 * grid * loops + 2.0 * grid + 3.0 * loops + 4.0
        return np.where(wave <= 2, early, late)

    tables = fit(make_samples(bend, waves=6), N_SMS, FitOptions(extrapolation_waves=4))
    assert tables.coefficients[0, -1] == pytest.approx([0.5, 2.0, 3.0, 4.0], rel=1e-7)
    assert tables.predict(np.array([0]), np.array([1000]), np.array([7])) == pytest.approx([5525.0 + 0.0])


def test_it_is_used_beyond_the_profiled_waves_only() -> None:
    tables = fit(make_samples(rise_by_waves), N_SMS)
    rows = tables.find_rows(np.array([1, 10, 11, 40, 41, 10_000]))
    assert rows.tolist() == [0, 0, 1, 3, 4, 4]


def test_the_micro_configuration_is_shared_and_minimizes_the_mean_over_the_grids() -> None:
    # 2 warps win on the mean, though 1 wins on two of three grids.
    samples = make_samples(lambda wave, grid, loops: grid * loops, micros=(1, 2), waves=2)
    times = samples.time_us.copy()
    grid = samples.map_inputs()[0]
    is_last = grid % N_SMS == 0
    warps = samples.micros[:, 0]
    times[(warps == 1) & is_last] *= 2.0
    times[(warps == 2) & ~is_last] *= 1.1
    changed = type(samples)(samples.space, samples.gpu, samples.shapes, samples.macros, samples.micros, times)
    tables = fit(changed, N_SMS)
    assert (tables.micros[tables.micro_ids] == 2).all()


def test_each_loop_anchor_has_its_own_micro_configuration() -> None:
    samples = make_samples(
        rise_by_waves,
        micros=(1, 4),
        micro_factor=lambda warps, loops: np.where((loops < 5) == (warps == 1), 1, 2),
    )
    tables = fit(samples, N_SMS)
    assert tables.anchors[0, 0].tolist() == [2, 8, 32]
    assert tables.micros[tables.micro_ids[0, 0]].ravel().tolist() == [1, 4, 4]


def test_many_loop_counts_are_merged_to_a_few_anchors() -> None:
    tables = fit(make_samples(rise_by_waves, loops=tuple(range(1, 101))), N_SMS)
    anchors = tables.anchors[0, 0]
    assert len(anchors) == 16
    assert (np.diff(anchors) > 0).all()
    assert measure_fit_error(tables, make_samples(rise_by_waves)) < 1e-9


def test_waves_without_samples_have_the_fit_of_all_waves() -> None:
    samples = make_samples(lambda wave, grid, loops: 2.0 * grid * loops + 5.0 * loops, waves=6)
    wave = -(-samples.map_inputs()[0] // N_SMS)
    tables = fit(samples.select((wave != 3) & (wave != 4)), N_SMS)
    assert tables.ranks[0].tolist() == [4, 4, 0, 0, 4, 4, 4]
    assert tables.coefficients[0, 2] == pytest.approx([2.0, 0.0, 5.0, 0.0], abs=1e-5)


def test_one_sample_per_wave_does_not_decide_a_wave() -> None:
    samples = make_samples(lambda wave, grid, loops: 2.0 * grid * loops + 5.0 * loops, waves=5, loops=(4,))
    tables = fit(samples, N_SMS)
    assert tables.ranks[0].tolist() == [0, 0, 0, 0, 0, 2]  # three samples each; the last waves together 15
    assert measure_fit_error(tables, samples) < 0.01


def test_a_wave_of_one_grid_is_a_step() -> None:
    samples = make_samples(rise_by_waves, loops=(2, 4, 8, 16))
    tables = fit(samples.select(samples.map_inputs()[0] % N_SMS == 0), N_SMS)
    assert tables.ranks[0, :4].tolist() == [2, 2, 2, 2]
    assert tables.coefficients[0, :4, :2] == pytest.approx(0.0, abs=1e-12)
    assert tables.coefficients[0, 1, 2] == pytest.approx((0.02 + 0.02) * 20 + 0.5)


def test_inputs_that_run_other_code_do_not_bend_the_pooled_fit() -> None:
    samples = make_samples(lambda wave, grid, loops: 2.0 * grid * loops + 5.0, waves=12, loops=(4,))
    times = samples.time_us.copy()
    times[::12] *= 6.0
    spoiled = type(samples)(samples.space, samples.gpu, samples.shapes, samples.macros, samples.micros, times)
    tables = fit(spoiled, N_SMS)
    predicted = tables.predict(np.zeros(3, np.int64), np.array([25, 55, 95]), np.array([4, 4, 4]))
    assert predicted == pytest.approx(2.0 * np.array([25, 55, 95]) * 4 + 5.0, rel=0.25)


def test_variants_are_what_remains_without_an_idea() -> None:
    samples = make_samples(rise_by_waves)
    linear = fit(samples, N_SMS, FitOptions(variant=FitVariant.LINEAR))
    assert linear.max_wave == 0
    step = fit(samples, N_SMS, FitOptions(variant=FitVariant.STEP))
    assert not step.coefficients[0, :4, :3].any()
    grid = samples.map_inputs()[0]
    assert step.coefficients[0, 1, 3] == pytest.approx(samples.time_us[-(-grid // N_SMS) == 2].mean())
    errors = [measure_fit_error(fit(samples, N_SMS, FitOptions(variant=v)), samples) for v in FitVariant]
    assert errors[0] < 1e-9
    assert min(errors[1:]) > 0.02


def test_a_profile_without_times_is_an_error() -> None:
    samples = make_samples(lambda wave, grid, loops: np.full_like(grid, np.nan))
    with pytest.raises(InputError, match="has a time"):
        fit(samples, N_SMS)


def test_failed_launches_are_left_out() -> None:
    samples = make_samples(rise_by_waves, micros=(1, 2))
    times = np.where(samples.micros[:, 0] == 2, np.nan, samples.time_us)
    failed = type(samples)(samples.space, samples.gpu, samples.shapes, samples.macros, samples.micros, times)
    tables = fit(failed, N_SMS)
    assert tables.micros.tolist() == [[1]]
    assert Chooser(tables.pack()).choose(16, 16, 16)["warps"] == 1
