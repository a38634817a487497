"""Accesses of less than 16 bytes a lane, where vectors would move the same words in fewer requests.

Two kinds: a thread that moves one element where its neighbours move the next ones, and a thread that moves
adjacent words one by one.
"""

from collections.abc import Collection
from itertools import groupby

import numpy as np

from analyzer.advice.earlier_loads import find_loop, list_loop_rows
from analyzer.advice.edited_rows import PURE_KINDS, find_needed_rows, without_rows
from analyzer.advice.interface import Edit, Site
from analyzer.advice.merged_threads import merge_threads, widen_accesses
from analyzer.execution.footprint.request_cost import SECTOR_BYTES, WAVEFRONT_BYTES
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import GLOBAL_SPACES, MEMORY_KINDS, SHARED_SPACES, Opcode, OpKind
from analyzer.ir.operand import Address, get_address
from analyzer.isa.register_operands import find_address_units
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "narrow-load"
ACTION = "load and store vectors (float4, uint4: 16 bytes a lane)"
_VECTOR_BYTES = 16
_MIN_SHARE = 0.5  # of the bytes that are requested from global memory
_MAX_EXCESS = 1.3  # of sectors over those that the bytes fill
_KINDS = frozenset({OpKind.LOAD, OpKind.STORE})
_COMMUNICATING_KINDS = frozenset({OpKind.BARRIER, OpKind.SHUFFLE, OpKind.VOTE, OpKind.MMA, OpKind.BULK_COPY})
_REPEATED_KINDS = PURE_KINDS | MEMORY_KINDS


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the accesses that could be vectors, most executed first."""
    model_input = result.model_input
    kernel, counts = model_input.kernel, model_input.execution_counts
    runs, elements = _find_runs(model_input), _find_elements(model_input)
    rows = sorted({*runs, *elements}, key=lambda row: (-float(counts[row]), row))
    return tuple(Site(row, _describe(kernel.find_opcode(row), len(runs.get(row, ())))) for row in rows)


def _describe(opcode: Opcode, n_others: int) -> str:
    moved = f"{opcode.mnemonic} moves {opcode.width_bytes} of up to {_VECTOR_BYTES} bytes a lane"
    return moved if not n_others else f"{moved}, and {n_others} more move the words beside them"


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch with vectors, each thread of which does the work of those whose elements it takes."""
    model_input = result.model_input
    runs, elements = _find_runs(model_input), _find_elements(model_input)
    edited = widen_accesses(model_input, {row: 1 + len(others) for row, others in runs.items()})
    taken_along = frozenset[int]().union(*runs.values())
    if not elements:
        note = "one request for the adjacent words of a thread"
        return Edit(without_rows(edited, taken_along), note=note)
    n_elements = _VECTOR_BYTES // max(_get_width(model_input, row) for row in elements)
    repeated = _find_repeated_rows(model_input, elements)
    edited = widen_accesses(edited, dict.fromkeys(elements, n_elements))
    n_words = sum(_get_width(model_input, row) for row in elements) / 4
    merged = merge_threads(
        edited,
        n_elements,
        dict.fromkeys(repeated, n_elements) | dict.fromkeys(taken_along, 0),
        registers=round((n_elements - 1) * n_words),
        loop=find_loop(model_input, min(elements)),
    )
    if merged is None:
        return None
    return Edit(
        merged,
        note=f"{n_elements} elements a thread",
        action=f"{ACTION}, {n_elements} adjacent elements a thread",
    )


def _find_runs(model_input: ModelInput) -> dict[int, tuple[int, ...]]:
    """Return accesses of a thread to adjacent words: by the first one the others that a vector takes along.

    They stand in a block, with the same registers in their addresses and offsets one width apart. Lanes must
    be a vector apart, too: those of a stencil are a word apart, where no address but one in four is aligned.
    """
    kernel, counts, chains = model_input.kernel, model_input.execution_counts, None
    narrow = kernel.form_table.make_opcode_mask(_is_narrow_access)[kernel.opcode_ids] & (counts > 0)
    found: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    known = () if model_input.profile is None else model_input.profile.accesses
    touched = {one.row: _measure_spread(one) for one in known}
    for row in np.flatnonzero(narrow).tolist():
        form = kernel.decode_form(row)
        address = _find_address(form)
        if address is None or not form.is_unconditional:
            continue
        chains = chains or find_def_use_chains(model_input.cfg)
        key = (
            model_input.cfg.block_of[row],
            form.opcode,
            address.bases,
            _find_address_writers(chains, row, form),
        )
        found.setdefault(key, []).append((address.offset, row))
    return {
        min(rows): tuple(sorted(set(rows) - {min(rows)}))
        for accesses in found.values()
        for rows in _split_into_vectors(sorted(accesses), _get_width(model_input, accesses[0][1]))
        if len(rows) > 1 and touched.get(min(rows), 0.0) >= len(rows)
    }


