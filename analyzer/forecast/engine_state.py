"""Requests inside a serving engine and the KV cache that they hold: what schedulers decide about.

A request is waiting, or running; a running one is prefilling, which at most one is between two steps, or
decoding. Between steps a decoding request holds the keys and values of all its tokens but the newest, which
the next step feeds to the model. The last token of an output is never fed back, so a request of p prompt
and n output tokens holds at most p + n - 1.
"""

from collections import deque

import numpy as np
from msgspec import Struct

from analyzer.forecast.decode_batch import DecodeBatch
from analyzer.forecast.serving_load import ServingLoad

NO_REQUEST = -1


class EngineLimits(Struct, frozen=True, kw_only=True):
    """What bounds a step and the running batch."""

    chunk_tokens: int  # of a step: vLLM's max_num_batched_tokens, SGLang's chunked_prefill_size
    max_running: int  # vLLM's max_num_seqs, SGLang's max_running_requests
    kv_capacity_tokens: int
    block_tokens: int  # of a block (vLLM) or page (SGLang) of the KV cache

    @property
    def n_blocks(self) -> int:
        """Blocks of the KV cache."""
        return self.kv_capacity_tokens // self.block_tokens


class PrefillChunk(Struct, frozen=True):
    """Tokens of one request that a step prefills, behind `context` tokens."""

    request: int
    context: int
    tokens: int

    @property
    def pairs(self) -> float:
        """Pairs of query and key under the causal mask."""
        return self.tokens * (self.context + (self.tokens + 1) / 2)


class _CachedBlocks(Struct, frozen=True):
    """Blocks of a preempted request in the free list, which keep their contents until they are taken."""

    blocks: int
    full_blocks: int  # a last block with room for more is not found again
    behind: int  # number of the taking after which the first of them is taken


class StepPlan(Struct, frozen=True):
    """What the next step computes; nothing where no request can run."""

    prefills: tuple[PrefillChunk, ...] = ()
    decodes: bool = False  # whether all decoding requests take part
    is_steady: bool = (
        True  # whether the plan holds until a request ends, finds no block or meets an empty queue
    )


class EngineState:
    """Requests of one simulation; schedulers move them, the simulation counts their tokens."""

    def __init__(self, load: ServingLoad, limits: EngineLimits) -> None:
        self.limits = limits
        self.prompt_tokens: list[int] = load.prompt_tokens.tolist()
        self.output_tokens: list[int] = load.output_tokens.tolist()
        # Of requests that do not decode: what they hold in the cache, and what they have generated.
        self.held_tokens, self.generated = [0] * load.n_requests, [0] * load.n_requests
        self.preemptions = np.zeros(load.n_requests, dtype=np.int64)
        self.waiting: deque[int] = deque()
        self.decoding = DecodeBatch(limits.block_tokens)
        self.prefilling = NO_REQUEST  # with a part of its tokens computed
        self.free_blocks = limits.n_blocks
        self._n_taken = 0  # blocks taken so far from the head of the free list
        self._cached: dict[int, _CachedBlocks] = {}
        self.recomputed_tokens = 0  # held once, dropped, and to be computed again
        self._dropped: list[int] = []  # while they decoded, and not taken yet

    @property
    def n_running(self) -> int:
        """Requests that hold keys and values."""
        return len(self.decoding) + (self.prefilling != NO_REQUEST)

    @property
    def taken_tokens(self) -> int:
        """Tokens for which the blocks taken have room."""
        return (self.limits.n_blocks - self.free_blocks) * self.limits.block_tokens

    def count_known_tokens(self, request: int) -> int:
        """Return the tokens that a prefill of a request must compute: its prompt, and outputs made before."""
        return self.prompt_tokens[request] + self.generated[request]

    def count_blocks(self, tokens: int) -> int:
        """Return the blocks that hold the tokens of one request."""
        return -(-tokens // self.limits.block_tokens)

    def has_room_for_decodes(self, more_blocks: int = 0) -> bool:
        """Return whether every decoding request finds a block for its next token, and some are left."""
        free = self.free_blocks - more_blocks
        return len(self.decoding) <= free or self.decoding.count_new_blocks() <= free

    def count_steps_that_fit(self, most: int) -> int:
        """Return how many decode steps, at most so many, the free blocks allow."""
        if self.decoding.count_new_blocks(most) <= self.free_blocks:
            return most
        low, high = 0, most  # low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            if self.decoding.count_new_blocks(middle) <= self.free_blocks:
                low = middle
            else:
                high = middle
        return low

    def hold(self, request: int, tokens: int) -> None:
        """Let a request that prefills hold so many tokens more. The blocks must be free."""
        held = self.held_tokens[request]
        self._take(self.count_blocks(held + tokens) - self.count_blocks(held))
        self.held_tokens[request] = held + tokens

    def _take(self, blocks: int) -> None:
        self.free_blocks -= blocks
        self._n_taken += blocks

    def count_cached_tokens(self, request: int) -> int:
        """Return the tokens of a preempted request, from its first on, whose keys and values are still there.

        Its last token is computed again in any case, since the next one comes of it.
        """
        cached = self._cached.get(request)
        if cached is None:
            return 0
        intact = min(cached.full_blocks, cached.blocks - max(0, self._n_taken - cached.behind))
        most = (self.count_known_tokens(request) - 1) // self.limits.block_tokens
        return max(0, min(intact, most)) * self.limits.block_tokens

    def restore(self, request: int) -> None:
        """Let a request hold what is still there of it. The blocks must be free."""
        tokens = self.count_cached_tokens(request)
        if self._cached.pop(request, None) is not None:
            self.free_blocks -= self.count_blocks(tokens)
            self.held_tokens[request] = tokens
            self.recomputed_tokens -= tokens

    def drop(self, request: int, *, is_cached: bool) -> None:
        """Take a running request out of the batch; what it held is to be computed again.

        is_cached: its blocks go to the tail of the free list, the last one first, and keep their contents.
        """
        if request == self.prefilling:
            self.prefilling, held = NO_REQUEST, self.held_tokens[request]
        else:
            held, left = self.decoding.leave(request)
            self.generated[request] = self.output_tokens[request] - left
            self._dropped.append(request)
        if is_cached:
            self._cached[request] = _CachedBlocks(
                self.count_blocks(held), held // self.limits.block_tokens, self._n_taken + self.free_blocks
            )
        self.recomputed_tokens += held
        self.free_blocks += self.count_blocks(held)
        self.held_tokens[request] = 0
        self.preemptions[request] += 1

    def take_dropped(self) -> list[int]:
        """Return the requests that were dropped while they decoded since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def finish_prefill(self, request: int) -> None:
        """Let a request whose prefill is complete decode, with one token more."""
        left = self.output_tokens[request] - self.generated[request] - 1
        self.decoding.join(request, self.held_tokens[request], left)
        self.held_tokens[request] = 0

    def advance_decodes(self, steps: int) -> None:
        """Let every decoding request generate so many tokens. The blocks must be free."""
        self._take(self.decoding.count_new_blocks(steps))
        self.decoding.advance(steps)

    def remove_ended(self) -> list[int]:
        """Take out the decoding requests with a complete output, and return them."""
        ended = self.decoding.list_ended()
        for request in ended:
            held, _ = self.decoding.leave(request)
            self.free_blocks += self.count_blocks(held)
        return ended
