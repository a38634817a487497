"""CTAs of attention kernels: tiles, chunks of keys, steps and pairs, against counts made one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.operators.attention_plan import (
    KV_TILE,
    MIN_CHUNK,
    TilePolicy,
    choose_packed_tile,
    merge_requests,
    plan_attention,
)
from analyzer.operators.batches import RaggedLengths

_REQUESTS = st.lists(
    st.integers(1, 6000).flatmap(lambda kv: st.tuples(st.integers(1, kv), st.just(kv))),
    min_size=1,
    max_size=6,
)
_SHAPES = st.tuples(st.integers(1, 8), st.sampled_from((1, 2, 7)), st.sampled_from((16, 64, 128)))


def _make_lengths(values: list[int]) -> RaggedLengths:
    return RaggedLengths(np.array(values, dtype=np.float64), np.array([0, len(values)]))


def _plan(requests, kv_heads, group, tile, *, splits=True, packs=True, sm_count=20.0):
    merged = merge_requests(
        _make_lengths([q for q, _ in requests]), _make_lengths([kv for _, kv in requests])
    )
    policy = TilePolicy(np.array([float(tile)]), np.array([packs]), np.array([splits]))
    heads = np.array([float(kv_heads * group)])
    return plan_attention(merged, heads, np.array([float(kv_heads)]), policy, sm_count)


def _count_tiles(requests, group, tile):
    return [-(-q * group // tile) for q, _ in requests]


def test_a_long_decode_is_cut_into_chunks_of_128_keys():
    plan = _plan([(1, 1024)], 1, 8, 16, sm_count=108.0)
    assert plan.tasks[0] == 8
    assert plan.longest_steps[0] == MIN_CHUNK / KV_TILE
    assert plan.chunks[0] == 8
    assert plan.partial_rows[0] == 8 * 8


def test_tiles_that_fill_the_gpu_are_not_cut():
    plan = _plan([(1, 5000)] * 40, 1, 8, 16, sm_count=20.0)
    assert plan.tasks[0] == 40
    assert plan.partial_rows[0] == 0


def test_query_heads_without_packing_have_tiles_of_their_own():
    plan = _plan([(300, 300)], 2, 4, 128, splits=False, packs=False)
    assert plan.tasks[0] == 3 * 8


@pytest.mark.parametrize(
    ("packed", "head_dim", "tile"),
    [(1, 128, 16), (16, 128, 16), (17, 128, 64), (64, 128, 64), (65, 128, 128), (65, 256, 64)],
)
def test_the_tile_follows_the_mean_packed_query_length(packed, head_dim, tile):
    assert choose_packed_tile(np.array([float(packed)]), np.array([float(head_dim)]))[0] == tile


@given(_REQUESTS, _SHAPES)
@settings(deadline=None, max_examples=40)
def test_the_chunk_is_the_smallest_that_two_ctas_per_sm_hold(requests, shape):
    kv_heads, group, tile = shape
    tiles = _count_tiles(requests, group, tile)
    longest = max(kv for _, kv in requests)
    room = int(2 * 20 // kv_heads)

    def count(chunk):
        return sum(n * -(-kv // chunk) for n, (_, kv) in zip(tiles, requests, strict=True))

    chunk = longest
    if sum(tiles) < room and longest > MIN_CHUNK:
        chunk = next(c for c in range(int(MIN_CHUNK), longest + 1) if count(c) <= room)
    plan = _plan(requests, kv_heads, group, tile)
    assert plan.tasks[0] == count(chunk) * kv_heads
    assert plan.longest_steps[0] == -(-chunk // int(KV_TILE))


@given(_REQUESTS, _SHAPES)
@settings(deadline=None, max_examples=40)
def test_pairs_are_those_that_the_causal_mask_leaves(requests, shape):
    kv_heads, group, tile = shape
    pairs = sum(sum(kv - q + i + 1 for i in range(q)) for q, kv in requests)
    assert _plan(requests, kv_heads, group, tile).pairs[0] == pairs * kv_heads * group


@given(_REQUESTS, _SHAPES)
@settings(deadline=None, max_examples=40)
def test_unsplit_steps_are_those_of_each_tile_to_within_rounding(requests, shape):
    kv_heads, group, tile = shape
    tiles = _count_tiles(requests, group, tile)
    keys = 0
    for n, (q, kv) in zip(tiles, requests, strict=True):
        keys += sum(kv - q + min(-(-(j + 1) * tile // group), q) for j in range(n))
    plan = _plan(requests, kv_heads, group, tile, splits=False)
    n_tiles = sum(tiles)
    assert plan.tasks[0] == n_tiles * kv_heads
    assert plan.loaded_keys[0] / kv_heads == pytest.approx(keys, abs=n_tiles)
    assert plan.steps[0] / kv_heads == pytest.approx(keys / KV_TILE, abs=n_tiles)


@given(_REQUESTS, st.permutations(range(12)))
@settings(deadline=None, max_examples=40)
def test_the_order_of_requests_and_merging_equal_ones_changes_nothing(requests, order):
    twice = (requests * 2)[: len(order)]
    shuffled = [twice[i] for i in order if i < len(twice)]
    first, second = (_plan(each, 2, 4, 64) for each in (sorted(twice), shuffled))
    for name in ("tasks", "steps", "longest_steps", "pairs", "loaded_keys", "partial_rows"):
        assert getattr(first, name)[0] == pytest.approx(getattr(second, name)[0])
