"""The order in which blocks are looked at until nothing new is found."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush


class Worklist:
    """Blocks that wait, in sweeps through the code; what lies behind waits for the next one.

    A function that many places call is so looked at again when all of them were, not after each.
    """

    def __init__(self, blocks: Iterable[int], *, backward: bool = False) -> None:
        self._sign = -1 if backward else 1
        self._current_sweep = [self._sign * block for block in blocks]
        heapify(self._current_sweep)
        self._next_sweep: list[int] = []
        self._queued = set(self._current_sweep)
        self._position = 0

    def add(self, blocks: Iterable[int]) -> None:
        """More that are to be looked at; those that wait already do so once."""
        for block in blocks:
            place = self._sign * block
            if place not in self._queued:
                self._queued.add(place)
                heappush(self._current_sweep if place > self._position else self._next_sweep, place)

    def __iter__(self) -> Iterator[int]:
        while self._current_sweep or self._next_sweep:
            if not self._current_sweep:
                self._current_sweep, self._next_sweep = self._next_sweep, []
            self._position = heappop(self._current_sweep)
            self._queued.discard(self._position)
            yield self._sign * self._position
