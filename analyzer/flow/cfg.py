"""The control-flow graph of a kernel: basic blocks and the edges between them.

A leader is an instruction that control can enter: the first one, each target of a branch, each label, and
the instruction after one that ends a block. A block goes from one leader to the next, so every instruction
lies in exactly one block, and the blocks are in address order.

Edges are those that `nvdisasm -bbcfg` draws; tests/flow/test_cfg_oracle.py compares the two:
- a guarded or conditional branch has a taken and a fall-through edge; BSYNC and calls fall through;
- BSSY, WARPSYNC.COLLECTIVE and LEPC name an address, which starts a block, but do not branch to it;
- a call whose callee never returns is a jump (ptxas writes exits of loops this way);
- the self-branch and the NOPs after a function's last instruction are padding, not control flow.

    0x00  @P0 BRA 0x30      blocks [0, 1), [1, 3), [3, 4)
    0x10  IADD3 R0, ...     edges 0 -> 2 taken, 0 -> 1 and 1 -> 2 fall-through
    0x20  MOV R1, R0
    0x30  EXIT
"""

from bisect import bisect_left
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from analyzer.ir.code_targets import (
    find_code_end,
    find_named_target,
    is_call,
    is_direct_call,
    names_code_address,
    never_falls_through,
)
from analyzer.ir.module import INSTRUCTION_BYTES, InstructionForm, Kernel
from analyzer.ir.opcode import CONTROL_FLOW_KINDS, OpKind
from analyzer.ir.operand import Immediate, Label
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    import networkx as nx


class EdgeKind(StrEnum):
    """The way in which control passes from one block to another."""

    FALL_THROUGH = "fall_through"
    TAKEN = "taken"
    INDIRECT = "indirect"
    ASSUMED = "assumed"  # an indirect branch whose table the dump does not hold


class Edge(Struct, frozen=True):
    """An edge between two blocks, given by their indices."""

    source: int
    target: int
    kind: EdgeKind


class MissingCode(Struct, frozen=True):
    """A way out of the code that is there: what follows is not in the input, which was cut off or is a part.

    row: the instruction that leads there, or after which instructions are missing.
    address: of the missing instruction in bytes; None where only the name of its label stands in the code.
    """

    row: int
    address: int | None
    is_target: bool  # a branch, call or convergence instruction names it; else control falls through to it


class BasicBlock(Struct, frozen=True):
    """Instructions [start, stop) of the kernel, entered at the first, left at the last."""

    index: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Cfg(Struct, frozen=True, eq=False, dict=True):
    """Control-flow graph of a kernel; block 0 is the entry.

    Calls are not edges: `interprocedural_successors` adds them.
    """

    kernel: Kernel
    blocks: tuple[BasicBlock, ...]
    edges: tuple[Edge, ...]
    call_edges: tuple[tuple[int, int], ...]  # (calling block, first block of the callee)
    # Addresses of indirect branches whose targets the dump does not give.
    unresolved_branches: tuple[int, ...]
    missing_code: tuple[MissingCode, ...] = ()  # by row; of a whole function there is none

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the blocks after each block, in the order of the edges."""
        found: list[list[int]] = [[] for _ in self.blocks]
        for edge in self.edges:
            if edge.target not in found[edge.source]:
                found[edge.source].append(edge.target)
        return tuple(map(tuple, found))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the blocks before each block."""
        found: list[list[int]] = [[] for _ in self.blocks]
        for source, targets in enumerate(self.successors):
            for target in targets:
                found[target].append(source)
        return tuple(map(tuple, found))

    @cached_property
    def taken_targets(self) -> dict[int, int]:
        """Target of each block that ends in a direct branch, by block."""
        return {edge.source: edge.target for edge in self.edges if edge.kind is EdgeKind.TAKEN}

    @cached_property
    def calling_blocks(self) -> frozenset[int]:
        """Blocks that end in a call of a function in the same dump."""
        return frozenset(caller for caller, _ in self.call_edges)

    @cached_property
    def call_rows(self) -> frozenset[int]:
        """Rows of all calls, direct and indirect."""
        calls = self.kernel.form_table.make_opcode_mask(is_call)[
            self.kernel.opcode_ids[: self.blocks[-1].stop]
        ]
        return frozenset(np.flatnonzero(calls).tolist())

    @cached_property
    def external_call_rows(self) -> frozenset[int]:
        """Rows of calls of a function outside the dump: of the system (malloc, printf) or another file."""
        resolved_blocks = self.calling_blocks | self.taken_targets.keys()
        resolved_rows = {self.blocks[block].stop - 1 for block in resolved_blocks}
        return self.call_rows - resolved_rows

    @cached_property
    def conditional_end_rows(self) -> frozenset[int]:
        """Rows of exits and returns that some threads may pass: no edge shows that others end there."""
        form_of = self.kernel.decode_form
        lasts = (block.stop - 1 for block in self.blocks)
        ends = (row for row in lasts if self.kernel.find_opcode(row).kind in (OpKind.EXIT, OpKind.RETURN))
        return frozenset(
            row
            for row in ends
            if not form_of(row).is_never_executed and not never_falls_through(form_of(row))
        )

    @cached_property
    def interprocedural_successors(self) -> tuple[tuple[int, ...], ...]:
        """Successors of each block, with the callees of its call."""
        found = [list(targets) for targets in self.successors]
        for caller, callee in self.call_edges:
            if callee not in found[caller]:
                found[caller].append(callee)
        return tuple(map(tuple, found))

    @cached_property
    def block_of(self) -> tuple[int, ...]:
        """Block index of each instruction."""
        return tuple(block.index for block in self.blocks for _ in range(len(block)))

    @property
    def graph(self) -> "nx.DiGraph[int]":
        """The blocks as a networkx graph: nodes carry `block`, edges their `kind`.

        networkx is imported here alone, so that only those who ask for the graph wait for it or install it.
        Raises UsageError where networkx is not installed.
        """
        try:
            import networkx as nx
        except ImportError:
            raise UsageError(
                "cfg.graph needs networkx: pip install 'warplens[graph]'",
                hint="or read cfg.edges",
            ) from None
        graph: nx.DiGraph[int] = nx.DiGraph(name=self.kernel.name)
        graph.add_nodes_from((block.index, {"block": block}) for block in self.blocks)
        graph.add_edges_from((e.source, e.target, {"kind": e.kind}) for e in self.edges)
        return graph


