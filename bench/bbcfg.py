"""Compare our control-flow graphs with those that `nvdisasm -bbcfg` draws.

nvdisasm builds its graph on its own, so it is an independent oracle. Its output is a Graphviz file: a
cluster for each function, a node for each basic block with the texts of its instructions, and edges.
Nodes carry no addresses: they are listed in the order of the code, so a node's row is the sum of the
lengths of those before it, and the instruction texts confirm it. Two graphs are equal when they have the
same blocks and the same edges, both given as rows of the kernel.

Used by the tests on shipped drawings and by bench/corpus.py on any number of others.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.flow.cfg import Cfg, build_cfg
from analyzer.ir.module import Kernel, Module

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_NODE = re.compile(rf"^{_QUOTED}\n\[label={_QUOTED}\]", re.M)
_EDGE = re.compile(rf"^{_QUOTED}:\w+(?::\w)? -> {_QUOTED}:\w+(?::\w)? \[", re.M)
_FIELD = re.compile(r"^[{|}]*(?:<\w+>)?\s*")
_TARGET = re.compile(r"`\(([^)]*)\)|(?<![\w.])0x[0-9a-f]+$")

RowRange = tuple[int, int]  # [start, stop)


@dataclass(frozen=True, slots=True)
class DrawnFunction:
    """One function of a drawing."""

    name: str
    nodes: Mapping[str, tuple[str, ...]]  # normalized instruction texts by node, in code order
    edges: tuple[tuple[str, str], ...]  # (source node, target node)


def read_graphs(path: Path) -> list[DrawnFunction]:
    """Read the functions of a drawing."""
    graphs = []
    for part in path.read_text(encoding="utf-8").split('subgraph "cluster_')[1:]:
        nodes = {match[1]: _instructions(match[2]) for match in _NODE.finditer(part)}
        edges = tuple((match[1], match[2]) for match in _EDGE.finditer(part))
        graphs.append(DrawnFunction(part[: part.index('"')], nodes, edges))
    return graphs


def _instructions(label: str) -> tuple[str, ...]:
    lines = (_FIELD.sub("", line.strip()) for line in label.replace("\\ ", " ").split("\\l"))
    plain = (re.sub(r"\\(.)", r"\1", line).strip() for line in lines)
    return tuple(_normalize_text(_FIELD.sub("", line)) for line in plain if line.endswith(";"))


def _normalize_text(text: str) -> str:
    """Return the text without blanks, branch tables and branch targets, whose form differs by tool."""
    text = re.sub(r"\(\*.*?\*\)", "", text).strip().rstrip(";").strip()
    return re.sub(r"\s+", "", _TARGET.sub("TARGET", text))


def place_nodes(graph: DrawnFunction, kernel: Kernel) -> dict[str, RowRange]:
    """Return the rows of each node; the drawing lists nodes in the order of the code."""
    texts = [_normalize_text(kernel.decode_form(index).text) for index in range(len(kernel))]
    places: dict[str, RowRange] = {}
    row = dict(kernel.labels).get(graph.name, 0) // 16
    for node, instructions in graph.nodes.items():
        stop = row + len(instructions)
        assert tuple(texts[row:stop]) == instructions, f"{graph.name}: node {node} is not at row {row}"
        places[node] = row, stop
        row = stop
    return places


def collect_drawn_graph(
    graphs: list[DrawnFunction], kernel: Kernel
) -> tuple[set[RowRange], set[tuple[int, int]]]:
    """Return blocks and edges of the drawing, as rows."""
    blocks: set[RowRange] = set()
    edges: set[tuple[int, int]] = set()
    for graph in graphs:
        places = place_nodes(graph, kernel)
        blocks |= {place for place in places.values() if place[0] < place[1]}
        edges |= {(places[source][0], places[target][0]) for source, target in graph.edges}
    return blocks, edges


def collect_built_graph(cfg: Cfg) -> tuple[set[RowRange], set[tuple[int, int]]]:
    """Return blocks and edges of our graph, as rows."""
    blocks = {(block.start, block.stop) for block in cfg.blocks}
    edges = {(cfg.blocks[edge.source].start, cfg.blocks[edge.target].start) for edge in cfg.edges}
    return blocks, edges


def find_owner(graph: DrawnFunction, kernels: Sequence[Kernel]) -> str:
    """Return the name of the kernel that a function is, or whose section holds it as a callee."""
    return next(k.name for k in kernels if graph.name == k.name or graph.name in dict(k.labels))


def compare_graph(module: Module, graph_path: Path) -> tuple[int, int]:
    """Count the kernels of a module whose graph equals the drawing, and those whose graph does not."""
    found: dict[str, list[DrawnFunction]] = {}
    for graph in read_graphs(graph_path):
        found.setdefault(find_owner(graph, module.kernels), []).append(graph)
    kernels = {kernel.name: kernel for kernel in module.kernels}
    equal = sum(matches_drawing(build_cfg(kernels[name]), graphs) for name, graphs in found.items())
    return equal, len(found) - equal


def matches_drawing(cfg: Cfg, graphs: list[DrawnFunction]) -> bool:
    """Return whether our blocks and edges are those of the drawing.

    nvdisasm does not draw callees without a symbol of their own: what only they reach is left out of ours.
    """
    blocks, edges = collect_drawn_graph(graphs, cfg.kernel)
    our_blocks, our_edges = collect_built_graph(cfg)
    callees = {cfg.blocks[callee].start for _, callee in cfg.call_edges}
    undrawn = callees - {start for start, _ in blocks}
    reached = list(undrawn)
    while reached:
        source = reached.pop()
        fresh = {target for start, target in our_edges if start == source} - undrawn
        undrawn |= fresh
        reached += fresh
    return {block for block in our_blocks if block[0] not in undrawn} == blocks and {
        edge for edge in our_edges if edge[0] not in undrawn
    } == edges
