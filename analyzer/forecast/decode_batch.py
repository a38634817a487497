"""Requests that decode in lock step: their tokens, blocks and ends, without a look at each.

Idea. A step gives every request of the batch one token. So what a request holds is what it held when it
joined, plus the steps since then; sums, the next end and the blocks of the next steps follow from a few
numbers, however many requests there are.

Invariant: between two steps all that is told equals what counting request by request would give.

Example: blocks of 16 tokens, requests that hold 15 and 32: the next step takes one block, for the second; the
step behind it one, for the first.
"""

from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray


class DecodeBatch:
    """The decoding requests, in the order of their admission."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._steps = 0  # so far
        self._starts: dict[int, int] = {}  # by request: tokens held, less the steps before it joined
        self._ends: dict[int, int] = {}  # by request: steps at which its output is complete
        self._next_ends: list[tuple[int, int]] = []  # a heap of (end, request), with some that have left
        self._residues: Counter[int] = Counter()  # of starts by the tokens of a block, how many requests
        self.held_tokens = 0  # by all requests

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[int]:
        return iter(self._starts)

    @property
    def last(self) -> int:
        """The request that was admitted last."""
        return next(reversed(self._starts))

    @property
    def least_left(self) -> int:
        """Steps until the first request ends."""
        while True:
            end, request = self._next_ends[0]
            if self._ends.get(request) == end:
                return end - self._steps
            heappop(self._next_ends)

    def join(self, request: int, held_tokens: int, left: int) -> None:
        """Add a request that holds so many tokens and has so many outputs to make."""
        start = held_tokens - self._steps
        self._starts[request], self._ends[request] = start, self._steps + left
        heappush(self._next_ends, (self._steps + left, request))
        self._residues[start % self._block_tokens] += 1
        self.held_tokens += held_tokens

    def leave(self, request: int) -> tuple[int, int]:
        """Take a request out; return the tokens that it holds and the outputs that it has to make."""
        start, end = self._starts.pop(request), self._ends.pop(request)
        residue = start % self._block_tokens
        self._residues[residue] -= 1
        if not self._residues[residue]:
            del self._residues[residue]
        held = start + self._steps
        self.held_tokens -= held
        return held, end - self._steps

    def advance(self, steps: int) -> None:
        """Give every request so many tokens."""
        self._steps += steps
        self.held_tokens += steps * len(self._starts)

    def list_ended(self) -> list[int]:
        """Return the requests whose output is complete; each is told once, and has to leave."""
        ended = dict[int, None]()  # one that left and joined again may stand in the heap twice
        while self._next_ends and self._next_ends[0][0] <= self._steps:
            end, request = heappop(self._next_ends)
            if self._ends.get(request) == end:
                ended[request] = None
        return list(ended)

    def count_new_blocks(self, steps: int = 1) -> int:
        """Return the blocks that all need beyond those that they hold, for some steps."""
        block = self._block_tokens
        rounds, rest = divmod(steps, block)
        # A request takes a block in the step before which its last block is full.
        if rest <= len(self._residues):
            taken = sum(self._residues.get((-self._steps - step) % block, 0) for step in range(rest))
        else:
            taken = sum(
                count for start, count in self._residues.items() if (-self._steps - start) % block < rest
            )
        return rounds * len(self._starts) + taken

    def count_left(self, request: int) -> int:
        """Return the outputs that a request has to make."""
        return self._ends[request] - self._steps

    def list_held(self) -> NDArray[np.int64]:
        """Return the tokens that each request holds."""
        return np.fromiter(self._starts.values(), np.int64, len(self._starts)) + self._steps

    def list_left(self) -> NDArray[np.int64]:
        """Return the outputs that each request has to make."""
        return np.fromiter(self._ends.values(), np.int64, len(self._ends)) - self._steps
