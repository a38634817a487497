"""Waits for loads that too few warps hide.

In a loop the loads of the next iterations can start before the work of this one. Elsewhere, and where an
address is what the iteration before has loaded, a thread can do the work of two, the loads of both first.
"""

import numpy as np
from msgspec.structs import replace

from analyzer.advice.earlier_loads import (
    count_iterations_ahead,
    estimate_first_waits,
    find_awaited_loads,
    find_loop,
    find_startable_loads,
    list_loop_rows,
    start_loads_earlier,
)
from analyzer.advice.edited_input import compute_edited_occupancy, edit_occupancy
from analyzer.advice.edited_rows import PURE_KINDS, find_waiting_row
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.advice.merged_threads import merge_threads
from analyzer.demand.scoreboards import is_copy_group, is_counted_wait
from analyzer.ir.opcode import MEMORY_KINDS, Opcode, OpKind
from analyzer.isa.register_operands import format_register_unit
from analyzer.models.bounds import LATENCY_BOUND
from analyzer.models.interface import EARLY_SCOREBOARD, ModelInput, Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.stalls import STALL_INDEX
from analyzer.models.timeline_warp import parse_max_outstanding

NAME = "exposed-latency"
ACTION = "start the loads of the next iterations before the work of this one (software pipelining, prefetch)"
_STALLS = (Stall.LONG_SCOREBOARD, Stall.SHORT_SCOREBOARD)
_MIN_STALL_SHARE = 0.03
_MAX_SITES = 3


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return what waits longest for loads of its loop; nothing unless latency bounds the kernel."""
    stalls, total = result.stalls, result.prediction.cycles
    if result.prediction.bound != LATENCY_BOUND or stalls is None or not total:
        return ()
    waits = stalls.cycles[:, [STALL_INDEX[stall] for stall in _STALLS]]
    found: dict[int, Site] = {}
    for row in np.argsort(-waits.sum(axis=1).round(3), kind="stable")[:_MAX_SITES].tolist():
        share = float(waits[row].sum()) / total
        waiting = find_waiting_row(result.model_input, row) if share >= _MIN_STALL_SHARE else None
        if waiting is None or waiting in found:
            continue
        if not (
            find_awaited_loads(result.model_input, waiting) or _find_copy_groups(result.model_input, waiting)
        ):
            continue
        stall = _STALLS[int(waits[row].argmax())]
        found[waiting] = Site(waiting, _describe_wait(result, waiting, stall, share))
    return tuple(found.values())


def _describe_wait(result: ModelResult, row: int, stall: Stall, share: float) -> str:
    kernel = result.model_input.kernel
    producer = -1 if result.timeline is None else int(result.timeline.producers[row])
    waiting = f"stall {stall.value} {share:.0%}: {kernel.find_opcode(row).mnemonic} waits"
    if producer < 0:
        return waiting
    form = kernel.decode_form(producer)
    register = format_register_unit(form.defs[0]) if form.defs else "its result"
    return f"{waiting} for {form.opcode.mnemonic} at {int(kernel.addresses[producer]):#06x} ({register})"


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which what waits longest finds its loads started earlier."""
    rows = list_rows(sites)
    if groups := _find_copy_groups(result.model_input, rows[0]):
        return _add_buffer(result.model_input, rows[0], groups)
    loads = frozenset[int]().union(*(find_startable_loads(result.model_input, row) for row in rows))
    if find_startable_loads(result.model_input, rows[0]):
        return _start_earlier(result, loads)
    return _take_two(result.model_input, rows)


def _find_copy_groups(model_input: ModelInput, row: int) -> list[int]:
    """Return the ends of groups of copies, where an instruction of a loop with copies waits for groups."""
    kernel = model_input.kernel
    if not is_counted_wait(kernel.find_opcode(row)) or not _measure_tile_bytes(model_input, row):
        return []
    ends = kernel.form_table.make_opcode_mask(is_copy_group)[kernel.opcode_ids]
    found: list[int] = np.flatnonzero(ends).tolist()
    return found


def _measure_tile_bytes(model_input: ModelInput, row: int) -> int:
    """Measure what the asynchronous copies of the loop around an instruction bring to a CTA each time."""
    loop, kernel = find_loop(model_input, row), model_input.kernel
    opcodes = [] if loop is None else [kernel.find_opcode(one) for one in list_loop_rows(model_input, loop)]
    copied = [opcode.width_bytes or 0 for opcode in opcodes if opcode.kind is OpKind.ASYNC_COPY]
    return model_input.block_threads * sum(copied)


def _add_buffer(model_input: ModelInput, row: int, groups: list[int]) -> Edit | None:
    """Return the launch in which the groups of one iteration more may be pending, in a buffer more."""
    kernel, codes = model_input.kernel, model_input.control_codes
    shared_bytes = model_input.shared_bytes_per_cta + _measure_tile_bytes(model_input, row)
    occupancy = compute_edited_occupancy(model_input, shared_bytes=shared_bytes)
    if not occupancy.ctas_per_sm:
        return None
    waits = kernel.form_table.make_opcode_mask(is_counted_wait)[kernel.opcode_ids]
    loop = find_loop(model_input, row)
    more = sum(find_loop(model_input, group) is loop for group in groups)
    write_barrier = codes.write_barrier.copy()
    write_barrier[groups] = EARLY_SCOREBOARD
    edited = replace(
        model_input,
        control_codes=replace(codes, write_barrier=write_barrier),
        shared_bytes_per_cta=shared_bytes,
        early_waits={
            one: parse_max_outstanding(kernel.decode_form(one)) + more
            for one in np.flatnonzero(waits).tolist()
        },
    )
    action = "start the copies one tile earlier, with one buffer more in shared memory"
    note = f"{shared_bytes:,} bytes of shared memory per CTA"
    return replace(edit_occupancy(edited, occupancy, note), action=action)


def _take_two(model_input: ModelInput, rows: tuple[int, ...]) -> Edit | None:
    """Return the launch with half of the threads, each of which does the work of two side by side."""
    kernel = model_input.kernel
    repeated = kernel.form_table.make_opcode_mask(_is_own_work)[kernel.opcode_ids]
    times = dict.fromkeys(np.flatnonzero(repeated & (model_input.execution_counts > 0)).tolist(), 2)
    loads = frozenset[int]().union(*(find_awaited_loads(model_input, row) for row in rows))
    registers = sum(len(kernel.decode_form(load).defs) for load in loads)
    merged = merge_threads(model_input, 2, times, registers=registers)
    if merged is None:
        return None
    return Edit(
        merged,
        note=f"two elements a thread, with {registers} registers more",
        action="let each thread do the work of two, with the loads of both before the work on either",
    )


def _is_own_work(opcode: Opcode) -> bool:
    return opcode.kind in PURE_KINDS | MEMORY_KINDS | {OpKind.SHUFFLE}


def _start_earlier(result: ModelResult, loads: frozenset[int]) -> Edit:
    model_input = result.model_input
    ahead = count_iterations_ahead(result, loads, _STALLS)
    sets = "a second set" if ahead == 1 else f"{ahead + 1} sets"
    when = "one iteration" if ahead == 1 else f"{ahead} iterations"
    return Edit(
        start_loads_earlier(model_input, loads, ahead),
        remaining_cycles=estimate_first_waits(model_input, loads),
        note=f"loads start {when} earlier, into {sets} of registers",
        action=f"start these loads {when} earlier (software pipelining with {sets} of registers)",
    )
