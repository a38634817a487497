"""Static estimate of the executions of each basic block by one warp, from trip counts and branch heuristics.

Counts flow through the CFG in reverse postorder, from one execution of the entry block:

- A block runs as often as its predecessors' edges bring it; back edges bring nothing.
- A loop header runs that often times the trip count of its loop.
- Edges that leave a loop share what entered it, equally; what is left of a block's count goes to its other
  successors by `estimate_branch_probabilities`.

Invariant: a loop is left as often as it is entered, whatever its trip count.

Example: entry A, loop B with 16 trips, exit to C: A runs once, B 16 times, C once.

Counts are cut off at `MAX_COUNT`, and the report says so: hundreds of nested loops would go beyond the range
of floats.

Abstract execution of a launch gives exact counts; these serve where no launch is known.
"""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.execution.lowering.retry_loops import RetryLoop, find_retry_loops
from analyzer.execution.lowering.spin_loops import is_spin_loop
from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.static_counts.branch_heuristics import find_likely_successor
from analyzer.execution.static_counts.trip_counts import find_constant_trip_count
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopForest
from analyzer.flow.missing_code import format_missing_code
from analyzer.ir.module import SourceLine
from analyzer.ir.opcode import OpKind
from analyzer.text.errors import UsageError

ASSUMED_TRIP_COUNT = 16
_MAX_TRIP_COUNT = 1 << 40
_SHOWN_LETTERS = 40
MAX_COUNT = 1e18  # a warp that executes one instruction per cycle would need 20 years


class LoopTripCount(Struct, frozen=True):
    """Iterations of one loop each time it is entered."""

    loop: int
    count: float
    provenance: Provenance
    reason: str  # of the count, for the report
    rule: "TripCountRule | None" = None  # the user's rule that gave it, if one did


class TripCountRule(Struct, frozen=True):
    """Trip count that the user gives (`--trip`): for the loop at an address or a source line, or for all."""

    count: int
    address: int | None = None  # of the first instruction of the loop header
    source: str = ""  # FILE:LINE of that instruction

    @property
    def is_general(self) -> bool:
        """True if the rule is for every loop whose trip count is not known otherwise."""
        return self.address is None and not self.source

    def matches(self, address: int, origin: SourceLine | None) -> bool:
        """Return whether the rule is for the loop with this header address or source line.

        A source matches if it is the path's last components.
        """
        if self.address is not None:
            return self.address == address
        place = "" if origin is None else f"/{origin.file}:{origin.line}"
        return bool(self.source) and place.endswith("/" + self.source.lstrip("/"))

    def __str__(self) -> str:
        where = self.source if self.address is None else hex(self.address)
        return f"{where}={self.count}" if where else str(self.count)


class BlockCounts(Struct, frozen=True):
    """Executions of each block by one warp that runs to the end of the kernel."""

    per_warp: tuple[float, ...]  # [n_block]
    trips: tuple[LoopTripCount, ...]
    provenance: Provenance
    assumptions: tuple[str, ...]


def parse_trip_count_rule(text: str) -> TripCountRule:
    """Parse `64`, `0x370=64` or `kernel.py:41=64`. Raises UsageError."""
    where, _, value = text.rpartition("=")
    try:
        count = int(value, 0)
    except ValueError:
        count = -1
    if count < 0:
        raise UsageError(
            f"--trip {text}: {value!r} is not a count", hint="write --trip 64 or --trip 0x370=64"
        )
    if count > _MAX_TRIP_COUNT:
        raise UsageError(
            f"--trip {text[:_SHOWN_LETTERS]}: a loop has at most {_MAX_TRIP_COUNT:,} trips",
            hint="larger counts take a GPU days",
        )
    if not where:
        return TripCountRule(count)
    try:
        return TripCountRule(count, address=int(where, 16))
    except ValueError:
        return TripCountRule(count, source=where)


