"""Worklist of a dataflow analysis: blocks are visited in sweeps until nothing changes."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush


class Worklist:
    """Queue of blocks, visited in code order; a block before the current one waits for the next sweep.

    A function that many places call is thus visited once after all its callers, not once after each.

    backward: visit blocks in descending order, for a backward analysis.
    """

    def __init__(self, blocks: Iterable[int], *, backward: bool = False) -> None:
        self._sign = -1 if backward else 1
        self._current_sweep = [self._sign * block for block in blocks]
        heapify(self._current_sweep)
        self._next_sweep: list[int] = []
        self._queued = set(self._current_sweep)
        self._position = 0

    def add(self, blocks: Iterable[int]) -> None:
        """Queue blocks; those already queued stay queued once."""
        for block in blocks:
            position = self._sign * block
            if position not in self._queued:
                self._queued.add(position)
                heappush(self._current_sweep if position > self._position else self._next_sweep, position)

    def __iter__(self) -> Iterator[int]:
        while self._current_sweep or self._next_sweep:
            if not self._current_sweep:
                self._current_sweep, self._next_sweep = self._next_sweep, []
            self._position = heappop(self._current_sweep)
            self._queued.discard(self._position)
            yield self._sign * self._position
