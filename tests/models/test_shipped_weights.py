"""The weights that ship: they fit the families that read them, and each has its card."""

import numpy as np
import pytest
import tomli

from analyzer.models.learned.correction import Situation
from analyzer.models.learned.weights import find_learned_weights
from analyzer.operators.family import load_families
from analyzer.resources import find_data_folder

_FOLDER = find_data_folder("hwdb") / "weights"
_OURS = tuple(sorted(path.stem for path in _FOLDER.glob("ours-*.safetensors")))


def test_every_file_of_weights_has_a_card_that_says_where_its_rows_come_from():
    files = sorted(path.stem for path in _FOLDER.glob("*.safetensors"))
    assert files
    for name in files:
        card = tomli.loads((_FOLDER / f"{name}.toml").read_text())
        sources = card["data"] if isinstance(card["data"], list) else [card]
        assert sources, name
        assert all(source.get("licence") for source in sources), name


@pytest.mark.parametrize("name", _OURS)
def test_weights_were_learned_with_the_features_that_their_family_computes(name):
    weights = find_learned_weights(name)
    assert weights is not None
    assert weights.feature_names in {family.feature_names for family in load_families()}
    assert len(weights.feature_low) == len(weights.feature_high) == len(weights.feature_names)


@pytest.mark.parametrize("name", _OURS)
def test_intervals_hold_their_time_and_widen_with_what_is_not_known(name):
    weights = find_learned_weights(name)
    time_us = np.array([2.0, 20.0, 2000.0])
    widths = []
    for situation in (Situation.KNOWN, Situation.UNSEEN):
        low, high = weights.intervals[situation].find(time_us)
        assert (low <= 0).all()
        assert (high >= 0).all()
        widths.append((high - low).mean())
    assert widths[0] < widths[1]
