"""Tile-level evaluation: runs a `TileProgram` for many programs of a launch at once.

Each body is run with a weight per program: how often that program runs it. Weights are split at branches by
their condition, and become 0 for the programs that have left a loop, so that one pass serves programs that go
different ways. A loop is run once for each of the most trips that any program makes; where nothing that is
computed inside changes from trip to trip, once for all.

    pid 0 … 3, causal attention: trips 1, 2, 3, 4 → weights of the body 1 1 1 1, 0 1 1 1, 0 0 1 1, 0 0 0 1

*Invariant:* when a body runs with weight w, every value in it that a program with w > 0 may read holds what
that program would have computed. What programs with w = 0 hold there is arbitrary.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.static_counts.block_counts import ASSUMED_TRIP_COUNT
from analyzer.tiles.comparisons import Relation, compare
from analyzer.tiles.layouts import list_integers
from analyzer.tiles.semantics import EVALUATIONS, choose
from analyzer.tiles.tile_program import (
    Body,
    Branch,
    Graph,
    Jump,
    Loop,
    Node,
    Step,
    TileProgram,
    WhileLoop,
    WorkSite,
)
from analyzer.tiles.values import (
    IntArray,
    TensorDescriptor,
    TileInteger,
    TileMask,
    TilePointer,
    TileValue,
    Unknown,
    add,
    conjoin,
    count_true,
    find_extremes,
    make_integer,
    make_range,
    with_shape,
)

_MAX_TRIPS = 20_000  # of a loop that are run one by one
MAX_NODE_RUNS = 300_000  # of all programs of a launch; some ten seconds
_PROGRAMS_PER_COST = 8192  # that a node serves in about the time that it takes anyway
_MAX_BLOCK_RUNS = 100_000  # of the blocks of a function with jumps
_MISFITS = (ValueError, IndexError, OverflowError)  # of code that no compiler printed: shapes do not fit
_INSIDE = "its box is taken to lie inside the tensor"
_ZERO = make_integer(0)
_UNSET = Unknown()  # of a value that no program has computed yet


class LaunchFacts:
    """What a launch gives: grid, program ids, values and contents of arguments."""

    def __init__(
        self,
        grid: tuple[int, int, int],
        arguments: tuple[TileValue, ...],
        names: tuple[str, ...],
        contents: "Mapping[int, ArgumentContents]",
    ) -> None:
        self.grid, self.arguments, self.names, self.contents = grid, arguments, names, contents
        self.program_ids = (np.zeros(1, dtype=np.int64),) * 3
        self.assumptions: dict[str, None] = {}
        self.assumes_values = False  # a value may rest on an assumption
        self.assumed_sites: set[int] = set()  # of whose elements the number is assumed
        self.assumed_bodies: set[int] = set()  # of whose executions the number is assumed

    def select_programs(self, numbers: IntArray) -> None:
        """Make programs with these places in launch order (x fastest) those that are evaluated."""
        x, y, _ = self.grid
        ids = (numbers % x, numbers // x % y, numbers // (x * y))
        # An id that all of them share is one number.
        self.program_ids = tuple(  # type: ignore[assignment]
            each[:1] if each[0] == each[-1] and not np.ptp(each) else each for each in ids
        )

    def find_contents(self, argument: int, type_name: str) -> NDArray[np.int64] | int | None:
        """Return the numbers that an argument points to, one number for all, or None if not known."""
        found = self.contents.get(argument)
        return None if found is None else found.read_as(type_name)

    def name_argument(self, argument: int) -> str:
        """Return the name of an argument."""
        return self.names[argument] if self.names[argument] else f"argument {argument}"

    def note(self, assumption: str) -> None:
        """Keep an assumption on a value for the report."""
        self.assumptions.setdefault(assumption)
        self.assumes_values = True

    def note_bodies(self, assumption: str, bodies: Iterable[Body]) -> None:
        """Keep an assumption on how often bodies run."""
        self.assumptions.setdefault(assumption)
        self.assumed_bodies.update(each.index for each in bodies)

    def note_site(self, assumption: str, site: WorkSite) -> None:
        """Keep an assumption on the elements of an operation."""
        self.assumptions.setdefault(assumption)
        self.assumed_sites.add(site.index)


class ArgumentContents:
    """The bytes that an argument points to, read as integers."""

    __slots__ = ("_bytes", "_is_uniform", "_views")

    def __init__(self, data: NDArray[np.uint8], *, is_uniform: bool) -> None:
        self._bytes, self._is_uniform = data, is_uniform
        self._views: dict[str, NDArray[np.int64]] = {}

    def read_as(self, type_name: str) -> NDArray[np.int64] | int | None:
        """Return the contents as integers of a type such as i32; None for types of floating point."""
        bits = type_name.removeprefix("i")
        if not type_name.startswith("i") or not bits.isdigit():
            return None
        if type_name not in self._views:
            size = max(1, int(bits) // 8)
            whole = self._bytes[: len(self._bytes) // size * size]
            self._views[type_name] = whole.view(f"<i{size}").astype(np.int64)
        view = self._views[type_name]
        if not len(view):
            return None
        return int(view[0]) if self._is_uniform else view


class TileEvaluator:
    """Evaluation of the programs that `facts` selects."""

    def __init__(
        self, program: TileProgram, facts: LaunchFacts, n_programs: int, budget: int = MAX_NODE_RUNS
    ) -> None:
        """Prepare an evaluation.

        budget: nodes that may run before the trips of a loop are no longer run one by one.
        """
        self.program, self.facts, self.n_programs = program, facts, n_programs
        one = np.zeros(1, dtype=np.int64)
        self.executions: list[IntArray] = [one] * program.n_bodies  # of bodies, [programs or 1]
        self.elements: list[IntArray] = [one] * len(program.sites)  # that masks let through, likewise
        self._values: list[TileValue] = [_UNSET] * program.n_values
        # Of sites with a pointer: the argument, and the first and last offset that is reached; None: unknown.
        self.reaches: dict[int, tuple[int | None, int, int] | None] = {}
        self._graph_depth = 0
        self._runs_left = float(budget)
        self._node_cost = 1.0 + n_programs / _PROGRAMS_PER_COST
        self._work = _count_work(program)

    def run(self) -> None:
        """Evaluate the whole program. Raises TileTooLarge."""
        for number, value in zip(self.program.arguments, self.facts.arguments, strict=False):
            self._values[number] = value
        self._run_body(self.program.body, np.ones(1, dtype=np.int64))

    def _run_body(self, body: Body, weight: IntArray) -> None:
        self._runs_left -= (1 + len(body.nodes)) * self._node_cost
        self.executions[body.index] = self.executions[body.index] + weight
        for node in body.nodes:
            self._run_node(node, weight)

    def _run_node(self, node: Node, weight: IntArray) -> None:
        match node:
            case Step():
                self._run_step(node, weight)
            case WorkSite():
                self._run_site(node, weight)
            case Loop():
                self._run_loop(node, weight)
            case Branch():
                self._run_branch(node, weight)
            case WhileLoop():
                self._run_while(node, weight)
            case Graph():
                self._run_graph(node, weight)

    def _run_step(self, step: Step, weight: IntArray) -> None:
        operands = [self._values[each] for each in step.operands]
        try:
            value = EVALUATIONS[step.operation.name](self.facts, step.operation, operands)
        except _MISFITS:
            value = Unknown(f"line {step.operation.line} gives no value")
        self._assign(step.results[0], value, weight)

    def _assign(self, number: int, value: TileValue, weight: IntArray) -> None:
        """Set a value; among blocks with jumps only for the programs that run."""
        if self._graph_depth and len(weight) > 1 and not weight.all():
            earlier = self._values[number]
            value = value if earlier is _UNSET else _merge(weight > 0, value, earlier)
        self._values[number] = value

    # Work

    def _run_site(self, site: WorkSite, weight: IntArray) -> None:
        if site.is_dynamic:
            try:
                count = self._count(site)
            except _MISFITS:
                count = self._assume_all(site, Unknown(), "its elements are taken to be all of its tile")
            self.elements[site.index] = self.elements[site.index] + weight * count
        if site.pointer is not None:
            try:
                self._reach(site, weight > 0)
            except _MISFITS:
                self.reaches[site.index] = None

    def _reach(self, site: WorkSite, runs: NDArray[np.bool_]) -> None:
        """Widen the range that a site reaches by what the programs that run reach; masks are ignored."""
        pointer = self._values[site.pointer] if site.pointer is not None else Unknown()
        if not isinstance(pointer, TilePointer) or not isinstance(pointer.offset, TileInteger):
            self.reaches[site.index] = None
            return
        low, high = np.broadcast_arrays(*find_extremes(pointer.offset), runs)[:2]
        chosen = np.broadcast_to(runs, low.shape)
        own = (pointer.argument, int(low[chosen].min()), int(high[chosen].max()))
        earlier = self.reaches.get(site.index, own)
        if earlier is not None and own[0] == earlier[0]:
            own = (own[0], min(own[1], earlier[1]), max(own[2], earlier[2]))
        self.reaches[site.index] = own

    def _count(self, site: WorkSite) -> IntArray:
        """Return how many elements an execution of a site lets through, [programs or 1]."""
        mask = None if site.mask is None else self._values[site.mask]
        if site.descriptor is not None:
            return self._count_box(site, self._values[site.descriptor]) * self._count_flag(site, mask)
        if isinstance(mask, TileMask):
            return count_true(mask)
        assert mask is not None
        return self._assume_all(site, mask, "its mask is assumed to be true everywhere")

    def _count_flag(self, site: WorkSite, flag: TileValue | None) -> IntArray:
        """Return 1 where a bulk copy runs, 0 where its flag is false."""
        if isinstance(flag, TileMask) and flag.is_splat:
            return flag.flag.astype(np.int64)
        if flag is not None:
            self._assume_all(site, flag, "its flag is taken to be true")
        return np.ones(1, dtype=np.int64)

    def _count_box(self, site: WorkSite, descriptor: TileValue) -> IntArray:
        """Return how many elements of a box lie inside the tensor that it is a part of."""
        starts = tuple(self._values[each] for each in site.indices)
        if isinstance(descriptor, TensorDescriptor):
            starts = starts or descriptor.offsets
        if not isinstance(descriptor, TensorDescriptor) or len(descriptor.extents) != len(starts):
            return self._assume_all(site, descriptor, _INSIDE)
        sizes = site.work.shape
        pad = len(starts) - len(sizes)
        sizes = (*[1] * pad, *sizes) if pad >= 0 else sizes[-len(starts) :]
        checked = _find_checked_axes(site)
        count = np.ones(1, dtype=np.int64)
        for axis, (size, extent, start) in enumerate(zip(sizes, descriptor.extents, starts, strict=True)):
            is_whole = checked is not None and axis not in checked
            count = count * (size if is_whole else self._count_inside(site, size, extent, start))
        return count

    def _count_inside(self, site: WorkSite, size: int, extent: TileValue, start: TileValue) -> IntArray | int:
        """Return how many places of a box along an axis are inside: a range, or rows by their numbers."""
        if not isinstance(extent, TileInteger) or not isinstance(start, TileInteger) or extent.shape:
            self._assume_all(site, extent if isinstance(extent, Unknown) else start, _INSIDE)
            return size
        places = start if start.shape else with_shape(add(start, make_range(0, size)), (size,))
        below, above = compare(Relation.SLT, places, extent, 64), compare(Relation.SGE, places, _ZERO, 64)
        return size if below is None or above is None else count_true(conjoin(below, above))

    def _assume_all(self, site: WorkSite, value: TileValue, assumption: str) -> IntArray:
        """Keep an assumption on a site, and return all elements of its tile."""
        self.facts.note_site(_explain(f"line {site.operation.line}: {assumption}", value), site)
        return np.array([site.work.elements], dtype=np.int64)

    # Loops

    def _run_loop(self, loop: Loop, weight: IntArray) -> None:
        trips = self._count_trips(loop)
        for each in loop.carried:
            self._values[each.argument] = self._values[each.initial]
        if self._is_unchanging(loop):
            self._run_body(loop.body, weight * trips)
            self._finish_unchanging(loop)
            return
        finals = [self._values[each.initial] for each in loop.carried]
        finals = self._run_trips(loop, weight, trips, finals)
        for each, value in zip(loop.carried, finals, strict=True):
            self._assign(each.result, value, weight)

    def _is_unchanging(self, loop: Loop) -> bool:
        """Return whether nothing that is computed in a loop changes from trip to trip."""
        needed = self.program.needed
        return loop.induction not in needed and not any(each.argument in needed for each in loop.carried)

    def _finish_unchanging(self, loop: Loop) -> None:
        for each in loop.carried:
            self._values[each.result] = self._values[each.next]

    def _run_trips(
        self, loop: Loop, weight: IntArray, trips: IntArray, finals: list[TileValue]
    ) -> list[TileValue]:
        """Run the trips one by one; return the values that the loop leaves behind."""
        lower, step = (self._values[each] for each in (loop.lower, loop.step))
        running = (weight > 0) & (trips > 0)
        most = int(np.max(np.where(weight > 0, trips, 0)))
        are_equal = (
            not np.ptp(trips[np.broadcast_to(weight > 0, trips.shape)]) if most and len(trips) > 1 else True
        )
        keeps = [each.result in self.program.needed for each in loop.carried]
        for trip in range(most):
            is_last_run = trip + 1 >= _MAX_TRIPS or self._runs_left <= 0
            active = weight if are_equal else weight * (trips > trip)
            if is_last_run and trip + 1 < most:
                self.facts.note_bodies(
                    f"line {loop.operation.line}: trips after {trip + 1:,} are taken to be like that one",
                    [loop.body],
                )
                active = weight * np.maximum(trips - trip, 0)
            self._values[loop.induction] = _advance(lower, step, trip)
            self._run_body(loop.body, active)
            following = [self._values[each.next] for each in loop.carried]
            for place, value in enumerate(following):
                if keeps[place]:
                    finals[place] = (
                        value if are_equal else _merge(running & (trips > trip), value, finals[place])
                    )
                self._values[loop.carried[place].argument] = value
            if is_last_run:
                break
        return finals

    def _count_trips(self, loop: Loop) -> IntArray:
        """Return the trips of a loop, [programs or 1]; as many as of code where they are not known."""
        bounds = [self._values[each] for each in (loop.lower, loop.upper, loop.step)]
        numbers = [each.base.astype(np.int64) for each in bounds if isinstance(each, TileInteger)]
        if len(numbers) < len(bounds):
            unknown = next(each for each in bounds if not isinstance(each, TileInteger))
            assumption = f"line {loop.operation.line}: {ASSUMED_TRIP_COUNT} trips of the loop are assumed"
            self.facts.note_bodies(_explain(assumption, unknown), [loop.body])
            return np.full(1, ASSUMED_TRIP_COUNT, dtype=np.int64)
        lower, upper, step = numbers
        trips: IntArray = np.maximum(0, -((lower - upper) // np.maximum(step, 1)))
        return trips

    def _run_while(self, loop: WhileLoop, weight: IntArray) -> None:
        """Run a loop while its condition holds; one that waits for another program goes on at once."""
        for argument, initial in zip(loop.before_arguments, loop.initial, strict=False):
            self._values[argument] = self._values[initial]
        finals: list[TileValue] = [Unknown()] * len(loop.results)
        for trip in range(_MAX_TRIPS):
            self._run_body(loop.before, weight)
            default = trip == 0 and self._work[loop.after.index] > 0
            goes_on = self._decide(loop.condition, loop.operation.line, [loop.before, loop.after], default)
            forwarded = [self._values[each] for each in loop.forwarded]
            leaving = (weight > 0) & ~goes_on
            finals = [_merge(leaving, new, old) for new, old in zip(forwarded, finals, strict=False)]
            weight = weight * goes_on
            if not weight.any() or self._runs_left <= 0:
                break
            for argument, value in zip(loop.after_arguments, forwarded, strict=False):
                self._values[argument] = value
            self._run_body(loop.after, weight)
            for argument, following in zip(loop.before_arguments, loop.next, strict=False):
                self._values[argument] = self._values[following]
        if weight.any():
            self.facts.note_bodies(
                f"line {loop.operation.line}: the loop is cut off; its end was not reached",
                [loop.before, loop.after],
            )
        for result, value in zip(loop.results, finals, strict=False):
            self._values[result] = value

    # Branches

    def _decide(self, condition: int, line: int, bodies: Iterable[Body], default: bool) -> NDArray[np.bool_]:
        """Return per program whether a condition holds; `default` where it is not known.

        bodies: those that run by it
        """
        value = self._values[condition]
        if isinstance(value, TileMask) and value.is_splat:
            return value.flag
        taken = "true" if default else "false"
        self.facts.note_bodies(_explain(f"line {line}: the condition is taken to be {taken}", value), bodies)
        return np.array([default])

    def _run_branch(self, branch: Branch, weight: IntArray) -> None:
        first, second = (self._work[body.index] for body in branch.bodies)
        has_more = first >= second
        flag = self._decide(branch.condition, branch.operation.line, branch.bodies, has_more)
        given: list[list[TileValue]] = []
        for body, yields, side in zip(branch.bodies, branch.yields, (flag, ~flag), strict=True):
            part = weight * side
            if part.any():
                self._run_body(body, part)
            given.append([self._values[each] for each in yields])
        for place, result in enumerate(branch.results):
            if result in self.program.needed:
                options = [values[place] if place < len(values) else Unknown() for values in given]
                self._assign(result, _merge(flag, options[0], options[1]), weight)

    def _run_graph(self, graph: Graph, weight: IntArray) -> None:
        """Run blocks, always the first in the text that programs wait at, until all have returned."""
        waiting = {0: weight}
        self._graph_depth += 1
        try:
            for _ in range(_MAX_BLOCK_RUNS):
                if not waiting:
                    return
                place = min(waiting)
                current = waiting.pop(place)
                block = graph.blocks[place]
                self._run_body(block.body, current)
                self._follow_jumps(graph, place, current, waiting)
            self.facts.note_bodies(
                "a loop of jumps is cut off; its end was not reached", [each.body for each in graph.blocks]
            )
        finally:
            self._graph_depth -= 1

    def _count_reached(self, graph: Graph, jump: Jump) -> int:
        """Return how many operations with work a jump leads to: what returns at once has none."""
        waiting = [] if jump.target is None else [jump.target]
        seen: set[int] = set()
        while waiting:
            place = waiting.pop()
            if place not in seen:
                seen.add(place)
                waiting += [each.target for each in graph.blocks[place].jumps if each.target is not None]
        return sum(self._work[graph.blocks[place].body.index] for place in seen)

    def _follow_jumps(self, graph: Graph, place: int, weight: IntArray, waiting: dict[int, IntArray]) -> None:
        block = graph.blocks[place]
        sides: tuple[NDArray[np.bool_], ...] = (np.ones(1, dtype=np.bool_),)
        if block.condition is not None and block.operation is not None:
            jumps = block.jumps
            has_more = self._count_reached(graph, jumps[0]) >= self._count_reached(graph, jumps[1])
            bodies = [each.body for each in graph.blocks]
            flag = self._decide(block.condition, block.operation.line, bodies, has_more)
            sides = (flag, ~flag)
        for jump, side in zip(block.jumps, sides, strict=False):
            part = weight * side
            if not part.any():
                continue
            targets = graph.results if jump.target is None else graph.blocks[jump.target].arguments
            values = [self._values[each] for each in jump.values]
            for target, value in zip(targets, values, strict=False):
                self._assign(target, value, part)
            if jump.target is not None:
                earlier = waiting.get(jump.target)
                waiting[jump.target] = part if earlier is None else earlier + part


def _explain(assumption: str, value: TileValue) -> str:
    """Return an assumption with the reason why a value is not known, and what would give it."""
    told = (
        "; ".join(each for each in (value.reason, value.hint) if each) if isinstance(value, Unknown) else ""
    )
    return f"{assumption} ({told})" if told else assumption


def _find_checked_axes(site: WorkSite) -> tuple[int, ...] | None:
    """Return the axes of a block whose boundaries an access checks; None: all, as the copy engine does."""
    checked = site.operation.find_attribute("boundaryCheck")
    return None if checked is None else list_integers(checked)


def _advance(lower: TileValue, step: TileValue, trip: int) -> TileValue:
    if not isinstance(lower, TileInteger) or not isinstance(step, TileInteger):
        return Unknown()
    return TileInteger((), lower.base.astype(np.int64) + step.base.astype(np.int64) * trip)


def _merge(flag: NDArray[np.bool_], new: TileValue, old: TileValue) -> TileValue:
    """Return new for the programs of a flag, old for the others."""
    if new is old or flag.all():
        return new
    if not flag.any():
        return old
    if isinstance(new, TileInteger) and isinstance(old, TileInteger) and _are_same(new, old):
        return new
    return choose(TileMask((), flag), new, old)


def _are_same(a: TileInteger, b: TileInteger) -> bool:
    return a.is_splat and b.is_splat and len(a.base) == len(b.base) == 1 and a.base[0] == b.base[0]


def _count_work(program: TileProgram) -> list[int]:
    """Return how many operations with work each body has, with the bodies inside."""
    counts = [0] * program.n_bodies
    for site in program.sites:
        body = site.body
        while body >= 0:
            counts[body] += 1
            body = program.parents[body]
    return counts
