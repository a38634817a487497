"""Blocks in the order in which a walk visits them."""

from msgspec import Struct

from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest


class BlockRun(Struct, frozen=True):
    """Blocks in address order: those of one innermost loop, or one block outside of any."""

    blocks: tuple[int, ...]
    loop: int | None


def block_runs(cfg: Cfg, nest: LoopNest) -> tuple[BlockRun, ...]:
    """All blocks as runs."""
    inner = {loop.index for loop in nest.loops} - {loop.parent for loop in nest.loops}
    runs: list[list[int]] = []
    loops: list[int | None] = []
    for block in range(len(cfg.blocks)):
        loop = nest.loop_of[block]
        key = loop if loop in inner else None
        if runs and key is not None and key == loops[-1]:
            runs[-1].append(block)
        else:
            runs.append([block])
            loops.append(key)
    return tuple(BlockRun(tuple(run), loop) for run, loop in zip(runs, loops, strict=True))
