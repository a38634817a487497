"""Layered drawing of a directed graph: nodes in rows from top to bottom, edges as smooth curves between them.

The steps are those of Sugiyama, Tagawa and Toda (IEEE Transactions on Systems, Man, and Cybernetics
11(2), 1981):

1. Edges that close a cycle in a depth-first walk from the first node are back edges; without them the
   graph has no cycles.
2. A node's layer is the length of the longest path to it.
3. An edge over several layers gets a waypoint in each layer between, so that it is drawn around nodes. A
   back edge gets one in the layers of its two ends as well: it leaves at the bottom, goes up beside the
   loop, and enters at the top.
4. Nodes and waypoints of a layer are ordered by the mean place of their neighbours, layer by layer down
   and up, and the order with fewest crossings is kept.
5. Layer by layer, down and up, nodes are moved to the mean place of their neighbours in the layer before,
   waypoints to the mean place of their edge's, as near as the order and the widths allow: least squares
   under minimal distances, which is isotonic regression (pool adjacent violators). At last nodes stay,
   and waypoints are moved to the outermost one of their edge, so that long edges are straight.

Example: the loop 0 -> 1 -> 2 -> 1, 2 -> 3 has four layers and one back edge, whose two waypoints lie
beside 1 and 2.
"""

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

_N_SWEEPS = 12
_N_MOVES, _N_LAST_MOVES = 25, 8  # in the last ones long edges are made straight; the very last goes down
# Of a node's wish for a place, against a waypoint's: nodes stay, edges are drawn around them.
_NODE_WEIGHT = 6.0
_FIXED_WEIGHT = 1e9  # the same in the last moves
# Of a neighbouring node's place, against a waypoint's: sequences of nodes are straight.
_KIN_WEIGHT = 10.0
_MARGIN = 8.0


class Sizes(Struct, frozen=True, kw_only=True):
    """Lengths of a drawing."""

    node_width: float
    node_height: float
    waypoint_width: float
    gap_x: float
    gap_y: float


class PlacedEdge(Struct, frozen=True, kw_only=True):
    """A drawn edge: points (x, y) where the curve is vertical, from source to target."""

    source: int
    target: int
    is_back: bool
    points: tuple[tuple[float, float], ...]


class Layout(Struct, frozen=True, kw_only=True):
    """Places of all nodes, by their upper left corners, and edges."""

    width: float
    height: float
    corners: tuple[tuple[float, float], ...]
    edges: tuple[PlacedEdge, ...]


class _Lane(Struct):
    """The waypoints of an edge together."""

    waypoints: list[int]
    n_nodes_left: int = 0  # rows in which it passes right of a node, less those in which it passes left
    goal: float = 0.0  # place that all of them are moved to


class _Item(Struct):
    """A node or a waypoint in its layer."""

    layer: int
    width: float
    above: list[int]
    below: list[int]
    lane: _Lane | None = None  # None for a node
    x: float = 0.0  # of the centre


def lay_out(successors: Sequence[Sequence[int]], sizes: Sizes) -> Layout:
    """Return a drawing of a graph whose first node is the entry.

    successors: of each node, without duplicates.
    """
    back = _find_back_edges(successors)
    layers = _assign_layers(successors, back)
    loop_width = sizes.node_width + 2 * sizes.gap_x  # room for the edge of a node to itself
    items = [
        _Item(layer, loop_width if node in successors[node] else sizes.node_width, [], [])
        for node, layer in enumerate(layers)
    ]
    chains = _add_chains(successors, back, items, sizes.waypoint_width)
    rows = _order(items)
    _place(items, rows, sizes.gap_x)
    left = min(item.x - item.width / 2 for item in items) - _MARGIN
    for item in items:
        item.x -= left
    step = sizes.node_height + sizes.gap_y
    tops = [_MARGIN + sizes.gap_y / 2 + layer * step for layer in range(len(rows))]
    return Layout(
        width=max(item.x + item.width / 2 for item in items) + _MARGIN,
        height=tops[-1] + sizes.node_height + sizes.gap_y / 2 + _MARGIN,
        corners=tuple((item.x - sizes.node_width / 2, tops[item.layer]) for item in items[: len(successors)]),
        edges=tuple(
            _place_edge(edge, chain, items, tops, sizes)
            for edge, chain in chains.items()
            if edge[0] != edge[1]
        )
        + tuple(
            _place_self_loop(node, items, tops, sizes)
            for node, below in enumerate(successors)
            if node in below
        ),
    )


