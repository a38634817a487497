"""Accesses to shared memory that take more wavefronts than the bytes that their lanes ask for would fill.

Loads, stores, matrices, asynchronous copies into shared memory and atomics; found where execution knows the
addresses.
"""

import math

from analyzer.advice.ideal_accesses import with_ideal_wavefronts
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.demand.access_bytes import count_ideal_wavefronts
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.ir.opcode import ATOMIC_KINDS, SHARED_SPACES, OpKind
from analyzer.models.model_result import ModelResult

NAME = "shared-bank-conflict"
ACTION = "pad the rows of the array, or swizzle its columns, so that the lanes of a warp meet different banks"
_MIN_EXCESS = 1.25
_ATOMIC_HINT = " (an atomic: lanes on one word count too, so give warps or lanes copies of their own)"
_LIMIT_FACTOR = 2.0  # CTAs of unequal work, and waits at barriers for a warp with conflicts


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
    limit = _limit_gain_share(result, sum(excess for excess, _, _ in found))
    return tuple(
        Site(
            access.row,
            f"{(access.wavefronts or 0) / ideal:.3g}-way bank conflict: "
            f"{(access.wavefronts or 0) / access.requests:.3g} wavefronts/request, "
            f"{ideal / access.requests:.3g} ideal"
            + (_ATOMIC_HINT if kernel.find_opcode(access.row).kind in ATOMIC_KINDS else ""),
            limit,
        )
        for _, access, ideal in found
    )


def _limit_gain_share(result: ModelResult, excess_wavefronts: float) -> float:
    """Return twice the share of the cycles that these wavefronts take on the busiest SM."""
    model_input = result.model_input
    busiest = math.ceil(model_input.grid_ctas / model_input.gpu.sm_count) / max(1, model_input.grid_ctas)
    each = model_input.arch.memory.shared_pass_cycles.value
    return min(1.0, _LIMIT_FACTOR * excess_wavefronts * busiest * each / max(1.0, result.prediction.cycles))


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch without bank conflicts at the sites."""
    return Edit(with_ideal_wavefronts(result.model_input, frozenset(list_rows(sites))))