def _measure_spread(access: MemoryAccess) -> float:
    """Measure the bytes of the sectors or banks that an access touches over those that it asks for."""
    units = (access.sectors or 0) * SECTOR_BYTES or (access.wavefronts or 0) * WAVEFRONT_BYTES
    return units / max(1, access.bytes)


def _split_into_vectors(accesses: list[tuple[int, int]], width_bytes: int) -> list[list[int]]:
    """Return the rows of accesses, sorted by their offsets, in groups that a vector moves."""
    groups = groupby(enumerate(accesses), key=lambda one: one[1][0] - one[0] * width_bytes)
    runs = [[row for _, (_, row) in group] for _, group in groups]
    n_words = _VECTOR_BYTES // width_bytes
    return [run[start : start + n_words] for run in runs for start in range(0, len(run), n_words)]


def _find_elements(model_input: ModelInput) -> frozenset[int]:
    """Return the accesses to global memory by which each lane moves one element beside its neighbours' ones.

    None where they are not most of what the kernel moves, where threads exchange data, or where
    only some of them are in one loop.
    """
    kernel, profile = model_input.kernel, model_input.profile
    moved = [a for a in (() if profile is None else profile.accesses) if a.space in GLOBAL_SPACES]
    elements = frozenset(a.row for a in moved if _is_adjacent(a, kernel.find_opcode(a.row)))
    loops = {None if (loop := find_loop(model_input, row)) is None else loop.index for row in elements}
    if len(loops) != 1 or sum(a.bytes for a in moved if a.row in elements) < _MIN_SHARE * sum(
        a.bytes for a in moved
    ):
        return frozenset()
    rows = _list_executed_rows(model_input, elements)
    is_private = not any(kernel.find_opcode(row).kind in _COMMUNICATING_KINDS for row in rows)
    return elements if is_private else frozenset()


def _list_executed_rows(model_input: ModelInput, elements: Collection[int]) -> list[int]:
    """Return the executed instructions of the loop around some accesses, of the kernel without one."""
    loop = find_loop(model_input, min(elements))
    rows = range(len(model_input.kernel)) if loop is None else list_loop_rows(model_input, loop)
    return [row for row in rows if model_input.execution_counts[row] > 0]


def _is_adjacent(access: MemoryAccess, opcode: Opcode) -> bool:
    """Return whether the lanes of an access move adjacent elements, each of which is moved once."""
    if not _is_narrow_access(opcode) or not access.sectors or not access.unique_bytes:
        return False
    fills = access.sectors * SECTOR_BYTES <= _MAX_EXCESS * access.bytes
    return fills and access.bytes <= _MAX_EXCESS * access.unique_bytes


def _find_repeated_rows(model_input: ModelInput, elements: Collection[int]) -> frozenset[int]:
    """Return the instructions that each element needs for itself.

    They depend on a loaded element, or on the number of the thread, and lead neither to an address
    of these accesses nor to a branch.
    """
    kernel, chains = model_input.kernel, find_def_use_chains(model_input.cfg)
    rows = frozenset(_list_executed_rows(model_input, elements))
    roots = [one for row in elements for one in _find_address_writers(chains, row, kernel.decode_form(row))]
    for row in rows - frozenset(elements):
        form = kernel.decode_form(row)
        if form.opcode.kind not in _REPEATED_KINDS:
            roots.append(row)
    common = find_needed_rows(chains, roots)
    own, work = (
        set[int](),
        [*elements, *(row for row in rows if kernel.find_opcode(row).kind is OpKind.SPECIAL_REGISTER)],
    )
    while work:
        for row in chains.consumers(work.pop()) & rows:
            if row not in own:
                own.add(row)
                work.append(row)
    return frozenset(own - common - set(elements))


def _find_address(form: InstructionForm) -> Address | None:
    return next(filter(None, map(get_address, form.operands)), None)


def _find_address_writers(chains: DefUseChains, row: int, form: InstructionForm) -> frozenset[int]:
    """Return the instructions that write the registers of an access's address."""
    definitions = chains.sources(row).definitions
    return frozenset[int]().union(
        *(
            definitions.get(unit, frozenset())
            for position, operand in enumerate(form.operands)
            if (address := get_address(operand)) is not None
            for unit in find_address_units(form.opcode, position, address)
        )
    )


def _is_narrow_access(opcode: Opcode) -> bool:
    is_access = opcode.kind in _KINDS and opcode.space in GLOBAL_SPACES | SHARED_SPACES
    return is_access and 0 < (opcode.width_bytes or 0) < _VECTOR_BYTES


def _get_width(model_input: ModelInput, row: int) -> int:
    return model_input.kernel.find_opcode(row).width_bytes or 0
