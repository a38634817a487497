"""Tasks of a Triton kernel's launch: classes of programs that do the same (SynPerf, equation 1).

A task is one program, that is one CTA (one cluster where a program has several CTAs). Programs that run every
body equally often, and whose masks let equally many elements through, form a class. SynPerf's authors wrote
such a decomposition by hand for each kernel; here it follows from the kernel's own code.

    matmul of 1000 x 4104 by tiles of 128 x 128, 8 x 33 programs: 4 classes, of 7 · 32, 32, 7 and 1 programs,
    which differ in the rows and columns that are stored
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.launch import Argument, Dim3
from analyzer.ir.tile_operations import Operation, TritonFunction, TritonModule, walk_operations
from analyzer.text.errors import InputError, UsageError
from analyzer.tiles.evaluator import MAX_NODE_RUNS, LaunchFacts, TileEvaluator
from analyzer.tiles.launch_binding import bind_launch
from analyzer.tiles.tile_program import Loop, TileProgram, WhileLoop, WorkSite, build_tile_program
from analyzer.tiles.values import TileTooLarge
from analyzer.tiles.work import OperationWork, Quantity, ThreadCount

_MAX_PROGRAMS_AT_ONCE = 1 << 17
_LEAST_BUDGET = 20_000
_ASSUMED_WARPS = 4  # Triton's default
MAX_PROGRAMS = 1 << 25


class Amounts(Struct, frozen=True):
    """What a task, or all, ask for: a number for each `Quantity`, and the part that repeats other threads."""

    values: tuple[int, ...]
    repeated: tuple[int, ...]  # of `values`: by threads that hold an element that others hold too

    def __getitem__(self, quantity: Quantity) -> int:
        return self.values[quantity]


class LoopTrips(Struct, frozen=True):
    """How often a program runs the body of a loop."""

    line: int  # of the Triton IR
    trips: int


class TaskClass(Struct, frozen=True):
    """Programs that do the same."""

    count: int
    first_program: int  # number in launch order of one of them, the first
    amounts: Amounts  # of one
    trips: int  # of the innermost loops that multiply or, in kernels that never do in a loop, load
    loops: tuple[LoopTrips, ...]


class OperationTotal(Struct, frozen=True):
    """An operation with work, summed over the launch."""

    operation: Operation
    work: OperationWork
    executions: int
    amounts: Amounts
    is_assumed: bool = False  # how often it runs, or on how many elements


class TaskDecomposition(Struct, frozen=True, eq=False):
    """The tasks of a launch."""

    kernel: str
    grid: Dim3
    threads: ThreadCount
    classes: tuple[TaskClass, ...]  # largest first
    class_of_program: NDArray[np.int32]  # of each program in launch order
    operations: tuple[OperationTotal, ...]
    total: Amounts
    assumptions: tuple[str, ...]
    assumed: frozenset[Quantity] = frozenset()  # of which an amount rests on an assumption
    uncounted: frozenset[Quantity] = frozenset()  # of which an amount is not known: the total is the rest
    has_assumed_trips: bool = False

    @property
    def total_trips(self) -> int:
        """Trips of all programs."""
        return sum(each.count * each.trips for each in self.classes)


def find_kernel(module: TritonModule, name: str | None = None) -> TritonFunction:
    """Return the kernel of a module, by name where it has several. Raises InputError or UsageError.

    Where no function is public, as in code for tests, those that no other one calls are kernels.
    """
    functions = [each for each in module.functions if each.body.blocks]
    kernels = [each for each in functions if each.is_public]
    if not kernels:
        called = {each.callee for each in walk_operations(function.body for function in functions)}
        kernels = [each for each in functions if each.name not in called]
    chosen = [each for each in kernels if name is None or each.name == name]
    if not kernels:
        raise InputError("there is no kernel in this file", hint="a kernel is a tt.func with a body")
    if len(chosen) != 1:
        names = ", ".join(each.name for each in kernels[:8])
        raise UsageError(
            f"{len(kernels)} kernels in this file" if name is None else f"no kernel {name!r}",
            hint=f"one of {names}",
        )
    return chosen[0]


def decompose_launch(
    module: TritonModule, grid: Dim3, arguments: Sequence[Argument] = (), kernel: str | None = None
) -> TaskDecomposition:
    """Return the tasks of a launch.

    grid: programs. Raises UsageError for arguments that do not fit, InputError for code nested too deeply.
    """
    if grid.count > MAX_PROGRAMS:
        raise UsageError(f"grid {grid}: {grid.count:,} programs; at most {MAX_PROGRAMS:,} are decomposed")
    function = find_kernel(module, kernel)
    threads = ThreadCount(module.n_warps or _ASSUMED_WARPS, module.threads_per_warp, module.level == "ttgir")
    program = build_tile_program(module, function, threads)
    facts = bind_launch(function, grid.sizes, arguments)
    table = _ClassTable(program)
    _evaluate_programs(program, facts, grid.count, table)
    if threads.has_layouts and module.n_warps is None:
        facts.note_bodies(f"the module does not say of how many warps: {_ASSUMED_WARPS} are taken", ())
    for name in program.unknown_calls:
        facts.note_bodies(f"what the function {name or '?'} does is not counted: it is not in the file", ())
    return _collect(program, table, grid, threads, facts)


def _evaluate_programs(
    program: TileProgram, facts: LaunchFacts, n_programs: int, table: "_ClassTable"
) -> None:
    first, at_once = 0, min(n_programs, _MAX_PROGRAMS_AT_ONCE)
    while first < n_programs:
        count = min(at_once, n_programs - first)
        facts.select_programs(np.arange(first, first + count, dtype=np.int64))
        # At least a part for each of the many that are evaluated in turn.
        budget = max(_LEAST_BUDGET, MAX_NODE_RUNS * count // n_programs)
        evaluator = TileEvaluator(program, facts, count, budget)
        try:
            evaluator.run()
        except TileTooLarge:
            if at_once == 1:
                raise InputError("a tile of this kernel is too large to be evaluated") from None
            at_once = max(1, min(at_once, count) // 4)
            continue
        table.add(evaluator, first, count)
        first += count


class _ClassTable:
    """Classes found so far: counts of bodies and of sites' elements, one row per class."""

    def __init__(self, program: TileProgram) -> None:
        self.program = program
        self.keys: dict[bytes, int] = {}
        self.rows: list[NDArray[np.int64]] = []
        self.counts: list[int] = []
        self.first_programs: list[int] = []
        self.class_of_program: list[NDArray[np.int32]] = []

    def add(self, evaluator: TileEvaluator, first: int, count: int) -> None:
        """Add what programs `first` to `first + count` did."""
        columns = [*evaluator.executions, *evaluator.elements]
        varying = [place for place, each in enumerate(columns) if len(each) > 1 and np.ptp(each)]
        base = np.array([int(each[0]) for each in columns], dtype=np.int64)
        if not varying:
            numbers = np.full(count, self._find_class(base, first, count), dtype=np.int32)
            self.class_of_program.append(numbers)
            return
        table = np.stack([columns[place] for place in varying], axis=1)
        distinct, examples, inverse, counts = np.unique(
            _hash_rows(table), return_index=True, return_inverse=True, return_counts=True
        )
        numbers = np.empty(len(distinct), dtype=np.int32)
        for place in np.argsort(examples):
            row = base.copy()
            row[varying] = table[examples[place]]
            numbers[place] = self._find_class(row, first + int(examples[place]), int(counts[place]))
        self.class_of_program.append(numbers[inverse.reshape(-1)])

    def _find_class(self, row: NDArray[np.int64], example: int, count: int) -> int:
        key = row.tobytes()
        if key not in self.keys:
            self.keys[key] = len(self.rows)
            self.rows.append(row)
            self.counts.append(0)
            self.first_programs.append(example)
        found = self.keys[key]
        self.counts[found] += count
        return found


