"""Atomics on global memory whose lanes and warps meet on few words."""

from msgspec.structs import replace

from analyzer.advice.edited_input import edit_input
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES
from analyzer.models.model_result import ModelResult

NAME = "contended-atomic"
ACTION = (
    "reduce within the warp and the CTA first (shuffles, redux, shared memory), and let one thread add; or "
    "give each CTA words of its own and add these up at the end"
)
_MIN_LANES_PER_WORD = 32


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the atomics that access each of their words 32 times or more, those with most lanes first."""
    profile, kernel = result.model_input.profile, result.model_input.kernel
    found: list[MemoryAccess] = []
    for access in () if profile is None else profile.accesses:
        is_atomic = access.space in GLOBAL_SPACES and kernel.find_opcode(access.row).kind in ATOMIC_KINDS
        if is_atomic and access.unique_bytes and access.bytes >= _MIN_LANES_PER_WORD * access.unique_bytes:
            found.append(access)
    found.sort(key=lambda access: (-access.lanes, access.row))
    return tuple(Site(access.row, _describe(access)) for access in found)


def _describe(access: MemoryAccess) -> str:
    each = access.bytes / (access.unique_bytes or 1)
    same = (access.wavefronts or access.requests) / access.requests
    return (
        f"{access.lanes:,} atomic operations on {access.unique_bytes:,} bytes: {each:,.0f} on each word, "
        f"{same:.3g} lanes of a warp on the same one"
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which no two lanes meet on a word."""
    profile, rows = result.model_input.profile, frozenset(list_rows(sites))
    if profile is None:
        return None
    accesses = tuple(
        replace(access, wavefronts=access.requests, unique_bytes=access.bytes)
        if access.row in rows and access.space in GLOBAL_SPACES
        else access
        for access in profile.accesses
    )
    edited = edit_input(result.model_input, profile=replace(profile, accesses=accesses))
    return Edit(edited, note="as many atomic operations, each on a word of its own")
