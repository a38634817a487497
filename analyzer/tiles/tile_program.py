"""A kernel as a tree of bodies: what tile-level evaluation runs.

Calls are inlined, values are numbered, and only what masks, bounds and conditions depend on is kept as steps.
The rest needs no evaluation: an operation without a mask runs as often as its body.

    scf.for %k = %c0 to %n { %x = tt.load %p, %m; %acc = tt.dot %x, … }
    Loop(lower, upper, step, body with a step for %m, a site with a mask (tt.load) and one without (tt.dot))

Names of operations are those of Triton 3.3 and later, which the frontend gives to earlier ones too.
"""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from analyzer.ir.tile_operations import (
    Block,
    Operation,
    Region,
    TritonFunction,
    TritonModule,
    Value,
    walk_operations,
)
from analyzer.text.errors import InputError
from analyzer.tiles.semantics import EVALUATIONS
from analyzer.tiles.work import (
    ASYNC_COPIES,
    DIVISIONS,
    POINTER_ACCESSES,
    UNKNOWN_WORK,
    OperandOrigin,
    OperationWork,
    Quantity,
    ThreadCount,
    find_work,
)

_MAX_DEPTH = 64  # of nested regions and calls
_MAX_OPERATIONS = 400_000  # after inlining
_DESCRIPTOR_WRITE = "ttng.tensormap_create"
_DESCRIPTOR_READ = "ttng.reinterpret_tensor_descriptor"
_BUFFER_FILLS = ASYNC_COPIES | {"ttg.local_store", "ttg.local_alloc"}
_BROADCASTS = frozenset(("tt.splat", "tt.broadcast", "tt.unsplat"))


class Step(Struct, frozen=True, eq=False):
    """An operation whose results are computed."""

    operation: Operation
    operands: tuple[int, ...]
    results: tuple[int, ...]


class WorkSite(Struct, frozen=True, eq=False):
    """An operation that has work; `mask`, `descriptor` and `indices` are values that say how much."""

    index: int
    body: int
    operation: Operation
    work: OperationWork
    mask: int | None = None
    descriptor: int | None = None
    indices: tuple[int, ...] = ()
    pointer: int | None = None  # of an access to global memory, where addresses are wanted

    @property
    def is_dynamic(self) -> bool:
        """True if an execution's elements must be counted."""
        return self.mask is not None or self.descriptor is not None


class Carried(Struct, frozen=True):
    """A value that a loop carries: numbers of the four values it has on its way."""

    initial: int
    argument: int
    next: int
    result: int


class Loop(Struct, frozen=True, eq=False):
    """`scf.for`."""

    operation: Operation
    lower: int
    upper: int
    step: int
    induction: int
    carried: tuple[Carried, ...]
    body: "Body"


class WhileLoop(Struct, frozen=True, eq=False):
    """`scf.while`: a part that computes the condition and a part that runs while it holds."""

    operation: Operation
    initial: tuple[int, ...]
    before_arguments: tuple[int, ...]
    before: "Body"
    condition: int
    forwarded: tuple[int, ...]
    after_arguments: tuple[int, ...]
    after: "Body"
    next: tuple[int, ...]
    results: tuple[int, ...]


class Branch(Struct, frozen=True, eq=False):
    """`scf.if`; the second body may be empty."""

    operation: Operation
    condition: int
    bodies: "tuple[Body, Body]"
    yields: tuple[tuple[int, ...], tuple[int, ...]]
    results: tuple[int, ...]


class Jump(Struct, frozen=True):
    """A way from one block to another, or out of the function (target None), with the values it gives."""

    target: int | None
    values: tuple[int, ...]


class GraphBlock(Struct, frozen=True, eq=False):
    """A block that ends in one jump, or in two by a condition."""

    arguments: tuple[int, ...]
    body: "Body"
    jumps: tuple[Jump, ...]
    condition: int | None
    operation: Operation | None  # its terminator


class Graph(Struct, frozen=True, eq=False):
    """The blocks of a function with jumps; `results` get what the blocks that return give."""

    blocks: tuple[GraphBlock, ...]
    results: tuple[int, ...]


Node: TypeAlias = Step | WorkSite | Loop | WhileLoop | Branch | Graph


class Body(Struct, frozen=True, eq=False):
    """Operations that run one after another, equally often."""

    index: int
    nodes: tuple[Node, ...]


