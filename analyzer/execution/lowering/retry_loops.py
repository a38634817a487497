"""Loops that try an atomic exchange until it succeeds, and the branches that its result decides.

Additions of floats to shared memory, atomics on halves and doubles, a maximum of floats and locks are loops
around a compare-and-swap (CAS, CAST.SPIN) or an exchange (EXCH):

    L:  LDS R4, [R7]
        FADD R5, R13, R4
        ATOMS.CAST.SPIN R5, [R7], R4, R5
        ISETP.EQ.U32.AND P0, PT, R5, 0x1, PT
    @!P0 BRA L

An exchange fails where another lane or warp was faster. Of the lanes of a warp that meet on one address one
succeeds in each trip, so n lanes take n trips. Other warps are assumed not to interfere.

A branch that leaves the loop and depends on the exchange tells what success is. Another branch of the loop
whose comparison is the same, as around the code that holds a lock, goes as success says.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from analyzer.execution.lowering.slicing import find_address_reads
from analyzer.flow.cfg import Cfg
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.flow.loops import Loop, LoopForest
from analyzer.ir.opcode import MEMORY_KINDS, Opcode, OpKind
from analyzer.ir.operand import Immediate, Operand, Predicate, Register
from analyzer.isa.register_operands import find_predicate_unit, find_register_unit

_EXCHANGE_MODIFIERS = frozenset({"CAS", "CAST", "EXCH"})
_MAX_DEPENDENCE_LENGTH = 16  # instructions between an exchange and the branch that it decides
_EQUALITIES = {"EQ": True, "NE": False}
_COMPARE_OPERANDS = 5  # two results, two words, a joined predicate


class RetryLoop(Struct, frozen=True, kw_only=True):
    """A loop that retries an atomic exchange."""

    exchange_row: int
    exit_rows: frozenset[int]  # branches that leave the loop when the exchange succeeds
    # other branches that the exchange decides: whether they are taken when it succeeds
    taken_on_success: Mapping[int, bool]
    # The loop is the innermost one around the exchange, whose address is still there at the exits: lanes that
    # meet on it take turns. (An outer loop tells changes of its half of a word from those of the other half.)
    lanes_take_turns: bool


def is_exchange(opcode: Opcode) -> bool:
    """Return whether an instruction is an atomic exchange, with or without a comparison."""
    return opcode.kind is OpKind.ATOMIC and not _EXCHANGE_MODIFIERS.isdisjoint(opcode.modifiers)


def find_retry_loops(cfg: Cfg, loop_forest: LoopForest) -> Mapping[int, RetryLoop]:
    """Find the loops that retry an atomic exchange, by index of the loop."""
    kernel = cfg.kernel
    is_tried = kernel.form_table.make_opcode_mask(is_exchange)[kernel.opcode_ids]
    loops = [
        (loop, [row for row in _iterate_rows(cfg, loop) if is_tried[row]])
        for loop in (loop_forest.loops if is_tried.any() else ())
    ]
    if not any(exchanges for _, exchanges in loops):
        return {}
    chains = find_def_use_chains(cfg)
    found: dict[int, RetryLoop] = {}
    for loop, exchanges in loops:
        for exchange in exchanges:
            exits = frozenset(
                row
                for row in _iterate_exit_rows(cfg, loop)
                if _is_behind(cfg, loop_forest, row, exchange) and _depends_on(chains, row, exchange)
            )
            if exits:
                is_innermost = loop_forest.loop_of[cfg.block_of[exchange]] == loop.index
                found[loop.index] = _build_retry_loop(
                    chains, loop, exchange, exits, is_innermost=is_innermost
                )
                break
    return found


def _is_behind(cfg: Cfg, loop_forest: LoopForest, row: int, exchange: int) -> bool:
    """Return whether an iteration reaches a row only after an exchange, so that it sees the new result."""
    before, here = cfg.block_of[exchange], cfg.block_of[row]
    return row > exchange if before == here else loop_forest.dominates(before, here)


def _iterate_rows(cfg: Cfg, loop: Loop) -> Iterator[int]:
    for block in sorted(loop.blocks):
        yield from range(cfg.blocks[block].start, cfg.blocks[block].stop)


def _iterate_exit_rows(cfg: Cfg, loop: Loop) -> Iterator[int]:
    """Yield the branches and conditional exits by which warps leave a loop."""
    for block in sorted(loop.blocks):
        row = cfg.blocks[block].stop - 1
        form = cfg.kernel.decode_form(row)
        is_exit = form.opcode.kind is OpKind.EXIT and not form.is_unconditional
        if is_exit or any(follower not in loop.blocks for follower in cfg.successors[block]):
            yield row


def _build_retry_loop(
    chains: DefUseChains, loop: Loop, exchange: int, exits: frozenset[int], *, is_innermost: bool
) -> RetryLoop:
    cfg = chains.cfg
    equal_on_success = {
        key: is_taken_if_equal is _leads_out(cfg, loop, row)
        for row in exits
        if (condition := _find_equality(chains, row)) is not None
        for key, is_taken_if_equal in (condition,)
    }
    taken_on_success = {
        row: equal_on_success[condition[0]] is condition[1]
        for block in loop.blocks
        for row in (cfg.blocks[block].stop - 1,)
        if row not in exits
        and (condition := _find_equality(chains, row)) is not None
        and condition[0] in equal_on_success
    }
    address = find_address_reads(cfg.kernel.decode_form(exchange))
    between = range(exchange + 1, max(exits)) if min(exits) > exchange else _iterate_rows(cfg, loop)
    is_kept = not any(address >> slot & 1 for row in between for slot in cfg.kernel.decode_form(row).defs)
    return RetryLoop(
        exchange_row=exchange,
        exit_rows=exits,
        taken_on_success=taken_on_success,
        lanes_take_turns=is_innermost and is_kept,
    )


def _leads_out(cfg: Cfg, loop: Loop, row: int) -> bool:
    """Return whether a branch leaves the loop where it is taken."""
    target = cfg.taken_targets.get(cfg.block_of[row])
    return target is None or target not in loop.blocks


def _depends_on(chains: DefUseChains, row: int, producer: int) -> bool:
    """Return whether the condition of a branch is computed from a result of an instruction."""
    kernel, work, seen = chains.cfg.kernel, [(row, 0)], {row}
    while work:
        current, length = work.pop()
        for source in chains.producers(current):
            if source == producer:
                return True
            is_computed = kernel.find_opcode(source).kind not in MEMORY_KINDS
            if is_computed and source not in seen and length < _MAX_DEPENDENCE_LENGTH:
                seen.add(source)
                work.append((source, length + 1))
    return False


_OperandKey = tuple[object, frozenset[int]]  # what is read, and the rows that may have written it
_EqualityKey = frozenset[_OperandKey]


def _find_equality(chains: DefUseChains, row: int) -> tuple[_EqualityKey, bool] | None:
    """Return which two words a branch compares, and whether it is taken if they are equal.

    None where its condition is more than one comparison for equality.
    """
    kernel = chains.cfg.kernel
    branch = kernel.decode_form(row)
    if branch.guard is None or branch.guard.index is None:
        return None
    slot = find_predicate_unit(branch.guard)
    writers = chains.sources(row).definitions.get(slot, frozenset())
    if len(writers) != 1:
        return None
    (compare_row,) = writers
    compare = kernel.decode_form(compare_row)
    is_equality = next((_EQUALITIES[word] for word in compare.opcode.modifiers if word in _EQUALITIES), None)
    if is_equality is None or not compare.is_unconditional or len(compare.operands) != _COMPARE_OPERANDS:
        return None
    first, second, left, right, joined = compare.operands
    if not (isinstance(first, Predicate) and isinstance(second, Predicate) and isinstance(joined, Predicate)):
        return None
    if joined.index is not None or joined.is_negated:
        return None
    is_first = first.index is not None and find_predicate_unit(first) == slot
    keys = [_make_operand_key(chains, compare_row, operand) for operand in (left, right)]
    known = [key for key in keys if key is not None]
    if len(known) < len(keys):
        return None
    is_true_if_equal = is_equality is is_first
    return frozenset(known), is_true_if_equal is not branch.guard.is_negated


def _make_operand_key(chains: DefUseChains, row: int, operand: Operand) -> _OperandKey | None:
    match operand:
        case Register(index=None):
            return 0, frozenset()
        case Register():
            unit = find_register_unit(operand)
            return (unit, operand.is_negated), chains.sources(row).definitions.get(unit, frozenset())
        case Immediate(value=value):
            return ("number", value), frozenset()
        case _:
            return None
