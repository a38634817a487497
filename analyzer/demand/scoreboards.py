"""Assign scoreboards to code without control words, as a compiler does.

An instruction of variable latency has up to two *results* that others wait for: its registers are written,
and its source registers have been read (so that they can be overwritten). An instruction waits for the
results of others whose registers it touches: those that it reads or writes, and where it writes what another
has yet to read.

First, with as many scoreboards as results: which results are pending before each instruction is a forward
data-flow problem over the control-flow graph. Invariant: waiting for a result ends all of it, so an
instruction generates and removes results whatever is pending, and sets are joined by union (Aho, Lam, Sethi
and Ullman, Compilers, section 9.2). Sets are bits of integers. Second, the six scoreboards of a warp are
given out as colors of a graph whose edges join results that are pending together. Where none is free, a
result shares that of the one that is waited for nearest to it in the code, as the wait is then for both.

    0  LDG R0, [R2]     result 0: R0 written; result 1: R2, R3 read
    1  IADD R2, R2, 4   waits for result 1
    2  FADD R1, R1, R0  waits for result 0
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.opcode_costs import PIPE_INDEX, OpcodeCosts
from analyzer.flow.cfg import Cfg
from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.opcode import Opcode, OpKind, Semantics, is_warpgroup_mma
from analyzer.ir.operand import BarrierRegister
from analyzer.ir.scheduling import Pipe, SchedClass
from analyzer.isa.control_encoding import N_SCOREBOARDS, NO_BARRIER
from analyzer.isa.register_operands import N_REGISTER_UNITS

_SCOREBOARD_FILE = "SB"
_MEMORY_PIPE = PIPE_INDEX[Pipe.LSU]


class Scoreboards(Struct, frozen=True, eq=False):
    """Scoreboards of each instruction, arrays [n] as in `ControlCodeColumns`."""

    write: NDArray[np.uint8]
    read: NDArray[np.uint8]
    wait_mask: NDArray[np.uint8]


def assign_scoreboards(cfg: Cfg, costs: OpcodeCosts) -> Scoreboards:
    """Assign scoreboards to the instructions of a kernel."""
    kernel = cfg.kernel
    n = len(kernel)
    write = np.full(n, NO_BARRIER, dtype=np.uint8)
    read = np.full(n, NO_BARRIER, dtype=np.uint8)
    wait_mask = np.zeros(n, dtype=np.uint8)
    named = _name_counted_scoreboards(kernel, write)
    results = _find_results(kernel, costs)
    flow = _solve_pending(cfg, results, _make_kills(kernel, results))
    # Memory instructions read their sources in order, so that the end of one ends the reads before it.
    flow = _solve_pending(cfg, results, _add_earlier_reads(results, flow))
    _drop_implied_reads(flow, results)
    colors = _color_results(results, flow, [number for number in range(N_SCOREBOARDS) if number not in named])
    for result, color in colors.items():
        (write if results.is_write[result] else read)[results.rows[result]] = color
    for row, waited in flow.waits.items():
        for result in _iterate_bits(waited):
            wait_mask[row] |= 1 << colors[result]
    return Scoreboards(write, read, wait_mask)


def _name_counted_scoreboards(kernel: Kernel, write: NDArray[np.uint8]) -> set[int]:
    """Set the scoreboards of LDGDEPBAR, which the next DEPBAR names; return all that a DEPBAR names."""
    counts = kernel.form_table.make_opcode_mask(is_copy_group)[kernel.opcode_ids]
    waits = kernel.form_table.make_opcode_mask(is_counted_wait)[kernel.opcode_ids]
    if not counts.any():
        return set()
    found: set[int] = set()
    number = 0
    for row in np.flatnonzero(counts | waits)[::-1].tolist():
        if waits[row]:
            number = next(_iterate_named_scoreboards(kernel.decode_form(row)), number)
        else:
            write[row] = number
            found.add(number)
    return found


def is_copy_group(opcode: Opcode) -> bool:
    """Return whether an instruction ends a group of asynchronous copies, as LDGDEPBAR does."""
    return opcode.sched_class is SchedClass.ASYNC_COPY and opcode.kind is not OpKind.ASYNC_COPY


def is_counted_wait(opcode: Opcode) -> bool:
    """Return whether an instruction does nothing but wait for a scoreboard, as DEPBAR does."""
    return opcode.semantics is Semantics.WAIT_SCOREBOARD


def _iterate_named_scoreboards(form: InstructionForm) -> Iterator[int]:
    for operand in form.operands:
        if isinstance(operand, BarrierRegister) and operand.file == _SCOREBOARD_FILE:
            yield operand.index % N_SCOREBOARDS


class _Results(Struct):
    """Results of variable latency; bit i of a set is result i."""

    rows: list[int]
    is_write: list[bool]
    by_row: dict[int, int]  # set of each row that has any
    writers: list[int]  # by register unit: results that write it
    readers: list[int]  # by register unit: results that read it
    ordered: int  # that write no register, and end before barriers and fences
    twins: int  # of written registers whose instruction has one of read registers too, at the next bit
    reads: int  # results of read registers
    is_slow: list[bool]  # waited for as the long scoreboard
    in_order: int  # of the load/store path


def _find_results(kernel: Kernel, costs: OpcodeCosts) -> _Results:
    ids = kernel.opcode_ids
    table = kernel.form_table
    is_variable = ~costs.has_fixed_latency[ids]
    is_variable &= ~table.make_opcode_mask(is_warpgroup_mma)[ids]
    is_slow, in_order = costs.is_long_scoreboard[ids], costs.pipe[ids] == _MEMORY_PIPE
    is_ordered = table.make_opcode_mask(_is_ordered_by_barriers)[ids]
    found = _Results([], [], {}, [0] * N_REGISTER_UNITS, [0] * N_REGISTER_UNITS, 0, 0, 0, [], 0)
    for row in np.flatnonzero(is_variable).tolist():
        form = kernel.decode_form(row)
        if form.is_never_executed:
            continue
        traits = {"is_slow": bool(is_slow[row]), "in_order": bool(in_order[row])}
        if form.defs or is_ordered[row]:
            bit = _add_result(found, row, is_write=True, **traits)
            for unit in form.defs:
                found.writers[unit] |= bit
            if not form.defs:
                found.ordered |= bit
        sources = _list_late_sources(form)
        if sources:
            found.twins |= found.by_row.get(row, 0)
            bit = _add_result(found, row, is_write=False, **traits)
            for unit in sources:
                found.readers[unit] |= bit
    return found


def _add_result(found: _Results, row: int, *, is_write: bool, is_slow: bool, in_order: bool) -> int:
    bit = 1 << len(found.rows)
    found.rows.append(row)
    found.is_write.append(is_write)
    found.is_slow.append(is_slow and is_write)
    found.reads |= 0 if is_write else bit
    found.in_order |= bit if in_order else 0
    found.by_row[row] = found.by_row.get(row, 0) | bit
    return bit


def _is_ordered_by_barriers(opcode: Opcode) -> bool:
    """Return whether what follows a barrier relies on the end of an instruction without results."""
    return opcode.sched_class is SchedClass.MBARRIER and (
        opcode.kind is OpKind.FENCE or opcode.semantics is None
    )


def _list_late_sources(form: InstructionForm) -> tuple[int, ...]:
    """Return the units that an instruction reads after it has issued: all but its guard."""
    guard = form.guard
    if guard is None or guard.index is None:
        return form.uses
    return form.uses[1:]


class _PendingFlow(Struct):
    """Solution of the data-flow problem."""

    kills: list[int]
    waits: dict[int, int]  # by row: the results that it waits for
    overlaps: list[int]  # by result: results that are pending together with it


def _solve_pending(cfg: Cfg, results: _Results, kills: list[int]) -> _PendingFlow:
    """Find the results pending before each row.

    kills: by row, the results that it waits for where they are pending.
    """
    flow = _PendingFlow(kills, {}, [0] * len(results.rows))
    for block, entry in zip(cfg.blocks, _find_pending_at_entries(cfg, results, kills), strict=True):
        pending = entry
        for row in range(block.start, block.stop):
            if waited := pending & kills[row]:
                flow.waits[row] = waited
                pending &= ~waited
            if made := results.by_row.get(row, 0):
                pending |= made
                for result in _iterate_bits(made):
                    flow.overlaps[result] |= pending
    return flow


def _find_pending_at_entries(cfg: Cfg, results: _Results, kills: list[int]) -> list[int]:
    """Find the results pending at the start of each block, by a worklist over blocks."""
    entries = [0] * len(cfg.blocks)
    work = list(range(len(cfg.blocks)))
    waiting = set(work)
    while work:
        index = work.pop(0)
        waiting.discard(index)
        pending = entries[index]
        for row in range(cfg.blocks[index].start, cfg.blocks[index].stop):
            pending = (pending & ~kills[row]) | results.by_row.get(row, 0)
        for follower in cfg.interprocedural_successors[index]:
            if pending & ~entries[follower]:
                entries[follower] |= pending
                if follower not in waiting:
                    waiting.add(follower)
                    work.append(follower)
    return entries


def _add_earlier_reads(results: _Results, flow: _PendingFlow) -> list[int]:
    """Return kills that include the reads which a result of the same path implies."""
    kills = list(flow.kills)
    earlier = results.reads & results.in_order
    for row, waited in flow.waits.items():
        for result in _iterate_bits(waited & results.in_order):
            implied = flow.overlaps[result] & earlier
            at = results.rows[result]
            for other in _iterate_bits(implied & ~kills[row]):
                if not at < results.rows[other] < row:
                    kills[row] |= 1 << other
    return kills


def _make_kills(kernel: Kernel, results: _Results) -> list[int]:
    return [_find_kill(kernel, row, results) for row in range(len(kernel))]


def _find_kill(kernel: Kernel, row: int, results: _Results) -> int:
    """Return the results that a row waits for wherever they are pending.

    The load/store path reads registers in order, so that a load does not wait to overwrite what others read
    there before. Texture instructions end in order: one does not wait to write what another writes.
    """
    form = kernel.decode_form(row)
    found = 0
    for unit in form.uses:
        found |= results.writers[unit]
    ends_in_order = form.opcode.kind is OpKind.TEXTURE
    read_before = results.in_order if results.by_row.get(row, 0) & results.in_order else 0
    for unit in form.defs:
        found |= results.readers[unit] & ~read_before | (0 if ends_in_order else results.writers[unit])
    if results.ordered and _ends_ordered_results(form.opcode):
        found |= results.ordered
    # A row that waits for what an instruction writes need not wait for its reads.
    return found | (found & results.twins) << 1


def _ends_ordered_results(opcode: Opcode) -> bool:
    return opcode.sched_class in (SchedClass.CTA_BARRIER, SchedClass.CLUSTER_BARRIER) or (
        opcode.semantics in (Semantics.MBARRIER_ARRIVE, Semantics.WAIT_WARPGROUP)
    )


def _drop_implied_reads(flow: _PendingFlow, results: _Results) -> None:
    """Remove waits for reads beside waits for results that imply them."""
    earlier = results.reads & results.in_order
    for row, waited in flow.waits.items():
        implied = (waited & results.twins) << 1
        for result in _iterate_bits(waited & results.in_order):
            before = flow.overlaps[result] & earlier
            # Of two reads around a loop, each of which is before the other, one stays.
            implied |= before & ((1 << result) - 1) if 1 << result & results.reads else before
        flow.waits[row] = waited & ~implied


def _color_results(results: _Results, flow: _PendingFlow, boards: list[int]) -> dict[int, int]:
    """Return the scoreboard of each result that is waited for."""
    first_wait: dict[int, int] = {}
    for row in sorted(flow.waits):
        for result in _iterate_bits(flow.waits[row]):
            at = results.rows[result]
            known = first_wait.get(result)
            if known is None or (known <= at < row):
                first_wait[result] = row
    used = sum(1 << result for result in first_wait)
    neighbors = [0] * len(results.rows)
    for result in first_wait:
        for other in _iterate_bits(flow.overlaps[result] & used & ~(1 << result)):
            neighbors[result] |= 1 << other
            neighbors[other] |= 1 << result
    members = dict.fromkeys(boards, 0)
    colors: dict[int, int] = {}
    latest: dict[tuple[int, bool], int] = {}  # board of the last result, by the row that waits for it
    for result in sorted(first_wait, key=lambda result: results.rows[result]):
        key = (first_wait[result], results.is_write[result])
        color = latest.get(key)
        if color is None or _holds_others(result, members[color] & neighbors[result], first_wait):
            free = [board for board in boards if not members[board] & neighbors[result]]
            color = free[0] if free else _share_board(result, members, results, neighbors, first_wait)
        latest[key] = colors[result] = color
        members[color] |= 1 << result
    return colors


def _holds_others(result: int, pending: int, first_wait: dict[int, int]) -> bool:
    """Return whether results on a scoreboard are waited for elsewhere than this one."""
    return any(first_wait[other] != first_wait[result] for other in _iterate_bits(pending))


def _share_board(
    result: int, members: dict[int, int], results: _Results, neighbors: list[int], first_wait: dict[int, int]
) -> int:
    """Return the scoreboard of results like this one that are waited for nearest to it in the code."""
    at = first_wait[result]
    kind = results.is_write[result], results.is_slow[result]

    def measure(board: int) -> tuple[int, int]:
        pending = list(_iterate_bits(members[board] & neighbors[result]))
        unlike = sum((results.is_write[other], results.is_slow[other]) != kind for other in pending)
        return unlike, max(abs(first_wait[other] - at) for other in pending)

    return min(members, key=measure)


def _iterate_bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
