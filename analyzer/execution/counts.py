"""How often each block of a kernel runs per warp, from trip counts and assumed branch odds.

Exact counts from launch facts come with abstract execution; until then each count says what it rests on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from analyzer.execution.trips import constant_trip
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopNest
from analyzer.text.errors import UsageError

ASSUMED_TRIPS = 16
_BRANCH_ODDS = 0.5


class Provenance(StrEnum):
    """What a count rests on, best first."""

    EXACT = "exact"
    TRACED = "traced"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Trip:
    """Iterations of one loop each time it is entered."""

    loop: int
    value: float
    provenance: Provenance
    reason: str


@dataclass(frozen=True, slots=True)
class TripRule:
    """What the user says of trip counts: for the loop at an address or a source line, or for all."""

    value: int
    address: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Executions of each block by one warp that lives through the kernel; `per_warp[b]` for block b."""

    per_warp: tuple[float, ...]
    trips: tuple[Trip, ...]
    provenance: Provenance
    assumptions: tuple[str, ...]


def parse_trip_rule(text: str) -> TripRule:
    """`64`, `0x370=64` or `kernel.py:41=64`. Raises UsageError."""
    where, _, value = text.rpartition("=")
    try:
        count = int(value, 0)
    except ValueError:
        count = -1
    if count < 0:
        raise UsageError(
            f"--trip {text}: {value!r} is not a count", hint="write --trip 64 or --trip 0x370=64"
        )
    if not where:
        return TripRule(count)
    try:
        return TripRule(count, address=int(where, 16))
    except ValueError:
        return TripRule(count, source=where)


def count_blocks(cfg: Cfg, nest: LoopNest, rules: tuple[TripRule, ...] = ()) -> BlockCounts:
    """Block counts of one warp."""
    trips = tuple(_trip(cfg, nest, loop, rules) for loop in nest.loops)
    counts, used_odds = _propagate(cfg, nest, {trip.loop: trip.value for trip in trips})
    assumptions = [
        f"loop at {_header_text(cfg, nest.loops[trip.loop])}: {trip.value:g} trips {trip.reason}"
        for trip in trips
        if trip.provenance is not Provenance.EXACT
    ]
    if used_odds:
        assumptions.append(f"{used_odds} forward branches go either way half of the time")
    if cfg.unresolved:
        assumptions.append(
            f"{len(cfg.unresolved)} indirect branches: the dump holds no table, targets are guessed"
        )
    exact = not assumptions
    return BlockCounts(
        per_warp=counts,
        trips=trips,
        provenance=Provenance.EXACT if exact else Provenance.ASSUMED,
        assumptions=tuple(assumptions),
    )


def _trip(cfg: Cfg, nest: LoopNest, loop: Loop, rules: tuple[TripRule, ...]) -> Trip:
    row = cfg.blocks[loop.header].start
    address, origin = int(cfg.kernel.addresses[row]), str(cfg.kernel.origin(row))
    for rule in rules:
        if rule.address == address or (rule.source and origin.endswith(rule.source)):
            return Trip(loop.index, rule.value, Provenance.ASSUMED, "given by --trip")
    constant = constant_trip(cfg, nest, loop)
    if constant is not None:
        return Trip(loop.index, constant, Provenance.EXACT, "from constant bounds")
    for rule in rules:
        if rule.address is None and not rule.source:
            return Trip(loop.index, rule.value, Provenance.ASSUMED, "given by --trip")
    return Trip(loop.index, ASSUMED_TRIPS, Provenance.ASSUMED, "assumed: no bound is known")


def _header_text(cfg: Cfg, loop: Loop) -> str:
    row = cfg.blocks[loop.header].start
    origin = cfg.kernel.origin(row)
    return f"{int(cfg.kernel.addresses[row]):#06x}" + (f" ({origin})" if origin else "")


def _propagate(cfg: Cfg, nest: LoopNest, trips: Mapping[int, float]) -> tuple[tuple[float, ...], int]:
    """Flow from the entry in reverse postorder; a loop's header multiplies, its exits carry what came in."""
    counts = [0.0] * len(cfg.blocks)
    inflow = [0.0] * len(cfg.blocks)
    entered = [0.0] * len(nest.loops)
    header_of = {loop.header: loop for loop in nest.loops}
    back_edges = {(latch, loop.header) for loop in nest.loops for latch in loop.latches}
    inflow[nest.order[0]] = 1.0
    used_odds = 0
    for block in nest.order:
        counts[block] = inflow[block]
        loop = header_of.get(block)
        if loop is not None:
            entered[loop.index] = inflow[block]
            counts[block] = inflow[block] * max(trips[loop.index], 0)
        for callee in (c for b, c in cfg.calls if b == block):
            inflow[callee] += counts[block]
        staying = []
        for target in cfg.successors[block]:
            if (block, target) in back_edges:
                continue
            left = _outermost_left(nest, block, target)
            if left is None:
                staying.append(target)
            else:
                inflow[target] += entered[left.index] / len(left.exits)
        used_odds += len(staying) > 1
        for target, odds in _odds(cfg, block, staying):
            inflow[target] += counts[block] * odds
    return tuple(counts), used_odds


def _outermost_left(nest: LoopNest, block: int, target: int) -> Loop | None:
    """The largest loop that the edge leaves."""
    left = None
    for index in nest.around(block):
        if target not in nest.loops[index].blocks:
            left = nest.loops[index]
    return left


def _odds(cfg: Cfg, block: int, targets: list[int]) -> list[tuple[int, float]]:
    if len(targets) < 2:
        return [(target, 1.0) for target in targets]
    cold = [t for t in targets if _is_cold(cfg, t)]
    warm = [t for t in targets if t not in cold]
    if warm and cold:
        return [(t, 1.0 / len(warm)) for t in warm] + [(t, 0.0) for t in cold]
    share = _BRANCH_ODDS * 2 / len(targets)
    return [(target, share) for target in targets]


def _is_cold(cfg: Cfg, block: int) -> bool:
    """A block that calls a function of the listing (slow paths of division, sqrt) or only ends the thread."""
    return any(caller == block for caller, _ in cfg.calls)
