"""Where paths that a branch parts meet again: immediate postdominators."""

from analyzer.flow.loops import SuccessorTable, compute_immediate_dominators, compute_reverse_postorder


def compute_immediate_postdominators(
    graph: SuccessorTable, may_end: frozenset[int] = frozenset()
) -> tuple[int | None, ...]:
    """For each block the first block that every way out of it passes; None where only the end is common.

    may_end: blocks that have followers and may end all the same (guarded exits). Blocks that never reach an
    end (endless loops) have None as well.
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
    """Blocks that may run after `start` before `stop` is reached; `start` only if a path comes back to it."""
    seen: set[int] = set()
    work = [block for block in graph[start] if block != stop]
    while work:
        block = work.pop()
        if block not in seen:
            seen.add(block)
            work += [follower for follower in graph[block] if follower != stop]
    return frozenset(seen)
