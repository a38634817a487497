"""The representative warp, and the divergence of instructions between sub-cores (AMALI 4.3, 4.9)."""

import math

import numpy as np
from msgspec import Struct

from analyzer.demand.opcode_costs import PIPES
from analyzer.demand.warp_demand import count_instruction_executions
from analyzer.execution.profile.execution_profile import WarpClass
from analyzer.execution.profile.representative_warp import (
    N_SUB_CORES,
    assign_sub_cores,
    find_representative_class,
)
from analyzer.ir.arrays import FloatArray
from analyzer.models.interface import ModelInput
from analyzer.text.errors import UsageError


class RepresentativeWarp(Struct, frozen=True, eq=False):
    """The warp that represents all warps of a kernel."""

    execution_counts: FloatArray  # [n]
    warp_class: WarpClass | None  # None where no classes are known
    notes: tuple[str, ...] = ()


def select_representative_warp(model_input: ModelInput) -> RepresentativeWarp:
    """Select the medoid of the largest cluster of warps by pipe use; the mean warp without classes.

    Without scikit-learn to cluster several classes, the most numerous one is selected.
    """
    profile = model_input.profile
    if profile is None or not profile.warp_classes:
        return RepresentativeWarp(model_input.execution_counts, None)
    notes: tuple[str, ...] = ()
    try:
        chosen = find_representative_class(profile, _compute_block_pipe_cycles(model_input))
    except UsageError:
        chosen = max(profile.warp_classes, key=lambda one: one.n_warps)
        notes = ("scikit-learn is not installed: the most numerous kind of warp stands for all",)
    weights = count_instruction_executions(model_input.cfg, tuple(chosen.block_counts.astype(float).tolist()))
    return RepresentativeWarp(weights, chosen, notes)


def _compute_block_pipe_cycles(model_input: ModelInput) -> FloatArray:
    """Return the cycles that one execution of a block takes on each pipe, [n_block, n_pipe]."""
    ids = model_input.kernel.opcode_ids
    n_blocks = len(model_input.cfg.blocks)
    rows = np.asarray(model_input.cfg.block_of)
    pipes = model_input.costs.pipe[ids[: len(rows)]].astype(np.int64)
    cycles = model_input.costs.issue_cycles[ids[: len(rows)]]
    cycles = cycles * model_input.access_bytes.constant_passes[: len(rows)]
    flat = np.bincount(rows * len(PIPES) + pipes, weights=cycles, minlength=n_blocks * len(PIPES))
    return flat.reshape(n_blocks, len(PIPES)).astype(np.float64)


def count_divergence_instructions(model_input: ModelInput, chosen: RepresentativeWarp) -> float:
    """Return the instructions of the busiest sub-core beyond those of the representative warp's sub-core.

    AMALI equation 29, with warps on sub-cores by their number in the CTA modulo four. CTAs are distributed
    evenly: the busiest SM has ceil(CTAs / SMs), each with the mean CTA's instructions on each sub-core.
    """
    profile = model_input.profile
    if profile is None or chosen.warp_class is None or not model_input.grid_ctas:
        return 0.0
    lengths = np.array([len(block) for block in model_input.cfg.blocks], dtype=np.float64)
    instructions_by_slot = np.sum(
        [np.array(one.warp_slot_counts) * float(one.block_counts @ lengths) for one in profile.warp_classes],
        axis=0,
    )
    sub_cores = assign_sub_cores(np.arange(len(instructions_by_slot)))
    per_cta = (
        np.bincount(sub_cores, weights=instructions_by_slot, minlength=N_SUB_CORES) / model_input.grid_ctas
    )
    busiest = math.ceil(model_input.grid_ctas / model_input.gpu.sm_count)
    mean = model_input.grid_ctas / min(model_input.gpu.sm_count, model_input.grid_ctas)
    own = per_cta[chosen.warp_class.example_warp[1] % len(per_cta)]
    return max(0.0, float(per_cta.max()) * busiest - float(own) * mean)
