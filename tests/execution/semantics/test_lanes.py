"""Votes, shuffles and reductions against loops over the lanes; lanes that are off do not count."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

M = 1 << 32
LANES = 32
WARPS = 2

masks = st.lists(st.integers(1, M - 1), min_size=WARPS, max_size=WARPS)
lane_words = st.lists(
    st.integers(0, 5) | st.integers(0, M - 1), min_size=WARPS * LANES, max_size=WARPS * LANES
)


def spread(words: list[int]) -> np.ndarray:
    """Bits of a word for each lane."""
    return np.array([[word >> lane & 1 for lane in range(LANES)] for word in words], dtype=np.bool_)


def rows(words: list[int]) -> np.ndarray:
    return np.array(words, dtype=np.uint32).reshape(WARPS, LANES)


def at(result: np.ndarray, warp: int, lane: int) -> int:
    return int(np.broadcast_to(result, (WARPS, LANES))[warp, lane])


def s(x: int) -> int:
    return x - M if x >= M // 2 else x


@given(active=masks, votes=masks)
def test_votes(harness: Any, active: list[int], votes: list[int]) -> None:
    values, mask = {"P1": spread(votes)}, spread(active)
    word = harness.run("VOTE.ANY R0, PT, P1", values, mask)["R0"]
    negated = harness.run("VOTEU.ANY UR7, UPT, !P1", values, mask)["UR7"]
    found = {name: harness.run(f"VOTE.{name} P2, P1", values, mask)["P2"] for name in ("ANY", "ALL", "EQ")}
    for warp in range(WARPS):
        yes = active[warp] & votes[warp]
        assert at(word, warp, 0) == yes
        assert at(negated, warp, 0) == active[warp] & ~votes[warp]
        wanted = {"ANY": yes != 0, "ALL": yes == active[warp], "EQ": yes in (0, active[warp])}
        assert {name: at(result, warp, 9) for name, result in found.items()} == wanted
    everyone = harness.run("VOTE.ANY R2, PT, PT", {}, mask)["R2"]
    assert [at(everyone, warp, 3) for warp in range(WARPS)] == active


@pytest.mark.parametrize("shape", [(WARPS, 1), (1, 1)])
def test_votes_of_uniform_predicates(harness: Any, shape: tuple[int, int]) -> None:
    mask = spread([0xFFFF0001, 0x80000000])
    values = {"UP1": np.ones(shape, dtype=np.bool_)}
    word = harness.run("VOTEU.ANY UR4, UPT, UP1", values, mask)["UR4"]
    assert [at(word, warp, 0) for warp in range(WARPS)] == [0xFFFF0001, 0x80000000]
    whole = harness.run("VOTEU.ALL UP2, UP1", values, np.ones((1, 1), dtype=np.bool_))["UP2"]
    assert at(whole, 1, 4) == 1


@given(active=masks, words=lane_words)
def test_one_lane_speaks(harness: Any, active: list[int], words: list[int]) -> None:
    mask, values = spread(active), {"R2": rows(words)}
    first = harness.run("R2UR UR5, R2", values, mask)["UR5"]
    looped = harness.run("R2UR P0, UR5, R2", values, mask)
    before = {"P0": rows([word & 1 for word in words]).astype(np.bool_)}
    joined = harness.run("R2UR.OR P0, UR5, R2", values | before, mask)["P0"]
    elected = harness.run("ELECT P0, UR6, PT", {}, mask)
    for warp in range(WARPS):
        lane = (active[warp] & -active[warp]).bit_length() - 1
        wanted = words[warp * LANES + lane]
        assert at(first, warp, 0) == at(looped["UR5"], warp, 0) == wanted
        assert at(elected["UR6"], warp, 0) == lane
        for other in range(LANES):
            assert at(elected["P0"], warp, other) == (other == lane)
            own = words[warp * LANES + other]
            assert at(looped["P0"], warp, other) == (own != wanted)
            assert at(joined, warp, other) == (own != wanted or bool(own & 1))


REDUCTIONS: list[tuple[str, Callable[[list[int]], int]]] = [
    ("REDUX.SUM UR4, R2", sum),
    ("REDUX.SUM.S32 UR4, R2", sum),
    ("REDUX.OR UR4, R2", lambda xs: int(np.bitwise_or.reduce(np.array(xs, dtype=np.uint64)))),
    ("REDUX UR4, R2", lambda xs: int(np.bitwise_and.reduce(np.array(xs, dtype=np.uint64)))),
    ("REDUX.XOR UR4, R2", lambda xs: int(np.bitwise_xor.reduce(np.array(xs, dtype=np.uint64)))),
    ("REDUX.MIN UR4, R2", min),
    ("REDUX.MAX UR4, R2", max),
    ("CREDUX.MIN.S32 UR4, R2", lambda xs: min(map(s, xs))),
    ("REDUX.MAX.S32 UR4, R2", lambda xs: max(map(s, xs))),
]


@pytest.mark.parametrize(("text", "reference"), REDUCTIONS)
@settings(max_examples=12)
@given(active=masks, words=lane_words, uniform=st.booleans())
def test_reductions(
    harness: Any,
    text: str,
    reference: Callable[[list[int]], int],
    active: list[int],
    words: list[int],
    uniform: bool,
) -> None:
    values = rows(words)[:, :1] if uniform else rows(words)
    result = harness.run(text, {"R2": values}, spread(active))["UR4"]
    for warp in range(WARPS):
        heard = [at(values, warp, lane) for lane in range(LANES) if active[warp] >> lane & 1]
        assert at(result, warp, 0) == reference(heard) % M


@given(active=masks, words=lane_words)
def test_match(harness: Any, active: list[int], words: list[int]) -> None:
    values, mask = rows(words), spread(active)
    found = harness.run("MATCH.ANY R3, R2", {"R2": values}, mask)["R3"]
    whole = harness.run("MATCH.ALL P0, R3, R2", {"R2": values}, mask)
    for warp in range(WARPS):
        row = [int(x) for x in values[warp]]
        heard = [lane for lane in range(LANES) if active[warp] >> lane & 1]
        same = len({row[lane] for lane in heard}) == 1
        assert at(whole["P0"], warp, 0) == same
        assert at(whole["R3"], warp, 0) == (active[warp] if same else 0)
        for lane in range(LANES):
            assert at(found, warp, lane) == sum(1 << other for other in heard if row[other] == row[lane])


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """Lane that is read, and whether it is in bounds: the pseudocode of PTX's shfl.sync."""
    b, clamp, segment = b % 32, c % 32, c >> 8 & 31
    most = (lane & segment) | (clamp & ~segment & 31)
    least = lane & segment
    if mode == "UP":
        source, fits = lane - b, lane - b >= most
    elif mode == "DOWN":
        source, fits = lane + b, lane + b <= most
    elif mode == "BFLY":
        source, fits = lane ^ b, (lane ^ b) <= most
    else:
        source, fits = least | (b & ~segment & 31), (least | (b & ~segment & 31)) <= most
    return (source if fits else lane), fits


