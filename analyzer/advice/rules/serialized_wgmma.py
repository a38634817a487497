"""Warpgroup products that are waited for one by one, though nothing reads their sums before the next one."""

import numpy as np

from analyzer.advice.edited_rows import without_rows
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.flow.loops import Loop
from analyzer.ir.opcode import Opcode, Semantics, is_warpgroup_mma
from analyzer.ir.operand import Immediate
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "serialized-wgmma"
ACTION = (
    "let a group of products be pending (wgmma.wait_group 1), and keep the registers of the sums out of "
    "other instructions until the loop is over (warpgroup fences on them; ptxas warns with C7510 to C7514)"
)
_WAIT_MODIFIER = "DEPBAR"


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the waits for all products that the next product follows, those that are executed most first."""
    model_input = result.model_input
    kernel = model_input.kernel
    is_mma = kernel.form_table.make_opcode_mask(is_warpgroup_mma)[kernel.opcode_ids]
    if not is_mma.any():
        return ()
    parents = {loop.parent for loop in model_input.loop_forest.loops}
    rows = [
        row
        for loop in model_input.loop_forest.loops
        if loop.index not in parents
        for row in _find_needless_waits(model_input, loop, is_mma)
    ]
    counts = model_input.execution_counts
    rows.sort(key=lambda row: (-float(counts[row]), row))
    message = (
        "warpgroup products are serialized: the warp waits for all of them (stall gmma) before it issues "
        "the next, though nothing has read their sums"
    )
    return tuple(Site(row, message) for row in rows if counts[row] > 0)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch without these waits."""
    return Edit(without_rows(result.model_input, list_rows(sites)), note="products queue at the tensor core")


def _find_needless_waits(
    model_input: ModelInput, loop: Loop, is_mma: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> list[int]:
    """Return the waits for all groups after which a product comes before any other reader of its sums."""
    kernel, blocks = model_input.kernel, model_input.cfg.blocks
    rows = [row for number in sorted(loop.blocks) for row in range(blocks[number].start, blocks[number].stop)]
    if not any(is_mma[row] for row in rows):
        return []
    forms = {row: kernel.decode_form(row) for row in rows}
    sums = frozenset(unit for row in rows if is_mma[row] for unit in forms[row].defs)
    found = []
    for place, row in enumerate(rows):
        if not _waits_for_all_groups(kernel.find_opcode(row), forms[row].operands):
            continue
        after = rows[place + 1 :] + rows[:place]
        reader = next((one for one in after if is_mma[one] or sums.intersection(forms[one].uses)), row)
        if is_mma[reader]:
            found.append(row)
    return found


def _waits_for_all_groups(opcode: Opcode, operands: tuple[object, ...]) -> bool:
    if opcode.semantics is not Semantics.WAIT_WARPGROUP or _WAIT_MODIFIER not in opcode.modifiers:
        return False
    return not any(isinstance(operand, Immediate) and operand.value for operand in operands)