def _find_back_edges(successors: Sequence[Sequence[int]]) -> frozenset[tuple[int, int]]:
    """Return the edges to a node that a depth-first walk has entered and not yet left."""
    back = set[tuple[int, int]]()
    state = [0] * len(successors)  # 0: not seen, 1: entered, 2: left
    for root in range(len(successors)):
        if state[root]:
            continue
        state[root], stack = 1, [(root, iter(successors[root]))]
        while stack:
            node, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[node] = 2
                stack.pop()
            elif state[target] == 1:
                back.add((node, target))
            elif not state[target]:
                state[target] = 1
                stack.append((target, iter(successors[target])))
    return frozenset(back)


def _assign_layers(successors: Sequence[Sequence[int]], back: frozenset[tuple[int, int]]) -> list[int]:
    """Return the length of the longest path to each node."""
    n_before = [0] * len(successors)
    for node, targets in enumerate(successors):
        for target in targets:
            n_before[target] += (node, target) not in back
    layers = [0] * len(successors)
    ready = [node for node, count in enumerate(n_before) if not count]
    for node in ready:  # grows while it is walked
        for target in successors[node]:
            if (node, target) in back:
                continue
            layers[target] = max(layers[target], layers[node] + 1)
            n_before[target] -= 1
            if not n_before[target]:
                ready.append(target)
    return layers


def _add_chains(
    successors: Sequence[Sequence[int]],
    back: frozenset[tuple[int, int]],
    items: list[_Item],
    waypoint_width: float,
) -> dict[tuple[int, int], list[int]]:
    """Add the waypoints of all edges; return those of each edge from source to target."""
    chains: dict[tuple[int, int], list[int]] = {}
    for node, targets in enumerate(successors):
        for target in targets:
            edge = (node, target)
            if node == target:
                continue
            if edge in back:
                between = range(items[node].layer, items[target].layer - 1, -1)
            else:
                between = range(items[node].layer + 1, items[target].layer)
            chain = list(range(len(items), len(items) + len(between)))
            lane = _Lane(chain)
            items += (_Item(layer, waypoint_width, [], [], lane) for layer in between)
            path = chain if edge in back else [node, *chain, target]
            for first, second in pairwise(path[::-1] if edge in back else path):
                items[first].below.append(second)
                items[second].above.append(first)
            chains[edge] = chain
    return chains


