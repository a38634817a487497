"""Which stores to shared memory come behind every load of it that matters, by the paths of control flow.

An epilogue sends results through the memory through which pointers went before: only these are needed. Where
one warp stores what another one loads on a path of its own, neither comes behind the other.
"""

from collections.abc import Sequence

import numpy as np

from analyzer.execution.lowering.call_returns import find_blocks_after
from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import AddressSpace, Opcode, OpKind


def find_dead_shared_stores(cfg: Cfg, loads: Sequence[int]) -> frozenset[int]:
    """Rows that store to shared memory behind all of these loads, and before none of them."""
    stores = _find_shared_stores(cfg)
    after = {
        block: find_blocks_after(cfg, block) for block in {cfg.block_of[row] for row in (*loads, *stores)}
    }

    def comes_behind(row: int, other: int) -> bool:
        here, there = cfg.block_of[row], cfg.block_of[other]
        return here in after[there] or (here == there and row > other)

    return frozenset(
        store
        for store in stores
        if all(comes_behind(store, load) and not comes_behind(load, store) for load in loads)
    )


def _find_shared_stores(cfg: Cfg) -> list[int]:
    kernel = cfg.kernel
    stores = kernel.form_table.make_opcode_mask(_is_shared_store)
    rows: list[int] = np.flatnonzero(stores[kernel.opcode_ids[: len(cfg.block_of)]]).tolist()
    return rows


def _is_shared_store(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.STORE and opcode.space is AddressSpace.SHARED
