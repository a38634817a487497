"""The order in which blocks are looked at until nothing new is found."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush


class Sweeps:
    """Blocks that wait, in sweeps through the code; what lies behind waits for the next one.

    A function that many places call is so looked at again when all of them were, not after each.
    """

    def __init__(self, waiting: Iterable[int], *, backward: bool = False) -> None:
        self._sign = -1 if backward else 1
        self._now = [self._sign * block for block in waiting]
        heapify(self._now)
        self._later: list[int] = []
        self._waiting = set(self._now)
        self._at = 0

    def add(self, blocks: Iterable[int]) -> None:
        """More that are to be looked at; those that wait already do so once."""
        for block in blocks:
            place = self._sign * block
            if place not in self._waiting:
                self._waiting.add(place)
                heappush(self._now if place > self._at else self._later, place)

    def __iter__(self) -> Iterator[int]:
        while self._now or self._later:
            if not self._now:
                self._now, self._later = self._later, []
            self._at = heappop(self._now)
            self._waiting.discard(self._at)
            yield self._sign * self._at
