"""Trip counts of loops whose bounds are constants in the code.

The trip count is known if the loop has one exit and one latch, the exit's condition compares an induction
variable with a constant, and the variable starts at a constant and grows by a constant in each iteration. The
comparison is then evaluated iteration by iteration until the loop ends.

Example: R0 starts at 0, `IADD3 R0, R0, 0x4, RZ`, `ISETP.GE.AND P0, PT, R0, 0x10, PT` and `@!P0 BRA header`
make four iterations.
"""

from msgspec import Struct

from analyzer.execution.static_counts.integer_constants import find_constant_before, writes_register
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopForest
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import Semantics
from analyzer.ir.operand import Immediate, Operand, Predicate, Register
from analyzer.isa.register_operands import find_predicate_unit

_MAX_TRIP_COUNT = 1 << 20
_WORD_MASK = 0xFFFFFFFF
_SIGN_BIT = 1 << 31
_COMPARE_FUNCTIONS = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


class _LoopCondition(Struct, frozen=True):
    """Comparison that decides whether a loop continues."""

    row: int
    block: int
    form: InstructionForm  # of the comparison
    continue_value: bool  # the loop continues while the comparison has this value


def find_constant_trip_count(cfg: Cfg, loop_forest: LoopForest, loop: Loop) -> int | None:
    """Return the iterations of a loop; None if its bounds are not found to be constants."""
    condition = _find_condition(cfg, loop)
    entry = _find_entering_block(cfg, loop)
    if condition is None or entry is None or _has_call(cfg, loop):
        return None
    if not _runs_once_per_iteration(loop_forest, loop, condition.block):
        return None
    compared = condition.form.operands[2:4]
    for place, operand in enumerate(compared):
        if not isinstance(operand, Register) or operand.index is None:
            continue
        step_row = _find_increment_row(cfg, loop, operand)
        if step_row is None:
            continue
        bound_operand = compared[1 - place]
        start = _evaluate_at_entry(cfg, entry, Register(operand.file, operand.index))
        bound = _evaluate_bound(cfg, loop, entry, bound_operand)
        step = _find_increment(cfg, step_row, operand)
        if start is None or bound is None or not step:
            return None
        if not _runs_once_per_iteration(loop_forest, loop, cfg.block_of[step_row]):
            return None
        first = step if _comes_before(cfg, loop_forest, step_row, condition) else 0
        return _count_trips(condition, place, start + first, step, bound)
    return None


def _runs_once_per_iteration(loop_forest: LoopForest, loop: Loop, block: int) -> bool:
    """Return whether a block runs once per iteration: it dominates the latch and is in no inner loop."""
    return loop_forest.loop_of[block] == loop.index and loop_forest.dominates(block, loop.latches[0])


def _has_call(cfg: Cfg, loop: Loop) -> bool:
    """Return whether the loop contains a call: a callee may write any register."""
    return any(cfg.block_of[row] in loop.blocks for row in cfg.call_rows)


def _find_condition(cfg: Cfg, loop: Loop) -> _LoopCondition | None:
    """Return the comparison that decides the loop's only exit."""
    if len(loop.exit_edges) != 1 or len(loop.latches) != 1:
        return None
    block, outside = loop.exit_edges[0]
    branch = cfg.kernel.decode_form(cfg.blocks[block].stop - 1)
    predicate, taken_when = _find_branch_predicate(branch)
    if predicate is None:
        return None
    target = cfg.taken_targets.get(block)
    if target is None:
        return None
    continue_value = taken_when if target != outside else not taken_when
    for row in range(cfg.blocks[block].stop - 2, cfg.blocks[block].start - 1, -1):
        form = cfg.kernel.decode_form(row)
        if find_predicate_unit(predicate) not in form.defs:
            continue
        if not _is_simple_compare(form, predicate):
            return None
        return _LoopCondition(row, block, form, continue_value)
    return None


def _find_branch_predicate(branch: InstructionForm) -> tuple[Predicate | None, bool]:
    """Return the predicate that a branch depends on, and the value for which the branch is taken."""
    candidates = [branch.guard, *branch.operands]
    named = [p for p in candidates if isinstance(p, Predicate) and p.index is not None]
    if len(named) != 1:
        return None, True
    return Predicate(named[0].file, named[0].index), not named[0].is_negated


