"""The batch of decoding requests against one that counts each request."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from analyzer.forecast.decode_batch import DecodeBatch

BLOCK = 4


class CountedBatch(RuleBasedStateMachine):
    """Requests as [tokens held, outputs left], in the order of their admission."""

    def __init__(self) -> None:
        super().__init__()
        self.batch, self.requests = DecodeBatch(BLOCK), dict[int, list[int]]()

    @rule(request=st.integers(0, 5), held=st.integers(0, 20), left=st.integers(0, 6))
    def join_again(self, request: int, held: int, left: int) -> None:
        if request in self.requests:
            assert self.batch.leave(request) == tuple(self.requests.pop(request))
        self.batch.join(request, held, left)
        self.requests[request] = [held, left]

    @precondition(lambda self: self.requests)
    @rule(share=st.floats(0, 1))
    def decode(self, share: float) -> None:
        steps = round(share * self.batch.least_left)
        self.batch.advance(steps)
        for each in self.requests.values():
            each[0] += steps
            each[1] -= steps

    @rule()
    def end(self) -> None:
        ended = self.batch.list_ended()
        assert sorted(ended) == sorted(request for request, each in self.requests.items() if not each[1])
        for request in ended:
            assert self.batch.leave(request) == tuple(self.requests.pop(request))

    @invariant()
    def agrees(self) -> None:
        batch, found = self.batch, self.requests
        assert list(batch) == list(found)
        assert len(batch) == len(found)
        assert batch.list_held().tolist() == [held for held, _ in found.values()]
        assert batch.list_left().tolist() == [left for _, left in found.values()]
        assert batch.held_tokens == sum(held for held, _ in found.values())
        for steps in (0, 1, 3, BLOCK, 3 * BLOCK + 2):
            needed = sum(-(-(held + steps) // BLOCK) - -(-held // BLOCK) for held, _ in found.values())
            assert batch.count_new_blocks(steps) == needed


TestCountedBatch = CountedBatch.TestCase


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 30))
def test_large_blocks_are_counted_by_request(held: list[int], steps: int) -> None:
    batch = DecodeBatch(1000)
    for request, tokens in enumerate(held):
        batch.join(request, 1000 - tokens, 50)
    assert batch.count_new_blocks(steps) == sum(tokens < steps for tokens in held)
    assert batch.last == len(held) - 1
    assert len(held) - 1 in batch
