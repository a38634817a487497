"""Loops that wait for other warps: spin loops on a word of memory, and CTA work stealing.

Their trip counts depend on the progress of other warps, so execution cannot find them from memory contents.
"""

from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopForest
from analyzer.ir.opcode import GLOBAL_SPACES, MEMORY_KINDS, Opcode, OpKind, Semantics

_MAX_SPIN_INSTRUCTIONS = 24
_MAX_SLEEPING_SPIN_INSTRUCTIONS = 64  # for loops with NANOSLEEP between two polls
_WRITE_KINDS = (OpKind.STORE, OpKind.REDUCTION, OpKind.ASYNC_COPY, OpKind.MMA)
_STRONG_MODIFIER = "STRONG"


def is_spin_loop(cfg: Cfg, loop: Loop) -> bool:
    """Return whether a short loop polls memory at loop-invariant addresses and writes none."""
    kernel, n_instructions = cfg.kernel, sum(len(cfg.blocks[block]) for block in loop.blocks)
    if n_instructions > _MAX_SLEEPING_SPIN_INSTRUCTIONS:
        return False
    rows = _list_loop_rows(cfg, loop)
    opcodes = [kernel.find_opcode(row) for row in rows]  # operands are decoded only where these fit
    if n_instructions > _MAX_SPIN_INSTRUCTIONS and not any(
        opcode.semantics is Semantics.SLEEP for opcode in opcodes
    ):
        return False
    if any(opcode.kind in _WRITE_KINDS for opcode in opcodes):
        return False
    polls = [row for row, opcode in zip(rows, opcodes, strict=True) if opcode.kind in MEMORY_KINDS]
    if not polls:
        return False
    written = {slot for row in rows for slot in kernel.decode_form(row).defs}
    return all(written.isdisjoint(kernel.decode_form(row).uses) for row in polls)


def has_cta_work_stealing(cfg: Cfg) -> bool:
    """Return whether CTAs take over the work of CTAs that have not started (cluster launch control)."""
    kernel = cfg.kernel
    return bool(kernel.form_table.make_opcode_mask(_is_next_cta_request)[kernel.opcode_ids].any())


def _is_next_cta_request(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.NEXT_CTA


def find_awaited_loads(cfg: Cfg, loop_forest: LoopForest) -> frozenset[int]:
    """Return the rows of the polling loads of spin loops.

    The value that ends the wait is written during the launch, so it differs from the initial contents.
    """
    is_strong = cfg.kernel.form_table.make_opcode_mask(_is_strong_global_load)[cfg.kernel.opcode_ids]
    if not is_strong.any():
        return frozenset()
    loops = [loop for loop in loop_forest.loops if any(is_strong[row] for row in _list_loop_rows(cfg, loop))]
    return frozenset(
        row
        for loop in loops
        if is_spin_loop(cfg, loop)
        for row in _list_loop_rows(cfg, loop)
        if is_strong[row]
    )


def _is_strong_global_load(opcode: Opcode) -> bool:
    return (
        opcode.kind is OpKind.LOAD and opcode.space in GLOBAL_SPACES and _STRONG_MODIFIER in opcode.modifiers
    )


def _list_loop_rows(cfg: Cfg, loop: Loop) -> list[int]:
    return [row for block in loop.blocks for row in range(cfg.blocks[block].start, cfg.blocks[block].stop)]
