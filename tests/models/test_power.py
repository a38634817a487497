"""The clock that a power limit leaves: closed forms, and how it moves with work, limit and time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import find_gpu_paths, load_gpu
from analyzer.hardware.schema import WorkEnergy
from analyzer.ir.scheduling import TensorRate
from analyzer.models.power import (
    LaunchWork,
    PowerState,
    compute_watts,
    find_clock_share,
    find_limited_clock,
    find_power_limit_w,
    find_tensor_energy_pj,
)

A10 = load_gpu("a10")


def energy_of(gpu: Gpu) -> WorkEnergy:
    assert gpu.arch is not None
    assert gpu.arch.energy is not None
    return gpu.arch.energy


def solve(gpu: Gpu, pj_per_cycle: float, limit_w: float, most_mhz: float, share: float = 1.0) -> PowerState:
    """Return the state of work that takes so much in each of a million cycles, however long they are."""
    work = LaunchWork(1e6 * pj_per_cycle, 0.0, gpu.sm_count, share)
    return find_limited_clock(gpu, energy_of(gpu), work, most_mhz, limit_w, lambda at_mhz: 1.0 / at_mhz)


def test_below_the_knee_the_clock_is_the_power_that_is_left_over_the_energy_of_a_cycle() -> None:
    energy, power = energy_of(A10), A10.file.power
    assert power is not None
    assert power.idle_w is not None
    per_cycle_pj = 1.2e5
    total_pj = per_cycle_pj + A10.sm_count * energy.sm_cycle_pj.value
    wanted_mhz = (150.0 - power.idle_w.value) / total_pj * 1e6
    assert wanted_mhz < energy.voltage_floor_mhz.value
    found = solve(A10, per_cycle_pj, 150.0, 1695.0)
    assert found.clock_mhz == pytest.approx(wanted_mhz, rel=1e-4)
    assert found.watts == pytest.approx(150.0, rel=1e-3)


@given(st.floats(1e3, 1e6), st.floats(1e3, 1e6), st.floats(80.0, 400.0), st.floats(80.0, 400.0))
def test_more_work_leaves_less_clock_and_a_higher_limit_leaves_more(
    less_pj: float, more_pj: float, low_w: float, high_w: float
) -> None:
    (less_pj, more_pj), (low_w, high_w) = sorted((less_pj, more_pj)), sorted((low_w, high_w))
    light, heavy = solve(A10, less_pj, low_w, 1695.0), solve(A10, more_pj, low_w, 1695.0)
    assert heavy.clock_mhz <= light.clock_mhz <= solve(A10, less_pj, high_w, 1695.0).clock_mhz
    lowest = 0.25 * 1695.0
    assert light.watts <= low_w or light.clock_mhz == pytest.approx(lowest)


def test_voltage_follows_the_clock_with_the_skipped_cycles() -> None:
    """Skipped cycles save their work, not their voltage."""
    gpu = load_gpu("h200-sxm")
    energy = energy_of(gpu)
    all_cycles, fewer = (LaunchWork(1e12, 0.0, 0, share) for share in (1.0, 0.91))
    same = compute_watts(gpu, energy, all_cycles, 1900.0, 1.0)
    assert compute_watts(gpu, energy, fewer, 0.91 * 1900.0, 1.0) == pytest.approx(same)


@pytest.mark.parametrize(
    ("rate", "watts"), [(TensorRate.BF16, 709), (TensorRate.FP8, 704), (TensorRate.INT8, 689)]
)
def test_an_h200_draws_what_was_measured(rate: TensorRate, watts: float) -> None:
    """traces/h200/power_pipes.jsonl.xz: multiply-adds in a second, and the true clock."""
    rates = {
        TensorRate.BF16: (4.25e14, 1582),
        TensorRate.FP8: (8.40e14, 1560),
        TensorRate.INT8: (9.34e14, 1733),
    }
    gpu = load_gpu("h200-sxm")
    energy = energy_of(gpu)
    fma, mhz = rates[rate]
    work = LaunchWork(
        fma * find_tensor_energy_pj(energy, rate), 0.0, gpu.sm_count, find_clock_share(gpu, rate)
    )
    assert compute_watts(gpu, energy, work, mhz, 1.0) == pytest.approx(watts, rel=0.05)


def test_a_launch_on_its_own_may_draw_more_than_lasting_work() -> None:
    power = load_gpu("h100-sxm").file.power
    assert power is not None
    assert find_power_limit_w(power, lasts=False) > find_power_limit_w(power, lasts=True) == power.tdp_w.value


def test_an_unknown_rate_costs_in_proportion_to_its_bits() -> None:
    energy = energy_of(load_gpu("t4"))
    f16 = find_tensor_energy_pj(energy, TensorRate.F16)
    assert find_tensor_energy_pj(energy, TensorRate.BF16) == f16
    assert find_tensor_energy_pj(energy, TensorRate.INT8) == f16 / 2
    assert find_tensor_energy_pj(energy, TensorRate.INT4) == f16 / 4


def test_every_card_of_a_known_architecture_has_a_limit() -> None:
    for key in find_gpu_paths():
        gpu = load_gpu(key)
        if gpu.arch is not None and gpu.arch.energy is not None and gpu.file.power is not None:
            assert 20 <= find_power_limit_w(gpu.file.power, lasts=True) <= 2000, key


def test_what_a_card_takes_without_work_falls_with_its_clock() -> None:
    gpu = load_gpu("h100-sxm")
    energy, power = energy_of(gpu), gpu.file.power
    assert power is not None
    assert power.idle_w is not None
    assert power.standby_w is not None
    nothing = LaunchWork(0.0, 0.0, 0)
    most_mhz = gpu.find_clock_mhz(tensor=None).value
    watts = [compute_watts(gpu, energy, nothing, share * most_mhz, 1.0) for share in (0.0, 0.3, 0.7, 1.0)]
    assert watts == sorted(watts)
    assert (watts[0], watts[-1]) == pytest.approx((power.standby_w.value, power.idle_w.value))


# ml-energy/zeus @38cb3f9, sosp24_data/emulation/stage_profile/gpt3-175b+a100_sxm_bf16.csv, forward: MHz,
# seconds, joules.
A100_AT_SET_CLOCKS = (
    *((1305, 0.051970, 22.181), (1260, 0.053566, 20.794), (1140, 0.058891, 18.359)),
    *((1080, 0.062039, 17.513), (930, 0.071648, 17.931), (855, 0.077731, 18.239)),
)


def test_an_a100_at_set_clocks_draws_what_was_measured() -> None:
    """One energy of the work holds for clocks on both sides of where the voltage begins to rise."""
    gpu = load_gpu("a100-80gb-sxm")
    energy = energy_of(gpu)
    for mhz, seconds, joules in A100_AT_SET_CLOCKS:
        work = LaunchWork(1.282e13, 0.0, gpu.sm_count)
        assert compute_watts(gpu, energy, work, mhz, seconds) == pytest.approx(joules / seconds, rel=0.04)


@pytest.mark.parametrize(("limit_share", "least"), [(0.7, 0.8), (0.6, 0.65), (0.5, 0.5)])
def test_a_lower_limit_costs_less_than_its_share_while_the_voltage_falls(
    limit_share: float, least: float
) -> None:
    """An A100 under large products, 400 W at some 1,270 MHz."""
    gpu = load_gpu("a100-80gb-sxm")
    whole, lower = (solve(gpu, 2.05e5, share * 400.0, 1410.0) for share in (1.0, limit_share))
    assert whole.clock_mhz < 1410.0
    assert least < lower.clock_mhz / whole.clock_mhz < 1.0
