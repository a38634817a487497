"""The control-flow graph of a kernel as a drawing with heat; a large one with its loops as single nodes.

Blocks come from the counts of the report, cycles and loops from its listing. Up to 60 blocks are drawn as
they are. Of more, blocks that only follow one another become one node; if that is not enough, so do the
outermost loops, and what then follows one another. What is still too large is not drawn.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from msgspec import Struct

from analyzer.render.html.layered_layout import PlacedEdge, Sizes, lay_out
from analyzer.report.analyze_schema import BlockEntry, KernelReport, ListingEntry

SIZES = Sizes(node_width=178.0, node_height=54.0, waypoint_width=10.0, gap_x=22.0, gap_y=40.0)
_TURN = SIZES.gap_y * 0.6  # by which a back edge leaves the height of its end
_ARROW = 4.5  # half of the width of an arrow head
_MAX_PLAIN_BLOCKS = 60
_MAX_NODES, _MAX_EDGES = 120, 480
_MAX_BLOCKS = 5_000  # of a kernel that is looked at


class FlowNode(Struct, frozen=True, kw_only=True):
    """A node of the drawing: one or more basic blocks."""

    x: float
    y: float
    address: int  # of the first instruction
    title: str
    n_blocks: int
    n_instructions: int
    executed_per_warp: float  # of its first block
    share: float  # of the launch's cycles
    stall: str  # the largest one
    is_loop: bool  # a whole loop


class FlowEdge(Struct, frozen=True, kw_only=True):
    """A drawn edge: data of an SVG path and the corners of its arrow head."""

    path: str
    arrow: str
    is_back: bool


class FlowGraph(Struct, frozen=True, kw_only=True):
    """A drawing of the control flow."""

    width: float
    height: float
    nodes: tuple[FlowNode, ...]
    edges: tuple[FlowEdge, ...]
    n_blocks: int
    note: str  # on what was drawn as one; empty where nothing was


class _Group(Struct, frozen=True):
    """Blocks that are drawn as one node, in order of their addresses."""

    blocks: tuple[int, ...]
    loop: int | None = None  # header of the loop that they are


def make_flow_graph(kernel: KernelReport) -> FlowGraph | None:
    """Return the drawing, None for a kernel without blocks or with more than can be drawn."""
    blocks = kernel.counts.blocks
    if not 0 < len(blocks) <= _MAX_BLOCKS:
        return None
    blocks = _select_reached(blocks)
    groups, note = _group_blocks(kernel, blocks)
    if len(groups) > _MAX_NODES:
        return None
    edges = _connect(groups, blocks)
    if sum(map(len, edges)) > _MAX_EDGES:
        return None
    layout = lay_out(edges, SIZES)
    costs = _BlockCosts(kernel, blocks)
    return FlowGraph(
        width=layout.width,
        height=layout.height,
        nodes=tuple(
            costs.make_node(group, corner) for group, corner in zip(groups, layout.corners, strict=True)
        ),
        edges=tuple(map(_draw_edge, layout.edges)),
        n_blocks=len(blocks),
        note="; ".join(filter(None, (note, _note_left_out(len(kernel.counts.blocks) - len(blocks))))),
    )


def _select_reached(blocks: Sequence[BlockEntry]) -> tuple[BlockEntry, ...]:
    """Return the blocks that the first one leads to, and those that are executed nevertheless."""
    by_start = {block.start: block for block in blocks}
    reached, waiting = {blocks[0].start}, [blocks[0]]
    waiting += (block for block in blocks if block.executed_per_warp)
    while waiting:
        for target in waiting.pop().successors:
            if target in by_start and target not in reached:
                reached.add(target)
                waiting.append(by_start[target])
    return tuple(block for block in blocks if block.start in reached or block.executed_per_warp)


def _note_left_out(count: int) -> str:
    """Return a note on blocks that nothing leads to, such as the traps behind a kernel's end."""
    return f"{count} block{'s' if count > 1 else ''} that nothing leads to left out" if count else ""


def _group_blocks(kernel: KernelReport, blocks: Sequence[BlockEntry]) -> tuple[list[_Group], str]:
    groups = [_Group((index,)) for index in range(len(blocks))]
    if len(groups) <= _MAX_PLAIN_BLOCKS:
        return groups, ""
    groups = _join_chains(groups, blocks)
    note = f"{len(blocks)} basic blocks; those that only follow one another are drawn as one"
    if len(groups) <= _MAX_NODES:
        return groups, note
    outermost = {entry.address: entry.loops[0] for entry in kernel.listing if entry.loops}
    headers = [outermost.get(block.start) for block in blocks]
    groups = _join_chains(_join_by(range(len(blocks)), lambda index: headers[index]), blocks)
    return groups, f"{len(blocks)} basic blocks; each outermost loop is drawn as one node"


