"""How often each block of a kernel runs per warp, from trip counts and assumed branch odds.

Exact counts from launch facts come with abstract execution; until then each count says what it rests on.
"""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.execution.likely import likely_way
from analyzer.execution.provenance import Provenance
from analyzer.execution.trips import constant_trip
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopNest
from analyzer.ir.program import Origin
from analyzer.text.errors import UsageError

ASSUMED_TRIPS = 16


class Trip(Struct, frozen=True):
    """Iterations of one loop each time it is entered."""

    loop: int
    value: float
    provenance: Provenance
    reason: str
    rule: "TripRule | None" = None


class TripRule(Struct, frozen=True):
    """What the user says of trip counts: for the loop at an address or a source line, or for all."""

    value: int
    address: int | None = None
    source: str = ""

    @property
    def is_general(self) -> bool:
        """For every loop that nothing else settles."""
        return self.address is None and not self.source

    def names(self, address: int, origin: Origin | None) -> bool:
        """Whether the rule is for the loop whose header stands there; any tail of the path will do."""
        if self.address is not None:
            return self.address == address
        place = "" if origin is None else f"/{origin.file}:{origin.line}"
        return bool(self.source) and place.endswith("/" + self.source.lstrip("/"))

    def __str__(self) -> str:
        where = self.source if self.address is None else hex(self.address)
        return f"{where}={self.value}" if where else str(self.value)


class BlockCounts(Struct, frozen=True):
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
    counts, odds = _propagate(cfg, nest, {trip.loop: trip.value for trip in trips})
    assumptions = [
        f"loop at {_header_text(cfg, nest.loops[trip.loop])}: {trip.value:g} trips {trip.reason}"
        for trip in trips
        if trip.provenance is not Provenance.EXACT
    ]
    if odds.even:
        assumptions.append(f"forward branches taken as often as not: {odds.even}")
    if odds.ruled:
        assumptions.append(
            f"forward branches settled by rule (slow paths, early ends, ways around loops): {odds.ruled}"
        )
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
    address, origin = int(cfg.kernel.addresses[row]), cfg.kernel.origin(row)
    for rule in rules:
        if rule.names(address, origin):
            return Trip(loop.index, rule.value, Provenance.ASSUMED, "given by --trip", rule)
    constant = constant_trip(cfg, nest, loop)
    if constant is not None:
        return Trip(loop.index, constant, Provenance.EXACT, "from constant bounds")
    if not loop.exits:
        return Trip(loop.index, 1, Provenance.ASSUMED, "taken: no way leads out of it")
    for rule in rules:
        if rule.is_general:
            return Trip(loop.index, rule.value, Provenance.ASSUMED, "given by --trip", rule)
    return Trip(loop.index, ASSUMED_TRIPS, Provenance.ASSUMED, "assumed: no bound is known")


def _header_text(cfg: Cfg, loop: Loop) -> str:
    row = cfg.blocks[loop.header].start
    origin = cfg.kernel.origin(row)
    return f"{int(cfg.kernel.addresses[row]):#06x}" + (f" ({origin})" if origin else "")


class _Odds(Struct, frozen=True):
    """Two-way branches whose odds were taken as even, and those that a rule settled."""

    even: int
    ruled: int


def _propagate(cfg: Cfg, nest: LoopNest, trips: Mapping[int, float]) -> tuple[tuple[float, ...], _Odds]:
    """Flow from the entry in reverse postorder; a loop's header multiplies, its exits carry what came in."""
    counts = [0.0] * len(cfg.blocks)
    inflow = [0.0] * len(cfg.blocks)
    entered = [0.0] * len(nest.loops)
    header_of = {loop.header: loop for loop in nest.loops}
    back_edges = {(latch, loop.header) for loop in nest.loops for latch in loop.latches}
    callees: dict[int, list[int]] = {}
    for caller, callee in cfg.calls:
        callees.setdefault(caller, []).append(callee)
    inflow[nest.order[0]] = 1.0
    even = ruled = 0
    for block in nest.order:
        counts[block] = inflow[block]
        loop = header_of.get(block)
        if loop is not None:
            entered[loop.index] = inflow[block]
            counts[block] = inflow[block] * max(trips[loop.index], 0)
        for callee in callees.get(block, ()):
            inflow[callee] += counts[block]
        staying, leaving = [], 0.0
        for target in cfg.successors[block]:
            left = _outermost_left(nest, block, target)
            if left is None:
                staying.append(target)
                continue
            share = entered[left.index] / len(left.exits)
            inflow[target] += share
            leaving += share
        odds = branch_odds(cfg, nest, block, staying)
        even += len(odds) > 1 and max(odds) < 1
        ruled += len(odds) > 1 and max(odds) == 1
        for target, share in zip(staying, odds, strict=True):
            if (block, target) not in back_edges:
                inflow[target] += max(0.0, counts[block] - leaving) * share
    return tuple(counts), _Odds(even, ruled)


def _outermost_left(nest: LoopNest, block: int, target: int) -> Loop | None:
    """The largest loop that the edge leaves."""
    left = None
    for index in nest.around(block):
        if target not in nest.loops[index].blocks:
            left = nest.loops[index]
    return left


def branch_odds(cfg: Cfg, nest: LoopNest, block: int, targets: list[int]) -> list[float]:
    """Share of a block's executions that go on to each target.

    Not taken: ways for unlikely numbers, slow paths (calls of division or sqrt), early ends, ways around a
    loop; else all alike (heuristics of Ball and Larus, Branch Prediction for Free, 1993).
    """
    if len(targets) < 2:
        return [1.0] * len(targets)
    likely = likely_way(cfg, block)
    if likely in targets:
        return [float(target == likely) for target in targets]
    warm = [t for t in targets if t not in cfg.callers] or targets
    warm = [t for t in warm if not _ends_early(cfg, t)] or warm
    into_loops = _not_around([t for t in warm if nest.leads_to_loop(t)], cfg, nest)
    taken = into_loops if len(into_loops) == 1 else warm
    return [1.0 / len(taken) if target in taken else 0.0 for target in targets]


def _not_around(targets: list[int], cfg: Cfg, nest: LoopNest) -> list[int]:
    """Without those at which another one's way comes out: they lead around its loop, to a later one."""

    def leads_to(other: int, target: int) -> bool:
        return any(nest.dominates(other, before) for before in cfg.predecessors[target])

    inner = [t for t in targets if not any(leads_to(other, t) for other in targets if other != t)]
    return inner or targets


_LAST_WORDS = 3


def _ends_early(cfg: Cfg, block: int) -> bool:
    """A block that does little but end the thread."""
    return not cfg.successors[block] and len(cfg.blocks[block]) <= _LAST_WORDS
