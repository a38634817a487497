"""A launch whose loads start some iterations of their loop before what waits for them.

As code with more sets of registers, or more buffers, has it: where an instruction waits, the loads of the
last N iterations may still be pending, since those that it needs started N iterations ago.

Example: a loop loads, waits 400 cycles and works 300. With N = 1 it waits 100 cycles.
"""

from collections.abc import Collection

import numpy as np
from msgspec.structs import replace

from analyzer.advice.edited_rows import find_needed_rows, with_rows
from analyzer.flow.def_use import find_def_use_chains
from analyzer.flow.loops import Loop
from analyzer.ir.arrays import IntArray
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, SHARED_SPACES, AddressSpace, Opcode, OpKind
from analyzer.models.interface import EARLY_SCOREBOARD, ModelInput, Stall
from analyzer.models.miss_rates import compute_memory_latency_cycles, estimate_miss_rates
from analyzer.models.model_result import ModelResult
from analyzer.models.stalls import STALL_INDEX

_MANY_ITERATIONS = 8  # ahead: more need more registers than a thread has
_MIN_HIDDEN_SHARE = (
    0.125  # of the waits, by one iteration ahead; where it hides less, a load starts many ahead
)
_MAX_PENDING = 48  # results of one scoreboard
_STORE_KINDS = ATOMIC_KINDS | {OpKind.STORE}
_COPY_AND_WAIT_KINDS = frozenset({OpKind.ASYNC_COPY, OpKind.BULK_COPY, OpKind.BARRIER})


def find_loop(model_input: ModelInput, row: int) -> Loop | None:
    """Return the innermost loop around an instruction."""
    number = model_input.loop_forest.loop_of[model_input.cfg.block_of[row]]
    return None if number is None else model_input.loop_forest.loops[number]


def list_loop_rows(model_input: ModelInput, loop: Loop) -> list[int]:
    """Return the instructions of a loop, block by block."""
    blocks = model_input.cfg.blocks
    return [row for number in sorted(loop.blocks) for row in range(blocks[number].start, blocks[number].stop)]


def find_startable_loads(model_input: ModelInput, row: int) -> frozenset[int]:
    """Return the loads of its loop that an instruction waits for and that could start iterations earlier.

    The address of such a load depends on no load of the iteration before (as in a list), and a load from
    shared memory reads what the loop does not write.
    """
    loop = find_loop(model_input, row)
    if loop is None:
        return frozenset()
    rows, kernel = frozenset(list_loop_rows(model_input, loop)), model_input.kernel
    is_shared_set = any(_sets_shared_memory(kernel.find_opcode(one)) for one in rows)
    spaces = GLOBAL_SPACES if is_shared_set else GLOBAL_SPACES | SHARED_SPACES
    return frozenset(
        one
        for one in find_awaited_loads(model_input, row) & rows
        if find_loop(model_input, one) is loop
        and kernel.find_opcode(one).space in spaces
        and not _needs_itself(model_input, one, rows)
    )


def find_awaited_loads(model_input: ModelInput, row: int) -> frozenset[int]:
    """Return the loads from global and shared memory that an instruction waits for."""
    awaited = find_def_use_chains(model_input.cfg).sources(row).scoreboards.values()
    spaces, kernel = GLOBAL_SPACES | SHARED_SPACES, model_input.kernel
    return frozenset(
        one for one in frozenset[int]().union(*awaited) if is_load(kernel.find_opcode(one), spaces)
    )


def is_load(opcode: Opcode, spaces: Collection[AddressSpace]) -> bool:
    """Return whether an instruction loads from one of some memories."""
    return opcode.kind is OpKind.LOAD and opcode.space in spaces


def _sets_shared_memory(opcode: Opcode) -> bool:
    """Return whether an instruction writes shared memory, or waits until others have."""
    is_store = opcode.kind in _STORE_KINDS and opcode.space in SHARED_SPACES
    return is_store or opcode.kind in _COPY_AND_WAIT_KINDS


def _needs_itself(model_input: ModelInput, load: int, rows: frozenset[int]) -> bool:
    """Return whether a load's address depends on what it loaded an iteration before."""
    chains = find_def_use_chains(model_input.cfg)
    others = frozenset(range(len(model_input.kernel))) - rows
    return load in find_needed_rows(chains, chains.producers(load) & rows, others)


