"""Dominators and natural loops of a control-flow graph."""

from bisect import bisect_left
from functools import partial

from msgspec import Struct

from analyzer.flow.cfg import Cfg

SuccessorTable = tuple[tuple[int, ...], ...]


class Loop(Struct, frozen=True):
    """A natural loop: blocks that reach a back edge to `header` without leaving through it.

    parent: index of the next outer loop in the nest, None for an outermost one; depth counts from 1;
    latches: blocks with a back edge; exits: (block inside, block outside).
    """

    index: int
    header: int
    blocks: frozenset[int]
    latches: tuple[int, ...]
    exit_edges: tuple[tuple[int, int], ...]
    parent: int | None
    depth: int


class LoopForest(Struct, frozen=True):
    """All loops of a graph, outer before inner.

    loop_of[b]: innermost loop of a block; order: reachable blocks in reverse postorder;
    irreducible: retreating edges whose target does not dominate their source;
    header_places: numbers of the loops' headers in `tree`, ascending.
    """

    loops: tuple[Loop, ...]
    loop_of: tuple[int | None, ...]
    reverse_postorder: tuple[int, ...]
    immediate_dominators: tuple[int | None, ...]
    irreducible_edges: tuple[tuple[int, int], ...]
    dominator_tree: "DominatorTree"
    header_dfs_numbers: tuple[int, ...]

    def dominates(self, a: int, b: int) -> bool:
        """Every path from the entry to `b` goes through `a`."""
        return self.dominator_tree.dominates(a, b)

    def dominates_loop_header(self, block: int) -> bool:
        """The block dominates a loop's header: that loop is only reached through it."""
        first = bisect_left(self.header_dfs_numbers, self.dominator_tree.dfs_in[block])
        return (
            first < len(self.header_dfs_numbers)
            and self.header_dfs_numbers[first] < self.dominator_tree.dfs_out[block]
        )

    def find_enclosing_loops(self, block: int) -> tuple[int, ...]:
        """Loops that hold a block, innermost first."""
        found, current = [], self.loop_of[block]
        while current is not None:
            found.append(current)
            current = self.loops[current].parent
        return tuple(found)


def compute_reverse_postorder(graph: SuccessorTable, entry: int = 0) -> tuple[int, ...]:
    """Blocks reachable from `entry`, each before its successors but for back edges."""
    seen, order = {entry}, []
    stack = [(entry, iter(graph[entry]))]
    while stack:
        block, rest = stack[-1]
        for follower in rest:
            if follower not in seen:
                seen.add(follower)
                stack.append((follower, iter(graph[follower])))
                break
        else:
            order.append(block)
            stack.pop()
    return tuple(reversed(order))


def compute_immediate_dominators(graph: SuccessorTable, order: tuple[int, ...]) -> tuple[int | None, ...]:
    """Immediate dominator of each block; the entry's is itself, an unreachable block's is None.

    Cooper, Harvey and Kennedy, A Simple, Fast Dominance Algorithm (2001).
    """
    rank = {block: place for place, block in enumerate(order)}
    predecessors: list[list[int]] = [[] for _ in graph]
    for block in order:
        for follower in graph[block]:
            predecessors[follower].append(block)
    dominators: list[int | None] = [None] * len(graph)
    dominators[order[0]] = order[0]
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            best: int | None = None
            for before in predecessors[block]:
                if dominators[before] is not None:
                    best = before if best is None else _intersect(best, before, dominators, rank)
            if dominators[block] != best:
                dominators[block] = best
                changed = True
    return tuple(dominators)


def _intersect(a: int, b: int, dominators: list[int | None], rank: dict[int, int]) -> int:
    while a != b:
        while rank[a] > rank[b]:
            a = _find_idom(a, dominators)
        while rank[b] > rank[a]:
            b = _find_idom(b, dominators)
    return a


def _find_idom(block: int, dominators: list[int | None]) -> int:
    above = dominators[block]
    return block if above is None else above


class DominatorTree(Struct, frozen=True):
    """Numbers of a walk over the dominator tree: a block's subtree is one run of them.

    enter[b], leave[b]: the run [enter, leave) of block b; -1 for unreachable blocks.
    """

    dfs_in: tuple[int, ...]
    dfs_out: tuple[int, ...]

    def dominates(self, a: int, b: int) -> bool:
        """`b` lies in the subtree of `a`; unreachable blocks dominate nothing and are dominated by none."""
        return self.dfs_in[b] >= 0 and self.dfs_in[a] <= self.dfs_in[b] < self.dfs_out[a]


