"""Immediate postdominators: the block where the paths from a branch meet again.

They are the dominators of the reversed graph, whose entry is one more block after all ends.

    0 -> 1 | 2, 1 -> 3, 2 -> 3          postdominator of 0, 1 and 2 is 3; of 3 it is None
"""

from analyzer.flow.loops import SuccessorTable, compute_immediate_dominators, compute_reverse_postorder


def compute_immediate_postdominators(
    graph: SuccessorTable, may_end: frozenset[int] = frozenset()
) -> tuple[int | None, ...]:
    """Return for each block the first block that all paths from it pass; None if they only share the end.

    Blocks from which no end is reached (endless loops) have None too.

    may_end: blocks that have successors but can also end, by a guarded exit.
    """
    end = len(graph)
    backward: list[list[int]] = [[] for _ in range(end + 1)]
    for block, followers in enumerate(graph):
        for follower in followers:
            backward[follower].append(block)
        if not followers or block in may_end:
            backward[end].append(block)
    reverse = tuple(map(tuple, backward))
    found = compute_immediate_dominators(reverse, compute_reverse_postorder(reverse, end))
    return tuple(None if above is None or above == end else above for above in found[:end])


def find_blocks_between(graph: SuccessorTable, start: int, stop: int | None) -> frozenset[int]:
    """Return the blocks that can be reached from `start` without passing `stop`.

    `start` itself is one of them only if a path returns to it.
    """
    seen: set[int] = set()
    work = [block for block in graph[start] if block != stop]
    while work:
        block = work.pop()
        if block not in seen:
            seen.add(block)
            work += [follower for follower in graph[block] if follower != stop]
    return frozenset(seen)
