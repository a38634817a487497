"""Time of our immediate dominators against those of networkx, which tests/flow holds them to.

    python bench/dominators.py

Prints milliseconds, the least of several rounds: ours with the reverse postorder that they need, those of
networkx on a graph that is there already, and with the making of that graph.
"""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import networkx as nx

from analyzer.flow.cfg import build_cfg
from analyzer.flow.loops import SuccessorTable, compute_immediate_dominators, compute_reverse_postorder
from analyzer.frontend.module_reader import read_module

DUMP = Path(__file__).resolve().parents[1] / "traces" / "cuda" / "sm_90" / "report16.sass"
N_BLOCKS = 20_000
_ROUNDS = 5
_BUDGET = 60  # blocks of one piece of a generated graph, about


def generate_graph(n_blocks: int, seed: int = 0) -> SuccessorTable:
    """Return a control-flow graph of at least so many blocks, from nested branches and loops in a row."""
    generator, graph = random.Random(seed), list[list[int]]()

    def add_block() -> int:
        graph.append([])
        return len(graph) - 1

    def add_piece(budget: int) -> tuple[int, int]:
        """Add blocks and return the first and the last, which has room for one more successor."""
        kind = generator.choice(("sequence", "branch", "loop"))
        if budget <= 3:
            block = add_block()
            return block, block
        if kind == "sequence":
            first, middle = add_piece(budget // 2)
            then, last = add_piece(budget // 2)
            graph[middle].append(then)
            return first, last
        head, after = add_block(), add_block()
        arms = [add_piece(budget // 2) for _ in range(2 if kind == "branch" else 1)]
        for first, last in arms:
            graph[head].append(first)
            graph[last].append(after if kind == "branch" else head)
        if kind == "loop":
            graph[head].append(after)
        return head, after

    _, last = add_piece(_BUDGET)
    while len(graph) < n_blocks:
        first, end = add_piece(_BUDGET)
        graph[last].append(first)
        last = end
    return tuple(map(tuple, graph))


def build_digraph(graph: SuccessorTable) -> "nx.DiGraph[int]":
    """Return the same graph as networkx holds it."""
    digraph: nx.DiGraph[int] = nx.DiGraph()
    digraph.add_nodes_from(range(len(graph)))
    digraph.add_edges_from((block, target) for block, row in enumerate(graph) for target in row)
    return digraph


def measure_best_ms(work: Callable[[], object]) -> float:
    """Return the least time of several rounds."""
    times = []
    for _ in range(_ROUNDS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1e3 * min(times)


def print_row(name: str, graphs: Sequence[SuccessorTable]) -> None:
    """Print the three times of all graphs together."""
    digraphs = [build_digraph(graph) for graph in graphs]
    ours = measure_best_ms(
        lambda: [compute_immediate_dominators(graph, compute_reverse_postorder(graph)) for graph in graphs]
    )
    theirs = measure_best_ms(lambda: [nx.immediate_dominators(digraph, 0) for digraph in digraphs])
    with_graph = measure_best_ms(
        lambda: [nx.immediate_dominators(build_digraph(graph), 0) for graph in graphs]
    )
    n_blocks = sum(map(len, graphs))
    print(f"{name:<12}{n_blocks:>8} blocks   {ours:8.2f} ms   {theirs:8.2f} ms   {with_graph:8.2f} ms")


def main() -> None:
    """Print the table."""
    print(f"{'':<12}{'':>15}   {'ours':>8}      {'networkx':>8}      {'with graph':>8}")
    cfgs = [build_cfg(kernel) for kernel in read_module(str(DUMP))]
    print_row("report16", [cfg.interprocedural_successors for cfg in cfgs])
    print_row("generated", [generate_graph(N_BLOCKS)])


if __name__ == "__main__":
    main()
