"""The representative warp, and the divergence of instructions between sub-cores (AMALI 4.3, 4.9).

Where most CTAs of a grid leave at once (a padded grid, a guard on the CTA's number), the largest cluster of
warps is one of idle warps, whose time says nothing of the kernel's. AMALI, GCoM and MDM say that one warp
stands for all, and have kernels without such CTAs: they mean a warp that works, in CTAs that work.

A warp is idle if it writes nothing to global memory, and issues less than half of what those do that write; a
CTA is idle if all its warps are. Warps that are idle beside others that work (the producer of a specialized
kernel) belong to a CTA that works, and count, as do CTAs that have little to do (the first rows of causal
attention).

    100,000 CTAs of one warp: 90,000 issue 80 instructions and write nothing, 10,000 issue 120,000
    the representative warp issues 120,000, and stands for 10,000 CTAs
"""

import math
from enum import Enum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.baselines.representative_warp import (
    N_SUB_CORES,
    assign_sub_cores,
    find_representative_class,
)
from analyzer.demand.opcode_costs import PIPES
from analyzer.demand.warp_demand import count_instruction_executions
from analyzer.execution.profile.execution_profile import ExecutionProfile, WarpClass
from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import BULK_WRITE_SEMANTICS, GLOBAL_SPACES, Opcode, OpKind
from analyzer.models.interface import ModelInput
from analyzer.text.errors import UsageError

_WRITE_KINDS = frozenset({OpKind.STORE, OpKind.REDUCTION, OpKind.ATOMIC})
_IDLE_SHARE = 0.5  # of the instructions of the mean warp that writes


class RepresentedWarps(Enum):
    """Warps that the representative warp is chosen from, and stands for."""

    WORKING = "working"  # of CTAs that work
    ALL = "all"  # the papers' letter


class RepresentativeWarp(Struct, frozen=True, eq=False):
    """The warp that represents all warps of the CTAs that count."""

    execution_counts: FloatArray  # [n]
    warp_class: WarpClass | None  # None where no classes are known
    n_ctas: int  # that count
    warp_classes: tuple[WarpClass, ...] = ()  # of these CTAs
    notes: tuple[str, ...] = ()


def select_representative_warp(
    model_input: ModelInput, represented: RepresentedWarps = RepresentedWarps.WORKING
) -> RepresentativeWarp:
    """Select the medoid of the largest cluster of warps by pipe use; the mean warp without classes.

    Without scikit-learn to cluster several classes, the most numerous one is selected.
    """
    profile = model_input.profile
    if profile is None or not profile.warp_classes:
        return RepresentativeWarp(model_input.execution_counts, None, model_input.grid_ctas)
    running = tuple(one for one in profile.warp_classes if one.block_counts.any())  # left lines in the trace
    profile = replace(profile, warp_classes=running or profile.warp_classes)
    notes: tuple[str, ...] = ()
    n_idle_ctas = 0
    if represented is RepresentedWarps.WORKING:
        profile, n_idle_ctas = _drop_idle_ctas(profile, _mask_idle_classes(model_input, profile))
        notes = _describe_idle_ctas(model_input, n_idle_ctas)
    try:
        chosen = find_representative_class(profile, _compute_block_pipe_cycles(model_input))
    except UsageError:
        chosen = max(profile.warp_classes, key=lambda one: one.n_warps)
        notes += ("scikit-learn is not installed: the most numerous kind of warp stands for all",)
    weights = count_instruction_executions(model_input.cfg, tuple(chosen.block_counts.astype(float).tolist()))
    n_ctas = max(1, model_input.grid_ctas - n_idle_ctas)
    return RepresentativeWarp(weights, chosen, n_ctas, profile.warp_classes, notes)


def _count_block_instructions(model_input: ModelInput) -> FloatArray:
    """Return the instructions of each block, [n_block]."""
    return np.array([len(block) for block in model_input.cfg.blocks], dtype=np.float64)


