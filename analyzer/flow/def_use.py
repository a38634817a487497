"""Def-use chains: which instructions write the registers and scoreboards that another one uses.

Reaching definitions over the control-flow graph, by a worklist over blocks (Aho, Lam, Sethi and Ullman,
Compilers, section 9.2.4). The state at a point maps each register unit to the rows that may have written it
last. An unguarded write replaces these rows. A guarded one adds to them, because it may keep the old value.
A scoreboard holds the rows that have incremented it since the last wait for it.

    0       MOV R0, 1
    1  @P0  MOV R0, 2
    2       STG [R2], R0                definitions of R0 at row 2: {0, 1}
"""

from collections import deque
from collections.abc import Mapping
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct

from analyzer.flow.cfg import BasicBlock, Cfg
from analyzer.ir.module import InstructionForm
from analyzer.isa.control_encoding import (
    N_SCOREBOARDS,
    NO_BARRIER,
    decode_control_code_columns,
)
from analyzer.isa.register_operands import N_REGISTER_UNITS

RowSet = frozenset[int]
_NO_ROWS: RowSet = frozenset()
_ReachingDefinitions = dict[int, RowSet]


class Dependences(Struct, frozen=True):
    """The rows that one instruction depends on."""

    definitions: Mapping[int, RowSet]  # by register unit read: rows that may have written it
    scoreboards: Mapping[int, RowSet]  # by scoreboard waited for: rows that have incremented it


class _BlockEffect(Struct, frozen=True):
    """What a block leaves of the state at its start, by register unit or scoreboard."""

    set_rows: _ReachingDefinitions  # in place of those before
    added_rows: _ReachingDefinitions  # beside those before


class DefUseChains(Struct, frozen=True, eq=False, dict=True):
    """Def-use chains of a kernel, computed when first asked for.

    Register units are those of `isa.register_operands`; rows are instruction indices. Values from outside the
    kernel have no definition.
    """

    cfg: Cfg

    def sources(self, row: int) -> Dependences:
        """Return the dependences of instruction `row`."""
        return self._dependences_by_row[row]

    def producers(self, row: int) -> RowSet:
        """Return all rows that may have written a register or predicate that `row` reads."""
        return _NO_ROWS.union(*self.sources(row).definitions.values())

    def consumers(self, row: int) -> RowSet:
        """Return all rows that may read a register or predicate that `row` writes."""
        return self._consumers_by_row.get(row, _NO_ROWS)

    @cached_property
    def _dependences_by_row(self) -> dict[int, Dependences]:
        found: dict[int, Dependences] = {}
        entries = self._entry_definitions
        for block in self.cfg.blocks:
            state = dict(entries[block.index])
            for row in range(block.start, block.stop):
                found[row] = self._transfer_row(row, state)
        return found

    @cached_property
    def _consumers_by_row(self) -> dict[int, RowSet]:
        found: dict[int, set[int]] = {}
        for row, sources in self._dependences_by_row.items():
            for rows in sources.definitions.values():
                for producer in rows:
                    found.setdefault(producer, set()).add(row)
        return {row: frozenset(readers) for row, readers in found.items()}

    @cached_property
    def _entry_definitions(self) -> list[_ReachingDefinitions]:
        """State at the start of each block: the union over its predecessors' ends, at the fixed point."""
        blocks, successors = self.cfg.blocks, self.cfg.interprocedural_successors
        entries: list[_ReachingDefinitions] = [{} for _ in blocks]
        effects = [self._summarize_block(block) for block in blocks]
        work = deque(range(len(blocks)))
        waiting = set(work)
        while work:
            index = work.popleft()
            waiting.discard(index)
            state = entries[index] | effects[index].set_rows
            for number, rows in effects[index].added_rows.items():
                state[number] = entries[index].get(number, _NO_ROWS) | rows
            for follower in successors[index]:
                if _join_definitions(entries[follower], state) and follower not in waiting:
                    waiting.add(follower)
                    work.append(follower)
        return entries

    def _summarize_block(self, block: BasicBlock) -> _BlockEffect:
        """Return what a block does to the state at its start."""
        set_rows: _ReachingDefinitions = {}
        added_rows: _ReachingDefinitions = {}

        def add(number: int, row: int) -> None:
            known = set_rows if number in set_rows else added_rows
            known[number] = known.get(number, _NO_ROWS) | {row}

        def put(number: int, rows: RowSet) -> None:
            set_rows[number] = rows
            added_rows.pop(number, None)

        for row in range(block.start, block.stop):
            form, waited, raised = self._row_effects[row]
            for number in waited:
                put(number, _NO_ROWS)
            if not form.is_never_executed:
                for number in form.defs:
                    if form.is_unconditional:
                        put(number, frozenset((row,)))
                    else:
                        add(number, row)
            for number in raised:
                add(number, row)
        return _BlockEffect(set_rows, added_rows)

    @cached_property
    def _row_effects(self) -> list[tuple[InstructionForm, tuple[int, ...], tuple[int, ...]]]:
        """Form of each row, and the numbers of the scoreboards that it waits for and raises."""
        kernel = self.cfg.kernel
        forms = kernel.decode_forms(0, len(kernel))
        if kernel.control_words is None:
            return [(form, (), ()) for form in forms]
        columns = decode_control_code_columns(kernel.control_words)
        waited_by_mask = {
            mask: tuple(N_REGISTER_UNITS + number for number in range(N_SCOREBOARDS) if mask >> number & 1)
            for mask in np.unique(columns.wait_mask).tolist()
        }
        barriers = zip(columns.write_barrier.tolist(), columns.read_barrier.tolist(), strict=True)
        return [
            (
                form,
                waited_by_mask[mask],
                tuple(N_REGISTER_UNITS + number for number in raised if number != NO_BARRIER),
            )
            for form, mask, raised in zip(forms, columns.wait_mask.tolist(), barriers, strict=True)
        ]

    def _transfer_row(self, row: int, state: _ReachingDefinitions) -> Dependences:
        """Return the dependences of a row, and update `state` by what it writes."""
        form, waited, raised = self._row_effects[row]
        definitions = {number: state[number] for number in form.uses if number in state}
        scoreboards = {number - N_REGISTER_UNITS: state.pop(number, _NO_ROWS) for number in waited}
        if not form.is_never_executed:
            own = frozenset((row,))
            for number in form.defs:
                state[number] = own if form.is_unconditional else state.get(number, _NO_ROWS) | own
        for number in raised:
            state[number] = state.get(number, _NO_ROWS) | {row}
        return Dependences(definitions, scoreboards)


def _join_definitions(entry: _ReachingDefinitions, arriving: _ReachingDefinitions) -> bool:
    """Add the state of a predecessor to a block's entry; return whether that changed it."""
    changed = False
    for number, rows in arriving.items():
        known = entry.get(number, _NO_ROWS)
        if not rows <= known:
            entry[number] = known | rows
            changed = True
    return changed


@lru_cache(maxsize=2)
def find_def_use_chains(cfg: Cfg) -> DefUseChains:
    """Return the chains of a kernel, the same for all who ask for those of one graph in turn."""
    return DefUseChains(cfg)
