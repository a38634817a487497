"""Products of matrices by multiply-adds of lanes, where tensor cores would do them."""

import math

import numpy as np
from msgspec.structs import astuple, replace

from analyzer.advice.edited_input import edit_input
from analyzer.advice.edited_rows import find_dead_rows, without_rows
from analyzer.advice.interface import Edit, Site
from analyzer.advice.scalar_products import ScalarProducts, find_scalar_products
from analyzer.demand.opcode_costs import PIPE_INDEX, OpcodeCosts
from analyzer.hardware.gpu import compute_mma_issue_cycles, find_sched_timing
from analyzer.ir.opcode import MmaShape
from analyzer.ir.scheduling import WARP_SIZE, SchedClass, TensorRate
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "scalar-product"
ACTION = "let tensor cores multiply (mma, wmma, or a library such as CUTLASS), from tiles in shared memory"
_SHAPES = {
    True: MmaShape(16, 8, 16, is_sparse=False, tensor_rate=TensorRate.F16, accumulator_bits=32),
    False: MmaShape(16, 8, 8, is_sparse=False, tensor_rate=TensorRate.TF32, accumulator_bits=32),
}
_FRAGMENT_BYTES = 512  # for one instruction, where a warp makes 16 x 16 elements by two
# Of one load: ldmatrix.x4 brings four matrices of 16-bit elements, but it transposes no elements of 32 bits.
_LOAD_BYTES = {True: 512, False: 128}
_MAX_OTHER_SHARE = 0.1  # of the executions of the same opcode, elsewhere


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the multiply-adds of a product of matrices, where the GPU has tensor cores for its operands."""
    model_input = result.model_input
    found = find_scalar_products(model_input)
    if found is None or _find_product_cycles(model_input, found) is None:
        return ()
    kernel, counts = model_input.kernel, model_input.execution_counts
    share = float(counts[list(found.rows)].sum()) / float(counts.sum())
    operands = "16-bit operands" if found.is_half else "FP32 operands, if TF32 is accurate enough"
    message = (
        f"matrix product on vector units: {kernel.find_opcode(found.rows[0]).mnemonic} is {share:.0%} of the "
        f"executed instructions, with {operands}"
    )
    return tuple(Site(row, message) for row in sorted(found.rows, key=lambda row: (-float(counts[row]), row)))


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which a few matrix instructions and loads of fragments stand for these."""
    model_input = result.model_input
    found = find_scalar_products(model_input)
    cycles = None if found is None else _find_product_cycles(model_input, found)
    if found is None or cycles is None or _is_used_elsewhere(model_input, found):
        return None
    shape = _SHAPES[found.is_half]
    n_products = _count_lane_products(model_input, found) * WARP_SIZE / shape.n_fmas
    kept = found.rows[: math.ceil(n_products)]
    n_loads = n_products * _FRAGMENT_BYTES / _LOAD_BYTES[found.is_half]
    loads = found.loads[: math.ceil(n_loads)]
    ids = {int(model_input.kernel.opcode_ids[row]) for row in kept}
    shared_bytes = model_input.access_bytes.shared_bytes.copy()
    shared_bytes[list(loads)] = n_products * _FRAGMENT_BYTES / len(loads)
    edited = edit_input(
        model_input,
        costs=_make_tensor_costs(model_input, ids, cycles * n_products / len(kept)),
        access_bytes=replace(model_input.access_bytes, shared_bytes=shared_bytes),
    )
    removed = {*found.rows, *found.loads, *found.conversions} - {*kept, *loads}
    return Edit(
        without_rows(edited, removed | find_dead_rows(model_input.cfg, removed)),
        note=f"matrix instructions of {shape.m}x{shape.n}x{shape.k}, 16 x 16 elements a warp at a time",
    )


def _count_lane_products(model_input: ModelInput, found: ScalarProducts) -> float:
    """Count the multiply-adds of a lane that stand in the code: two for packed halves."""
    opcodes = [model_input.kernel.find_opcode(row) for row in found.rows]
    return sum(opcode.flops / 2.0 for opcode in opcodes)


def _find_product_cycles(model_input: ModelInput, found: ScalarProducts) -> float | None:
    """Return the cycles of a matrix instruction on the tensor core of a sub-core, None without that."""
    arch = model_input.arch
    if SchedClass.MMA_HALF in arch.unsupported:
        return None
    cost = compute_mma_issue_cycles(model_input.gpu, arch, SchedClass.MMA_HALF, _SHAPES[found.is_half])
    return None if cost is None else cost.cycles


def _is_used_elsewhere(model_input: ModelInput, found: ScalarProducts) -> bool:
    """Return whether much else in the code has the same opcodes: costs belong to opcodes."""
    kernel, counts = model_input.kernel, model_input.execution_counts
    ids = {int(kernel.opcode_ids[row]) for row in found.rows}
    all_runs = float(counts[np.isin(kernel.opcode_ids, list(ids))].sum())
    return all_runs - float(counts[list(found.rows)].sum()) > _MAX_OTHER_SHARE * all_runs


def _make_tensor_costs(model_input: ModelInput, ids: set[int], issue_cycles: float) -> OpcodeCosts:
    """Return costs in which some opcodes are matrix instructions."""
    timing = find_sched_timing(model_input.arch, SchedClass.MMA_HALF)
    values = {
        "pipe": PIPE_INDEX[timing.pipe],
        "alternate_pipe": -1,
        "issue_cycles": issue_cycles,
        "latency_cycles": timing.latency_cycles.value,
    }
    columns = dict(zip(OpcodeCosts.__struct_fields__, astuple(model_input.costs), strict=True))
    for name, value in values.items():
        columns[name] = columns[name].copy()
        columns[name][sorted(ids)] = value
    return replace(model_input.costs, **columns)
