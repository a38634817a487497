"""diff and check are right on pairs of compiled kernels whose verdict is known by construction.

bench/diff_pairs.py judges many more; those of traces/pairs need no compiler.
"""

import shutil
from pathlib import Path

import pytest
from diff_pairs import Pair, check_pair, diff_pair, judge_pair, list_check_faults, read_pairs
from paths import TRACES

SHIPPED = sorted(path.name for path in (TRACES / "pairs").iterdir() if path.is_dir())
PAIRS = {pair.name: pair for pair in read_pairs()}


def copy_pair(name: str, folder: Path) -> Pair:
    """Copy a pair to where the harness has its builds; return its row of the table."""
    shutil.copytree(TRACES / "pairs" / name, folder / "pairs" / name)
    return PAIRS[name]


@pytest.mark.parametrize("name", SHIPPED)
def test_diff_is_right(name: str, tmp_path: Path) -> None:
    pair = copy_pair(name, tmp_path)
    assert judge_pair(pair, diff_pair(pair, tmp_path), None).faults == ()


@pytest.mark.parametrize("name", ["padding-removed", "shared-memory-doubled", "function-renamed"])
def test_check_trips_on_what_became_slower(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    pair = copy_pair(name, tmp_path)
    assert list_check_faults(pair, check_pair(pair, tmp_path)) == []


def test_the_other_way_round_is_faster(tmp_path: Path) -> None:
    pair = copy_pair("padding-removed", tmp_path)
    home = tmp_path / "pairs" / pair.name
    for which, other in (("old", "between"), ("new", "old"), ("between", "new")):
        (home / which).rename(home / other)
    (row,) = diff_pair(pair, tmp_path)["kernels"]
    assert row["verdict"] == "significant"
    assert row["cycles_change"] < -0.05
