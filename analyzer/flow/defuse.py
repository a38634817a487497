"""Which instruction makes what another one reads: registers, predicates, uniform registers, scoreboards.

Reaching definitions over the control-flow graph. A guarded instruction may leave the old value, so it adds
to the definitions of its result and does not replace them. A scoreboard collects the instructions that
raised it since the last wait for it.
"""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from analyzer.flow.cfg import Cfg
from analyzer.ir.program import InstructionForm
from analyzer.isa.control_bits import NO_BARRIER, SCOREBOARDS, ControlColumns, decode_columns
from analyzer.isa.roles import STORAGE_SIZE

Rows = frozenset[int]
_EMPTY: Rows = frozenset()
_State = dict[int, Rows]


class Sources(Struct, frozen=True):
    """What one instruction depends on: rows that may have written each storage it reads, and rows whose
    scoreboards it waits for.
    """

    definitions: Mapping[int, Rows]
    scoreboards: Mapping[int, Rows]


class DefUse(Struct, frozen=True, eq=False, dict=True):
    """Def-use chains of a kernel, worked out block by block when asked for.

    Storage numbers are those of `analyzer.isa.roles`; rows are instruction indices. Values that come from
    outside the kernel (or from a callee) have no definition.
    """

    cfg: Cfg

    def sources(self, row: int) -> Sources:
        """What instruction `row` depends on."""
        return self._by_row[row]

    def producers(self, row: int) -> Rows:
        """All rows that `row` may take a register or predicate from."""
        return _EMPTY.union(*self.sources(row).definitions.values())

    def consumers(self, row: int) -> Rows:
        """All rows that may read what `row` writes."""
        return self._consumers.get(row, _EMPTY)

    @cached_property
    def _by_row(self) -> dict[int, Sources]:
        found: dict[int, Sources] = {}
        entries = self._entries
        for block in self.cfg.blocks:
            state = dict(entries[block.index])
            for row in range(block.start, block.stop):
                found[row] = self._step(row, state)
        return found

    @cached_property
    def _consumers(self) -> dict[int, Rows]:
        found: dict[int, set[int]] = {}
        for row, sources in self._by_row.items():
            for rows in sources.definitions.values():
                for producer in rows:
                    found.setdefault(producer, set()).add(row)
        return {row: frozenset(readers) for row, readers in found.items()}

    @cached_property
    def _entries(self) -> list[_State]:
        """State at the start of each block: the union over its predecessors' ends, to a fixed point."""
        blocks, successors = self.cfg.blocks, self.cfg.flow
        entries: list[_State] = [{} for _ in blocks]
        work = list(range(len(blocks)))
        waiting = set(work)
        while work:
            index = work.pop(0)
            waiting.discard(index)
            state = dict(entries[index])
            for row in range(blocks[index].start, blocks[index].stop):
                self._step(row, state)
            for follower in successors[index]:
                if _join(entries[follower], state) and follower not in waiting:
                    waiting.add(follower)
                    work.append(follower)
        return entries

    def _step(self, row: int, state: _State) -> Sources:
        """What the row reads, before `state` takes what it writes."""
        form = self.cfg.kernel.form(row)
        definitions = {number: state[number] for number in form.read if number in state}
        scoreboards = self._wait(row, state)
        _write(row, form, state)
        self._raise(row, state)
        return Sources(definitions, scoreboards)

    def _wait(self, row: int, state: _State) -> dict[int, Rows]:
        if self._control is None or not self._control.wait_mask[row]:
            return {}
        mask = int(self._control.wait_mask[row])
        waited = {}
        for number in range(SCOREBOARDS):
            if mask >> number & 1:
                waited[number] = state.pop(STORAGE_SIZE + number, _EMPTY)
        return waited

    def _raise(self, row: int, state: _State) -> None:
        if self._control is None:
            return
        for column in (self._control.write_barrier, self._control.read_barrier):
            if column[row] != NO_BARRIER:
                number = STORAGE_SIZE + int(column[row])
                state[number] = state.get(number, _EMPTY) | {row}

    @cached_property
    def _control(self) -> ControlColumns | None:
        words = self.cfg.kernel.control_words
        return None if words is None else decode_columns(words)


def _write(row: int, form: InstructionForm, state: _State) -> None:
    if form.is_never:
        return
    for number in form.written:
        kept = _EMPTY if form.is_unconditional else state.get(number, _EMPTY)
        state[number] = kept | {row}


def _join(entry: _State, arriving: _State) -> bool:
    """Add what arrives to a block's entry; whether anything was new."""
    changed = False
    for number, rows in arriving.items():
        known = entry.get(number, _EMPTY)
        if not rows <= known:
            entry[number] = known | rows
            changed = True
    return changed