def _is_simple_compare(form: InstructionForm, predicate: Predicate) -> bool:
    """Return whether this is one integer comparison and nothing else: `ISETP.GE.AND P0, PT, a, b, PT`."""
    if form.opcode.semantics is not Semantics.INT_COMPARE or not form.is_unconditional:
        return False
    if {"EX", "OR", "XOR", "64", "S64", "U64"} & set(form.opcode.modifiers) or len(form.operands) < 5:
        return False
    last = form.operands[4]
    return (
        form.operands[0] == predicate
        and isinstance(last, Predicate)
        and last.index is None
        and not last.is_negated
    )


def _find_entering_block(cfg: Cfg, loop: Loop) -> int | None:
    """Return the only block from which the loop is entered; None if there are several."""
    outside = [b for b in cfg.predecessors[loop.header] if b not in loop.blocks]
    return outside[0] if len(outside) == 1 else None


def _find_increment_row(cfg: Cfg, loop: Loop, register: Register) -> int | None:
    """Return the row of the only instruction of the loop that writes the register; None if not one."""
    rows = [
        row
        for block in loop.blocks
        for row in range(cfg.blocks[block].start, cfg.blocks[block].stop)
        if writes_register(cfg.kernel.decode_form(row), register)
    ]
    return rows[0] if len(rows) == 1 else None


def _find_increment(cfg: Cfg, row: int, register: Register) -> int | None:
    """Return the constant that `R = R + constant` adds, as a signed number; None for any other form."""
    form = cfg.kernel.decode_form(row)
    if form.opcode.semantics is not Semantics.INT_ADD or not form.is_unconditional:
        return None
    if {"X", "64"} & set(form.opcode.modifiers):
        return None
    sources = [o for o in form.operands[1:] if not isinstance(o, Predicate)]
    own_reads = [
        o for o in sources if o == Register(register.file, register.index, suffixes=_find_reuse_suffix(o))
    ]
    others = [o for o in sources if o not in own_reads]
    constants = [o.value for o in others if isinstance(o, Immediate) and isinstance(o.value, int)]
    zeros = [o for o in others if isinstance(o, Register) and o.index is None]
    if len(own_reads) != 1 or len(constants) + len(zeros) != len(others):
        return None
    return _to_signed(sum(constants))


def _find_reuse_suffix(operand: Operand) -> tuple[str, ...]:
    """Return the operand's suffixes if they are `.reuse` alone, which does not change the value."""
    return operand.suffixes if isinstance(operand, Register) and operand.suffixes == ("reuse",) else ()


def _evaluate_at_entry(cfg: Cfg, entry: int, operand: Operand) -> int | None:
    return find_constant_before(cfg, entry, cfg.blocks[entry].stop, operand)


def _evaluate_bound(cfg: Cfg, loop: Loop, entry: int, operand: Operand) -> int | None:
    if isinstance(operand, Register) and operand.index is not None:
        written = any(
            writes_register(cfg.kernel.decode_form(row), operand)
            for block in loop.blocks
            for row in range(cfg.blocks[block].start, cfg.blocks[block].stop)
        )
        if written:
            return None
    return _evaluate_at_entry(cfg, entry, operand)


def _comes_before(cfg: Cfg, loop_forest: LoopForest, row: int, condition: _LoopCondition) -> bool:
    block = cfg.block_of[row]
    if block == condition.block:
        return row < condition.row
    return loop_forest.reverse_postorder.index(block) < loop_forest.reverse_postorder.index(condition.block)


def _count_trips(condition: _LoopCondition, place: int, first: int, step: int, bound: int) -> int | None:
    """Count iterations until the loop ends; None if there are too many.

    place: index of the induction variable in the comparison, 0 or 1.
    first: its value at the first comparison.
    """
    words = condition.form.opcode.modifiers
    compare = next((_COMPARE_FUNCTIONS[word] for word in words if word in _COMPARE_FUNCTIONS), None)
    if compare is None:
        return None
    view = _to_unsigned if "U32" in words else _to_signed
    value = first
    for trips in range(1, _MAX_TRIP_COUNT):
        pair = (view(value), view(bound)) if place == 0 else (view(bound), view(value))
        if compare(*pair) is not condition.continue_value:
            return trips
        value += step
    return None


def _to_signed(value: int) -> int:
    value &= _WORD_MASK
    return value - (_WORD_MASK + 1) if value & _SIGN_BIT else value


def _to_unsigned(value: int) -> int:
    return value & _WORD_MASK
