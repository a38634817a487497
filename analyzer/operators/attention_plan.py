"""How attention kernels cut their work into CTAs: query tiles, splits of the KV cache, steps over KV tiles.

A request of q queries and kv keys is cut into tiles of `tile_q` query rows. With packing, the queries of a
group share their KV head's tiles (q · group rows in all); otherwise each query head has tiles of its own. A
CTA walks over its keys in steps of KV_TILE keys; a causal tile stops at its last visible key. Where the tiles
are too few to fill the GPU, the keys are cut into chunks: the smallest that need at most two CTAs per SM, as
FlashInfer's planner chooses them (FlashInfer 0.4, include/flashinfer/attention/scheduler.cuh).

With a window, keys that no query of a request sees are left out before, and a tile starts at the first key
that one of its queries sees.

Invariant: tasks, steps and bytes are sums over requests, so equal requests are merged first: a batch of 2,048
equal decodes costs as much as one.

Example: one decode of 1,024 keys, 8 heads sharing 1 KV head, 108 SMs: a tile of 16 rows holds the 8 queries;
216 CTAs are allowed, but a chunk has 128 keys at least: 8 CTAs of 2 steps and a merge.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, RaggedLengths

KV_TILE = 64.0
MIN_CHUNK = 128.0
CTAS_PER_SM = 2.0
SPECULATIVE_QUERIES = 8  # as many queries per request still count as a decode


class Requests(Struct, frozen=True):
    """The requests of a batch, equal neighbours merged; one entry per run of equal requests."""

    q: Column
    kv: Column  # that any query sees
    window: Column  # keys that a query sees at most; infinite where there is no window
    count: Column  # requests that are equal
    offsets: NDArray[np.int64]  # of each row's first run, and the end
    row: NDArray[np.int64]

    def sum_rows(self, values: Column) -> Column:
        """Return per row the sum of one value per request."""
        return np.add.reduceat(values * self.count, self.offsets[:-1])

    def max_rows(self, values: Column) -> Column:
        """Return per row the maximum of one value per request."""
        return np.maximum.reduceat(values, self.offsets[:-1])


def merge_requests(
    q_lengths: RaggedLengths, kv_lengths: RaggedLengths, window: Column | None = None
) -> Requests:
    """Return the requests of all rows, runs of equal ones merged; window: of each row, 0 or None for none."""
    q, offsets = q_lengths.values, q_lengths.offsets
    windows = _find_windows(window, kv_lengths)
    kv = np.minimum(kv_lengths.values, windows + q - 1.0)
    starts = np.ones(len(q), dtype=bool)
    starts[1:] = (q[1:] != q[:-1]) | (kv[1:] != kv[:-1])
    starts[offsets[:-1]] = True
    runs = np.flatnonzero(starts)
    row_starts = np.searchsorted(runs, offsets[:-1])
    run_offsets = np.append(row_starts, len(runs)).astype(np.int64)
    return Requests(
        q=q[runs],
        kv=np.maximum(kv[runs], 1.0),
        window=windows[runs],
        count=np.diff(np.append(runs, len(q))).astype(np.float64),
        offsets=run_offsets,
        row=np.repeat(np.arange(len(offsets) - 1), np.diff(run_offsets)),
    )


def _find_windows(window: Column | None, lengths: RaggedLengths) -> Column:
    """Return the window of each request, infinite for none."""
    if window is None:
        return np.full(len(lengths.values), np.inf)
    return np.repeat(np.where(window > 0.0, window, np.inf), np.diff(lengths.offsets))


def count_pairs(q: Column, kv: Column, window: Column) -> Column:
    """Return the query-key pairs of requests under the causal mask; window: keys, infinite for none."""
    first = np.maximum(kv - q, 0.0) + 1.0  # keys that the first query sees
    growing = np.clip(window - first, 0.0, q)  # queries that see less than the window
    full = np.where(np.isinf(window), 0.0, window)
    return growing * (2.0 * first + growing - 1.0) / 2.0 + (q - growing) * full


class TilePolicy(Struct, frozen=True):
    """How a kernel tiles each row of a batch."""

    tile_q: Column  # query rows of a tile
    packs: NDArray[np.bool_]  # the queries of a group share tiles
    splits: NDArray[np.bool_]  # keys are cut into chunks


class AttentionPlan(Struct, frozen=True):
    """The CTAs of each row of a batch. Heads are counted in: `tasks` is the whole grid."""

    tile_q: Column
    tasks: Column
    steps: Column  # over KV tiles, of all tasks
    longest_steps: Column  # of the longest task
    pairs: Column  # query-key pairs that the mask leaves, of all heads
    loaded_keys: Column  # keys times KV heads that the tasks read, of L2 or DRAM
    chunks: Column  # per query tile, the most of any request; 1 where keys are not split
    partial_rows: Column  # rows of partial results that a merge reads; 0 where keys are not split


def choose_packed_tile(packed_rows: Column, head_dim: Column) -> Column:
    """Return the rows of a query tile for the mean packed query length: 16, 64 or 128 (FlashInfer's FA2)."""
    wide = np.where((packed_rows > 64.0) & (head_dim < 256.0), 128.0, 64.0)
    return np.where(packed_rows > 16.0, wide, 16.0)


def plan_attention(
    requests: Requests, heads: Column, kv_heads: Column, policy: TilePolicy, sm_count: float
) -> AttentionPlan:
    """Return tasks, steps and keys of each row.

    heads, kv_heads: per row; sm_count: SMs of the GPU, which decide how finely keys are split.
    """
    group = np.where(policy.packs, heads / kv_heads, 1.0)
    units = np.where(policy.packs, kv_heads, heads)
    row = requests.row
    tile, per_group = policy.tile_q[row], group[row]
    tiles = np.ceil(requests.q * per_group / tile)
    chunk = _choose_chunks(requests, tiles, units, policy.splits, sm_count)[row]
    chunks = np.ceil(requests.kv / chunk)
    keys, most_keys = _count_tile_keys(requests, tiles, tile / per_group)
    ragged_steps = keys / KV_TILE + 0.5 * tiles * chunks
    steps = np.where(tiles * chunks == 1.0, np.ceil(requests.kv / KV_TILE), ragged_steps)
    pairs = count_pairs(requests.q, requests.kv, requests.window)
    return AttentionPlan(
        tile_q=policy.tile_q,
        tasks=requests.sum_rows(tiles * chunks) * units,
        steps=requests.sum_rows(steps) * units,
        longest_steps=requests.max_rows(np.ceil(np.minimum(most_keys, chunk) / KV_TILE)),
        pairs=requests.sum_rows(pairs) * heads,
        loaded_keys=requests.sum_rows(keys) * units,
        chunks=requests.max_rows(chunks),
        partial_rows=requests.sum_rows(np.where(chunks > 1.0, requests.q * chunks, 0.0)) * heads,
    )


def _count_tile_keys(requests: Requests, tiles: Column, queries: Column) -> tuple[Column, Column]:
    """Return the keys that all tiles of each request walk over, and those of its longest.

    queries: of a tile. Tile j < tiles - 1 ends at key prefix + (j + 1) · queries, the last one at kv.
    """
    prefix = np.maximum(requests.kv - requests.q, 0.0)
    keys = tiles * prefix + queries * tiles * (tiles - 1.0) / 2.0 + np.minimum(requests.q, requests.kv)
    most_seen = requests.window + queries - 1.0  # by all queries of a tile
    if np.all(most_seen >= requests.kv):
        return keys, requests.kv
    growing = np.clip(np.floor((most_seen - prefix) / queries), 0.0, tiles)
    later = np.where(growing < tiles, (tiles - growing) * np.minimum(most_seen, requests.kv), 0.0)
    windowed = growing * prefix + queries * growing * (growing + 1.0) / 2.0 + later
    return np.minimum(keys, windowed), np.minimum(requests.kv, most_seen)


def _choose_chunks(
    requests: Requests, tiles: Column, units: Column, splits: NDArray[np.bool_], sm_count: float
) -> Column:
    """Return per row the keys of a chunk: by bisection the fewest that need at most two CTAs per SM.

    With n tiles of K keys in all and room for L CTAs, chunks of c keys need between K / c and K / c + n CTAs:
    so the bisection starts between K / L and K / (L - n).
    """
    longest = requests.max_rows(requests.kv)
    all_tiles = requests.sum_rows(tiles)
    room = np.floor(CTAS_PER_SM * sm_count / units)
    splits = splits & (room > all_tiles) & (longest > MIN_CHUNK)
    if not splits.any():
        return longest
    all_keys = requests.sum_rows(tiles * requests.kv)
    spare = np.maximum(room - all_tiles, 1.0)
    low = np.clip(np.floor(all_keys / np.maximum(room, 1.0)), MIN_CHUNK, longest)
    high = np.clip(np.ceil(all_keys / spare), MIN_CHUNK, longest)
    low, high = np.where(splits, low, longest), np.where(splits, high, longest)
    while (low < high).any():
        middle = np.floor((low + high) / 2.0)
        needed = requests.sum_rows(tiles * np.ceil(requests.kv / middle[requests.row]))
        fits = needed <= room
        low, high = (
            np.where(fits | (low >= high), low, middle + 1.0),
            np.where(fits & (low < high), middle, high),
        )
    return low