class TileProgram(Struct, frozen=True, eq=False):
    """A kernel, ready to be evaluated."""

    function: TritonFunction
    arguments: tuple[int, ...]
    body: Body
    n_values: int
    n_bodies: int
    sites: tuple[WorkSite, ...]
    loops: tuple[Loop | WhileLoop, ...]
    parents: tuple[int, ...]  # of each body: the body around it, -1 of the outermost
    needed: frozenset[int]  # values that are computed
    unknown_calls: tuple[str, ...]


def build_tile_program(
    module: TritonModule, function: TritonFunction, threads: ThreadCount, *, tracks_addresses: bool = False
) -> TileProgram:
    """Return a kernel of a module as a program. Raises InputError where it is nested without end.

    tracks_addresses: keep what the addresses of accesses to global memory depend on.
    """
    return _ProgramBuilder(module, threads, tracks_addresses=tracks_addresses).build(function)


class _ProgramBuilder:
    """Builder of one program."""

    __slots__ = (
        "_depth",
        "_descriptors",
        "_divisors",
        "_filling",
        "_functions",
        "_loop_bodies",
        "_loops",
        "_n_operations",
        "_n_values",
        "_origins",
        "_parents",
        "_requirements",
        "_roots",
        "_sites",
        "_threads",
        "_tracks_addresses",
        "_unknown",
        "_unknown_calls",
        "_uses_shared_memory",
    )

    def __init__(self, module: TritonModule, threads: ThreadCount, *, tracks_addresses: bool) -> None:
        self._tracks_addresses = tracks_addresses
        self._unknown = frozenset(name for name, _ in module.unknown_operations)
        self._functions = {function.name: function for function in module.functions}
        self._threads = threads
        self._n_values = self._n_operations = self._depth = 0
        self._sites: list[WorkSite] = []
        self._loops: list[Loop | WhileLoop] = []
        self._parents: list[int] = []
        self._requirements: dict[int, tuple[int, ...]] = {}
        self._roots: list[int] = []
        self._unknown_calls: list[str] = []
        self._descriptors: dict[int, int] = {}  # of the pointers behind which they are written
        self._origins: dict[int, tuple[int, OperandOrigin]] = {}
        self._divisors: set[int] = set()
        self._loop_bodies: set[int] = set()
        self._filling: set[int] = set()  # bodies that fill buffers of shared memory
        self._uses_shared_memory = False

    def build(self, function: TritonFunction) -> TileProgram:
        scope: dict[str, int] = {}
        arguments = self._define(scope, function.arguments)
        body_index = self._open_body(-1)
        nodes: list[Node] = []
        self._inline_region(function.body, scope, body_index, nodes, ())
        body = Body(body_index, tuple(nodes))
        needed = self._find_needed()
        return TileProgram(
            function,
            arguments,
            _prune(body, needed),
            self._n_values,
            len(self._parents),
            tuple(self._sites),
            tuple(self._loops),
            tuple(self._parents),
            frozenset(needed),
            tuple(self._unknown_calls),
        )

    def _open_body(self, parent: int) -> int:
        self._parents.append(parent)
        return len(self._parents) - 1

    def _define(self, scope: dict[str, int], values: Iterable[Value]) -> tuple[int, ...]:
        numbers = []
        for value in values:
            scope[value.name] = self._n_values
            numbers.append(self._n_values)
            self._n_values += 1
        return tuple(numbers)

    def _look_up(self, scope: dict[str, int], values: Iterable[Value]) -> tuple[int, ...]:
        """Return the numbers of values; one that nothing defines is a new one, whose value is unknown."""
        return tuple(
            scope[value.name] if value.name in scope else self._define(scope, (value,))[0] for value in values
        )

    def _enter(self, operation: Operation | None) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            line = "" if operation is None else f" at line {operation.line}"
            raise InputError(f"operations are nested more than {_MAX_DEPTH} deep{line}")

    def _inline_region(
        self, region: Region, scope: dict[str, int], body: int, nodes: list[Node], results: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add the operations of a function's region; return the numbers of what it returns."""
        self._enter(None)
        try:
            if len(region.blocks) == 1:
                return self._add_block(region.blocks[0], scope, body, nodes)
            if region.blocks:
                nodes.append(self._build_graph(region, scope, body, results))
            return results
        finally:
            self._depth -= 1

    def _add_block(
        self, block: Block, scope: dict[str, int], body: int, nodes: list[Node]
    ) -> tuple[int, ...]:
        """Add the operations of a block; return the operands of its terminator."""
        for operation in block.operations:
            self._add_operation(operation, scope, body, nodes)
        if not block.operations:
            return ()
        return self._look_up(scope, block.operations[-1].operands)

    def _add_operation(
        self, operation: Operation, scope: dict[str, int], body: int, nodes: list[Node]
    ) -> None:
        self._n_operations += 1
        if self._n_operations > _MAX_OPERATIONS:
            raise InputError(f"more than {_MAX_OPERATIONS:,} operations after calls are inlined")
        match operation.name:
            case "scf.for":
                self._add_loop(operation, scope, body, nodes)
            case "scf.while":
                self._add_while(operation, scope, body, nodes)
            case "scf.if":
                self._add_branch(operation, scope, body, nodes)
            case "tt.call":
                self._add_call(operation, scope, body, nodes)
            case "tt.reduce" | "tt.scan" | "tt.map_elementwise":
                self._add_simple(operation, scope, body, nodes)
            case _ if operation.regions:
                self._add_regions(operation, scope, body, nodes)
            case _:
                self._add_simple(operation, scope, body, nodes)

    def _add_simple(self, operation: Operation, scope: dict[str, int], body: int, nodes: list[Node]) -> None:
        operands = self._look_up(scope, operation.operands)
        results = self._define(scope, operation.results)
        if operation.name == _DESCRIPTOR_WRITE and operands:
            # What is written behind a pointer is what the pointer is reinterpreted as later.
            results = self._define({}, operation.operands[:1])
            self._descriptors[operands[0]] = results[0]
        elif operation.name == _DESCRIPTOR_READ:
            operands = tuple(self._descriptors.get(each, each) for each in operands)
        if operation.name in EVALUATIONS and results:
            for result in results:
                self._requirements[result] = operands
            nodes.append(Step(operation, operands, results[:1]))
        self._keep_origins(operation, operands, results)
        work = find_work(operation, self._threads, self._find_divisor(operation, operands))
        if self._holds_unknown(operation):
            work = UNKNOWN_WORK
        if work is not None:
            site = self._add_site(operation, self._add_barriers(operation, work, body), scope, body)
            if site.is_dynamic or site.pointer is not None:
                nodes.append(site)

    def _holds_unknown(self, operation: Operation) -> bool:
        """Return whether an operation, or one in its regions, is not known."""
        return any(each.name in self._unknown for each in (operation, *walk_operations(operation.regions)))

    def _keep_origins(
        self, operation: Operation, operands: tuple[int, ...], results: tuple[int, ...]
    ) -> None:
        """Keep what a broadcast value is made of."""
        if operation.name in _BROADCASTS and operands and results:
            first = operation.operands[0].type
            self._origins[results[0]] = self._origins.get(operands[0], (operands[0], OperandOrigin(first)))

    def _find_divisor(self, operation: Operation, operands: tuple[int, ...]) -> OperandOrigin | None:
        if operation.name not in DIVISIONS or len(operands) < 2:
            return None
        own = OperandOrigin(operation.operands[1].type)
        number, origin = self._origins.get(operands[1], (operands[1], own))
        is_new = number not in self._divisors
        self._divisors.add(number)
        return replace(origin, is_new=is_new)

    def _add_barriers(self, operation: Operation, work: OperationWork, body: int) -> OperationWork:
        """Add the barriers that keep threads from writing what others still read.

        What goes through shared memory waits for what used it before; the first use has nothing to wait for.
        What fills a buffer in a loop waits for the products that read it.
        """
        exchanges = any(quantity is Quantity.EXCHANGES for quantity, _ in work.fixed)
        is_filling = operation.name in _BUFFER_FILLS and bool(work.fixed)
        n_barriers = int(exchanges and self._uses_shared_memory)
        if is_filling and body in self._loop_bodies and body not in self._filling:
            # Threads that fill a buffer themselves wait for each other as well, before it is read.
            n_barriers += 1 if operation.name in ASYNC_COPIES else 2
        if is_filling:
            self._filling.add(body)
        self._uses_shared_memory = self._uses_shared_memory or exchanges or is_filling
        return replace(work, fixed=(*work.fixed, (Quantity.BARRIERS, n_barriers))) if n_barriers else work

    def _add_site(
        self, operation: Operation, work: OperationWork, scope: dict[str, int], body: int
    ) -> WorkSite:
        mask = None if work.mask is None else self._look_up(scope, (work.mask,))[0]
        descriptor = None if work.descriptor is None else self._look_up(scope, (work.descriptor,))[0]
        indices = self._look_up(scope, work.indices)
        pointer = None
        if self._tracks_addresses and operation.name in POINTER_ACCESSES and operation.operands:
            pointer = self._look_up(scope, operation.operands[:1])[0]
        self._roots += [each for each in (mask, descriptor, *indices, pointer) if each is not None]
        site = WorkSite(len(self._sites), body, operation, work, mask, descriptor, indices, pointer)
        self._sites.append(site)
        return site

    def _add_loop(self, operation: Operation, scope: dict[str, int], body: int, nodes: list[Node]) -> None:
        operands = self._look_up(scope, operation.operands)
        if len(operands) < 3 or not operation.regions or not operation.regions[0].blocks:
            return
        block = operation.regions[0].blocks[0]
        arguments = self._define(scope, block.arguments)
        results = self._define(scope, operation.results)
        inner, index = self._nest(block, scope, body, operation)
        carried = tuple(
            Carried(*each) for each in zip(operands[3:], arguments[1:], inner[1], results, strict=False)
        )
        for each in carried:
            self._requirements[each.argument] = self._requirements[each.result] = (each.initial, each.next)
        self._roots += operands[:3]
        lower, upper, step = operands[:3]
        loop = Loop(operation, lower, upper, step, arguments[0], carried, Body(index, tuple(inner[0])))
        self._loops.append(loop)
        nodes.append(loop)

    def _nest(
        self, block: Block, scope: dict[str, int], body: int, operation: Operation
    ) -> tuple[tuple[list[Node], tuple[int, ...]], int]:
        """Return the nodes of a block as a body of its own, the operands of its terminator, and its index."""
        self._enter(operation)
        try:
            index = self._open_body(body)
            is_loop = operation.name in ("scf.for", "scf.while")
            if is_loop:
                self._loop_bodies.add(index)
                self._divisors.clear()  # a loop keeps no reciprocals of before it
            inner: list[Node] = []
            yields = self._add_block(block, scope, index, inner)
            if is_loop:
                self._divisors.clear()
            return (inner, yields), index
        finally:
            self._depth -= 1

    def _add_while(self, operation: Operation, scope: dict[str, int], body: int, nodes: list[Node]) -> None:
        initial = self._look_up(scope, operation.operands)
        if len(operation.regions) < 2 or not all(region.blocks for region in operation.regions[:2]):
            return
        first, second = (region.blocks[0] for region in operation.regions[:2])
        before_arguments = self._define(scope, first.arguments)
        (before, tested), before_index = self._nest(first, scope, body, operation)
        after_arguments = self._define(scope, second.arguments)
        (after, following), after_index = self._nest(second, scope, body, operation)
        results = self._define(scope, operation.results)
        condition, forwarded = tested[0], tested[1:]
        self._roots.append(condition)
        for argument, start, step in zip(before_arguments, initial, following, strict=False):
            self._requirements[argument] = (start, step)
        for targets in (after_arguments, results):
            for target, source in zip(targets, forwarded, strict=False):
                self._requirements[target] = (source,)
        loop = WhileLoop(
            operation,
            initial,
            before_arguments,
            Body(before_index, tuple(before)),
            condition,
            forwarded,
            after_arguments,
            Body(after_index, tuple(after)),
            following,
            results,
        )
        self._loops.append(loop)
        nodes.append(loop)

    def _add_branch(self, operation: Operation, scope: dict[str, int], body: int, nodes: list[Node]) -> None:
        condition = self._look_up(scope, operation.operands)
        if not condition:
            return
        bodies, yields = [], []
        for place in range(2):
            region = operation.regions[place] if place < len(operation.regions) else Region(())
            block = region.blocks[0] if region.blocks else Block("", (), ())
            (inner, given), index = self._nest(block, scope, body, operation)
            bodies.append(Body(index, tuple(inner)))
            yields.append(given)
        results = self._define(scope, operation.results)
        for place, result in enumerate(results):
            self._requirements[result] = tuple(given[place] for given in yields if place < len(given))
        self._roots.append(condition[0])
        nodes.append(Branch(operation, condition[0], (bodies[0], bodies[1]), (yields[0], yields[1]), results))

    def _add_call(self, operation: Operation, scope: dict[str, int], body: int, nodes: list[Node]) -> None:
        operands = self._look_up(scope, operation.operands)
        results = self._define(scope, operation.results)
        name = operation.callee
        function = self._functions.get(name)
        if function is None or not function.body.blocks:
            self._unknown_calls.append(name)
            self._add_site(operation, UNKNOWN_WORK, scope, body)
            return
        inner = {value.name: number for value, number in zip(function.arguments, operands, strict=False)}
        inner |= {
            value.name: number
            for value, number in zip(function.body.blocks[0].arguments, operands, strict=False)
        }
        returned = self._inline_region(function.body, inner, body, nodes, results)
        if returned != results:
            for value, number in zip(operation.results, returned, strict=False):
                scope[value.name] = number

    def _add_regions(self, operation: Operation, scope: dict[str, int], body: int, nodes: list[Node]) -> None:
        """Add the regions of an operation such as `ttg.warp_specialize`: each runs once, side by side."""
        operands = self._look_up(scope, operation.operands)
        self._define(scope, operation.results)
        if operation.name in self._unknown or find_work(operation, self._threads) is not None:
            self._add_site(operation, UNKNOWN_WORK, scope, body)
        self._enter(operation)
        try:
            for region in operation.regions:
                for block in region.blocks:
                    for value, number in zip(block.arguments, operands, strict=False):
                        scope[value.name] = number
                    self._add_block(block, scope, body, nodes)
        finally:
            self._depth -= 1

    def _build_graph(
        self, region: Region, scope: dict[str, int], body: int, results: tuple[int, ...]
    ) -> Graph:
        places = {block.label: place for place, block in enumerate(region.blocks)}
        # Values are defined in any order of the text, so arguments first.
        arguments = [
            self._look_up(scope, block.arguments) if place == 0 else self._define(scope, block.arguments)
            for place, block in enumerate(region.blocks)
        ]
        blocks = []
        for block, own in zip(region.blocks, arguments, strict=True):
            index = self._open_body(body)
            nodes: list[Node] = []
            self._add_block(block, scope, index, nodes)
            jumps, condition = self._list_jumps(block, scope, places)
            for jump in jumps:
                targets = results if jump.target is None else arguments[jump.target]
                for target, source in zip(targets, jump.values, strict=False):
                    self._requirements[target] = (*self._requirements.get(target, ()), source)
            if condition is not None:
                self._roots.append(condition)
            last = block.operations[-1] if block.operations else None
            blocks.append(GraphBlock(own, Body(index, tuple(nodes)), jumps, condition, last))
        return Graph(tuple(blocks), results)

    def _list_jumps(
        self, block: Block, scope: dict[str, int], places: dict[str, int]
    ) -> tuple[tuple[Jump, ...], int | None]:
        if not block.operations:
            return (), None
        last = block.operations[-1]
        if not last.successors:
            return (Jump(None, self._look_up(scope, last.operands)),), None
        given = last.successor_operands or ((),) * len(last.successors)
        jumps = tuple(
            Jump(places[label], self._look_up(scope, values))
            for label, values in zip(last.successors, given, strict=False)
            if label in places
        )
        is_conditional = len(jumps) > 1 and bool(last.operands)
        return jumps, self._look_up(scope, last.operands)[0] if is_conditional else None

    def _find_needed(self) -> set[int]:
        needed: set[int] = set()
        waiting = list(self._roots)
        while waiting:
            value = waiting.pop()
            if value not in needed:
                needed.add(value)
                waiting += self._requirements.get(value, ())
        return needed


def _prune(body: Body, needed: set[int]) -> Body:
    """Return a body without the steps that nothing needs; bodies inside likewise."""
    return Body(body.index, tuple(_prune_node(node, needed) for node in body.nodes if _is_kept(node, needed)))


def _is_kept(node: Node, needed: set[int]) -> bool:
    return not isinstance(node, Step) or any(result in needed for result in node.results)


def _prune_node(node: Node, needed: set[int]) -> Node:
    match node:
        case Loop():
            carried = tuple(each for each in node.carried if each.argument in needed or each.result in needed)
            return replace(node, carried=carried, body=_prune(node.body, needed))
        case WhileLoop():
            return replace(node, before=_prune(node.before, needed), after=_prune(node.after, needed))
        case Branch():
            first, second = node.bodies
            return replace(node, bodies=(_prune(first, needed), _prune(second, needed)))
        case Graph():
            blocks = tuple(replace(block, body=_prune(block.body, needed)) for block in node.blocks)
            return replace(node, blocks=blocks)
        case _:
            return node