def count_block_executions(
    cfg: Cfg, loop_forest: LoopForest, rules: tuple[TripCountRule, ...] = ()
) -> BlockCounts:
    """Estimate the executions of each block by one warp."""
    retry_loops = find_retry_loops(cfg, loop_forest)
    trips = tuple(_find_trip_count(cfg, loop_forest, loop, rules, retry_loops) for loop in loop_forest.loops)
    counts, branch_counts = _propagate_counts(cfg, loop_forest, {trip.loop: trip.count for trip in trips})
    assumptions = [
        f"loop at {_format_header(cfg, loop_forest.loops[trip.loop])}: {trip.count:g} trips {trip.reason}"
        for trip in trips
        if trip.provenance is not Provenance.EXACT
    ]
    if branch_counts.n_even:
        assumptions.append(f"forward branches taken as often as not: {branch_counts.n_even}")
    if branch_counts.n_ruled:
        assumptions.append(
            "forward branches settled by rule (slow paths, early ends, ways around loops): "
            f"{branch_counts.n_ruled}"
        )
    if max(counts, default=0.0) >= MAX_COUNT:
        assumptions.append(f"counts above {MAX_COUNT:g} executions by a warp are cut off there")
    if cfg.unresolved_branches:
        assumptions.append(
            f"{len(cfg.unresolved_branches)} indirect branches: the dump holds no table, targets are guessed"
        )
    if cfg.conditional_end_rows:
        assumptions.append(f"conditional exits and returns not taken: {len(cfg.conditional_end_rows)}")
    if cfg.external_call_rows:
        assumptions.append(
            f"{len(cfg.external_call_rows)} calls of functions that the input does not have are not counted"
        )
    assumptions += format_missing_code(cfg)
    exact = not assumptions
    return BlockCounts(
        per_warp=counts,
        trips=trips,
        provenance=Provenance.EXACT if exact else Provenance.ASSUMED,
        assumptions=tuple(assumptions),
    )


def _find_trip_count(
    cfg: Cfg,
    loop_forest: LoopForest,
    loop: Loop,
    rules: tuple[TripCountRule, ...],
    retry_loops: Mapping[int, RetryLoop],
) -> LoopTripCount:
    """Find a loop's trip count.

    Its own rule comes first, then constant bounds, 1 for loops that wait or retry an atomic, then a rule for
    all loops, then `ASSUMED_TRIP_COUNT`.
    """
    row = cfg.blocks[loop.header].start
    address, origin = int(cfg.kernel.addresses[row]), cfg.kernel.find_source_line(row)
    for rule in rules:
        if rule.matches(address, origin):
            return LoopTripCount(loop.index, rule.count, Provenance.ASSUMED, "given by --trip", rule)
    constant = find_constant_trip_count(cfg, loop_forest, loop)
    may_end_early = any(cfg.block_of[row] in loop.blocks for row in cfg.conditional_end_rows)
    if constant is not None and may_end_early:
        return LoopTripCount(
            loop.index, constant, Provenance.ASSUMED, "from constant bounds, if no exit in it is taken"
        )
    if constant is not None:
        return LoopTripCount(loop.index, constant, Provenance.EXACT, "from constant bounds")
    if not loop.exit_edges and not _leaves_code(cfg, loop):
        return LoopTripCount(loop.index, 1, Provenance.ASSUMED, "taken: no way leads out of it")
    if loop.index in retry_loops or (is_spin_loop(cfg, loop) and not _leaves_code(cfg, loop)):
        return LoopTripCount(loop.index, 1, Provenance.ASSUMED, "assumed: what it waits for comes at once")
    for rule in rules:
        if rule.is_general:
            return LoopTripCount(loop.index, rule.count, Provenance.ASSUMED, "given by --trip", rule)
    return LoopTripCount(loop.index, ASSUMED_TRIP_COUNT, Provenance.ASSUMED, "assumed: no bound is known")


def _leaves_code(cfg: Cfg, loop: Loop) -> bool:
    """Return whether a branch of the loop has a way out of the code: a pasted loop often ends with it."""
    for block in loop.blocks:
        form = cfg.kernel.decode_form(cfg.blocks[block].stop - 1)
        if form.opcode.kind is OpKind.BRANCH and not form.is_unconditional and len(cfg.successors[block]) < 2:
            return True
    return False


def _format_header(cfg: Cfg, loop: Loop) -> str:
    row = cfg.blocks[loop.header].start
    origin = cfg.kernel.find_source_line(row)
    return f"{int(cfg.kernel.addresses[row]):#06x}" + (f" ({origin})" if origin else "")


class _BranchCounts(Struct, frozen=True):
    """Numbers of forward branches, by how their probabilities were found."""

    n_even: int  # all successors equally likely
    n_ruled: int  # one successor certain, by a heuristic


