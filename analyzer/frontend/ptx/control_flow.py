"""Basic blocks of a PTX function, and where its diverged lanes meet again.

PTX says nothing about reconvergence: hardware that follows the CUDA model lets lanes meet at the immediate
postdominator of the branch at which they parted. SASS says it with BSSY, which names a barrier, and BSYNC,
which waits for its lanes. Here each divergent branch X with postdominator P gets a barrier that is opened
before X and closed on the edges that enter P from the region between them.

    if (p) A else B; C      BSSY at the end of X, BSYNC on the edges A -> C and B -> C

A lane may pass X again before it comes to P, where X is in a loop that P is outside of. Then the barrier is
opened on the edges that enter the outermost such loop, or the mask of the later passes would replace that of
the first. Invariant: every lane that opens a barrier closes it once, or exits.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from analyzer.frontend.ptx.statements import (
    PtxBranchTargets,
    PtxFunction,
    PtxInstruction,
    PtxLabel,
    PtxOperand,
    PtxRegister,
    PtxSymbol,
)

EXIT_NAMES = frozenset({"ret", "exit", "trap"})
_BRANCH_NAMES = frozenset({"bra", "brx"})
_ENTRY = 0


class PtxBlock(Struct):
    """A basic block; `taken` are targets of its last instruction."""

    labels: list[str]
    body: list[PtxInstruction] = field(default_factory=list)
    end: PtxInstruction | None = None  # a branch or exit
    taken: list[int] = field(default_factory=list)
    falls_through: bool = True


class EdgeAction(Struct, frozen=True):
    """What lanes do on an edge: wait at barriers, then open others."""

    closed: tuple[int, ...] = ()
    opened: tuple[int, ...] = ()


class Convergence(Struct):
    """Barriers of a function, numbered from 0."""

    joins: list[int] = field(default_factory=list)  # by barrier: the block at which it is closed
    opened_at_end: dict[int, list[int]] = field(default_factory=dict)  # by block
    edges: dict[tuple[int, int], EdgeAction] = field(default_factory=dict)


def build_blocks(function: PtxFunction) -> list[PtxBlock]:
    """Cut a function into basic blocks; a branch to an unknown label has no target."""
    targets = {
        statement.name: statement.targets
        for statement in function.statements
        if isinstance(statement, PtxBranchTargets)
    }
    blocks = [PtxBlock([])]
    for statement in function.statements:
        if isinstance(statement, PtxLabel):
            if blocks[-1].body or blocks[-1].end is not None:
                blocks.append(PtxBlock([]))
            blocks[-1].labels.append(statement.name)
        elif isinstance(statement, PtxInstruction):
            if blocks[-1].end is not None:
                blocks.append(PtxBlock([]))
            _add_instruction(blocks[-1], statement)
    numbers = {label: index for index, block in enumerate(blocks) for label in block.labels}
    for block in blocks:
        if block.end is not None:
            block.taken = [numbers[n] for n in _find_targets(block.end, targets) if n in numbers]
    blocks[-1].falls_through = False
    return blocks


def _add_instruction(block: PtxBlock, instruction: PtxInstruction) -> None:
    if instruction.name in _BRANCH_NAMES or instruction.name in EXIT_NAMES:
        block.end = instruction
        block.falls_through = instruction.guard is not None
    else:
        block.body.append(instruction)


def _find_targets(end: PtxInstruction, tables: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    if end.name not in _BRANCH_NAMES:
        return ()
    names = tuple(operand.name for operand in end.operands if isinstance(operand, PtxSymbol))
    return tables.get(names[-1], names[-1:]) if names else ()


def find_branch_table(function: PtxFunction, end: PtxInstruction) -> tuple[str, ...]:
    """Return the targets of an indexed branch in order, repeated ones too."""
    tables = {s.name: s.targets for s in function.statements if isinstance(s, PtxBranchTargets)}
    return _find_targets(end, tables)


def find_successors(blocks: Sequence[PtxBlock]) -> list[list[int]]:
    """Return the successors of each block, the fall-through first."""
    found = []
    for index, block in enumerate(blocks):
        own = [index + 1] if block.falls_through and index + 1 < len(blocks) else []
        found.append([*own, *(t for t in dict.fromkeys(block.taken) if t not in own)])
    return found


def find_reachable(successors: Sequence[Sequence[int]], starts: Iterable[int], stop: int = -1) -> set[int]:
    """Return the blocks that can be reached from some blocks, these included, without entering `stop`."""
    seen: set[int] = set()
    work = [start for start in starts if start != stop]
    while work:
        block = work.pop()
        if block not in seen:
            seen.add(block)
            work += [s for s in successors[block] if s != stop and s not in seen]
    return seen


def _order_postorder(successors: Sequence[Sequence[int]], root: int) -> list[int]:
    order, seen, work = [], {root}, [(root, iter(successors[root]))]
    while work:
        block, rest = work[-1]
        following = next((s for s in rest if s not in seen), None)
        if following is None:
            order.append(block)
            work.pop()
        else:
            seen.add(following)
            work.append((following, iter(successors[following])))
    return order


def find_dominators(successors: Sequence[Sequence[int]], root: int) -> list[int]:
    """Return the immediate dominator of each node, -1 for the root and what it does not reach.

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
    """
    order = _order_postorder(successors, root)
    rank = {block: place for place, block in enumerate(order)}
    predecessors: list[list[int]] = [[] for _ in successors]
    for block in order:
        for successor in successors[block]:
            predecessors[successor].append(block)
    parent = {root: root}
    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            found = _intersect([p for p in predecessors[block] if p in parent], parent, rank)
            if parent.get(block) != found:
                parent[block] = found
                changed = True
    return [-1 if block == root else parent.get(block, -1) for block in range(len(successors))]


def _intersect(nodes: list[int], parent: dict[int, int], rank: dict[int, int]) -> int:
    first = nodes[0]
    for other in nodes[1:]:
        while first != other:
            if rank[first] < rank[other]:
                first = parent[first]
            else:
                other = parent[other]
    return first


def find_postdominators(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return the immediate postdominator of each block; len(successors) is the end of all threads."""
    n = len(successors)
    reverse: list[list[int]] = [[] for _ in range(n + 1)]
    for block, own in enumerate(successors):
        for successor in own or [n]:
            reverse[successor].append(block)
    return find_dominators(reverse, n)[:n]


