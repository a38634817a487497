"""Dead stores to shared memory: those that no needed load can read.

A store is dead if on all paths it runs after every needed load and before none. Example: an epilogue
transposes results through the shared memory that held pointers before; only the pointers are needed. A store
and a load on the paths of different warps are not ordered by the CFG, so such a store is kept.
"""

from collections.abc import Sequence

import numpy as np

from analyzer.execution.lowering.call_returns import find_blocks_after
from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import AddressSpace, Opcode, OpKind


def find_dead_shared_stores(cfg: Cfg, loads: Sequence[int]) -> frozenset[int]:
    """Return the rows of stores to shared memory that run after all `loads` and before none of them."""
    stores = _find_shared_stores(cfg)
    after = {
        block: find_blocks_after(cfg, block) for block in {cfg.block_of[row] for row in (*loads, *stores)}
    }

    def may_follow(row: int, other: int) -> bool:
        here, there = cfg.block_of[row], cfg.block_of[other]
        return here in after[there] or (here == there and row > other)

    return frozenset(
        store
        for store in stores
        if all(may_follow(store, load) and not may_follow(load, store) for load in loads)
    )


def _find_shared_stores(cfg: Cfg) -> list[int]:
    kernel = cfg.kernel
    stores = kernel.form_table.make_opcode_mask(_is_shared_store)
    rows: list[int] = np.flatnonzero(stores[kernel.opcode_ids[: len(cfg.block_of)]]).tolist()
    return rows


def _is_shared_store(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.STORE and opcode.space is AddressSpace.SHARED
