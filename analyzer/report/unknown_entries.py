"""What a prediction depends on and nobody gave: the first thing that a report says.

Each kind (trips of loops, branches, addresses) is one entry with the options that settle it, so that one more
command line answers all: `addresses unknown: give --arg 2=N (n)`.
"""

import re
from collections.abc import Iterable, Iterator

from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.profile.missing_inputs import MissingInput
from analyzer.execution.profile.provenance import INEXACT_PROVENANCES, Provenance
from analyzer.flow.missing_code import format_missing_code
from analyzer.report.analyze_schema import UnknownEntry
from analyzer.report.kernel_analysis import KernelAnalysis

_MIN_SHARE = 0.01  # of instructions or requests: what less depends on decides no time


def make_unknown_entries(analysis: KernelAnalysis) -> tuple[UnknownEntry, ...]:
    """Return what is unknown, in the order in which it matters: launch, trips, branches, addresses."""
    launch, profile = analysis.launch, analysis.profile
    found = []
    if list_missing_code(analysis):
        found.append(UnknownEntry(what="code", settle=(), names=(), share=1.0))
    if profile is None:
        options = {"grid": launch.grid, "block": launch.block}
        missing = (name for name, dims in options.items() if dims is None)
        found += (UnknownEntry(what=name, settle=(f"--{name}",), names=("",), share=1.0) for name in missing)
        found += _iterate_static_unknowns(analysis)
    else:
        found += _iterate_executed_unknowns(profile)
    inputs = [each.result.model_input for each in analysis.results if each.result is not None]
    if any(one.n_unknown_mma_tiles for one in inputs):
        found.append(UnknownEntry(what="tiles of products", settle=(), names=(), share=1.0))
    return tuple(found)


def list_missing_code(analysis: KernelAnalysis) -> tuple[str, ...]:
    """Return what is missing of the code that runs; of a trace, which has only what ran, what was cut off."""
    cfg, profile = analysis.cfg, analysis.profile
    if profile is None:
        return format_missing_code(cfg)
    if profile.provenance is Provenance.TRACED or profile.missing_code:
        return profile.missing_code
    called = sorted(row for row in cfg.external_call_rows if profile.block_executions[cfg.block_of[row]] > 0)
    return format_missing_code(cfg, called)


def measure_assumed_address_share(profile: ExecutionProfile) -> float:
    """Return the share of the requests to memory whose addresses are assumed or unknown."""
    return _compute_request_share(profile.accesses, _list_unplaced(profile))


def _list_unplaced(profile: ExecutionProfile) -> list[MemoryAccess]:
    return [access for access in profile.accesses if access.address_provenance in INEXACT_PROVENANCES]


def _compute_request_share(accesses: Iterable[MemoryAccess], chosen: Iterable[MemoryAccess]) -> float:
    total = sum(access.requests for access in accesses)
    return sum(access.requests for access in chosen) / total if total else 0.0


def _iterate_static_unknowns(analysis: KernelAnalysis) -> Iterator[UnknownEntry]:
    """Yield what else is unknown of a kernel that was not executed; with its launch more can be said."""
    if any(trip.provenance in INEXACT_PROVENANCES for trip in analysis.counts.trips):
        yield UnknownEntry(what="trips", settle=(), names=(), share=1.0)
    first = analysis.first_result
    if first is not None and first.model_input.demand.global_bytes:
        yield UnknownEntry(what="addresses", settle=(), names=(), share=1.0)


def _iterate_executed_unknowns(profile: ExecutionProfile) -> Iterator[UnknownEntry]:
    """Yield what is unknown of an executed launch.

    An argument that decides several kinds is asked for in one way: `fill:N` where trips depend on it.
    """
    asked: dict[str, MissingInput] = {}  # by the option without its value

    def ask(missing: Iterable[MissingInput]) -> tuple[MissingInput, ...]:
        ways = (asked.setdefault(one.option.partition("=")[0], one) for one in missing)
        return tuple(dict.fromkeys(ways))

    branches = [
        branch
        for branch in profile.unknown_branches
        if branch.instruction_share >= _MIN_SHARE and branch.is_open
    ]
    for what, decides_trips in (("trips", True), ("branches", False)):
        own = [branch for branch in branches if branch.decides_trips is decides_trips]
        if own:
            share = max(branch.instruction_share for branch in own)
            inputs = ask(branch.missing_input for branch in own if branch.missing_input is not None)
            yield _make_entry(what, inputs, share)
    unplaced = [access for access in _list_unplaced(profile) if access.missing_inputs]
    share = _compute_request_share(profile.accesses, unplaced)
    if share >= _MIN_SHARE:
        named = ask(missing for access in unplaced for missing in access.missing_inputs)
        more = ask(profile.missing_scalars) if any(map(_is_scalar, named)) else ()
        yield _make_entry("addresses", tuple(dict.fromkeys((*named, *more))), share)


def _is_scalar(missing: MissingInput) -> bool:
    return missing.option.startswith("--arg") and missing.option.endswith(("=N", "=ptr"))


def _make_sort_key(missing: MissingInput) -> tuple[tuple[bool, int, str], ...]:
    """Return a key that sorts numbers in options by value: `--arg 9=N` before `--arg 10=N`."""
    parts = re.findall(r"[0-9]+|[^0-9]+", missing.option)
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)


def _make_entry(what: str, inputs: tuple[MissingInput, ...], share: float) -> UnknownEntry:
    inputs = tuple(sorted(inputs, key=_make_sort_key))
    return UnknownEntry(
        what=what,
        settle=tuple(one.option for one in inputs),
        names=tuple(one.name for one in inputs),
        share=share,
    )