def _propagate_counts(
    cfg: Cfg, loop_forest: LoopForest, trips: Mapping[int, float]
) -> tuple[tuple[float, ...], _BranchCounts]:
    """Return the count of each block, and how branches were decided. The module docstring has the rules."""
    counts = [0.0] * len(cfg.blocks)
    inflow = [0.0] * len(cfg.blocks)
    entered = [0.0] * len(loop_forest.loops)
    header_of = {loop.header: loop for loop in loop_forest.loops}
    back_edges = {(latch, loop.header) for loop in loop_forest.loops for latch in loop.latches}
    callees: dict[int, list[int]] = {}
    for caller, callee in cfg.call_edges:
        callees.setdefault(caller, []).append(callee)
    inflow[loop_forest.reverse_postorder[0]] = 1.0
    n_even = n_ruled = 0
    for block in loop_forest.reverse_postorder:
        counts[block] = inflow[block]
        loop = header_of.get(block)
        if loop is not None:
            entered[loop.index] = inflow[block]
            counts[block] = inflow[block] * min(max(trips[loop.index], 0), MAX_COUNT)
        counts[block] = min(counts[block], MAX_COUNT)
        for callee in callees.get(block, ()):
            inflow[callee] += counts[block]
        staying, leaving = [], 0.0
        for target in cfg.successors[block]:
            exited_loop = _find_outermost_exited_loop(loop_forest, block, target)
            if exited_loop is None:
                staying.append(target)
                continue
            share = entered[exited_loop.index] / len(exited_loop.exit_edges)
            inflow[target] += share
            leaving += share
        probabilities = estimate_branch_probabilities(cfg, loop_forest, block, staying)
        n_even += len(probabilities) > 1 and max(probabilities) < 1
        n_ruled += len(probabilities) > 1 and max(probabilities) == 1
        for target, share in zip(staying, probabilities, strict=True):
            if (block, target) not in back_edges:
                inflow[target] += max(0.0, counts[block] - leaving) * share
    return tuple(counts), _BranchCounts(n_even, n_ruled)


def _find_outermost_exited_loop(loop_forest: LoopForest, block: int, target: int) -> Loop | None:
    """Return the outermost loop that the edge leaves, None if it leaves none."""
    exited_loop = None
    for index in loop_forest.find_enclosing_loops(block):
        if target not in loop_forest.loops[index].blocks:
            exited_loop = loop_forest.loops[index]
    return exited_loop


def estimate_branch_probabilities(
    cfg: Cfg, loop_forest: LoopForest, block: int, targets: list[int]
) -> list[float]:
    """Estimate the share of a block's executions that continue at each target.

    Heuristics in the manner of Ball and Larus, Branch Prediction for Free (PLDI 1993):

    1. If `find_likely_successor` predicts a target, it is certain.
    2. Else blocks that call a function are ruled out (slow paths of division or square root).
    3. Of the rest, blocks that only end the thread are ruled out.
    4. If exactly one of the rest leads into a loop, it is certain.

    A rule that would leave no target is skipped. Targets that remain are equally likely.
    """
    if len(targets) < 2:
        return [1.0] * len(targets)
    likely = find_likely_successor(cfg, block)
    if likely in targets:
        return [float(target == likely) for target in targets]
    candidates = [t for t in targets if t not in cfg.calling_blocks] or targets
    candidates = [t for t in candidates if not _is_early_exit(cfg, t)] or candidates
    into_loops = _drop_loop_bypasses(
        [t for t in candidates if loop_forest.dominates_loop_header(t)], cfg, loop_forest
    )
    taken = into_loops if len(into_loops) == 1 else candidates
    return [1.0 / len(taken) if target in taken else 0.0 for target in targets]


def _drop_loop_bypasses(targets: list[int], cfg: Cfg, loop_forest: LoopForest) -> list[int]:
    """Return targets without those that another target leads to: they skip its loop and enter a later one."""

    def leads_to(other: int, target: int) -> bool:
        return any(loop_forest.dominates(other, before) for before in cfg.predecessors[target])

    inner = [t for t in targets if not any(leads_to(other, t) for other in targets if other != t)]
    return inner or targets


_MAX_EXIT_BLOCK_INSTRUCTIONS = 3


def _is_early_exit(cfg: Cfg, block: int) -> bool:
    """Return whether a block does little but end the thread."""
    return not cfg.successors[block] and len(cfg.blocks[block]) <= _MAX_EXIT_BLOCK_INSTRUCTIONS
