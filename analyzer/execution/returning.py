"""Where execution may go on behind each block, calls and returns among them."""

from collections.abc import Sequence

from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Graph
from analyzer.ir.opcode import OpKind
from analyzer.ir.operand import Immediate


def after_calls(cfg: Cfg) -> tuple[int, ...]:
    """Blocks that a return may come back to; recursive calls, which the graph draws as jumps, count too."""
    return tuple(
        block.index + 1 for block in cfg.blocks[:-1] if cfg.kernel.opcode(block.stop - 1).kind is OpKind.CALL
    )


def followers_of(cfg: Cfg) -> list[tuple[int, ...]]:
    """Successors as execution goes: calls enter the callee, returns come back behind the calls of theirs."""
    returns = _returns(cfg)
    return [(*cfg.flow[block.index], *returns.get(block.index, ())) for block in cfg.blocks]


def blocks_after(cfg: Cfg, block: int) -> set[int]:
    """Blocks that may run behind a block, those that returns lead to among them."""
    return _reached(followers_of(cfg), block)


def steps_over_calls(cfg: Cfg) -> tuple[Graph, frozenset[int]]:
    """Successors of which a call that surely comes back is a step; blocks at which a function may end.

    What happens inside does not matter behind it. Other calls lead into their function besides, and may end
    there: it exits, jumps to somewhere, calls back into the caller, or returns to elsewhere.
    """
    kernel = cfg.kernel
    steps = set(sure_calls(cfg))
    paths = tuple(cfg.successors[b.index] if b.index in steps else cfg.flow[b.index] for b in cfg.blocks)
    kinds = {block.index: kernel.opcode(block.stop - 1).kind for block in cfg.blocks}
    unsure = {b for b in cfg.callers | cfg.taken.keys() if kinds[b] is OpKind.CALL and _names_return(cfg, b)}
    ends = {block for block, kind in kinds.items() if kind in (OpKind.EXIT, OpKind.RETURN)}
    return paths, frozenset(ends | unsure - steps)


def sure_calls(cfg: Cfg) -> dict[int, frozenset[int]]:
    """Blocks that end in a call which comes back behind it, unless it has no end; which run in between."""
    callees = {callee for _, callee in cfg.calls}
    inside = {callee: _reached(cfg.flow, callee) | {callee} for callee in callees}
    sure = {callee for callee in callees if not any(_gets_lost(cfg, block) for block in inside[callee])}
    return {
        caller: frozenset(inside[callee])
        for caller, callee in cfg.calls
        if callee in sure and caller not in inside[callee] and _names_return(cfg, caller)
    }


def _names_return(cfg: Cfg, caller: int) -> bool:
    """The block names the address behind its call, as a return needs; a jump out of it does not."""
    kernel, block = cfg.kernel, cfg.blocks[caller]
    if block.stop >= len(kernel):
        return False
    behind = int(kernel.addresses[block.stop])
    return any(
        isinstance(operand, Immediate) and operand.value == behind
        for row in range(block.start, block.stop - 1)
        for operand in kernel.form(row).operands
    )


def _gets_lost(cfg: Cfg, block: int) -> bool:
    """Where this block ends, a function may end without a return."""
    row = cfg.blocks[block].stop - 1
    kind = cfg.kernel.opcode(row).kind
    if kind is OpKind.CALL:  # a jump into a function, or into itself
        return block in cfg.taken or not _names_return(cfg, block)
    is_end = not cfg.successors[block] and kind is not OpKind.RETURN
    return is_end or kind is OpKind.EXIT or int(cfg.kernel.addresses[row]) in cfg.unresolved


def _returns(cfg: Cfg) -> dict[int, tuple[int, ...]]:
    """By block that ends in a return: those behind calls of its function, or of one that is not known."""
    ends = [b.index for b in cfg.blocks if cfg.kernel.opcode(b.stop - 1).kind is OpKind.RETURN]
    if not ends:
        return {}
    every = after_calls(cfg)
    behind: dict[int, set[int]] = {}
    for caller, callee in cfg.calls:
        behind.setdefault(callee, set()).add(caller + 1)
    unknown = set(every) - {caller + 1 for caller in cfg.callers}
    found: dict[int, set[int]] = {}
    for callee, places in behind.items():
        for end in _reached(cfg.successors, callee).union((callee,)).intersection(ends):
            found.setdefault(end, set(unknown)).update(places)
    return {end: tuple(sorted(found.get(end, every))) for end in ends}


def _reached(followers: Sequence[tuple[int, ...]], start: int) -> set[int]:
    """Blocks that follow a block, at once or later."""
    found: set[int] = set()
    work = [start]
    while work:
        fresh = [follower for follower in followers[work.pop()] if follower not in found]
        found.update(fresh)
        work += fresh
    return found
