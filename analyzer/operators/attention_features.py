"""Dimensionless features of attention: ratios of terms, waves, imbalance, fill of the tiles."""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.attention_plan import CTAS_PER_SM, KV_TILE
from analyzer.operators.attention_terms import TERM_NAMES, AttentionTerms
from analyzer.operators.batches import Column
from analyzer.operators.hardware_figures import OperatorHardware

_SMALLEST_SHARE = 2.0**-10
FEATURE_NAMES = (
    *(f"{name}_share_log2" for name in TERM_NAMES),
    "waves_log2",
    "last_wave_fill",
    "tasks_per_wave_log2",
    "mean_steps_log2",
    "longest_over_mean_log2",
    "tile_rows_log2",
    "tile_fill",
    "chunks_log2",
    "footprint_over_l2_log2",
    "flops_per_byte_over_ridge_log2",
    "group_log2",
    "kv_heads_log2",
    "head_dim_log2",
    "requests_log2",
    "mean_q_log2",
    "mean_kv_log2",
    "longest_kv_over_mean_log2",
    "last_step_fill",
)


def compute_attention_features(
    hardware: OperatorHardware, terms: AttentionTerms, head_dim: Column
) -> NDArray[np.float64]:
    """Return rows x FEATURE_NAMES, finite."""
    work = terms.work
    plan, requests = work.plan, work.requests
    shares = np.log2(np.maximum(terms.terms_us / terms.total_us[:, None], _SMALLEST_SHARE))
    slots = hardware.sm_count * CTAS_PER_SM
    waves = plan.tasks / slots
    mean_steps = plan.steps / plan.tasks
    count = requests.sum_rows(np.ones_like(requests.q))
    mean_q = requests.sum_rows(requests.q) / count
    mean_kv = requests.sum_rows(requests.kv) / count
    longest_kv = requests.max_rows(requests.kv)
    padded = plan.steps * plan.tile_q * KV_TILE
    ridge = hardware.find_peak_tflops(work.dtype) * 1e3 / hardware.dram_gbps
    columns = (
        np.log2(waves),
        waves / np.ceil(waves),
        np.log2(np.minimum(waves, 1.0)),
        np.log2(mean_steps),
        np.log2(np.maximum(plan.longest_steps / mean_steps, 1.0)),
        np.log2(plan.tile_q),
        plan.pairs / padded,
        np.log2(plan.chunks),
        np.log2(terms.dram_bytes / hardware.l2_bytes),
        np.log2(terms.flops / terms.dram_bytes / ridge),
        np.log2(work.heads / work.kv_heads),
        np.log2(work.kv_heads),
        np.log2(head_dim),
        np.log2(count),
        np.log2(mean_q),
        np.log2(mean_kv),
        np.log2(longest_kv / mean_kv),
        longest_kv / KV_TILE / np.ceil(longest_kv / KV_TILE),
    )
    return np.concatenate([shares, np.stack(columns, axis=1)], axis=1)
