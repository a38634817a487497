"""Inputs of models with some fields changed, and with what follows from these."""

from typing import Any

from msgspec.structs import replace

from analyzer.advice.interface import Edit
from analyzer.demand.tensor_memory import find_occupied_columns
from analyzer.demand.warp_demand import compute_warp_demand
from analyzer.hardware.occupancy import Occupancy, compute_occupancy
from analyzer.models.interface import ModelInput


def edit_input(model_input: ModelInput, **changes: Any) -> ModelInput:
    """Return an input with other fields, and with the demand that follows from them."""
    edited = replace(model_input, **changes)
    return replace(
        edited,
        demand=compute_warp_demand(
            edited.kernel.opcode_ids, edited.execution_counts, edited.costs, edited.access_bytes
        ),
    )


def compute_edited_occupancy(
    model_input: ModelInput, *, registers: int | None = None, shared_bytes: int | None = None
) -> Occupancy:
    """Compute the occupancy with other registers per thread, or other bytes of shared memory per CTA."""
    if registers is None:
        registers = model_input.kernel.resources.registers or 0
    return compute_occupancy(
        model_input.arch.limits,
        block_threads=model_input.block_threads,
        registers=registers,
        shared_bytes=model_input.shared_bytes_per_cta if shared_bytes is None else shared_bytes,
        tensor_columns=find_occupied_columns(model_input.cfg, model_input.arch.limits),
    )


def edit_occupancy(model_input: ModelInput, occupancy: Occupancy, note: str) -> Edit:
    """Return the edit that puts other numbers of CTAs on an SM.

    A grid that is not known is one full wave, before and after: then the work of the launches differs.
    """
    if model_input.grid is not None:
        return Edit(edit_input(model_input, occupancy=occupancy), note=note)
    wave_ctas = occupancy.count_wave_ctas(model_input.gpu.sm_count)
    edited = edit_input(model_input, occupancy=occupancy, grid_ctas=wave_ctas)
    return Edit(edited, work_scale=model_input.grid_ctas / wave_ctas, note=note)


def measure_divided_share(model_input: ModelInput, share: float) -> float:
    """Measure the instructions of a warp that does such a share of the iterations of its loops, over all now.

    Instructions outside of loops stay, and one iteration of each loop at least.
    """
    counts, loop_of = model_input.execution_counts, model_input.loop_forest.loop_of
    before = after = 0.0
    for block in model_input.cfg.blocks:
        work, length = float(counts[block.start : block.stop].sum()), block.stop - block.start
        before += work
        after += work if loop_of[block.index] is None else max(min(work, length), work * share)
    return after / before if before else 1.0
