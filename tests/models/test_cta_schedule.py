"""CTAs of unequal work that follow each other on the SMs of a GPU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.models.sm.cta_schedule import SmSlots, compute_schedule_factor, find_last_end

WORK = st.lists(st.integers(1, 100), min_size=1, max_size=200).map(
    lambda one: np.array(one, dtype=np.float64)
)
N_SMS, N_SLOTS = st.integers(1, 40), st.integers(1, 4)


def make_slots(n_sms: int, n_slots: int, gain: float) -> SmSlots:
    """Return SMs whose speed goes up to the gain of all slots on a line."""
    return SmSlots(n_sms, tuple(np.linspace(1.0, gain, n_slots).tolist()))


def test_long_ctas_that_come_last_make_a_launch_longer() -> None:
    triangle = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0])
    assert compute_schedule_factor(triangle, 8, make_slots(4, 1, 1.0)) == pytest.approx(7 / 5)
    assert compute_schedule_factor(triangle[::-1].copy(), 8, make_slots(4, 1, 1.0)) == pytest.approx(1.0)


def test_each_number_of_resident_ctas_has_a_speed() -> None:
    slots = SmSlots(1, (1.0, 1.5, 1.6))
    assert find_last_end(np.full(3, 8.0), slots) == pytest.approx(24 / 1.6)
    assert find_last_end(np.full(4, 8.0), slots) == pytest.approx(24 / 1.6 + 8)


def test_mean_ctas_are_those_of_the_busiest_sm() -> None:
    """Twelve on four SMs of two slots: two at once, then one alone, not two on each of the first two SMs."""
    slots = make_slots(4, 2, 1.5)
    work = np.array([6.0, 10.0] * 6)
    factor = compute_schedule_factor(work, 12, slots)
    assert factor == pytest.approx(find_last_end(work, slots) / (16 / 1.5 + 8))


@given(n_ctas=st.integers(1, 300), n_sms=N_SMS, n_slots=N_SLOTS)
def test_equal_ctas_end_in_waves(n_ctas: int, n_sms: int, n_slots: int) -> None:
    slots = make_slots(n_sms, n_slots, float(n_slots))
    assert find_last_end(np.full(n_ctas, 7.0), slots) == pytest.approx(7.0 * -(-n_ctas // (n_sms * n_slots)))
    assert compute_schedule_factor(np.full(n_ctas, 7.0), n_ctas, slots) == pytest.approx(1.0)


@given(work=WORK, n_sms=N_SMS, n_slots=N_SLOTS, part=st.floats(0.0, 1.0))
def test_no_schedule_beats_its_bounds_or_misses_grahams(
    work: np.ndarray, n_sms: int, n_slots: int, part: float
) -> None:
    """An SM of any gain serves no CTA faster than alone, and all of them no faster than at its full speed.

    Graham (1966): on machines that are never idle while there is work, the last end is at most the mean one and the
    longest job's time; here a job may have to share its machine.
    """
    gain = 1.0 + part * (n_slots - 1)
    slots = make_slots(n_sms, n_slots, gain)
    last = find_last_end(work, slots)
    assert last >= max(work.max(), work.sum() / (n_sms * gain)) * (1 - 1e-9)
    assert last <= (work.sum() / n_sms + work.max()) * n_slots / gain * (1 + 1e-9)