def build_dominator_tree(dominators: tuple[int | None, ...], entry: int = 0) -> DominatorTree:
    """The tree of immediate dominators, numbered."""
    children: list[list[int]] = [[] for _ in dominators]
    for block, above in enumerate(dominators):
        if above is not None and block != entry:
            children[above].append(block)
    enter, leave = [-1] * len(dominators), [-1] * len(dominators)
    clock = 0
    stack = [(entry, False)]
    while stack:
        block, done = stack.pop()
        if done:
            leave[block] = clock
            continue
        enter[block] = clock
        clock += 1
        stack.append((block, True))
        stack += [(child, False) for child in children[block]]
    return DominatorTree(tuple(enter), tuple(leave))


def find_loops(cfg: Cfg) -> LoopForest:
    """Natural loops, nested; calls into functions of the same listing are followed."""
    graph = cfg.interprocedural_successors
    order = compute_reverse_postorder(graph)
    dominators = compute_immediate_dominators(graph, order)
    tree = build_dominator_tree(dominators, order[0])
    latches, irreducible = _find_back_edges(graph, order, tree)
    predecessors: dict[int, list[int]] = {}
    for block in order:
        for follower in graph[block]:
            predecessors.setdefault(follower, []).append(block)
    bodies = {header: _find_loop_body(header, ends, predecessors) for header, ends in latches.items()}
    loops = _nest_loops(graph, latches, bodies)
    loop_of: list[int | None] = [None] * len(graph)
    for loop in loops:  # outer first, so inner loops overwrite
        for block in loop.blocks:
            loop_of[block] = loop.index
    places = tuple(sorted(tree.dfs_in[loop.header] for loop in loops))
    return LoopForest(loops, tuple(loop_of), order, dominators, tuple(irreducible), tree, places)


def _find_back_edges(
    graph: SuccessorTable, order: tuple[int, ...], tree: DominatorTree
) -> tuple[dict[int, list[int]], list[tuple[int, int]]]:
    rank = {block: place for place, block in enumerate(order)}
    latches: dict[int, list[int]] = {}
    irreducible = []
    for block in order:
        for follower in graph[block]:
            if rank[follower] > rank[block]:
                continue
            if tree.dominates(follower, block):
                latches.setdefault(follower, []).append(block)
            else:
                irreducible.append((block, follower))
    return latches, irreducible


def _find_loop_body(header: int, latches: list[int], predecessors: dict[int, list[int]]) -> frozenset[int]:
    """Blocks that reach a latch without going through the header; `predecessors` are reachable ones."""
    body = {header}
    work = [latch for latch in latches if latch != header]
    while work:
        block = work.pop()
        if block in body:
            continue
        body.add(block)
        work += predecessors.get(block, ())
    return frozenset(body)


def _nest_loops(
    graph: SuccessorTable, latches: dict[int, list[int]], bodies: dict[int, frozenset[int]]
) -> tuple[Loop, ...]:
    headers = sorted(bodies, key=lambda header: (-len(bodies[header]), header))
    loops: list[Loop] = []
    for index, header in enumerate(headers):
        body = bodies[header]
        parents = [loop for loop in loops if header in loop.blocks and body <= loop.blocks]
        parent = parents[-1] if parents else None
        loops.append(
            Loop(
                index=index,
                header=header,
                blocks=body,
                latches=tuple(latches[header]),
                exit_edges=tuple((b, t) for b in sorted(body) for t in graph[b] if t not in body),
                parent=None if parent is None else parent.index,
                depth=1 if parent is None else parent.depth + 1,
            )
        )
    return tuple(loops)


def compute_loop_contiguous_order(graph: SuccessorTable, loop_forest: LoopForest) -> tuple[int, ...]:
    """Reverse postorder in which a loop's blocks come before those that it leaves to."""
    around = {
        block: frozenset(loop_forest.find_enclosing_loops(block)) for block in loop_forest.reverse_postorder
    }

    def count_left_loops(block: int, follower: int) -> int:
        return len(around.get(block, _NO_LOOPS) - around.get(follower, _NO_LOOPS))

    ordered = tuple(
        tuple(sorted(followers, key=partial(count_left_loops, block), reverse=True))
        for block, followers in enumerate(graph)
    )
    return compute_reverse_postorder(ordered)


_NO_LOOPS: frozenset[int] = frozenset()
