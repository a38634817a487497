"""Schedulers of serving engines: which requests the next step takes, and which give way when memory runs out.

**vLLM** (the V1 scheduler, `v1/core/sched/scheduler.py`, which has had these rules since 0.10; read at
commit 00024d3). A step has a budget of tokens. Running requests come first, in the order of their
admission: one token for each that decodes, what is left of the budget for the one that prefills. Then
waiting requests are admitted, first come first served, each with as much of its prompt as the budget has
left; it needs blocks for this part only. Prefills and decodes share a step. Where a running request finds
no free block, the one admitted last is preempted: it goes back to the head of the queue, and its prompt and
all that it has generated are computed again, less what is still in its blocks: with the prefix cache, which
is on by default, they keep their contents at the tail of the free list until others take them. A step that
has preempted admits no one.

**SGLang** (the scheduler of 0.4 and 0.5, `managers/scheduler.py`; `schedule_policy.py` read at commit
00550cd). A step either prefills or decodes, and prefilling goes first: while a request can be admitted, or
a chunk of one is left, no one decodes. A request is admitted if its prompt and its whole output fit beside
what the running ones are expected to need still, which is a ratio of their remaining output (0.7 at first,
less with every decode step down to 0.098 after 600 steps). Once one cannot be admitted, none is tried until
a request ends or is retracted. Where the next decode step does not fit, the request with the fewest outputs
is retracted to the tail of the queue, and the ratio becomes what the batch has needed so far.

Both are told the output lengths in advance as `max_tokens`, as benchmark clients set them. The queue is
first come first served in both.

Not modelled: prefix caching between requests (no two share a prompt), speculative decoding, batches padded
to the sizes of captured CUDA graphs, priorities, LoRA, SGLang's mixed chunks and its overlap of scheduling
with the step before, vLLM's asynchronous scheduling, prefill and decode on different machines.
"""

from typing import Protocol

from analyzer.forecast.deployment import Framework
from analyzer.forecast.engine_state import NO_REQUEST, EngineLimits, EngineState, PrefillChunk, StepPlan

_MAX_PREFILL_TOKENS = 16_384  # SGLang's max_prefill_tokens: of the prompts that one step begins
_MAX_RESERVED_OUTPUT = 4_096  # SGLang's CLIP_MAX_NEW_TOKENS: output that admission reckons with at most
_FIRST_OUTPUT_RATIO = 0.7  # SGLang's init_new_token_ratio
_LEAST_OUTPUT_RATIO = 0.7 * 0.14
_RATIO_DECAY_STEPS = 600
_RETRACT_DECODE_STEPS = 20  # that the estimate behind a retraction looks ahead


class Scheduler(Protocol):
    """Decides about the next step of an engine."""

    def plan_step(self, state: EngineState) -> StepPlan:
        """Admit and preempt requests, and return the next step.

        Blocks of prefills are taken already; those of one decode step are free. An empty plan says that no
        request is in the engine.
        """
        ...

    def count_decode_steps(self, steps: int) -> None:
        """Take note that decode steps went by."""
        ...

    def end_requests(self) -> None:
        """Take note that requests ended."""
        ...

    def count_needed_tokens(self, limits: EngineLimits, prompt_tokens: int, output_tokens: int) -> int:
        """Return the tokens of KV cache without which a request can never run, not even alone."""
        ...


def make_scheduler(framework: Framework) -> Scheduler:
    """Return a new scheduler of a framework."""
    return VllmScheduler() if framework is Framework.VLLM else SglangScheduler()


class VllmScheduler:
    """The token budget of vLLM's V1 engine."""

    def plan_step(self, state: EngineState) -> StepPlan:
        """Return the next step; see the module."""
        n_preempted = self._preempt(state)
        budget = state.limits.chunk_tokens - len(state.decoding)
        prefills = []
        if state.prefilling != NO_REQUEST:
            prefills.append(_begin_chunk(state, state.prefilling, budget))
            budget -= prefills[0].tokens
        while not n_preempted and budget > 0 and state.waiting:
            request = state.waiting[0]
            cached = state.count_cached_tokens(request)
            tokens = min(state.count_known_tokens(request) - cached, budget)
            is_full = len(state.decoding) + len(prefills) >= state.limits.max_running
            if is_full or not state.has_room_for_decodes(state.count_blocks(cached + tokens)):
                break
            state.waiting.popleft()
            state.restore(request)
            prefills.append(_begin_chunk(state, request, budget))
            budget -= tokens
        return StepPlan(tuple(prefills), decodes=len(state.decoding) > 0, is_steady=not n_preempted)

    def _preempt(self, state: EngineState) -> int:
        """Take out the requests admitted last until the others fit; return how many."""
        n_preempted = 0
        while not self._fits(state):
            last = state.prefilling if state.prefilling != NO_REQUEST else state.decoding.last
            state.drop(last, is_cached=True)
            state.waiting.appendleft(last)
            n_preempted += 1
        return n_preempted

    def _fits(self, state: EngineState) -> bool:
        if state.prefilling == NO_REQUEST:
            return state.has_room_for_decodes()
        held = state.held_tokens[state.prefilling]
        budget = state.limits.chunk_tokens - len(state.decoding)
        tokens = min(state.count_known_tokens(state.prefilling) - held, budget)
        return state.has_room_for_decodes(state.count_blocks(held + tokens) - state.count_blocks(held))

    def count_decode_steps(self, steps: int) -> None:
        """Do nothing: the budget has no memory."""

    def end_requests(self) -> None:
        """Do nothing: admission is tried in every step."""

    def count_needed_tokens(self, limits: EngineLimits, prompt_tokens: int, output_tokens: int) -> int:
        """Return the tokens of KV cache without which a request can never run: all but the last one."""
        return prompt_tokens + output_tokens - 1


