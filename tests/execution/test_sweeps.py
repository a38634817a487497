"""The order in which blocks are looked at."""

import pytest

from analyzer.execution.lowering.worklist import Worklist


@pytest.mark.parametrize("backward", [False, True])
def test_what_lies_ahead_comes_in_this_sweep_and_what_lies_behind_in_the_next(backward: bool) -> None:
    last = 9
    waiting = Worklist((last - place if backward else place for place in (2, 5)), backward=backward)
    seen = []
    for block in waiting:
        place = last - block if backward else block
        seen.append(place)
        if len(seen) == 1:
            waiting.add(last - more if backward else more for more in (1, 3, 3, 5))
    assert seen == [2, 3, 5, 1]


def test_a_block_may_wait_for_itself() -> None:
    waiting = Worklist([0])
    for turn, block in enumerate(waiting):
        if turn < 3:
            waiting.add([block])
    assert turn == 3