def _order(items: Sequence[_Item]) -> list[list[int]]:
    """Return the items of each layer from left to right."""
    rows: list[list[int]] = [[] for _ in range(1 + max(item.layer for item in items))]
    for index, item in enumerate(items):
        rows[item.layer].append(index)
    best, fewest = [row[:] for row in rows], _count_crossings(items, rows)
    for sweep in range(_N_SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        for row in rows if downwards else rows[::-1]:
            _sort_row(items, rows, row, downwards=downwards)
        crossings = _count_crossings(items, rows)
        if crossings < fewest:
            best, fewest = [row[:] for row in rows], crossings
    return best


def _sort_row(
    items: Sequence[_Item], rows: Sequence[Sequence[int]], row: list[int], *, downwards: bool
) -> None:
    """Sort a row by the mean place of its neighbours in the row before; others keep their places."""
    layer = items[row[0]].layer + (-1 if downwards else 1)
    if not 0 <= layer < len(rows):
        return
    place = {index: position / max(1, len(rows[layer])) for position, index in enumerate(rows[layer])}
    keys = {}
    for position, index in enumerate(row):
        found = items[index].above if downwards else items[index].below
        keys[index] = sum(place[other] for other in found) / len(found) if found else position / len(row)
    row.sort(key=keys.__getitem__)


def _count_crossings(items: Sequence[_Item], rows: Sequence[Sequence[int]]) -> int:
    total = 0
    for upper, lower in pairwise(rows):
        place = {index: position for position, index in enumerate(lower)}
        ends = [end for index in upper for end in sorted(place[other] for other in items[index].below)]
        seen: list[int] = []
        for end in ends:
            total += len(seen) - bisect_right(seen, end)
            insort(seen, end)
    return total


def _place(items: Sequence[_Item], rows: Sequence[Sequence[int]], gap: float) -> None:
    """Set the centres of all items."""
    for row in rows:
        _place_row(items, row, gap, {index: 0.0 for index in row}, _NODE_WEIGHT)
    lanes = _collect_lanes(items, rows)
    for move in range(_N_MOVES):
        downwards, is_last = move % 2 == 0, move >= _N_MOVES - _N_LAST_MOVES
        for lane in lanes:
            lane.goal = _find_goal(items, lane, is_last=is_last)
        for row in rows if downwards else rows[::-1]:
            wishes = {
                index: items[index].x
                if is_last and items[index].lane is None
                else _find_wish(items, index, downwards=downwards)
                for index in row
            }
            _place_row(items, row, gap, wishes, _FIXED_WEIGHT if is_last else _NODE_WEIGHT)


def _collect_lanes(items: Sequence[_Item], rows: Sequence[Sequence[int]]) -> list[_Lane]:
    """Return the lanes, with the side of the nodes on which each passes."""
    found: dict[int, _Lane] = {}
    for row in rows:
        n_before, n_nodes = 0, sum(items[index].lane is None for index in row)
        for index in row:
            lane = items[index].lane
            if lane is None:
                n_before += 1
            else:
                lane.n_nodes_left += 2 * n_before - n_nodes
                found[id(lane)] = lane
    return list(found.values())


def _find_goal(items: Sequence[_Item], lane: _Lane, *, is_last: bool) -> float:
    """Return the mean place of the waypoints of an edge, at last the outermost one's."""
    places = [items[index].x for index in lane.waypoints]
    if not is_last:
        return sum(places) / len(places)
    return max(places) if lane.n_nodes_left >= 0 else min(places)


def _find_wish(items: Sequence[_Item], index: int, *, downwards: bool) -> float:
    """Return the mean place of a node's neighbours in the layer before, or of all waypoints of an edge."""
    item = items[index]
    if item.lane is not None:
        return item.lane.goal
    total = weight = 0.0
    for other in item.above if downwards else item.below:
        part = _KIN_WEIGHT if items[other].lane is None else 1.0
        total, weight = total + part * items[other].x, weight + part
    return total / weight if weight else item.x


def _place_row(
    items: Sequence[_Item],
    row: Sequence[int],
    gap: float,
    wishes: Mapping[int, float],
    node_weight: float,
) -> None:
    """Move the items of a row as near to their wishes as their order and widths allow."""
    offsets = [0.0]
    for first, second in pairwise(row):
        offsets.append(offsets[-1] + (items[first].width + items[second].width) / 2 + gap)
    # Blocks of items that touch: (weighted sum of wishes without offsets, weight, number of items).
    blocks: list[tuple[float, float, int]] = []
    for index, offset in zip(row, offsets, strict=True):
        weight = node_weight if items[index].lane is None else 1.0
        total, count = weight * (wishes[index] - offset), 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / weight:
            before = blocks.pop()
            total, weight, count = total + before[0], weight + before[1], count + before[2]
        blocks.append((total, weight, count))
    position = 0
    for total, weight, count in blocks:
        for _ in range(count):
            items[row[position]].x = total / weight + offsets[position]
            position += 1


def _place_edge(
    edge: tuple[int, int], chain: Sequence[int], items: Sequence[_Item], tops: Sequence[float], sizes: Sizes
) -> PlacedEdge:
    source, target = (items[end] for end in edge)
    is_back = bool(chain) and items[chain[0]].layer == source.layer
    points = [(source.x, tops[source.layer] + sizes.node_height)]
    for index in chain:
        top, bottom = tops[items[index].layer], tops[items[index].layer] + sizes.node_height
        points += [(items[index].x, y) for y in ((bottom, top) if is_back else (top, bottom))]
    points.append((target.x, tops[target.layer]))
    return PlacedEdge(source=edge[0], target=edge[1], is_back=is_back, points=tuple(points))


def _place_self_loop(node: int, items: Sequence[_Item], tops: Sequence[float], sizes: Sizes) -> PlacedEdge:
    """Return an edge around the right side of its node."""
    x, top = items[node].x, tops[items[node].layer]
    bottom, side = top + sizes.node_height, x + (sizes.node_width + sizes.gap_x) / 2
    points = (
        (x + sizes.node_width / 4, bottom),
        (side, bottom),
        (side, top),
        (x + sizes.node_width / 4, top),
    )
    return PlacedEdge(source=node, target=node, is_back=True, points=points)