def _join_by(indices: Iterable[int], find_key: Callable[[int], int | None]) -> list[_Group]:
    """Join the blocks of each loop; blocks outside of loops stay alone."""
    found: dict[Hashable, list[int]] = {}
    for index in indices:
        key = find_key(index)
        found.setdefault(("block", index) if key is None else ("loop", key), []).append(index)
    return [
        _Group(tuple(members), find_key(members[0]) if len(members) > 1 else None)
        for members in found.values()
    ]


def _join_chains(groups: Sequence[_Group], blocks: Sequence[BlockEntry]) -> list[_Group]:
    """Join groups that only follow one another; loops stay as they are."""
    successors = _connect(groups, blocks)
    n_before = Counter(target for targets in successors for target in targets)
    follows = {
        node: targets[0]
        for node, targets in enumerate(successors)
        if len(targets) == 1
        and n_before[targets[0]] == 1
        and targets[0] > node
        and groups[node].loop is None
        and groups[targets[0]].loop is None
    }
    followers, joined = set(follows.values()), []
    for node, group in enumerate(groups):
        if node in followers:
            continue
        members, last = list(group.blocks), node
        while last in follows:
            last = follows[last]
            members += groups[last].blocks
        joined.append(_Group(tuple(members), group.loop))
    return joined


def _connect(groups: Sequence[_Group], blocks: Sequence[BlockEntry]) -> list[list[int]]:
    """Return the successors of each group, without edges inside of loops and duplicates."""
    group_of = {blocks[index].start: number for number, group in enumerate(groups) for index in group.blocks}
    found: list[list[int]] = []
    for number, group in enumerate(groups):
        targets = dict.fromkeys(
            group_of[target]
            for index in group.blocks
            for target in blocks[index].successors
            if target in group_of
        )
        inner = len(group.blocks) > 1 and not _returns_to_start(group, blocks)
        found.append([target for target in targets if target != number or not inner])
    return found


def _returns_to_start(group: _Group, blocks: Sequence[BlockEntry]) -> bool:
    start = blocks[group.blocks[0]].start
    return any(start in blocks[index].successors for index in group.blocks)


class _BlockCosts:
    """Cycles and instructions of the blocks of a kernel, summed up from its listing."""

    def __init__(self, kernel: KernelReport, blocks: Sequence[BlockEntry]) -> None:
        self.blocks = blocks
        self.listing = sorted(kernel.listing, key=_get_address)
        self.total = sum(sum(entry.cpi_stack.values()) for entry in kernel.listing)

    def make_node(self, group: _Group, corner: tuple[float, float]) -> FlowNode:
        """Return the node of some blocks."""
        first = self.blocks[group.blocks[0]]
        stack, n_instructions = Counter[str](), 0
        for index in group.blocks:
            block = self.blocks[index]
            first_row, stop_row = (
                bisect_left(self.listing, bound, key=_get_address) for bound in (block.start, block.end)
            )
            n_instructions += stop_row - first_row
            for entry in self.listing[first_row:stop_row]:
                stack.update(dict(entry.cpi_stack))
        waits = {stall: cycles for stall, cycles in stack.items() if stall != "selected"}
        return FlowNode(
            x=corner[0],
            y=corner[1],
            address=first.start,
            title=f"{'loop ' if group.loop is not None else ''}0x{first.start:04x}",
            n_blocks=len(group.blocks),
            n_instructions=n_instructions,
            executed_per_warp=first.executed_per_warp,
            share=sum(stack.values()) / self.total if self.total else 0.0,
            stall=_find_largest(waits),
            is_loop=group.loop is not None,
        )


def _get_address(entry: ListingEntry) -> int:
    return entry.address


def _find_largest(stack: Mapping[str, float]) -> str:
    return max(stack, key=lambda stall: (stack[stall], stall), default="") if any(stack.values()) else ""


def _draw_edge(edge: PlacedEdge) -> FlowEdge:
    """Return the path of an edge: cubic curves that are vertical at each of its points.

    Where two points have the same height, a back edge turns: first below its source, last above its target.
    """
    (x, y), *rest = edge.points
    parts = [f"M{x:.1f} {y:.1f}"]
    for number, (to_x, to_y) in enumerate(rest):
        turn = _TURN if number == 0 else -_TURN
        middle = y + turn if to_y == y else (y + to_y) / 2
        if to_x == x:
            parts.append(f"V{to_y:.1f}")
        else:
            parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    arrow = f"M{x:.1f} {y:.1f}l{-_ARROW} {-1.7 * _ARROW:.2f}h{2 * _ARROW}z"
    return FlowEdge(path="".join(parts), arrow=arrow, is_back=edge.is_back)
