"""Def-use chains: which instructions write the registers and scoreboards that another one uses.

Reaching definitions over the control-flow graph, by a worklist over blocks (Aho, Lam, Sethi and Ullman,
Compilers, section 9.2.4). The state at a point maps each register unit to the rows that may have written it
last. An unguarded write replaces these rows. A guarded one adds to them, because it may keep the old value.
A scoreboard holds the rows that have incremented it since the last wait for it.

    0       MOV R0, 1
    1  @P0  MOV R0, 2
    2       STG [R2], R0                definitions of R0 at row 2: {0, 1}
"""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from analyzer.flow.cfg import Cfg
from analyzer.ir.module import InstructionForm
from analyzer.isa.control_encoding import (
    N_SCOREBOARDS,
    NO_BARRIER,
    ControlCodeColumns,
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
        work = list(range(len(blocks)))
        waiting = set(work)
        while work:
            index = work.pop(0)
            waiting.discard(index)
            state = dict(entries[index])
            for row in range(blocks[index].start, blocks[index].stop):
                self._transfer_row(row, state)
            for follower in successors[index]:
                if _join_definitions(entries[follower], state) and follower not in waiting:
                    waiting.add(follower)
                    work.append(follower)
        return entries

    def _transfer_row(self, row: int, state: _ReachingDefinitions) -> Dependences:
        """Return the dependences of a row, and update `state` by what it writes."""
        form = self.cfg.kernel.decode_form(row)
        definitions = {number: state[number] for number in form.uses if number in state}
        scoreboards = self._take_waited_scoreboards(row, state)
        _define_results(row, form, state)
        self._raise_scoreboards(row, state)
        return Dependences(definitions, scoreboards)

    def _take_waited_scoreboards(self, row: int, state: _ReachingDefinitions) -> dict[int, RowSet]:
        if self._control_columns is None or not self._control_columns.wait_mask[row]:
            return {}
        mask = int(self._control_columns.wait_mask[row])
        waited = {}
        for number in range(N_SCOREBOARDS):
            if mask >> number & 1:
                waited[number] = state.pop(N_REGISTER_UNITS + number, _NO_ROWS)
        return waited

    def _raise_scoreboards(self, row: int, state: _ReachingDefinitions) -> None:
        if self._control_columns is None:
            return
        for column in (self._control_columns.write_barrier, self._control_columns.read_barrier):
            if column[row] != NO_BARRIER:
                number = N_REGISTER_UNITS + int(column[row])
                state[number] = state.get(number, _NO_ROWS) | {row}

    @cached_property
    def _control_columns(self) -> ControlCodeColumns | None:
        words = self.cfg.kernel.control_words
        return None if words is None else decode_control_code_columns(words)


def _define_results(row: int, form: InstructionForm, state: _ReachingDefinitions) -> None:
    if form.is_never_executed:
        return
    for number in form.defs:
        kept = _NO_ROWS if form.is_unconditional else state.get(number, _NO_ROWS)
        state[number] = kept | {row}


def _join_definitions(entry: _ReachingDefinitions, arriving: _ReachingDefinitions) -> bool:
    """Add the state of a predecessor to a block's entry; return whether that changed it."""
    changed = False
    for number, rows in arriving.items():
        known = entry.get(number, _NO_ROWS)
        if not rows <= known:
            entry[number] = known | rows
            changed = True
    return changed
