"""Accesses to global memory that touch more sectors than the bytes that their lanes ask for would fill.

Found where execution knows the addresses. Atomics are left out: what they cost is not their sectors.
"""

from analyzer.advice.ideal_accesses import with_ideal_sectors
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.demand.access_bytes import count_ideal_sectors
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind
from analyzer.models.model_result import ModelResult

NAME = "uncoalesced-access"
ACTION = (
    "let the lanes of a warp access neighbouring words: change the layout of the data (structure of arrays), "
    "or go through shared memory"
)
_MIN_EXCESS = 1.5  # 5 sectors for 4 of a request that is not aligned are no fault
_KINDS = frozenset({OpKind.LOAD, OpKind.STORE, OpKind.ASYNC_COPY})


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the accesses with half as many sectors again as is ideal, those that waste most first."""
    profile, kernel = result.model_input.profile, result.model_input.kernel
    found: list[tuple[float, MemoryAccess, float]] = []
    for access in () if profile is None else profile.accesses:
        ideal = count_ideal_sectors(access)
        is_plain = access.space in GLOBAL_SPACES and kernel.find_opcode(access.row).kind in _KINDS
        if is_plain and ideal and access.sectors and access.sectors >= _MIN_EXCESS * ideal:
            found.append((access.sectors - ideal, access, ideal))
    found.sort(key=lambda one: (-one[0], one[1].row))
    return tuple(
        Site(
            access.row,
            f"uncoalesced global access: {(access.sectors or 0) / access.requests:.3g} sectors/request, "
            f"{ideal / access.requests:.3g} ideal",
        )
        for _, access, ideal in found
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch with as few sectors as its bytes fill."""
    return Edit(with_ideal_sectors(result.model_input, frozenset(list_rows(sites))))
