"""What a cache keeps: limits and the equation that the missed share solves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.operators.retention import compute_lost_share, compute_missed_share


def test_nothing_misses_while_the_footprint_fits_and_all_does_far_beyond():
    shares = compute_missed_share(np.array([0.0, 0.5, 1.0, 40.0]))
    assert shares.tolist() == pytest.approx([0.0, 0.0, 0.0, 1.0], abs=1e-4)


def test_a_whole_l2_loses_little_up_to_its_size_and_halves_earlier():
    sizes = np.array([0.5, 0.9, 1.2, 4.0]) * 1e8
    whole, halves = (compute_lost_share(sizes, 1e8, 0.5, is_whole=flag) for flag in (True, False))
    assert whole.tolist() == pytest.approx([0.0, 0.0, 1.0, 1.0], abs=0.01)
    assert halves[0] == pytest.approx(0.5)
    assert (np.diff(halves) > 0).all()


@given(st.floats(1.01, 10.0))
def test_the_missed_share_solves_its_equation(ratio):
    missed = compute_missed_share(np.array([ratio]))[0]
    assert missed == pytest.approx(1.0 - np.exp(-missed * ratio), abs=2e-3)
    assert missed > 0.0


def test_random_replacement_of_lines_gives_the_same_share():
    """Simulate cyclic use of 3000 lines with a cache of 2000."""
    random = np.random.default_rng(0)
    capacity, footprint = 2000, 3000
    slot_of_line = np.full(footprint, -1)
    line_of_slot = np.arange(capacity)
    slot_of_line[:capacity] = line_of_slot
    misses = 0
    for cycle in range(12):
        for line in range(footprint):
            if slot_of_line[line] >= 0:
                continue
            misses += cycle >= 8
            slot = random.integers(capacity)
            slot_of_line[line_of_slot[slot]] = -1
            line_of_slot[slot], slot_of_line[line] = line, slot
    simulated = misses / (4 * footprint)
    assert compute_missed_share(np.array([1.5]))[0] == pytest.approx(simulated, abs=0.03)
