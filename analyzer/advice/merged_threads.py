"""A launch each of whose threads does the work of several: what is common to these comes once.

The grid shrinks in proportion. Of what comes several times, the copies of an instruction depend on nothing of
each other, so that they fill each other's stall counts.
"""

import math
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from analyzer.advice.edited_input import compute_edited_occupancy, edit_input
from analyzer.advice.edited_rows import with_rows
from analyzer.execution.footprint.request_cost import SECTOR_BYTES, WAVEFRONT_BYTES
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.flow.loops import Loop
from analyzer.ir.arrays import make_read_only
from analyzer.ir.launch import Dim3
from analyzer.models.interface import ModelInput


def merge_threads(
    model_input: ModelInput,
    n_threads: int,
    times: Mapping[int, int],
    *,
    registers: int,
    shared_factor: float = 1.0,
    loop: Loop | None = None,
) -> ModelInput | None:
    """Return a launch with an n-th of the CTAs, some of whose instructions come several times.

    registers: that a thread needs more; shared_factor: on the bytes of shared memory of a CTA.
    loop: in place of CTAs, an n-th of its iterations is left.
    None where a CTA would not fit on an SM.
    """
    resources = model_input.kernel.resources
    shared_bytes = round(model_input.shared_bytes_per_cta * shared_factor)
    occupancy = compute_edited_occupancy(
        model_input, registers=(resources.registers or 0) + registers, shared_bytes=shared_bytes
    )
    if not occupancy.ctas_per_sm:
        return None
    divided = _divide_executions(model_input, n_threads, loop)
    repeated = with_rows(divided, {row: (row,) * n_times for row, n_times in times.items()})
    grid = model_input.grid
    if loop is None:
        repeated = replace(
            repeated,
            grid=None if grid is None else Dim3(math.ceil(grid.count / n_threads)),
            grid_ctas=math.ceil(model_input.grid_ctas / n_threads),
        )
    return edit_input(_overlap_copies(repeated), occupancy=occupancy, shared_bytes_per_cta=shared_bytes)


def _divide_executions(model_input: ModelInput, n_threads: int, loop: Loop | None) -> ModelInput:
    """Return an input with an n-th of the executions of a loop, or of all that the grid executes."""
    profile, cfg = model_input.profile, model_input.cfg
    parts = np.full(len(cfg.blocks), 1.0 / n_threads)
    if loop is not None:
        parts[[block.index not in loop.blocks for block in cfg.blocks]] = 1.0
    counts = model_input.execution_counts.copy()
    if loop is not None:
        counts[: len(cfg.block_of)] *= parts[np.asarray(cfg.block_of)]
    edited = replace(model_input, execution_counts=counts)
    if profile is None:
        return edited
    classes = tuple(
        replace(one, block_counts=np.ceil(one.block_counts * parts).astype(np.int64))
        for one in (profile.warp_classes if loop is not None else ())
    )
    return replace(
        edited,
        profile=replace(
            profile,
            block_executions=np.ceil(profile.block_executions * parts).astype(np.int64),
            block_active_lanes=np.ceil(profile.block_active_lanes * parts).astype(np.int64),
            accesses=tuple(
                _scale_access(access, float(parts[cfg.block_of[access.row]])) for access in profile.accesses
            ),
            warp_classes=classes or profile.warp_classes,
        ),
    )


def _scale_access(access: MemoryAccess, part: float) -> MemoryAccess:
    def scale(count: int | None) -> int | None:
        return None if count is None else math.ceil(count * part)

    return replace(
        access,
        requests=math.ceil(access.requests * part),
        lanes=math.ceil(access.lanes * part),
        bytes=math.ceil(access.bytes * part),
        sectors=scale(access.sectors),
        wavefronts=scale(access.wavefronts),
        unique_bytes=scale(access.unique_bytes),
        unique_sectors=scale(access.unique_sectors),
        lines=None if access.lines is None else access.lines * part,
    )


def _overlap_copies(model_input: ModelInput) -> ModelInput:
    """Return an input in which copies of an instruction count their issue into its stall count."""
    codes, addresses = model_input.control_codes, model_input.kernel.addresses
    stall_cycles = codes.stall_cycles.copy()
    starts = np.flatnonzero(np.diff(addresses, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(addresses)], strict=True):
        if stop - start > 1:
            stall_cycles[stop - 1] = max(1, int(stall_cycles[start]) - (stop - 1 - start))
            stall_cycles[start : stop - 1] = 1
    return replace(model_input, control_codes=replace(codes, stall_cycles=stall_cycles))


def widen_accesses(model_input: ModelInput, factors: Mapping[int, int]) -> ModelInput:
    """Return an input in which each lane of some accesses moves several times as many adjacent bytes.

    So many bytes fill more sectors, but for those that a request touches already.
    """
    profile, rates = model_input.profile, model_input.cache_rates
    if profile is None:
        return model_input
    global_bytes = model_input.access_bytes.global_bytes.copy()
    shared_bytes = model_input.access_bytes.shared_bytes.copy()
    by_row = {} if rates is None else dict(rates.by_row)
    accesses = []
    for access in profile.accesses:
        wide = _widen_access(access, factors.get(access.row, 1))
        if wide.sectors and access.sectors:
            global_bytes[access.row] *= wide.sectors / access.sectors
        if wide.wavefronts and access.wavefronts:
            shared_bytes[access.row] *= wide.wavefronts / access.wavefronts
        if access.row in by_row and access.lines:
            found = by_row[access.row]
            more = (wide.lines or 0.0) / access.lines
            by_row[access.row] = replace(found, lines_per_request=found.lines_per_request * more)
        accesses.append(wide)
    make_read_only(global_bytes, shared_bytes)
    return edit_input(
        model_input,
        profile=replace(profile, accesses=tuple(accesses)),
        access_bytes=replace(model_input.access_bytes, global_bytes=global_bytes, shared_bytes=shared_bytes),
        cache_rates=None if rates is None else replace(rates, by_row=by_row),
    )


def _widen_access(access: MemoryAccess, factor: int) -> MemoryAccess:
    if factor == 1:
        return access
    n_bytes = access.bytes * factor
    sectors = None if access.sectors is None else max(access.sectors, n_bytes // SECTOR_BYTES)
    more = sectors / access.sectors if sectors and access.sectors else 1.0
    return replace(
        access,
        bytes=n_bytes,
        sectors=sectors,
        wavefronts=None if access.wavefronts is None else max(access.wavefronts, n_bytes // WAVEFRONT_BYTES),
        lines=None if access.lines is None else max(access.lines, n_bytes / WAVEFRONT_BYTES),
        unique_bytes=None if access.unique_bytes is None else access.unique_bytes * factor,
        unique_sectors=None if access.unique_sectors is None else round(access.unique_sectors * more),
    )
