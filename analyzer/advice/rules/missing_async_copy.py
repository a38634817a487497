"""Tiles that go from global to shared memory through registers, where cp.async would go past these."""

from msgspec.structs import replace

from analyzer.advice.earlier_loads import (
    count_iterations_ahead,
    estimate_first_waits,
    start_loads_earlier,
)
from analyzer.advice.edited_input import compute_edited_occupancy, edit_occupancy
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.ir.opcode import AddressSpace, Opcode, OpKind, is_global_load
from analyzer.ir.operand import Register
from analyzer.ir.scheduling import SchedClass
from analyzer.isa.register_operands import find_register_unit
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.model_result import ModelResult

NAME = "missing-async-copy"
_COPY = (
    "copy with cp.async (__pipeline_memcpy_async, cuda::memcpy_async; TMA from sm_90 on; Triton: num_stages)"
)
ACTION = f"{_COPY}, tiles ahead into further buffers"
# What a loop waits for its tiles: the store for its load, other warps at the barrier for the store.
_STALLS = (Stall.LONG_SCOREBOARD, Stall.BARRIER)
_COPY_BYTES = frozenset({4, 8, 16})  # sizes of cp.async


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the stores in loops of what a load from global memory brought, most executed first."""
    model_input = result.model_input
    if SchedClass.ASYNC_COPY in model_input.arch.unsupported:
        return ()
    loads = _find_copies(model_input)
    counts, kernel = model_input.execution_counts, model_input.kernel
    return tuple(
        Site(
            row,
            f"tile through registers: what {kernel.find_opcode(loads[row]).mnemonic} at "
            f"{int(kernel.addresses[loads[row]]):#06x} brings, {kernel.find_opcode(row).mnemonic} stores to "
            "shared memory as it is, and waits for it",
        )
        for row in sorted(loads, key=lambda row: (-float(counts[row]), row))
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch whose loads for these stores start tiles earlier, with a buffer for each tile."""
    model_input, stores = result.model_input, list_rows(sites)
    loads = frozenset(_find_copies(model_input).values())
    ahead = count_iterations_ahead(result, loads, _STALLS)
    started = start_loads_earlier(model_input, loads, ahead, stores)
    opcodes = [model_input.kernel.find_opcode(row) for row in stores]
    tile_bytes = model_input.block_threads * sum(opcode.width_bytes or 0 for opcode in opcodes)
    shared_bytes = model_input.shared_bytes_per_cta + ahead * tile_bytes
    occupancy = compute_edited_occupancy(model_input, shared_bytes=shared_bytes)
    if not occupancy.ctas_per_sm:
        return None
    tiles = "one tile" if ahead == 1 else f"{ahead} tiles"
    edit = edit_occupancy(replace(started, shared_bytes_per_cta=shared_bytes), occupancy, "")
    return replace(
        edit,
        remaining_cycles=estimate_first_waits(model_input, loads),
        note=f"copies {tiles} ahead, {shared_bytes:,} bytes of shared memory per CTA",
        action=f"{_COPY} {tiles} ahead, into {'a second buffer' if ahead == 1 else f'{ahead + 1} buffers'}",
    )


def _find_copies(model_input: ModelInput) -> dict[int, int]:
    """Return the loads whose results are stored as they are, by the rows of the stores."""
    rows = [row for row in _list_stores_in_loops(model_input) if model_input.execution_counts[row] > 0]
    if not rows:
        return {}
    chains = find_def_use_chains(model_input.cfg)
    return {row: load for row in rows if (load := _find_stored_load(model_input, chains, row)) is not None}


def _list_stores_in_loops(model_input: ModelInput) -> list[int]:
    kernel, cfg = model_input.kernel, model_input.cfg
    stores = kernel.form_table.make_opcode_mask(_is_copyable_store)[kernel.opcode_ids].tolist()
    return [
        row
        for block in cfg.blocks
        if model_input.loop_forest.loop_of[block.index] is not None
        for row in range(block.start, block.stop)
        if stores[row]
    ]


def _find_stored_load(model_input: ModelInput, chains: DefUseChains, row: int) -> int | None:
    """Return the load that brought what a row stores; None where other instructions made it."""
    kernel = model_input.kernel
    data = next(
        (one for one in reversed(kernel.decode_form(row).operands) if isinstance(one, Register)), None
    )
    if data is None:
        return None
    writers = chains.sources(row).definitions.get(find_register_unit(data), frozenset())
    loads = kernel.form_table.make_opcode_mask(is_global_load)[kernel.opcode_ids]
    if not writers or not all(loads[writer] for writer in writers):
        return None
    return min(writers)


def _is_copyable_store(opcode: Opcode) -> bool:
    is_store = opcode.kind is OpKind.STORE and opcode.space is AddressSpace.SHARED
    return is_store and opcode.sched_class is SchedClass.SHARED_STORE and opcode.width_bytes in _COPY_BYTES
