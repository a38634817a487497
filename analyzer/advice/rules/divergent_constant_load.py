"""Constant loads whose lanes read different words: the constant cache serves one word at a time."""

from msgspec.structs import replace

from analyzer.advice.edited_input import edit_input
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.ir.arrays import make_read_only
from analyzer.ir.opcode import AddressSpace
from analyzer.models.model_result import ModelResult

NAME = "divergent-constant-load"
ACTION = (
    "keep tables that lanes index differently in shared memory or in global memory behind the L1 "
    "(const __restrict__, __ldg), and __constant__ for words that all lanes read"
)
_MIN_WORDS = 1.5  # of a request, the mean


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the constant loads with several words a request, those with most passes first."""
    profile = result.model_input.profile
    found: list[tuple[int, MemoryAccess]] = []
    for access in () if profile is None else profile.accesses:
        if access.space is not AddressSpace.CONSTANT or not access.wavefronts or not access.requests:
            continue
        if access.wavefronts >= _MIN_WORDS * access.requests:
            found.append((access.wavefronts, access))
    found.sort(key=lambda one: (-one[0], one[1].row))
    return tuple(
        Site(
            access.row,
            f"divergent constant load: {passes / access.requests:.3g} different words a request, each a pass "
            "of the constant cache (stall imc_miss, short_scoreboard)",
        )
        for passes, access in found
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which the lanes of each of these loads read one word."""
    model_input, rows = result.model_input, frozenset(list_rows(sites))
    if model_input.profile is None:
        return None
    passes = model_input.access_bytes.constant_passes.copy()
    passes[sorted(rows)] = 1.0
    make_read_only(passes)
    accesses = tuple(
        replace(access, wavefronts=access.requests)
        if access.row in rows and access.space is AddressSpace.CONSTANT
        else access
        for access in model_input.profile.accesses
    )
    edited = edit_input(
        model_input,
        profile=replace(model_input.profile, accesses=accesses),
        access_bytes=replace(model_input.access_bytes, constant_passes=passes),
    )
    return Edit(edited, note="one word for each constant load")
