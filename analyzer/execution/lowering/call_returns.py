"""Where execution may go on behind each block, calls and returns among them."""

from collections.abc import Sequence

from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import SuccessorTable
from analyzer.ir.opcode import OpKind
from analyzer.ir.operand import Immediate


def find_return_sites(cfg: Cfg) -> tuple[int, ...]:
    """Blocks that a return may come back to; recursive calls, which the graph draws as jumps, count too."""
    return tuple(
        block.index + 1
        for block in cfg.blocks[:-1]
        if cfg.kernel.find_opcode(block.stop - 1).kind is OpKind.CALL
    )


def find_interprocedural_successors(cfg: Cfg) -> list[tuple[int, ...]]:
    """Successors as execution goes: calls enter the callee, returns come back behind the calls of theirs."""
    returns = _find_return_targets(cfg)
    return [
        (*cfg.interprocedural_successors[block.index], *returns.get(block.index, ())) for block in cfg.blocks
    ]


def find_blocks_after(cfg: Cfg, block: int) -> set[int]:
    """Blocks that may run behind a block, those that returns lead to among them."""
    return _find_reachable_blocks(find_interprocedural_successors(cfg), block)


def build_call_to_return_graph(cfg: Cfg) -> tuple[SuccessorTable, frozenset[int]]:
    """Successors of which a call that surely comes back is a step; blocks at which a function may end.

    What happens inside does not matter behind it. Other calls lead into their function besides, and may end
    there: it exits, jumps to somewhere, calls back into the caller, or returns to elsewhere.
    """
    kernel = cfg.kernel
    returning_calls = set(find_returning_calls(cfg))
    paths = tuple(
        cfg.successors[b.index] if b.index in returning_calls else cfg.interprocedural_successors[b.index]
        for b in cfg.blocks
    )
    kinds = {block.index: kernel.find_opcode(block.stop - 1).kind for block in cfg.blocks}
    unsure = {
        b
        for b in cfg.calling_blocks | cfg.taken_targets.keys()
        if kinds[b] is OpKind.CALL and _passes_return_address(cfg, b)
    }
    ends = {block for block, kind in kinds.items() if kind in (OpKind.EXIT, OpKind.RETURN)}
    return paths, frozenset(ends | unsure - returning_calls)


def find_returning_calls(cfg: Cfg) -> dict[int, frozenset[int]]:
    """Blocks that end in a call which comes back behind it, unless it has no end; which run in between."""
    callees = {callee for _, callee in cfg.call_edges}
    inside = {
        callee: _find_reachable_blocks(cfg.interprocedural_successors, callee) | {callee}
        for callee in callees
    }
    returning_callees = {
        callee
        for callee in callees
        if not any(_may_end_without_return(cfg, block) for block in inside[callee])
    }
    return {
        caller: frozenset(inside[callee])
        for caller, callee in cfg.call_edges
        if callee in returning_callees
        and caller not in inside[callee]
        and _passes_return_address(cfg, caller)
    }


def _passes_return_address(cfg: Cfg, caller: int) -> bool:
    """The block names the address behind its call, as a return needs; a jump out of it does not."""
    kernel, block = cfg.kernel, cfg.blocks[caller]
    if block.stop >= len(kernel):
        return False
    behind = int(kernel.addresses[block.stop])
    return any(
        isinstance(operand, Immediate) and operand.value == behind
        for row in range(block.start, block.stop - 1)
        for operand in kernel.decode_form(row).operands
    )


def _may_end_without_return(cfg: Cfg, block: int) -> bool:
    """Where this block ends, a function may end without a return."""
    row = cfg.blocks[block].stop - 1
    kind = cfg.kernel.find_opcode(row).kind
    if kind is OpKind.CALL:  # a jump into a function, or into itself
        return block in cfg.taken_targets or not _passes_return_address(cfg, block)
    is_end = not cfg.successors[block] and kind is not OpKind.RETURN
    return is_end or kind is OpKind.EXIT or int(cfg.kernel.addresses[row]) in cfg.unresolved_branches


def _find_return_targets(cfg: Cfg) -> dict[int, tuple[int, ...]]:
    """By block that ends in a return: those behind calls of its function, or of one that is not known."""
    ends = [b.index for b in cfg.blocks if cfg.kernel.find_opcode(b.stop - 1).kind is OpKind.RETURN]
    if not ends:
        return {}
    every = find_return_sites(cfg)
    behind: dict[int, set[int]] = {}
    for caller, callee in cfg.call_edges:
        behind.setdefault(callee, set()).add(caller + 1)
    unknown = set(every) - {caller + 1 for caller in cfg.calling_blocks}
    found: dict[int, set[int]] = {}
    for callee, places in behind.items():
        for end in _find_reachable_blocks(cfg.successors, callee).union((callee,)).intersection(ends):
            found.setdefault(end, set(unknown)).update(places)
    return {end: tuple(sorted(found.get(end, every))) for end in ends}


def _find_reachable_blocks(successors: Sequence[tuple[int, ...]], start: int) -> set[int]:
    """Blocks that follow a block, at once or later."""
    found: set[int] = set()
    work = [start]
    while work:
        fresh = [successor for successor in successors[work.pop()] if successor not in found]
        found.update(fresh)
        work += fresh
    return found