def dominates(parents: Sequence[int], first: int, second: int) -> bool:
    """Return whether one block dominates another, or is the same."""
    while second >= 0 and second != first:
        second = parents[second]
    return second == first


class _Loop(Struct, frozen=True):
    header: int
    body: frozenset[int]


def _find_loops(successors: Sequence[Sequence[int]], parents: Sequence[int]) -> list[_Loop]:
    """Return the natural loops; back edges with the same header are one loop."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for block, own in enumerate(successors):
        for successor in own:
            predecessors[successor].append(block)
    reached = find_reachable(successors, [_ENTRY])
    found = []
    for header in sorted(reached):
        body, work = (
            {header},
            [p for p in predecessors[header] if p in reached and dominates(parents, header, p)],
        )
        if not work:
            continue
        while work:
            block = work.pop()
            if block not in body:
                body.add(block)
                work += [p for p in predecessors[block] if p in reached]
        found.append(_Loop(header, frozenset(body)))
    return found


class _Region(Struct, frozen=True):
    """Where a barrier is open: from the end of a block, or from the entry of a loop, to its join."""

    join: int
    start: int  # the branch's block, or the loop's header
    is_loop: bool
    inner: frozenset[int]  # blocks from which lanes may come to the join


class FlowAnalysis:
    """Dominators, loops and divergence of a function."""

    def __init__(self, blocks: list[PtxBlock]) -> None:
        self.blocks = blocks
        self.successors = find_successors(blocks)
        self.parents = find_dominators(self.successors, _ENTRY)
        self.postdominators = find_postdominators(self.successors)
        self.loops = _find_loops(self.successors, self.parents)
        self.reached = find_reachable(self.successors, [_ENTRY])

    def find_region(self, block: int) -> _Region | None:
        """Return the region of a block's branch, None if its lanes meet nowhere."""
        join = self.postdominators[block]
        if join < 0 or join >= len(self.blocks) or self._only_exits(join):
            return None
        outside = [loop for loop in self.loops if block in loop.body and join not in loop.body]
        if outside:
            widest = max(outside, key=lambda loop: len(loop.body))
            inner = find_reachable(self.successors, [widest.header], join)
            return _Region(join, widest.header, True, frozenset(inner))
        inner = find_reachable(self.successors, self.successors[block], join) | {block}
        return _Region(join, block, False, frozenset(inner))

    def _only_exits(self, block: int) -> bool:
        own = self.blocks[block]
        ends = own.end is not None and own.end.name in EXIT_NAMES and own.end.guard is None
        return ends and not own.body

    def find_branches(self) -> list[int]:
        """Return the blocks with more than one way out, or that end only some lanes."""
        return [block for block in sorted(self.reached) if len(self.successors[block]) > 1]


