"""Tasks of FlashInfer's attention: FlashAttention-2 and -3, paged and ragged (FlashInfer 0.4).

FlashAttention-2: queries of the heads that share a KV head are packed into rows of one matrix; a tile has 128
of these rows, 64 or 16 where the mean request has no more than 64 or 16. Where the tiles of all requests do
not fill the GPU (two CTAs to an SM), the KV sequence is cut: the least length of a chunk, above 128, for
which the chunks still fit at once. The grid has chunks and tiles first and KV heads outside; the hardware
places it.

FlashAttention-3 (Hopper): tiles of 128 queries of one head (192 for head dimension 64), never cut, requests
by KV length, longest first, each from its last tile to its first, and a min-heap that gives a tile to the CTA
with the least of 2 · tile rows + keys so far. Where heads have over 4,096 tiles each, one plan serves all
heads.

Causal: a tile sees keys up to its last query's. Keys are rounded up to steps of 64. Two products per score
(alpha = 4 of equation 3), one exponential, and three FMA-pipe instructions (scale, maximum's difference,
sum).

Facts: flashinfer-ai/flashinfer, include/flashinfer/attention/scheduler.cuh and utils.cuh.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import AttentionBatch, Column
from analyzer.operators.names import AttentionKind
from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import SchedulingPolicy, TaskTable
from analyzer.operators.task_demand import stack_demand

_KEY_STEP = 64.0
_LEAST_CHUNK = 128
_FA2_CTAS_PER_SM = 2  # the number that FlashInfer's plan counts on
_FA3_TILES_OF_ONE_PLAN = 4096
_FMA_PER_SCORE, _TENSOR_PER_SCORE_AND_DIMENSION = 3.0, 4.0


class _RowTasks(Struct, frozen=True):
    """One row's tasks, in the order of its plan."""

    keys: Column
    tile_rows: float
    rounds: float
    weight: float  # tasks that each of these stands for (heads that follow one plan)


def decompose_attention(batch: AttentionBatch, figures: PipeFigures) -> TaskTable:
    """Return the tasks of each row's attention; a generic kind is FA3 with warpgroup MMA, else FA2."""
    fa3 = batch.kind in (AttentionKind.FA3_PAGED, AttentionKind.FA3_RAGGED) or (
        batch.kind is AttentionKind.GENERIC and figures.has_warpgroup_mma
    )
    rows = [_plan_fa3(batch, i) if fa3 else _plan_fa2(batch, i, figures.sm_count) for i in range(len(batch))]
    keys = np.concatenate([row.keys for row in rows])
    sizes = np.array([len(row.keys) for row in rows])
    of_row = np.repeat(np.arange(len(rows)), sizes)
    tile = np.array([row.tile_rows for row in rows])[of_row]
    weight = np.array([row.weight for row in rows])[of_row]
    dim = batch.head_dim[of_row]
    padded = np.ceil(keys / _KEY_STEP) * _KEY_STEP
    scores = tile * padded
    loads = batch.dtype.activation_bytes * dim * (tile + 2.0 * keys)
    demand = stack_demand(
        _TENSOR_PER_SCORE_AND_DIMENSION * scores * dim, _FMA_PER_SCORE * scores, scores, loads
    )
    return TaskTable(
        offsets=np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
        repeats=np.ones(len(keys)),
        demand=demand * weight[:, None],
        cost=2.0 * tile + keys,
        rounds=np.array([row.rounds for row in rows]),
        slots_per_sm=np.full(len(rows), 1.0 if fa3 else _FA2_CTAS_PER_SM),
        policy=SchedulingPolicy.MIN_HEAP if fa3 else SchedulingPolicy.HARDWARE,
    )


def choose_fa2_tile(mean_packed_queries: float, head_dim: float) -> float:
    """Return the rows of a tile of FlashInfer's FlashAttention-2 on sm_80 and later."""
    if mean_packed_queries > 64 and head_dim < 256:
        return 128.0
    return 64.0 if mean_packed_queries > 16 else 16.0


def choose_fa2_chunk(tiles: Column, keys: Column, most_chunks: int) -> int:
    """Return the least length of a chunk of keys, from 128 on, with which all chunks run at once."""
    low, high = _LEAST_CHUNK, int(max(keys.max(), _LEAST_CHUNK))
    while low < high:
        middle = (low + high) // 2
        if (tiles * np.ceil(np.maximum(keys, 1.0) / middle)).sum() > most_chunks:
            low = middle + 1
        else:
            high = middle
    return low


def _plan_fa2(batch: AttentionBatch, row: int, sm_count: int) -> _RowTasks:
    queries, keys = _take_lengths(batch, row)
    group = batch.heads[row] / batch.kv_heads[row]
    packed = queries * group
    tile = choose_fa2_tile(packed.sum() // len(packed), batch.head_dim[row])
    tiles = np.ceil(packed / tile)
    most_chunks = int(_FA2_CTAS_PER_SM * sm_count // batch.kv_heads[row])
    chunk = choose_fa2_chunk(tiles, keys, most_chunks)
    chunks = np.ceil(np.maximum(keys, 1.0) / chunk)
    request, index = _enumerate(tiles * chunks)
    tile_index, chunk_index = index // chunks[request], index % chunks[request]
    last = keys[request] - queries[request] + np.ceil((tile_index + 1) * tile / group)
    end = np.minimum(keys[request], last)
    seen = np.clip(end - chunk_index * chunk, 0.0, chunk)
    return _RowTasks(seen, tile, float(batch.kv_heads[row]), 1.0)


def _plan_fa3(batch: AttentionBatch, row: int) -> _RowTasks:
    queries, keys = _take_lengths(batch, row)
    order = np.argsort(-keys, kind="stable")
    queries, keys = queries[order], keys[order]
    tile = 192.0 if batch.head_dim[row] == 64 else 128.0
    tiles = np.ceil(queries / tile)
    request, index = _enumerate(tiles)
    from_last = tiles[request] - 1 - index
    seen = np.minimum(keys[request], keys[request] - queries[request] + (from_last + 1) * tile)
    heads = float(batch.heads[row])
    one_plan = np.ceil(queries.sum() / tile) + len(queries) - 1 > _FA3_TILES_OF_ONE_PLAN
    return _RowTasks(np.maximum(seen, 0.0), tile, 1.0 if one_plan else heads, heads if one_plan else 1.0)


def _take_lengths(batch: AttentionBatch, row: int) -> tuple[Column, Column]:
    part = slice(batch.q_lengths.offsets[row], batch.q_lengths.offsets[row + 1])
    return batch.q_lengths.values[part], batch.kv_lengths.values[part]


def _enumerate(counts: Column) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each of counts[0] + counts[1] + ... tasks its request and its place in the request."""
    whole = counts.astype(np.int64)
    request = np.repeat(np.arange(len(whole)), whole)
    starts = np.cumsum(whole) - whole
    return request, np.arange(len(request)) - starts[request]
