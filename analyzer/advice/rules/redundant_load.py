"""Loads that a loop repeats from the same address, since the compiler must take stores to change the word."""

from analyzer.advice.earlier_loads import list_loop_rows
from analyzer.advice.edited_rows import without_rows
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.flow.def_use import find_def_use_chains
from analyzer.flow.loops import Loop
from analyzer.ir.opcode import GLOBAL_SPACES, Opcode, OpKind
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import MissRates, compute_memory_latency_cycles
from analyzer.models.model_result import ModelResult

NAME = "redundant-load"
ACTION = "load the word once before the loop, or say that pointers do not overlap (const T* __restrict__)"
# Other warps may change memory in between, so that another load may bring another word.
_SYNCHRONIZING_KINDS = frozenset({OpKind.BARRIER, OpKind.FENCE, OpKind.ATOMIC})
_UNCACHED_MODIFIER = "STRONG"  # volatile and atomic loads


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return loads whose address no instruction of their loop changes, most executed first."""
    model_input = result.model_input
    kernel, counts = model_input.kernel, model_input.execution_counts
    loads = kernel.form_table.make_opcode_mask(_is_plain_load)[kernel.opcode_ids]
    loops = [loop for loop in model_input.loop_forest.loops if not _synchronizes(model_input, loop)]
    if not loops or not (loads & (counts > 0)).any():
        return ()
    chains = find_def_use_chains(model_input.cfg)
    found: set[int] = set()
    for loop in loops:
        rows = frozenset(list_loop_rows(model_input, loop))
        found.update(
            row for row in rows if loads[row] and counts[row] > 1 and rows.isdisjoint(chains.producers(row))
        )
    ordered = sorted(found, key=lambda row: (-float(counts[row]), row))
    return tuple(
        Site(row, f"redundant load: each warp loads the same words {float(counts[row]):,.0f} times")
        for row in ordered
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch without these loads; the first of them is still waited for once, from the L2."""
    edited = without_rows(result.model_input, list_rows(sites))
    first_load_cycles = compute_memory_latency_cycles(result.model_input, MissRates(1.0, 0.0))
    return Edit(
        edited,
        remaining_cycles=first_load_cycles,
        note="the word stays in a register, and its first load is waited for once",
    )


def _synchronizes(model_input: ModelInput, loop: Loop) -> bool:
    kernel = model_input.kernel
    mask = kernel.form_table.make_opcode_mask(_is_synchronizing)[kernel.opcode_ids]
    return any(mask[row] for row in list_loop_rows(model_input, loop))


def _is_synchronizing(opcode: Opcode) -> bool:
    return opcode.kind in _SYNCHRONIZING_KINDS


def _is_plain_load(opcode: Opcode) -> bool:
    is_load = opcode.kind is OpKind.LOAD and opcode.space in GLOBAL_SPACES
    return is_load and _UNCACHED_MODIFIER not in opcode.modifiers