_LANE_DEPENDENT = (
    "%tid", "%laneid", "%lanemask", "%clock", "%globaltimer", "%pm",
)  # fmt: skip
_UNIFORM_LOADS = frozenset({"param", "const", "param::entry", "param::func"})
_DIVERGENT_NAMES = frozenset(
    {
        "addc",
        "subc",
        "madc",
        "atom",
        "shfl",
        "elect",
        "match",
        "mbarrier",
        "ldmatrix",
        "mma",
        "wmma",
        "tex",
        "tld4",
        "call",
        "tcgen05",
    }
)


class _RegisterPlaces(Struct):
    """Blocks that write and read each register."""

    writers: dict[str, set[int]]
    readers: dict[str, set[int]]
    n_writes: dict[str, int]


def _find_register_places(flow: FlowAnalysis) -> _RegisterPlaces:
    places = _RegisterPlaces({}, {}, {})
    for index, block in enumerate(flow.blocks):
        for instruction in (*block.body, *((block.end,) if block.end is not None else ())):
            for name in list_register_names(instruction.operands):
                places.readers.setdefault(name, set()).add(index)
            if instruction.guard is not None:
                places.readers.setdefault(instruction.guard.register, set()).add(index)
            for name in find_defined_names(instruction):
                places.writers.setdefault(name, set()).add(index)
                places.n_writes[name] = places.n_writes.get(name, 0) + 1
    return places


def find_divergent_registers(flow: FlowAnalysis) -> frozenset[str]:
    """Return the registers that may differ among the lanes of a warp.

    A register is uniform if all that it is computed from is, and if no divergent branch decides which of its
    definitions is executed, or how often.
    """
    instructions = [
        (index, instruction) for index, block in enumerate(flow.blocks) for instruction in block.body
    ]
    places = _find_register_places(flow)
    divergent: set[str] = set()
    while True:
        n_before = len(divergent)
        _spread_through_values(instructions, divergent)
        _spread_through_branches(flow, places, divergent)
        if len(divergent) == n_before:
            return frozenset(divergent)


def _spread_through_values(instructions: list[tuple[int, PtxInstruction]], divergent: set[str]) -> None:
    changed = True
    while changed:
        changed = False
        for _, instruction in instructions:
            names = find_defined_names(instruction)
            if names and not divergent.issuperset(names) and _is_divergent(instruction, divergent):
                divergent.update(names)
                changed = True


def _is_divergent(instruction: PtxInstruction, divergent: set[str]) -> bool:
    if instruction.name in _DIVERGENT_NAMES:
        return True
    if instruction.name == "ld" and _UNIFORM_LOADS.isdisjoint(instruction.modifiers):
        return True
    if instruction.guard is not None and instruction.guard.register in divergent:
        return True
    defined = find_defined_names(instruction)
    is_vote = instruction.name in ("vote", "redux", "activemask")
    return not is_vote and any(
        name in divergent or name.startswith(_LANE_DEPENDENT)
        for name in list_register_names(instruction.operands)
        if name not in defined
    )


def _find_divergent_branches(flow: FlowAnalysis, divergent: "frozenset[str] | set[str]") -> Iterator[int]:
    """Yield the blocks whose last branch may part lanes; `divergent` may grow meanwhile."""
    for block in flow.find_branches():
        end = flow.blocks[block].end
        if end is not None and is_divergent_branch(end, divergent):
            yield block


def _spread_through_branches(flow: FlowAnalysis, places: _RegisterPlaces, divergent: set[str]) -> None:
    """Add registers whose value depends on the way that a lane takes at a divergent branch."""
    for block in _find_divergent_branches(flow, divergent):
        region = flow.find_region(block)
        join = -1 if region is None else region.join
        arms = [find_reachable(flow.successors, [s], join) for s in flow.successors[block]]
        inner = frozenset(set().union(*arms)) if region is None else region.inner
        shared = set.intersection(*arms)
        for name, writers in places.writers.items():
            if name in divergent or not writers & inner:
                continue
            readers = places.readers.get(name, set())
            leaves_loop = region is not None and region.is_loop and not readers <= inner
            if leaves_loop or _depends_on_way(places, name, writers & inner, inner, shared, arms):
                divergent.add(name)


def _depends_on_way(
    places: _RegisterPlaces,
    name: str,
    writers: set[int],
    inner: frozenset[int],
    shared: set[int],
    arms: list[set[int]],
) -> bool:
    """Return whether a register that a region writes may differ where it is read.

    It may not if it is written and read in one arm of the branch only: the lanes there run together.
    """
    readers = places.readers.get(name, set())
    if places.n_writes[name] == 1 and not writers & shared:
        return False
    own = [arm for arm in arms if writers <= arm - shared]
    return not own or not readers <= own[0] - shared or not readers <= inner


