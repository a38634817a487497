"""Pairs of kernels of two lists, found in rounds: each compares only what the rounds before left over."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

Kernel = TypeVar("Kernel")


class Pair(NamedTuple):
    """Indices into the two lists."""

    old: int
    new: int
    similarity: float = 1.0  # of the code, where it decided


# Gives pairs of some old and some new kernels, the best first; what has a partner is left out afterwards.
RankPairs = Callable[[Sequence[int], Sequence[int]], Iterable[Pair]]


class Pairing(Generic[Kernel]):
    """Kernels of both sides that have no partner yet, in their order."""

    def __init__(self, old: Sequence[Kernel], new: Sequence[Kernel]) -> None:
        self.old, self.new = old, new
        self.free_old, self.free_new = dict.fromkeys(range(len(old))), dict.fromkeys(range(len(new)))

    def pair_by(
        self, key: Callable[[Kernel], Hashable | None], rank: RankPairs, *, only_single: bool = False
    ) -> list[Pair]:
        """Return pairs of free kernels with equal keys; a key of None fits nothing.

        only_single: leave out keys that several kernels of a side have.
        """
        if not self.free_old or not self.free_new:
            return []
        groups: dict[Hashable, tuple[list[int], list[int]]] = {}
        for side, (kernels, free) in enumerate(((self.old, self.free_old), (self.new, self.free_new))):
            for index in free:
                if (found := key(kernels[index])) is not None:
                    groups.setdefault(found, ([], []))[side].append(index)
        return [
            pair
            for olds, news in groups.values()
            if olds and news and not (only_single and len(olds) + len(news) > 2)
            for pair in self.take(rank(olds, news))
        ]

    def keep_free(self, olds: Sequence[int], news: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return those of some kernels that have no partner yet."""
        return [a for a in olds if a in self.free_old], [b for b in news if b in self.free_new]

    def take(self, ranked: Iterable[Pair]) -> list[Pair]:
        """Return those of some pairs, the best first, whose kernels are both free; they no longer are."""
        taken = []
        for pair in ranked:
            if pair.old in self.free_old and pair.new in self.free_new:
                del self.free_old[pair.old], self.free_new[pair.new]
                taken.append(pair)
        return taken
