"""Barriers of loops whose threads exchange registers through shared memory (Triton's convert_layout).

Shared memory pays where its words are used many times, as those of a tile are. In an exchange each word is
read as often as it was stored, or only says where to load from. Its barriers make all warps of the CTA wait
for each other, though the layout could be one whose exchange stays inside a warp.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from analyzer.advice.edited_rows import find_needed_rows, only_writes_registers, without_rows
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.flow.def_use import find_def_use_chains
from analyzer.flow.loops import Loop
from analyzer.ir.arrays import BoolArray
from analyzer.ir.opcode import GLOBAL_SPACES, Opcode, OpKind, is_cta_barrier, is_global_load
from analyzer.ir.scheduling import SchedClass
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.stalls import STALL_INDEX

NAME = "layout-exchange"
ACTION = (
    "let the threads of a warp hold what they exchange (__shfl_sync, __syncwarp), or load it in the layout "
    "that its use needs (Triton: an index of two dimensions, another order or number of warps)"
)
_MIN_STALL_SHARE = 0.01
_MAX_LOADED_SHARE = 1.01  # of the bytes that a loop stores in shared memory


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the barriers of exchanges in loops, those with the longest waits first."""
    model_input, stalls = result.model_input, result.stalls
    loops = model_input.loop_forest.loops
    if model_input.mbarrier_pipelines is not None or stalls is None or not loops:
        return ()
    waits, total = stalls.cycles[:, STALL_INDEX[Stall.BARRIER]], result.prediction.cycles
    if not total or float(waits.sum()) < _MIN_STALL_SHARE * total:
        return ()
    finder = _ExchangeFinder(model_input)
    exchanges = {row: found for loop in loops for found in finder.iterate(loop) for row in found.barriers}
    cycles = float(waits[list(exchanges)].sum())
    if cycles < _MIN_STALL_SHARE * total:
        return ()
    rows = sorted(exchanges, key=lambda row: (-round(float(waits[row]), 3), row))
    return tuple(Site(row, exchanges[row].describe(model_input, cycles / total)) for row in rows)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch without these barriers."""
    edited = without_rows(result.model_input, list_rows(sites))
    return Edit(edited, note="what threads exchange takes the same path, but no warp waits for another")


class _Exchange(Struct, frozen=True):
    """What a loop stores in shared memory and reads again, with the barriers between."""

    barriers: tuple[int, int]  # behind the stores, and behind the loads
    first_store: int
    first_load: int
    is_of_indices: bool  # what is read only says where to load from

    def describe(self, model_input: ModelInput, share: float) -> str:
        """Return what is wrong, with the share of the cycles that warps wait."""
        kernel = model_input.kernel
        store, load = (
            f"{kernel.find_opcode(row).mnemonic} at {int(kernel.addresses[row]):#06x}"
            for row in (self.first_store, self.first_load)
        )
        use = "only to know where to load from" if self.is_of_indices else "once"
        return (
            f"stall barrier {share:.0%}: threads exchange registers between barriers: {store} stores in "
            f"shared memory what {load} reads {use}, as Triton's convert_layout does"
        )


class _ExchangeFinder:
    """Finds the exchanges of a kernel's loops."""

    def __init__(self, model_input: ModelInput) -> None:
        self.model_input = model_input
        table, opcode_ids = model_input.kernel.form_table, model_input.kernel.opcode_ids
        runs = model_input.execution_counts > 0

        def mask(condition: Callable[[Opcode], bool]) -> BoolArray:
            return np.logical_and(table.make_opcode_mask(condition)[opcode_ids], runs)

        self.chains = find_def_use_chains(model_input.cfg)
        self.barriers = mask(is_cta_barrier)
        self.stores, self.loads = mask(_is_shared_store), mask(_is_shared_load)
        self.global_stores = mask(_is_global_store)
        places = frozenset(np.flatnonzero(mask(is_global_load)).tolist())
        others = frozenset(np.flatnonzero(runs & ~mask(only_writes_registers) & ~self.loads).tolist())
        # What addresses of global loads need, and nothing else does.
        self.naming_rows = find_needed_rows(self.chains, places)
        self.naming_rows -= find_needed_rows(self.chains, others - places, places)

    def iterate(self, loop: Loop) -> Iterator[_Exchange]:
        """Yield the exchanges of one level of a nest; none where a loop in it reads stored words again.

        Barriers cut the rows of the level into phases, the last of which the first follows: an exchange is
        a phase with stores, its barrier, and the next phase with loads, with the barrier that ends it.
        """
        own, inside = self._mask_blocks(loop)
        if (inside & ~own & (self.stores | self.loads)).any():
            return
        ends = np.flatnonzero(own & self.barriers).tolist()
        if not ends:
            return
        rows = np.flatnonzero(own)
        phases = [chunk.tolist() for chunk in np.split(rows, np.searchsorted(rows, ends, side="right"))]
        phases = [phases[-1] + phases[0], *phases[1:-1]]
        for number, barrier in enumerate(ends):
            following = (number + 1) % len(ends)
            stores = [row for row in phases[number] if self.stores[row]]
            loads = [row for row in phases[following] if self.loads[row]]
            is_of_indices = self.naming_rows.issuperset(loads)
            if stores and loads and (is_of_indices or self._is_exchange(stores, loads)):
                yield _Exchange((barrier, ends[following]), stores[0], loads[0], is_of_indices)

    def _mask_blocks(self, loop: Loop) -> tuple[BoolArray, BoolArray]:
        """Mark the instructions of a loop's own level, and all in it."""
        own, inside = np.zeros((2, len(self.model_input.kernel)), dtype=np.bool_)
        for number in loop.blocks:
            block = self.model_input.cfg.blocks[number]
            inside[block.start : block.stop] = True
            own[block.start : block.stop] = self.model_input.loop_forest.loop_of[number] == loop.index
        return own, inside

    def _is_exchange(self, stores: Sequence[int], loads: Sequence[int]) -> bool:
        """Return whether words are read as often as stored; not if they go to global memory as they are."""
        if all(self.global_stores[row] for load in loads for row in self.chains.consumers(load)):
            return False  # what makes the stores coalesced pays
        return self._count_bytes(loads) <= _MAX_LOADED_SHARE * self._count_bytes(stores)

    def _count_bytes(self, rows: Sequence[int]) -> float:
        """Count the bytes that a thread moves by some accesses."""
        kernel, counts = self.model_input.kernel, self.model_input.execution_counts
        return sum(float(counts[row]) * (kernel.find_opcode(row).width_bytes or 0) for row in rows)


def _is_shared_store(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.SHARED_STORE and opcode.kind is OpKind.STORE


def _is_shared_load(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.SHARED_LOAD and opcode.kind is OpKind.LOAD


def _is_global_store(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.STORE and opcode.space in GLOBAL_SPACES