def is_divergent_branch(end: PtxInstruction, divergent: "frozenset[str] | set[str]") -> bool:
    """Return whether the lanes of a warp may go different ways at a branch."""
    if end.name == "brx":
        return not divergent.isdisjoint(list_register_names(end.operands))
    return end.guard is not None and end.guard.register in divergent


def list_register_names(operands: Iterable[PtxOperand]) -> list[str]:
    """Return the names of all registers in operands, nested ones too."""
    names: list[str] = []
    work = list(operands)
    while work:
        operand = work.pop()
        if isinstance(operand, PtxRegister):
            names.append(operand.name)
            continue
        for attribute in ("elements", "coordinates"):
            work += getattr(operand, attribute, ())
        for attribute in ("base", "first", "second"):
            part = getattr(operand, attribute, None)
            if part is not None:
                work.append(part)
    return names


# Instructions whose first operand is read, not written.
_NO_RESULT = frozenset(
    {
        "st", "red", "bar", "fence", "membar", "prefetch", "prefetchu", "bra", "brx", "ret", "exit", "trap",
        "stmatrix", "nanosleep", "setmaxnreg", "griddepcontrol", "discard", "applypriority", "pmevent",
        "brkpt", "tensormap", "sust", "sured", "cp", "barrier", "wgmma", "clusterlaunchcontrol", "multimem",
    }
)  # fmt: skip


def find_defined_names(instruction: PtxInstruction) -> tuple[str, ...]:
    """Return the registers that an instruction writes."""
    if not instruction.operands or instruction.name == "call":
        first = instruction.operands[:1]
        is_result = len(instruction.operands) > 1 and first and hasattr(first[0], "elements")
        return tuple(list_register_names(first)) if is_result else ()
    if not writes_first_operand(instruction):
        return ()
    found = [name for name in list_register_names(instruction.operands[:1]) if name != "_"]
    if instruction.name == "tcgen05":
        return tuple(found)
    return tuple(found)


def writes_first_operand(instruction: PtxInstruction) -> bool:
    """Return whether the first operand of an instruction is its result."""
    name, words = instruction.name, instruction.modifiers
    if name in ("bar", "barrier"):
        return "red" in words
    if name == "wgmma":
        return "mma_async" in words
    if name == "multimem":
        return "ld_reduce" in words
    if name == "tcgen05":
        return "ld" in words[:1]
    if name == "mbarrier":
        is_silent = words[:1] and words[0] in ("init", "inval", "expect_tx", "complete_tx")
        return not is_silent and bool(instruction.operands) and not hasattr(instruction.operands[0], "base")
    if name == "wmma":
        return "store" not in words
    return name not in _NO_RESULT


def plan_convergence(flow: FlowAnalysis, divergent: "frozenset[str]") -> Convergence:
    """Choose barriers for the divergent branches of a function.

    A branch whose lanes meet where those of a branch before it do needs none of its own.
    """
    regions: list[_Region] = []
    for block in _find_divergent_branches(flow, divergent):
        region = flow.find_region(block)
        if region is not None and region not in regions:
            regions.append(region)
    kept = [region for region in regions if not _is_covered(flow, region, regions)]
    plan = Convergence()
    # Inner regions first: a lane leaves the innermost barrier before the others.
    for number, region in enumerate(sorted(kept, key=lambda region: len(region.inner))):
        plan.joins.append(region.join)
        _add_region(flow, plan, number, region)
    return plan


def _is_covered(flow: FlowAnalysis, region: _Region, others: list[_Region]) -> bool:
    return any(
        other is not region
        and other.join == region.join
        and region.start in other.inner
        and (other.start != region.start or other.is_loop)
        and dominates(flow.parents, other.start, region.start)
        for other in others
    )


def _add_region(flow: FlowAnalysis, plan: Convergence, barrier: int, region: _Region) -> None:
    if region.is_loop:
        loop = next(loop for loop in flow.loops if loop.header == region.start)
        for block in sorted(flow.reached - loop.body):
            if region.start in flow.successors[block]:
                _add_action(plan, (block, region.start), opened=barrier)
        if region.start == _ENTRY:
            _add_action(plan, (-1, _ENTRY), opened=barrier)
    else:
        plan.opened_at_end.setdefault(region.start, []).append(barrier)
    for block in sorted(region.inner & flow.reached):
        if region.join in flow.successors[block]:
            _add_action(plan, (block, region.join), closed=barrier)


def _add_action(plan: Convergence, edge: tuple[int, int], *, closed: int = -1, opened: int = -1) -> None:
    before = plan.edges.get(edge, EdgeAction())
    plan.edges[edge] = EdgeAction(
        (*before.closed, closed) if closed >= 0 else before.closed,
        (*before.opened, opened) if opened >= 0 else before.opened,
    )