@pytest.mark.parametrize("mode", ["UP", "DOWN", "BFLY", "IDX"])
@settings(max_examples=25)
@given(
    words=lane_words,
    b=st.integers(0, 40),
    c=st.sampled_from((0, 0x1F, 0x181F, 0x1C1F, 0x1E1F, 0x1800, 0x101F)),
    form=st.sampled_from(("both", "c", "none")),
)
def test_shuffles(harness: Any, mode: str, words: list[int], b: int, c: int, form: str) -> None:
    values = {
        "R1": rows(words),
        "R2": np.array([[b]], dtype=np.uint32),
        "R3": np.array([[c]], dtype=np.uint32),
    }
    b_text = f"{b:#x}" if form == "both" else "R2"
    c_text = "R3" if form == "none" else f"{c:#x}"
    text = f"SHFL.{mode} P0, R0, R1, {b_text}, {c_text}"
    results = harness.run(text, values, np.ones((1, 1), dtype=np.bool_))
    for warp in range(WARPS):
        for lane in range(LANES):
            source, fits = shuffled(mode, lane, b, c)
            assert at(results["R0"], warp, lane) == words[warp * LANES + source]
            assert at(results["P0"], warp, lane) == fits


@given(words=lane_words, places=lane_words)
def test_each_lane_may_name_its_own(harness: Any, words: list[int], places: list[int]) -> None:
    values = {"R1": rows(words), "R2": rows(places)}
    result = harness.run("SHFL.IDX PT, R0, R1, R2, 0x1f", values, np.ones((1, 1), dtype=np.bool_))["R0"]
    for warp in range(WARPS):
        for lane in range(LANES):
            named = places[warp * LANES + lane] % LANES
            assert at(result, warp, lane) == words[warp * LANES + named]


def test_a_uniform_word_stays_small(harness: Any) -> None:
    values = {"R1": np.array([[7], [9]], dtype=np.uint32)}
    result = harness.run("SHFL.BFLY PT, R0, R1, 0x10, 0x1f", values, np.ones((1, 1), dtype=np.bool_))["R0"]
    assert result.shape == (2, 1)
