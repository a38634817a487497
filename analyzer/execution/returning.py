"""Where execution may go on behind each block, calls and returns among them."""

from collections.abc import Sequence

from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import OpKind


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
