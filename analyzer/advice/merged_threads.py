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
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.ir.arrays import make_read_only
from analyzer.ir.launch import Dim3
from analyzer.models.interface import ModelInput


def merge_threads(
    model_input: ModelInput, n_threads: int, times: Mapping[int, int], *, registers: int, shared_factor: float
) -> ModelInput | None:
    """Return a launch with an n-th of the CTAs, some of whose instructions come several times.

    registers: that a thread needs more; shared_factor: on the bytes of shared memory of a CTA.
    None where a CTA would not fit on an SM.
    """
    resources = model_input.kernel.resources
    shared_bytes = round(model_input.shared_bytes_per_cta * shared_factor)
    occupancy = compute_edited_occupancy(
        model_input, registers=(resources.registers or 0) + registers, shared_bytes=shared_bytes
    )
    if not occupancy.ctas_per_sm:
        return None
    repeated = with_rows(model_input, {row: (row,) * n_times for row, n_times in times.items()})
    ctas = math.ceil(model_input.grid_ctas / n_threads)
    return edit_input(
        _overlap_copies(repeated),
        grid=None if model_input.grid is None else Dim3(math.ceil(model_input.grid.count / n_threads)),
        grid_ctas=ctas,
        occupancy=occupancy,
        shared_bytes_per_cta=shared_bytes,
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
    """Return an input in which each lane of some accesses moves several times as many adjacent bytes."""
    profile = model_input.profile
    if profile is None:
        return model_input
    global_bytes = model_input.access_bytes.global_bytes.copy()
    shared_bytes = model_input.access_bytes.shared_bytes.copy()
    for row, factor in factors.items():
        global_bytes[row] *= factor
        shared_bytes[row] *= factor
    make_read_only(global_bytes, shared_bytes)
    accesses = tuple(_widen_access(access, factors.get(access.row, 1)) for access in profile.accesses)
    rates = model_input.cache_rates
    if rates is not None:
        by_row = {
            row: replace(found, lines_per_request=found.lines_per_request * factors.get(row, 1))
            for row, found in rates.by_row.items()
        }
        rates = replace(rates, by_row=by_row)
    return edit_input(
        model_input,
        profile=replace(profile, accesses=accesses),
        access_bytes=replace(model_input.access_bytes, global_bytes=global_bytes, shared_bytes=shared_bytes),
        cache_rates=rates,
    )


def _widen_access(access: MemoryAccess, factor: int) -> MemoryAccess:
    def scale(count: int | None) -> int | None:
        return None if count is None else count * factor

    return replace(
        access,
        bytes=access.bytes * factor,
        sectors=scale(access.sectors),
        wavefronts=scale(access.wavefronts),
        lines=None if access.lines is None else access.lines * factor,
        unique_bytes=scale(access.unique_bytes),
        unique_sectors=scale(access.unique_sectors),
    )