def count_iterations_ahead(result: ModelResult, loads: Collection[int], stalls: Collection[Stall]) -> int:
    """Count the iterations that loads should start ahead: one, or many where the work of one hides little.

    stalls: what of the loops counts as waits for these loads.
    """
    model_input, profile = result.model_input, result.stalls
    loops = _find_loops(model_input, loads)
    if profile is None or not loops:
        return 1
    rows = sorted({row for loop in loops for row in list_loop_rows(model_input, loop)})
    waits = float(profile.cycles[np.ix_(rows, [STALL_INDEX[stall] for stall in stalls])].sum())
    work = float(profile.cycles[rows].sum()) - waits
    if work >= _MIN_HIDDEN_SHARE * waits:
        return 1
    trips = min(_count_trips(model_input, loop) for loop in loops)
    return max(1, min(_MANY_ITERATIONS, trips // 2, _MAX_PENDING // max(1, len(loads))))


def start_loads_earlier(
    model_input: ModelInput, loads: Collection[int], n_iterations: int, stores: Collection[int] = ()
) -> ModelInput:
    """Return an input whose loads start so many iterations of their loops before what waits for them.

    stores: what stores the loaded words to shared memory, for which asynchronous copies stand then: their
    buffers take the next words before a warp waits. Registers are read first, so without stores a warp waits,
    moves each word and starts the next loads. A comparison before the first load keeps it from starting for
    an iteration after the last.
    """
    chains, kernel, codes = (
        find_def_use_chains(model_input.cfg),
        model_input.kernel,
        model_input.control_codes,
    )
    write_barrier, wait_mask = codes.write_barrier.copy(), codes.wait_mask.copy()
    waits, guarded, in_place_of = (
        dict[int, int](),
        set[int](),
        dict[int, tuple[int, ...]](dict.fromkeys(stores, ())),
    )
    for loop in _find_loops(model_input, loads):
        rows = list_loop_rows(model_input, loop)
        started = [row for row in rows if row in loads]
        compare, add = _find_counting(model_input, rows)
        n_moves = 0 if stores else sum(len(kernel.decode_form(load).defs) for load in started)
        guarded.update(started[:1] if compare else ())
        in_place_of[started[0]] = (*add * n_moves, *compare, started[0])
        if not stores:
            waits[started[0]] = (n_iterations - 1) * len(started)
        for row in rows:
            for number, raising in chains.sources(row).scoreboards.items():
                awaited = {one for one in raising.intersection(started) if codes.write_barrier[one] == number}
                if awaited and awaited == raising:
                    wait_mask[row] &= ~np.uint8(1 << number)
                if awaited and stores:
                    waits[row] = n_iterations * len(started)
                    in_place_of[row] = tuple(compare) if row in stores else (row,)
        write_barrier[started] = EARLY_SCOREBOARD
    edited = replace(
        model_input,
        control_codes=replace(codes, write_barrier=write_barrier, wait_mask=wait_mask),
        early_waits=waits,
    )
    return _delay_guarded(with_rows(edited, in_place_of), kernel.addresses[sorted(guarded)])


def _delay_guarded(model_input: ModelInput, addresses: IntArray) -> ModelInput:
    """Return an input in which some instructions wait for the comparisons before them, which guard them."""
    codes, rows = model_input.control_codes, np.flatnonzero(np.isin(model_input.kernel.addresses, addresses))
    stall_cycles = codes.stall_cycles.copy()
    stall_cycles[rows - 1] = model_input.arch.issue.guard_cycles.value
    return replace(model_input, control_codes=replace(codes, stall_cycles=stall_cycles))


def _find_counting(model_input: ModelInput, rows: Collection[int]) -> tuple[list[int], list[int]]:
    """Return the comparison that decides whether a loop goes on, and the addition that counts for it."""
    kernel, chains = model_input.kernel, find_def_use_chains(model_input.cfg)
    branches = [row for row in rows if kernel.find_opcode(row).kind is OpKind.BRANCH]
    compares = sorted(chains.producers(branches[-1]).intersection(rows)) if branches else []
    counting = [
        one for row in compares[-1:] for one in sorted(chains.producers(row).intersection(rows)) if one != row
    ]
    return compares[-1:], counting[:1]


def estimate_first_waits(model_input: ModelInput, loads: Collection[int]) -> float:
    """Estimate the cycles that warps wait for the loads before their loops, once for each time they enter."""
    latency = compute_memory_latency_cycles(model_input, estimate_miss_rates(model_input))
    return latency * sum(_count_entries(model_input, loop) for loop in _find_loops(model_input, loads))


def _find_loops(model_input: ModelInput, loads: Collection[int]) -> list[Loop]:
    found = {loop.index: loop for load in loads if (loop := find_loop(model_input, load)) is not None}
    return [found[index] for index in sorted(found)]


def _count_entries(model_input: ModelInput, loop: Loop) -> float:
    """Count how often the mean warp enters a loop: as often as the loop around it goes round."""
    if loop.parent is None:
        return 1.0
    return _count_runs(model_input, model_input.loop_forest.loops[loop.parent])


def _count_trips(model_input: ModelInput, loop: Loop) -> int:
    return int(_count_runs(model_input, loop) / max(1.0, _count_entries(model_input, loop)))


def _count_runs(model_input: ModelInput, loop: Loop) -> float:
    return float(model_input.execution_counts[model_input.cfg.blocks[loop.header].start])
