"""Exponentials that keep the XU busy all the time, as in a softmax beside matrix products."""

import numpy as np
from msgspec.structs import replace

from analyzer.advice.edited_input import edit_input
from analyzer.advice.interface import Edit, Site
from analyzer.demand.opcode_costs import PIPE_INDEX
from analyzer.hardware.gpu import find_sched_timing
from analyzer.ir.arrays import BoolArray, make_read_only
from analyzer.ir.opcode import Opcode, Semantics
from analyzer.ir.scheduling import Pipe, SchedClass
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.model_result import ModelResult

NAME = "special-function-bound"
ACTION = (
    "compute a part of the exponentials by polynomials on the FMA pipe (as FlashAttention-4 does), and none "
    "for elements that a mask removes"
)
_FUNCTION_MODIFIER = "EX2"
_MIN_BUSY_SHARE = 0.85
_POLYNOMIAL_INSTRUCTIONS = 6  # range reduction and a polynomial of degree two or three
_MIN_EXPONENTIAL_SHARE = 0.5  # of the XU's cycles


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the exponentials, most executed first, where they keep the XU busy most of the time."""
    model_input, bounds = result.model_input, result.prediction.bounds_cycles
    busy = bounds.get(Pipe.XU.value, 0.0)
    cycles = result.prediction.cycles - result.prediction.cpi_stack.get(Stall.LAUNCH, 0.0)
    if cycles <= 0 or busy < _MIN_BUSY_SHARE * cycles or busy < max(bounds.values()):
        return ()
    chosen = _mask_exponentials(model_input)
    counts, ids = model_input.execution_counts, model_input.kernel.opcode_ids
    on_xu = model_input.costs.pipe[ids] == PIPE_INDEX[Pipe.XU]
    used = counts * model_input.costs.issue_cycles[ids] * on_xu
    if used[chosen].sum() < _MIN_EXPONENTIAL_SHARE * used.sum():
        return ()
    rows = sorted(np.flatnonzero(chosen & (counts > 0)).tolist(), key=lambda row: (-float(counts[row]), row))
    message = (
        f"the XU pipe is busy {busy / cycles:.0%} of the time, {used[chosen].sum() / used.sum():.0%} of it "
        f"with {float(counts[chosen].sum()):,.0f} exponentials (MUFU.EX2) of each warp"
    )
    return tuple(Site(row, message) for row in rows)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which so many exponentials move to the FMA pipe that both pipes are as busy.

    The polynomials are added to the cycles of the single-precision instructions that the kernel has.
    """
    model_input, kernel = result.model_input, result.model_input.kernel
    costs, counts = model_input.costs, model_input.execution_counts
    exponentials = kernel.form_table.make_opcode_mask(_is_exponential)
    floats = kernel.form_table.make_opcode_mask(_is_single_precision)
    cycles = counts * costs.issue_cycles[kernel.opcode_ids]
    on_xu = float(cycles[costs.pipe[kernel.opcode_ids] == PIPE_INDEX[Pipe.XU]].sum())
    on_fma = float(cycles[floats[kernel.opcode_ids]].sum())
    fp32 = find_sched_timing(model_input.arch, SchedClass.FP32).issue_cycles.value
    chosen = exponentials[kernel.opcode_ids]
    polynomials = float(counts[chosen].sum()) * _POLYNOMIAL_INSTRUCTIONS * fp32
    moved_share = (on_xu - on_fma) / (float(cycles[chosen].sum()) + polynomials)
    if moved_share <= 0.0 or not on_fma:
        return None
    issue_cycles = np.where(exponentials, costs.issue_cycles * (1.0 - moved_share), costs.issue_cycles)
    issue_cycles[floats] *= 1.0 + moved_share * polynomials / on_fma
    make_read_only(issue_cycles)
    edited = edit_input(model_input, costs=replace(costs, issue_cycles=issue_cycles))
    return Edit(
        edited,
        note=f"{moved_share:.0%} of the exponentials as {_POLYNOMIAL_INSTRUCTIONS} instructions each of the "
        "FMA pipe, which is as busy then",
    )


def _mask_exponentials(model_input: ModelInput) -> BoolArray:
    mask: BoolArray = model_input.kernel.form_table.make_opcode_mask(_is_exponential)[
        model_input.kernel.opcode_ids
    ]
    return mask


def _is_exponential(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.FLOAT_FUNCTION and _FUNCTION_MODIFIER in opcode.modifiers


def _is_single_precision(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.FP32
