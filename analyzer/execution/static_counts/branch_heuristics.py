"""Prediction of branches on floating-point data, from the comparison that they depend on.

Library code leaves its common path if numbers are huge, tiny, infinite or NaN (a sine of more than 105,615),
and floating-point numbers are seldom equal (the opcode heuristic of Ball and Larus, Branch Prediction for
Free, PLDI 1993). So the comparison is evaluated with several ordinary numbers in place of each register. If
all results agree, that is the prediction; else there is none.

Example: `FSETP.GEU.AND P0, PT, |R4|, 105615, PT` is false for every ordinary number, so `@P0 BRA slow_path`
is predicted not taken.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.lowering.semantics.integer_compare import JOIN_IDENTITIES
from analyzer.execution.lowering.semantics.single_precision import FLOAT_COMPARE_FUNCTIONS
from analyzer.flow.cfg import Cfg
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import Opcode, OpKind, Semantics
from analyzer.ir.operand import ConstantBankOperand, Immediate, Operand, Predicate, Register
from analyzer.isa.register_operands import find_predicate_unit

# Distinct numbers of both signs and of ordinary magnitudes, with which no code is likely to compare.
_TYPICAL_VALUES = np.array([-8011.3, -37.9, -1.21, -0.0229, -2.3e-4, 1.9e-4, 0.0173, 1.37, 43.3, 9171.7])
_FLOAT_COMPARE_SEMANTICS = frozenset({Semantics.FLOAT_COMPARE, Semantics.DOUBLE_COMPARE})


def find_likely_successor(cfg: Cfg, block: int) -> int | None:
    """Return the predicted successor of a block that ends in a branch; None if there is no prediction.

    All definitions of the predicate that reach the branch must agree.
    """
    branch = cfg.kernel.decode_form(cfg.blocks[block].stop - 1)
    if branch.opcode.kind is not OpKind.BRANCH or branch.guard is None or branch.guard.index is None:
        return None
    if any(isinstance(operand, Predicate) for operand in branch.operands):
        return None
    slot = find_predicate_unit(branch.guard)
    writers = _find_predicate_writers(cfg).get(slot, [])
    value: bool | None = None
    for row in _find_reaching_definitions(cfg, block, writers):
        found = _predict_predicate(cfg.kernel.decode_form(row), slot)
        if found is None or value not in (None, found):
            return None
        value = found
    return None if value is None else _find_target(cfg, block, is_taken=value is not branch.guard.is_negated)


@lru_cache(maxsize=1)
def _find_predicate_writers(cfg: Cfg) -> dict[int, list[int]]:
    """Return the rows that write each predicate, ascending, for predicates that a float comparison writes."""
    kernel = cfg.kernel
    ids, masks = kernel.opcode_ids, kernel.form_table.make_opcode_mask
    compared = {
        slot
        for row in np.flatnonzero(masks(_is_float_compare)[ids]).tolist()
        for slot in kernel.decode_form(row).defs
    }
    found: dict[int, list[int]] = {}
    for row in np.flatnonzero(masks(_may_write_predicates)[ids]).tolist() if compared else ():
        for slot in compared.intersection(kernel.decode_form(row).defs):
            found.setdefault(slot, []).append(row)
    return found


def _may_write_predicates(opcode: Opcode) -> bool:
    return opcode.destination_pattern.strip("r?") != ""


def _is_float_compare(opcode: Opcode) -> bool:
    return opcode.semantics in _FLOAT_COMPARE_SEMANTICS


def _find_reaching_definitions(cfg: Cfg, block: int, writers: list[int]) -> Iterator[int]:
    """Yield the definitions of a predicate, among `writers`, that reach the end of a block."""
    work, seen = [block], {block}
    while work and writers:
        current = work.pop()
        rows = cfg.blocks[current]
        place = bisect_left(writers, rows.stop) - 1
        if place >= 0 and writers[place] >= rows.start:
            yield writers[place]
            continue
        for before in cfg.predecessors[current]:
            if before not in seen:
                seen.add(before)
                work.append(before)


def _find_target(cfg: Cfg, block: int, *, is_taken: bool) -> int | None:
    if is_taken:
        return cfg.taken_targets.get(block)
    return block + 1 if block + 1 in cfg.successors[block] else None


def _predict_predicate(form: InstructionForm, slot: int) -> bool | None:
    """Return the value that a comparison most likely writes to a predicate; None if not predicted."""
    if not _is_float_compare(form.opcode) or form.guard is not None or len(form.operands) != 5:
        return None
    first, _, left, right, joined = form.operands
    outcome = _predict_comparison(form, left, right)
    if outcome is None or not isinstance(first, Predicate) or not isinstance(joined, Predicate):
        return None
    outcome = outcome is (find_predicate_unit(first) == slot)
    joins = [word for word in JOIN_IDENTITIES if word in form.opcode.modifiers]
    if joined.index is None:
        return outcome if joins == ["OR" if joined.is_negated else "AND"] else None
    return outcome if joins == ["OR" if outcome else "AND"] else None  # whatever the joined predicate is


def _predict_comparison(form: InstructionForm, left: Operand, right: Operand) -> bool | None:
    compare = next(
        (FLOAT_COMPARE_FUNCTIONS[word] for word in form.opcode.modifiers if word in FLOAT_COMPARE_FUNCTIONS),
        None,
    )
    a, b = _list_typical_values(left), _list_typical_values(right)
    if compare is None or a is None or b is None:
        return None
    found = np.unique(compare(a[:, None], b[None, :])[_select_pairs_to_try(left, right, len(a), len(b))])
    return bool(found[0]) if len(found) == 1 else None


def _select_pairs_to_try(left: Operand, right: Operand, n_left: int, n_right: int) -> NDArray[np.bool_]:
    """Return a mask of the pairs to try.

    Two different registers seldom hold the same number; a register compared with itself always does.
    """
    if n_left == n_right == 1:
        return np.ones((1, 1), dtype=np.bool_)
    same = np.eye(n_left, n_right, dtype=np.bool_)
    if isinstance(left, Register) and isinstance(right, Register) and left.index == right.index:
        return same
    return ~same if n_left == n_right else np.ones((n_left, n_right), dtype=np.bool_)


def _list_typical_values(operand: Operand) -> NDArray[np.float64] | None:
    """Return ordinary numbers for a register or constant, the value of an immediate; None for the rest."""
    match operand:
        case Immediate(value=float(value)):
            return np.array([value])
        case Register(index=None):
            return np.zeros(1)
        case Register() | ConstantBankOperand():
            numbers = np.abs(_TYPICAL_VALUES) if operand.is_absolute else _TYPICAL_VALUES
            return -numbers if operand.is_negated else numbers
        case _:
            return None