def build_cfg(kernel: Kernel) -> Cfg:
    """Build the control-flow graph of one kernel."""
    return _CfgBuilder(kernel).build()


class _CfgBuilder:
    """Finds leaders, cuts blocks at them, then adds the edges of each block's last instruction."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.stop = find_code_end(kernel)
        is_flow = kernel.form_table.make_opcode_mask(names_code_address)
        rows = np.flatnonzero(is_flow[kernel.opcode_ids[: self.stop]]).tolist()
        self.flow_forms: dict[int, InstructionForm] = {row: kernel.decode_form(row) for row in rows}
        self.row_finder = _RowFinder(kernel, self.stop)
        self.label_rows = {
            name: row
            for name, address in kernel.labels
            if (row := self.row_finder.find_row(address)) is not None
        }
        self.indirect_targets = dict(kernel.branch_targets)
        self.target_rows = {row: self._find_target_row(form) for row, form in self.flow_forms.items()}

    def build(self) -> Cfg:
        """Build the graph."""
        leaders = self._find_leaders()
        starts = sorted(leaders)
        stops = [*starts[1:], self.stop]
        blocks = tuple(BasicBlock(i, a, b) for i, (a, b) in enumerate(zip(starts, stops, strict=True)))
        block_at = {start: i for i, start in enumerate(starts)}
        edges, calls, unresolved = self._build_edges(blocks, block_at)
        edges += _build_assumed_edges(blocks, edges, calls, unresolved)
        addresses = tuple(int(self.kernel.addresses[blocks[b].stop - 1]) for b in unresolved)
        missing = tuple(sorted(self._find_missing_code(), key=lambda one: (one.row, one.is_target)))
        return Cfg(self.kernel, blocks, tuple(edges), tuple(calls), addresses, missing)

    def _find_missing_code(self) -> Iterator[MissingCode]:
        """Yield where control leaves the code: past its end, into a gap, or to a target that is not there."""
        addresses = self.kernel.addresses
        skips = np.flatnonzero(np.diff(addresses[: self.stop]) != INSTRUCTION_BYTES).tolist()
        for row in (*skips, self.stop - 1):
            form = self.flow_forms.get(row)
            if form is None or not never_falls_through(form):
                yield MissingCode(row, int(addresses[row]) + INSTRUCTION_BYTES, is_target=False)
        for row, form in self.flow_forms.items():
            is_named = form.opcode.kind in CONTROL_FLOW_KINDS and not form.is_never_executed
            if is_named and self.target_rows[row] is None and (target := find_named_target(form)) is not None:
                address = target.value if isinstance(target, Immediate) else None
                yield MissingCode(row, address if isinstance(address, int) else None, is_target=True)

    def _find_leaders(self) -> set[int]:
        leaders = {0, *self.label_rows.values()}
        for row, form in self.flow_forms.items():
            target = self.target_rows[row]
            if target is not None:
                leaders.add(target)
            leaders.update(self._find_indirect_target_rows(row))
            if _ends_block(form) and row + 1 < self.stop:
                leaders.add(row + 1)
        return leaders

    def _build_edges(
        self, blocks: tuple[BasicBlock, ...], block_at: dict[int, int]
    ) -> tuple[list[Edge], list[tuple[int, int]], list[int]]:
        edges: list[Edge] = []
        calls: list[tuple[int, int]] = []
        unresolved: list[int] = []
        direct: list[tuple[int, int, bool]] = []
        for block in blocks:
            row = block.stop - 1
            form = self.flow_forms.get(row)
            kind = form.opcode.kind if form else OpKind.NOP
            if form is not None and kind is OpKind.BRANCH:
                target = self.target_rows[row]
                if target is not None and not form.is_never_executed:
                    edges.append(Edge(block.index, block_at[target], EdgeKind.TAKEN))
            elif form is not None and kind is OpKind.CALL:
                target = self.target_rows[row]
                if target is not None:
                    direct.append((block.index, block_at[target], form.is_unconditional))
            elif kind is OpKind.BRANCH_INDIRECT:
                rows = self._find_indirect_target_rows(row)
                edges += [Edge(block.index, block_at[r], EdgeKind.INDIRECT) for r in rows]
                if not rows:
                    unresolved.append(block.index)
            if block.stop < self.stop and (form is None or not never_falls_through(form)):
                edges.append(Edge(block.index, block.index + 1, EdgeKind.FALL_THROUGH))
        self._classify_calls(blocks, edges, calls, direct)
        return edges, calls, unresolved

    def _classify_calls(
        self,
        blocks: tuple[BasicBlock, ...],
        edges: list[Edge],
        calls: list[tuple[int, int]],
        direct: list[tuple[int, int, bool]],
    ) -> None:
        """Sort direct calls into call edges and jumps.

        A call that returns is a call edge. One that never returns is a jump, and so is a recursive one, as
        nvdisasm draws both.
        """
        reach = _find_reachable(edges, {callee for _, callee, _ in direct})
        jumps: list[Edge] = []
        for caller, callee, unconditional in direct:
            is_recursive = caller in reach[callee]
            returns = any(self._ends_in_return(blocks[block]) for block in reach[callee])
            if returns and not is_recursive:
                calls.append((caller, callee))
                continue
            jumps.append(Edge(caller, callee, EdgeKind.TAKEN))
            if returns:
                continue
            fall = Edge(caller, caller + 1, EdgeKind.FALL_THROUGH)
            if unconditional and fall in edges:
                edges.remove(fall)
        edges += jumps

    def _ends_in_return(self, block: BasicBlock) -> bool:
        form = self.flow_forms.get(block.stop - 1)
        return form is not None and form.opcode.kind is OpKind.RETURN

    def _find_target_row(self, form: InstructionForm) -> int | None:
        """Return the row that a branch, call or convergence instruction names, None if it names none."""
        match find_named_target(form):
            case Immediate(value=int(address)):
                return self.row_finder.find_row(address)
            case Label() as label:
                return self.label_rows.get(label.symbol)
            case _:
                return None

    def _find_indirect_target_rows(self, row: int) -> list[int]:
        if self.flow_forms[row].opcode.kind is not OpKind.BRANCH_INDIRECT:
            return []
        targets = self.indirect_targets.get(int(self.kernel.addresses[row]), ())
        rows = (self.row_finder.find_row(address) for address in targets)
        return [r for r in dict.fromkeys(rows) if r is not None]


class _RowFinder:
    """Finds the row of an address; rows are nearly always 16 bytes apart."""

    def __init__(self, kernel: Kernel, stop: int) -> None:
        self.addresses, self.stop = kernel.addresses.tolist()[:stop], stop

    def find_row(self, address: int) -> int | None:
        """Return the row at an address, None if no instruction begins there."""
        row = (address - self.addresses[0]) // INSTRUCTION_BYTES
        if not 0 <= row < self.stop or self.addresses[row] != address:
            row = bisect_left(self.addresses, address)
        return row if row < self.stop and self.addresses[row] == address else None


_TERMINATORS = frozenset(
    {
        OpKind.BRANCH,
        OpKind.BRANCH_INDIRECT,
        OpKind.RETURN,
        OpKind.EXIT,
        OpKind.CONVERGENCE_WAIT,
    }
)


def _ends_block(form: InstructionForm) -> bool:
    if form.opcode.kind is OpKind.CALL:
        return is_direct_call(form)
    return form.opcode.kind in _TERMINATORS


def _find_reachable(edges: list[Edge], starts: set[int]) -> dict[int, set[int]]:
    """Return the blocks that can be reached from each start, itself included, calls not followed."""
    if not starts:
        return {}
    followers: dict[int, list[int]] = {}
    for edge in edges:
        followers.setdefault(edge.source, []).append(edge.target)
    found = {}
    for start in starts:
        seen, work = {start}, [start]
        while work:
            fresh = [block for block in followers.get(work.pop(), ()) if block not in seen]
            seen.update(fresh)
            work += fresh
        found[start] = seen
    return found


def _build_assumed_edges(
    blocks: tuple[BasicBlock, ...],
    edges: list[Edge],
    calls: list[tuple[int, int]],
    unresolved: list[int],
) -> list[Edge]:
    """Build edges from each branch whose table is missing to every block that no other edge enters."""
    if not unresolved:
        return []
    reached = {0, *(edge.target for edge in edges), *(callee for _, callee in calls)}
    orphans = [block.index for block in blocks if block.index not in reached]
    return [Edge(b, orphan, EdgeKind.ASSUMED) for b in unresolved for orphan in orphans]
