"""Interprocedural control flow: successors of blocks across calls and returns.

The CFG links a call to the block after it. Execution instead enters the callee, and a return continues at a
block after some call of that function. Two graphs serve the two uses: `find_interprocedural_successors`
follows calls and returns; `build_call_to_return_graph` steps over calls that are sure to return.
"""

from collections.abc import Sequence

from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import SuccessorTable
from analyzer.ir.opcode import OpKind
from analyzer.ir.operand import Immediate


def find_return_sites(cfg: Cfg) -> tuple[int, ...]:
    """Return the blocks after calls, at which a return may continue.

    Recursive calls, which the CFG holds as jumps, are included.
    """
    return tuple(
        block.index + 1
        for block in cfg.blocks[:-1]
        if cfg.kernel.find_opcode(block.stop - 1).kind is OpKind.CALL
    )


def find_interprocedural_successors(cfg: Cfg) -> list[tuple[int, ...]]:
    """Return successors by block; a call leads into its callee, a return to the blocks after its calls."""
    returns = _find_return_targets(cfg)
    return [
        (*cfg.interprocedural_successors[block.index], *returns.get(block.index, ())) for block in cfg.blocks
    ]


def find_blocks_after(cfg: Cfg, block: int) -> set[int]:
    """Return the blocks that may run after a block, through calls and returns too."""
    return _find_reachable_blocks(find_interprocedural_successors(cfg), block)


def build_call_to_return_graph(cfg: Cfg) -> tuple[SuccessorTable, frozenset[int]]:
    """Build the graph that steps over calls which always return; also return its end blocks.

    Other calls keep an edge into their callee and are end blocks too, since control may leave in the callee:
    it exits, jumps elsewhere, calls back into the caller, or returns to another place.
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
    """Return {block that ends in a call: blocks of the callee} for calls that return if they terminate."""
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
    """Return whether a block materializes the address after its call, as a returning callee needs.

    A tail call (a jump into another function) does not.
    """
    kernel, block = cfg.kernel, cfg.blocks[caller]
    if block.stop >= len(kernel):
        return False
    return_address = int(kernel.addresses[block.stop])
    return any(
        isinstance(operand, Immediate) and operand.value == return_address
        for row in range(block.start, block.stop - 1)
        for operand in kernel.decode_form(row).operands
    )


def _may_end_without_return(cfg: Cfg, block: int) -> bool:
    """Return whether control may leave the function at the end of a block other than by a return."""
    row = cfg.blocks[block].stop - 1
    kind = cfg.kernel.find_opcode(row).kind
    if kind is OpKind.CALL:  # a jump into a function, or into itself
        return block in cfg.taken_targets or not _passes_return_address(cfg, block)
    is_end = not cfg.successors[block] and kind is not OpKind.RETURN
    return is_end or kind is OpKind.EXIT or int(cfg.kernel.addresses[row]) in cfg.unresolved_branches


def _find_return_targets(cfg: Cfg) -> dict[int, tuple[int, ...]]:
    """Return {block that ends in a return: blocks after calls of its function or of an unknown callee}."""
    ends = [b.index for b in cfg.blocks if cfg.kernel.find_opcode(b.stop - 1).kind is OpKind.RETURN]
    if not ends:
        return {}
    return_sites = find_return_sites(cfg)
    sites_by_callee: dict[int, set[int]] = {}
    for caller, callee in cfg.call_edges:
        sites_by_callee.setdefault(callee, set()).add(caller + 1)
    unknown = set(return_sites) - {caller + 1 for caller in cfg.calling_blocks}
    found: dict[int, set[int]] = {}
    for callee, sites in sites_by_callee.items():
        for end in _find_reachable_blocks(cfg.successors, callee).union((callee,)).intersection(ends):
            found.setdefault(end, set(unknown)).update(sites)
    return {end: tuple(sorted(found.get(end, return_sites))) for end in ends}


def _find_reachable_blocks(successors: Sequence[tuple[int, ...]], start: int) -> set[int]:
    """Return the blocks reachable from a block over at least one edge."""
    found: set[int] = set()
    work = [start]
    while work:
        fresh = [successor for successor in successors[work.pop()] if successor not in found]
        found.update(fresh)
        work += fresh
    return found
