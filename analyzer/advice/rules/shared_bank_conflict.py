"""Accesses to shared memory that take more wavefronts than the bytes that their lanes ask for would fill.

Loads, stores, matrices, asynchronous copies into shared memory and atomics; found where execution knows the
addresses.
"""

from analyzer.advice.ideal_accesses import SHARED_SPACES, count_ideal_wavefronts, with_ideal_wavefronts
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.ir.opcode import OpKind
from analyzer.models.model_result import ModelResult

NAME = "shared-bank-conflict"
ACTION = "pad the rows of the array, or swizzle its columns, so that the lanes of a warp meet different banks"
_MIN_EXCESS = 1.25


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the accesses with a quarter more wavefronts than is ideal, those that waste most first."""
    profile, kernel = result.model_input.profile, result.model_input.kernel
    found: list[tuple[float, MemoryAccess, float]] = []
    for access in () if profile is None else profile.accesses:
        ideal = count_ideal_wavefronts(access)
        is_engine = kernel.find_opcode(access.row).kind is OpKind.BULK_COPY
        if access.space not in SHARED_SPACES or is_engine or not ideal or not access.wavefronts:
            continue
        if access.wavefronts >= _MIN_EXCESS * ideal:
            found.append((access.wavefronts - ideal, access, ideal))
    found.sort(key=lambda one: (-one[0], one[1].row))
    return tuple(
        Site(
            access.row,
            f"{(access.wavefronts or 0) / ideal:.3g}-way bank conflict: "
            f"{(access.wavefronts or 0) / access.requests:.3g} wavefronts/request, "
            f"{ideal / access.requests:.3g} ideal",
        )
        for _, access, ideal in found
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch without bank conflicts at the sites."""
    return Edit(with_ideal_wavefronts(result.model_input, frozenset(list_rows(sites))))