def _describe_idle_ctas(model_input: ModelInput, n_idle_ctas: int) -> tuple[str, ...]:
    if not n_idle_ctas:
        return ()
    share = f"{n_idle_ctas:,} of {model_input.grid_ctas:,} CTAs"
    return (f"{share} leave at once: the representative warp is one of the others, and stands for them",)


def _mask_idle_classes(model_input: ModelInput, profile: ExecutionProfile) -> NDArray[np.bool_]:
    """Return a mask of the classes of idle warps, [n_class]."""
    executions = np.array([one.block_counts for one in profile.warp_classes], dtype=np.float64)
    warps = np.array([one.n_warps for one in profile.warp_classes], dtype=np.float64)
    issued = executions @ _count_block_instructions(model_input)
    writers = np.where(executions @ _count_block_writes(model_input) > 0, warps, 0.0)
    if not writers.any():
        return np.zeros(len(warps), dtype=np.bool_)
    mask: NDArray[np.bool_] = (writers == 0) & (issued < _IDLE_SHARE * np.average(issued, weights=writers))
    return mask


def _count_block_writes(model_input: ModelInput) -> FloatArray:
    """Return the instructions of each block that write to global memory, [n_block]."""
    kernel, cfg = model_input.kernel, model_input.cfg
    writes = kernel.form_table.make_opcode_mask(_is_global_write)[kernel.opcode_ids]
    return np.bincount(
        np.asarray(cfg.block_of), weights=writes[: len(cfg.block_of)], minlength=len(cfg.blocks)
    ).astype(np.float64)


def _is_global_write(opcode: Opcode) -> bool:
    return opcode.semantics in BULK_WRITE_SEMANTICS or (
        opcode.kind in _WRITE_KINDS and opcode.space in GLOBAL_SPACES
    )


def _drop_idle_ctas(profile: ExecutionProfile, is_idle: NDArray[np.bool_]) -> tuple[ExecutionProfile, int]:
    """Return a profile without the warps of idle CTAs, and the number of these CTAs.

    is_idle[n_class]: which classes are idle. Which warps share a CTA is not known: as many CTAs are idle as
    there are idle warps of the warp number that has fewest.
    """
    classes = profile.warp_classes
    slots = np.array([one.warp_slot_counts for one in classes], dtype=np.float64)
    idle_by_slot = slots[is_idle].sum(axis=0)
    n_idle_ctas = math.floor(idle_by_slot.min()) if idle_by_slot.size else 0
    if n_idle_ctas < 1:
        return profile, 0
    kept_slots = np.where(is_idle[:, None], slots * (1.0 - n_idle_ctas / idle_by_slot), slots)
    kept = tuple(
        replace(one, n_warps=round(float(left.sum())), warp_slot_counts=tuple(left.tolist()))
        for one, left in zip(classes, kept_slots, strict=True)
        if round(float(left.sum())) > 0
    )
    return replace(profile, warp_classes=kept), n_idle_ctas


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
    if chosen.warp_class is None or not chosen.n_ctas:
        return 0.0
    lengths = _count_block_instructions(model_input)
    instructions_by_slot = np.sum(
        [np.array(one.warp_slot_counts) * float(one.block_counts @ lengths) for one in chosen.warp_classes],
        axis=0,
    )
    sub_cores = assign_sub_cores(np.arange(len(instructions_by_slot)))
    per_cta = np.bincount(sub_cores, weights=instructions_by_slot, minlength=N_SUB_CORES) / chosen.n_ctas
    busiest = math.ceil(chosen.n_ctas / model_input.gpu.sm_count)
    mean = chosen.n_ctas / min(model_input.gpu.sm_count, chosen.n_ctas)
    own = per_cta[chosen.warp_class.example_warp[1] % len(per_cta)]
    return max(0.0, float(per_cta.max()) * busiest - float(own) * mean)