def _hash_rows(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for each row, equal for equal rows only: places among the distinct rows so far."""
    numbers = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        _, places = np.unique(column, return_inverse=True)
        combined = numbers * (int(places.max()) + 1) + places.reshape(-1)
        _, places = np.unique(combined, return_inverse=True)
        numbers = places.reshape(-1).astype(np.int64)
    return numbers


def _collect(
    program: TileProgram, table: _ClassTable, grid: Dim3, threads: ThreadCount, facts: LaunchFacts
) -> TaskDecomposition:
    order = sorted(range(len(table.rows)), key=lambda each: (-table.counts[each], table.first_programs[each]))
    places = np.empty(len(order), dtype=np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    classes = tuple(
        _make_class(program, table.rows[each], table.counts[each], table.first_programs[each])
        for each in order
    )
    totals = _total_operations(program, table, facts)
    return TaskDecomposition(
        kernel=program.function.name,
        grid=grid,
        threads=threads,
        classes=classes,
        class_of_program=places[np.concatenate(table.class_of_program)],
        operations=totals,
        total=add_amounts([each.amounts for each in totals]),
        assumptions=tuple(facts.assumptions),
        assumed=frozenset(
            quantity
            for work in (each.work for each in totals if each.is_assumed)
            for quantity in (*dict(work.fixed), *dict(work.per_element), *work.uncounted)
        ),
        uncounted=frozenset(
            quantity for each in totals for quantity in each.work.uncounted if each.executions
        ),
        has_assumed_trips=bool(facts.assumed_bodies),
    )


def _is_assumed(program: TileProgram, site: WorkSite, facts: LaunchFacts) -> bool:
    """Return whether it is assumed how often an operation runs, or on how many elements."""
    is_guessed = site.is_dynamic and facts.assumes_values
    around = _find_innermost(program, site.body, facts.assumed_bodies)
    return is_guessed or site.index in facts.assumed_sites or around is not None


def _make_class(program: TileProgram, row: NDArray[np.int64], count: int, example: int) -> TaskClass:
    amounts = add_amounts([_measure_site(program, place, row)[1] for place in range(len(program.sites))])
    loops = tuple(LoopTrips(loop.operation.line, int(row[_find_body(loop)])) for loop in program.loops)
    return TaskClass(count, example, amounts, _sum_trips(program, row), loops)


def _find_body(loop: Loop | WhileLoop) -> int:
    return loop.body.index if isinstance(loop, Loop) else loop.after.index


def _sum_trips(program: TileProgram, row: NDArray[np.int64]) -> int:
    """Return the trips of the innermost loops around products; around accesses where no product is in a loop.

    A pipelined loop may have products of its first or last trips before or behind it: those of the same line
    of source count as trips of it.
    """
    loop_bodies = {_find_body(loop) for loop in program.loops}
    products = _list_sites(program, (Quantity.MMA_FMA,))
    places = {
        site.operation.source_line
        for site in products
        if _find_innermost(program, site.body, loop_bodies) is not None
    }
    if places and None not in places:
        return _sum_products(program, row, loop_bodies, products)
    for sites in (products, _list_sites(program, (Quantity.BYTES_LOADED, Quantity.BYTES_STORED))):
        found = {_find_innermost(program, site.body, loop_bodies) for site in sites} - {None}
        if found:
            return int(sum(row[body] for body in found if body is not None))
    return 0


def _list_sites(program: TileProgram, quantities: tuple[Quantity, ...]) -> list[WorkSite]:
    return [
        site
        for site in program.sites
        if any(quantity in quantities for quantity, _ in (*site.work.fixed, *site.work.per_element))
    ]


def _sum_products(
    program: TileProgram, row: NDArray[np.int64], loop_bodies: set[int], products: list[WorkSite]
) -> int:
    """Return the executions of the most frequent product of each loop, with those of its line elsewhere."""
    # A product may be cut into several along its inner axis, which then stand in one body.
    by_body: dict[tuple[object, int], int] = {}
    for site in products:
        key = site.operation.source_line, site.body
        own = int(row[program.n_bodies + site.index] if site.is_dynamic else row[site.body])
        by_body[key] = max(own, by_body.get(key, 0))
    executions: dict[object, int] = {}
    for (place, _), own in by_body.items():
        executions[place] = executions.get(place, 0) + own
    chosen: dict[int, object] = {}
    for site in products:
        loop, place = _find_innermost(program, site.body, loop_bodies), site.operation.source_line
        if loop is not None and (loop not in chosen or executions[chosen[loop]] < executions[place]):
            chosen[loop] = place
    return sum(executions[place] for place in set(chosen.values()))


def _find_innermost(program: TileProgram, body: int, wanted: set[int]) -> int | None:
    """Return the first of a body and those around it that is wanted, None if none is."""
    while body >= 0:
        if body in wanted:
            return body
        body = program.parents[body]
    return None


def _measure_site(program: TileProgram, place: int, row: NDArray[np.int64]) -> tuple[int, Amounts]:
    """Return how often a site runs, and what that asks for."""
    site = program.sites[place]
    executions = int(row[site.body])
    elements = int(row[program.n_bodies + place]) if site.is_dynamic else executions * site.work.elements
    values, repeated = [0] * len(Quantity), [0] * len(Quantity)
    for terms, times in ((site.work.fixed, executions), (site.work.per_element, elements)):
        for quantity, amount in terms:
            values[quantity] += amount * times * site.work.replication
            repeated[quantity] += amount * times * (site.work.replication - 1)
    return executions, Amounts(tuple(values), tuple(repeated))


def _total_operations(
    program: TileProgram, table: _ClassTable, facts: LaunchFacts
) -> tuple[OperationTotal, ...]:
    row = np.zeros(program.n_bodies + len(program.sites), dtype=np.int64)
    for each, count in zip(table.rows, table.counts, strict=True):
        row = row + each * count
    totals = []
    for place, site in enumerate(program.sites):
        executions, amounts = _measure_site(program, place, row)
        is_assumed = _is_assumed(program, site, facts)
        totals.append(OperationTotal(site.operation, site.work, executions, amounts, is_assumed))
    return tuple(totals)


def add_amounts(amounts: Sequence[Amounts]) -> Amounts:
    """Return the sum of amounts."""
    values, repeated = [0] * len(Quantity), [0] * len(Quantity)
    for each in amounts:
        for place in range(len(Quantity)):
            values[place] += each.values[place]
            repeated[place] += each.repeated[place]
    return Amounts(tuple(values), tuple(repeated))
