"""The warp that stands for all, and how unevenly instructions are spread over sub-cores (AMALI 4.3, 4.9)."""

import math

import numpy as np
from msgspec import Struct

from analyzer.demand.costs import PIPES, FloatArray
from analyzer.demand.demand import instruction_weights
from analyzer.execution.profile import WarpClass
from analyzer.execution.representative import SUB_CORES, representative_class, sub_core_of
from analyzer.models.base import Situation
from analyzer.text.errors import UsageError


class Representative(Struct, frozen=True, eq=False):
    """weights[n]: executions of each instruction by the warp; one_of: its class, None where none is known."""

    weights: FloatArray
    one_of: WarpClass | None
    notes: tuple[str, ...] = ()


def representative(situation: Situation) -> Representative:
    """The medoid of the largest cluster of warps by pipe use; without classes the mean warp.

    Where there are several kinds and no scikit-learn to cluster them, the most numerous kind.
    """
    profile = situation.profile
    if profile is None or not profile.classes:
        return Representative(situation.weights, None)
    notes: tuple[str, ...] = ()
    try:
        chosen = representative_class(profile, _block_use(situation))
    except UsageError:
        chosen = max(profile.classes, key=lambda one: one.n_warps)
        notes = ("scikit-learn is not installed: the most numerous kind of warp stands for all",)
    weights = instruction_weights(situation.cfg, tuple(chosen.block_counts.astype(float).tolist()))
    return Representative(weights, chosen, notes)


def _block_use(situation: Situation) -> FloatArray:
    """Cycles that one run of a block takes on each pipe, [n_block, n_pipe]."""
    ids = situation.kernel.opcode_ids
    n_blocks = len(situation.cfg.blocks)
    rows = np.asarray(situation.cfg.block_of)
    pipes = situation.costs.pipe[ids[: len(rows)]].astype(np.int64)
    cycles = situation.costs.issue_cycles[ids[: len(rows)]]
    flat = np.bincount(rows * len(PIPES) + pipes, weights=cycles, minlength=n_blocks * len(PIPES))
    return flat.reshape(n_blocks, len(PIPES)).astype(np.float64)


def divergence_instructions(situation: Situation, chosen: Representative) -> float:
    """Instructions of the busiest sub-core less those of the sub-core that runs the representative warp.

    AMALI equation 29, warps on sub-cores by their number in the CTA modulo four. CTAs are dealt out evenly:
    the busiest SM has ceil(CTAs / SMs) of them, each with the mean CTA's instructions on each sub-core.
    """
    profile = situation.profile
    if profile is None or chosen.one_of is None or not situation.grid_ctas:
        return 0.0
    lengths = np.array([len(block) for block in situation.cfg.blocks], dtype=np.float64)
    by_seat = np.sum(
        [np.array(one.seats) * float(one.block_counts @ lengths) for one in profile.classes], axis=0
    )
    sub_cores = sub_core_of(np.arange(len(by_seat)))
    per_cta = np.bincount(sub_cores, weights=by_seat, minlength=SUB_CORES) / situation.grid_ctas
    busiest = math.ceil(situation.grid_ctas / situation.gpu.sm_count)
    mean = situation.grid_ctas / min(situation.gpu.sm_count, situation.grid_ctas)
    own = per_cta[chosen.one_of.example[1] % len(per_cta)]
    return max(0.0, float(per_cta.max()) * busiest - float(own) * mean)
