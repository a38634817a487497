"""Sequences of basic blocks, in the order in which a timeline runs them."""

from msgspec import Struct

from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest


class BlockSequence(Struct, frozen=True):
    """Blocks in address order: those of one innermost loop, or one block outside of any."""

    blocks: tuple[int, ...]
    loop: int | None  # index of the innermost loop


def split_into_block_sequences(cfg: Cfg, loop_forest: LoopForest) -> tuple[BlockSequence, ...]:
    """Split all blocks into sequences, without those that an edit of the code has emptied."""
    inner = {loop.index for loop in loop_forest.loops} - {loop.parent for loop in loop_forest.loops}
    sequences: list[list[int]] = []
    loops: list[int | None] = []
    for block in range(len(cfg.blocks)):
        if not len(cfg.blocks[block]):
            continue
        loop = loop_forest.loop_of[block]
        key = loop if loop in inner else None
        if sequences and key is not None and key == loops[-1]:
            sequences[-1].append(block)
        else:
            sequences.append([block])
            loops.append(key)
    return tuple(BlockSequence(tuple(run), loop) for run, loop in zip(sequences, loops, strict=True))