class SglangScheduler:
    """SGLang's prefill-first scheduler."""

    def __init__(self) -> None:
        self._is_full = False
        self._output_ratio = _FIRST_OUTPUT_RATIO
        self._keeps_ratio = False  # in the step that a retraction made room for

    def plan_step(self, state: EngineState) -> StepPlan:
        """Return the next step; see the module."""
        if not state.n_running:
            self._is_full = False
            if not state.waiting:
                self._output_ratio = _FIRST_OUTPUT_RATIO  # an idle engine forgets
                return StepPlan()
        prefills = self._admit(state)
        if prefills:
            return StepPlan(prefills)
        self._keeps_ratio = self._retract(state)
        return StepPlan(decodes=True, is_steady=not self._keeps_ratio)

    def _admit(self, state: EngineState) -> tuple[PrefillChunk, ...]:
        """Return the chunks of the next prefill step."""
        if state.prefilling == NO_REQUEST and (self._is_full or not state.waiting):
            return ()
        chunk, prompts = state.limits.chunk_tokens, _MAX_PREFILL_TOKENS
        chunks: list[PrefillChunk] = []
        free = state.free_blocks * state.limits.block_tokens - self._count_expected_tokens(state)
        if state.prefilling != NO_REQUEST:
            request = state.prefilling
            chunks.append(_begin_chunk(state, request, chunk))
            used = self._round_up(state, chunks[0].tokens)
            chunk, prompts, free = chunk - used, prompts - used, free - used
            if state.held_tokens[request] == state.count_known_tokens(request):
                free -= self._reserve_output(state, request)
        while state.waiting and not self._is_full and chunk > 0 and prompts > 0:
            request = state.waiting[0]
            tokens = state.count_known_tokens(request)
            reserved = self._reserve_output(state, request)
            is_crowded = len(state.decoding) + len(chunks) >= state.limits.max_running
            if is_crowded or tokens + reserved + state.limits.block_tokens > free:
                self._is_full = True
                break
            if chunks and self._round_up(state, tokens) >= prompts:
                break
            budget = (
                chunk if tokens <= chunk else chunk // state.limits.block_tokens * state.limits.block_tokens
            )
            if budget <= 0:
                break
            state.waiting.popleft()
            chunks.append(_begin_chunk(state, request, budget))
            used = self._round_up(state, chunks[-1].tokens)
            chunk, prompts = chunk - used, prompts - used
            free -= used + state.limits.block_tokens + (reserved if tokens <= budget else 0)
        return tuple(chunks)

    def _count_expected_tokens(self, state: EngineState) -> float:
        """Return how many tokens the decoding requests are expected to add."""
        left = state.decoding.list_left()
        return float(left.clip(max=_MAX_RESERVED_OUTPUT).sum()) * self._output_ratio

    def _reserve_output(self, state: EngineState, request: int) -> int:
        return min(state.output_tokens[request] - state.generated[request], _MAX_RESERVED_OUTPUT)

    def _round_up(self, state: EngineState, tokens: int) -> int:
        return state.count_blocks(tokens) * state.limits.block_tokens

    def _retract(self, state: EngineState) -> bool:
        """Take out requests of fewest outputs, of equals the longer prompt, until the next step fits.

        Return whether there was one.
        """
        is_retracted = False
        while not state.has_room_for_decodes():
            request = min(
                state.decoding,
                key=lambda each: (
                    state.output_tokens[each] - state.decoding.count_left(each),
                    -state.prompt_tokens[each],
                    -each,
                ),
            )
            state.drop(request, is_cached=False)
            state.waiting.append(request)
            is_retracted = True
        if is_retracted:
            self._is_full = False
            outputs = sum(state.output_tokens[each] for each in state.decoding)
            made = outputs - int(state.decoding.list_left().sum())
            made += _RETRACT_DECODE_STEPS * len(state.decoding)
            self._output_ratio = min(1.0, made / (outputs + 1))
        return is_retracted

    def count_decode_steps(self, steps: int) -> None:
        """Lower the ratio of output that is reckoned with."""
        if self._keeps_ratio:
            return
        decay = (_FIRST_OUTPUT_RATIO - _LEAST_OUTPUT_RATIO) / _RATIO_DECAY_STEPS
        self._output_ratio = max(self._output_ratio - steps * decay, _LEAST_OUTPUT_RATIO)

    def end_requests(self) -> None:
        """Try admission again."""
        self._is_full = False

    def count_needed_tokens(self, limits: EngineLimits, prompt_tokens: int, output_tokens: int) -> int:
        """Return the tokens of KV cache without which a request is never admitted: a block beyond all."""
        return prompt_tokens + output_tokens + limits.block_tokens


def _begin_chunk(state: EngineState, request: int, budget: int) -> PrefillChunk:
    """Return the next part of a request's prefill, its blocks taken; the request is the one that prefills."""
    context = state.held_tokens[request]
    tokens = min(state.count_known_tokens(request) - context, budget)
    state.hold(request, tokens)
    return PrefillChunk(request, context, tokens)
