"""Registers as some warps of a launch see them."""

import numpy as np
import pytest

from analyzer.execution.machine.register_state import LockstepGroup, RegisterState, RegisterView

ADDRESS = 7


def group(*rows: int) -> LockstepGroup:
    return LockstepGroup(
        np.array(rows), np.ones((len(rows), 32), dtype=bool), has_all_warps=len(rows) == 4, has_all_lanes=True
    )


def write(state: RegisterState, rows: tuple[int, ...], *, growth: int) -> None:
    view = RegisterView(state, group(*rows))
    delta = np.full((1, 1), growth, np.uint32) if growth else None
    view.write(ADDRESS, np.full((1, 1), 64, np.uint32), None, delta)
    view.flush()


@pytest.mark.parametrize("others", [(1, 2, 3), (0, 1, 2, 3)])
def test_what_grew_no_longer_grows(others: tuple[int, ...]) -> None:
    """A register that held an address for some warps holds a product for them and others: such a loop closes."""
    state = RegisterState((1, 1, 4))
    write(state, (1, 2), growth=16)
    write(state, (1, 2), growth=0)
    assert RegisterView(state, group(*others)).read_delta(ADDRESS) is None


def test_what_grows_in_one_warp_grows_in_a_group_that_has_it() -> None:
    state = RegisterState((1, 1, 4))
    write(state, (1, 2), growth=16)
    write(state, (1,), growth=0)
    assert RegisterView(state, group(0, 1)).read_delta(ADDRESS) is None
    delta = RegisterView(state, group(1, 2)).read_delta(ADDRESS)
    assert delta is not None
    assert np.broadcast_to(delta, (2, 1)).ravel().tolist() == [0, 16]
