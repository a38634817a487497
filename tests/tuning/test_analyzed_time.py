"""Slots of balanced routing, as the reference analysis is given them."""

import numpy as np
from analyzed_time import list_balanced_slots

from analyzer.operators.expert_tiles import count_row_blocks
from analyzer.tuning.fused_moe_space import MoeShape


def test_every_slot_occurs_once_in_a_tile_of_its_expert() -> None:
    shape = MoeShape(37, 8, 3, 512, 256)
    slots, experts = list_balanced_slots(shape, 16)
    assert len(slots) == 16 * len(experts)
    assert len(experts) == count_row_blocks(*(np.array([each]) for each in (shape.n_slots, 8.0, 16.0)))[0]
    real = slots < shape.n_slots
    assert sorted(slots[real].tolist()) == list(range(shape.n_slots))
    assert (slots[real] % 8 == np.repeat(experts, 16)[real]).all()
