"""Continuous batching: an event simulation of one serving engine under a load that arrives over time.

The engine runs one step after the other. Before each, requests that have arrived join the queue, and the
scheduler (`batch_schedulers`: vLLM's or SGLang's, versions and what is left out are said there) decides
what the step takes. The step lasts as long as its clock says (`step_clock`), then every request in it that
has computed all its tokens has one output token more.

**Runs of decode steps are jumped over.** Between two events (a request ends, a request arrives at an empty
queue, the KV cache is full) the same requests decode in every step, and each step adds one token to each.
So the number of steps to the next event is known but for arrivals, the durations come as one array, and the
first step that ends after the arrival is found in its cumulative sum. Requests that wait for room need no
look: room only shrinks until a request ends. The jump is exact: with any clock the result is that of single
steps.

Example: two requests of 4 prompt and 3 output tokens, both at time 0, steps of 1 s:
prefill both at 0 s (first tokens at 1 s), then one run of two decode steps, and both end at 3 s.

Invariants, which tests check: blocks taken and free sum to the capacity, every token of a prompt is
prefilled once more than its request was preempted at it, the engine never idles while a request is there,
and the time-average number of requests equals rate times mean latency (Little's law).
"""

import math
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.forecast.batch_schedulers import Scheduler
from analyzer.forecast.engine_state import NO_REQUEST, EngineLimits, EngineState, StepPlan
from analyzer.forecast.serving_load import ServingLoad
from analyzer.forecast.step_clock import StepClock, StepLengths, StepShape
from analyzer.forecast.token_gaps import TokenGaps

_MAX_JUMP = 4_096  # steps whose durations are asked for together
_LIKELY_STEP_S = 0.01
_MARGIN = 1.1  # of the steps that an arrival is expected to be away


class StepObserver(Protocol):
    """Is told of each step, and of each run of decode steps, as it begins."""

    def __call__(
        self, state: EngineState, plan: StepPlan, *, start_s: float, steps: int, end_s: float
    ) -> None:
        """Look at the state before the step; `steps` alike, the first from `start_s`."""
        ...


class EngineHistory(Struct, frozen=True):
    """The engine at the ends of steps and runs of steps; arrays of equal length, what held up to `end_s`."""

    end_s: NDArray[np.float64]
    running: NDArray[np.int64]
    waiting: NDArray[np.int64]
    held_tokens: NDArray[np.int64]  # that the blocks taken have room for; the mean of begin and end


class ServingRun(Struct, frozen=True):
    """What became of each request of a load, by its order, and of the engine over time."""

    load: ServingLoad
    limits: EngineLimits
    scheduled_s: NDArray[np.float64]  # when its first step began
    first_token_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    preemptions: NDArray[np.int64]
    history: EngineHistory
    most_held_tokens: int
    gap_counts: NDArray[np.int64]  # histogram of inter-token latencies, see `locate_gap`
    longest_gap_s: float
    steps: int
    busy_s: float
    request_seconds: float  # integral over time of the requests in the system
    prefilled_tokens: int  # recomputed ones included
    recomputed_tokens: int


def simulate_serving(
    load: ServingLoad,
    limits: EngineLimits,
    scheduler: Scheduler,
    clock: StepClock,
    observe: StepObserver | None = None,
) -> ServingRun:
    """Return what becomes of a load until its last request ends.

    scheduler: new, since it remembers. Every request must fit alone (`Scheduler.count_needed_tokens`).
    """
    simulation = _Simulation(load, limits, scheduler, clock, observe)
    simulation.run()
    return simulation.make_result()


class _Simulation:
    """One engine, from the first arrival to the last end."""

    def __init__(
        self,
        load: ServingLoad,
        limits: EngineLimits,
        scheduler: Scheduler,
        clock: StepClock,
        observe: StepObserver | None,
    ) -> None:
        self._load, self._scheduler, self._clock, self._observe = load, scheduler, clock, observe
        self._state = EngineState(load, limits)
        self._arrivals: list[float] = load.arrival_s.tolist()
        self._n_arrived = 0
        self._n_ended = 0
        self._now_s = self._arrivals[0]
        self._scheduled_s, self._first_token_s, self._end_s = (
            np.full(load.n_requests, np.nan) for _ in range(3)
        )
        self._history: list[tuple[float, int, int, int]] = []
        self._gaps = TokenGaps()
        self._most_held = 0
        self._last_step_s = _LIKELY_STEP_S  # of a decode step: how far to look ahead for an arrival
        self._n_steps, self._busy_s, self._request_seconds, self._prefilled = 0, 0.0, 0.0, 0

    def run(self) -> None:
        """Simulate until every request has ended."""
        state = self._state
        while self._n_ended < self._load.n_requests:
            self._take_arrivals()
            plan = self._scheduler.plan_step(state)
            self._gaps.drop(state.take_dropped())
            if plan.prefills:
                self._run_step(plan)
            elif plan.decodes:
                self._run_decodes(plan)
            else:
                self._now_s = self._arrivals[self._n_arrived]  # idle until then
                self._note_history(0)
                continue
            ended = state.remove_ended()
            if ended:
                self._end_s[ended] = self._now_s
                self._n_ended += len(ended)
                self._scheduler.end_requests()
                self._gaps.end(ended)

    def _take_arrivals(self) -> None:
        """Queue what has arrived up to now."""
        while self._n_arrived < len(self._arrivals) and self._arrivals[self._n_arrived] <= self._now_s:
            self._state.waiting.append(self._n_arrived)
            self._request_seconds += self._now_s - self._arrivals[self._n_arrived]
            self._n_arrived += 1

    def _run_step(self, plan: StepPlan) -> None:
        """Run one step with prefills."""
        state = self._state
        shape, taken = _sum_shape(state, plan), state.taken_tokens
        start_s = self._now_s
        duration_s = self._clock.time_step(shape, lambda: _list_lengths(state, plan))
        self._notify(plan, start_s, 1, start_s + duration_s)
        self._pass_time(duration_s, 1)
        for chunk in plan.prefills:
            if math.isnan(self._scheduled_s[chunk.request]):
                self._scheduled_s[chunk.request] = start_s
        if plan.decodes:
            self._gaps.count_decode(self._now_s, len(state.decoding))
            state.advance_decodes(1)
            self._scheduler.count_decode_steps(1)
        state.prefilling = NO_REQUEST
        for chunk in plan.prefills:
            self._prefilled += chunk.tokens
            if chunk.context + chunk.tokens == state.count_known_tokens(chunk.request):
                self._give_token(chunk.request)
            else:
                state.prefilling = chunk.request
        self._note_history(taken)

    def _give_token(self, request: int) -> None:
        """Count the token that ends a prefill: the first, or after a preemption the next."""
        is_first = not self._state.generated[request]
        if is_first:
            self._first_token_s[request] = self._now_s
        self._gaps.count_prefill(request, self._now_s, is_first=is_first)
        self._state.finish_prefill(request)

    def _run_decodes(self, plan: StepPlan) -> None:
        """Run decode steps up to the next event."""
        state, taken = self._state, self._state.taken_tokens
        steps = state.count_steps_that_fit(state.decoding.least_left) if plan.is_steady else 1
        until_s = math.inf if state.waiting else self._find_next_arrival()
        while steps > 0 and self._now_s < until_s:
            done = self._run_decode_piece(plan, min(steps, _MAX_JUMP), until_s)
            steps -= done
        self._note_history(taken)

    def _run_decode_piece(self, plan: StepPlan, steps: int, until_s: float) -> int:
        """Run at most so many decode steps, none that begins at `until_s` or later; return how many."""
        state = self._state
        if until_s < math.inf:
            steps = min(steps, math.ceil((until_s - self._now_s) / self._last_step_s * _MARGIN))
        shape = _sum_shape(state, plan)
        durations = self._clock.time_decode_run(shape, lambda: _list_lengths(state, plan), steps)
        ends = durations.cumsum()
        done = min(steps, int(np.searchsorted(ends, until_s - self._now_s)) + 1)
        total_s = float(ends[done - 1])
        self._notify(plan, self._now_s, done, self._now_s + total_s)
        self._last_step_s = float(durations[done - 1])
        self._pass_time(float(durations[0]), 1)
        self._gaps.count_decode(self._now_s, len(state.decoding))
        if done > 1:
            self._pass_time(total_s - float(durations[0]), done - 1)
            self._gaps.count_more_decodes(durations[1:done], self._now_s, len(state.decoding))
        state.advance_decodes(done)
        self._scheduler.count_decode_steps(done)
        return done

    def _find_next_arrival(self) -> float:
        return self._arrivals[self._n_arrived] if self._n_arrived < len(self._arrivals) else math.inf

    def _pass_time(self, duration_s: float, steps: int) -> None:
        """Let steps go by; requests that arrive meanwhile are added to the system when they are taken."""
        self._now_s += duration_s
        self._busy_s += duration_s
        self._n_steps += steps
        self._request_seconds += (self._n_arrived - self._n_ended) * duration_s

    def _note_history(self, taken_before: int) -> None:
        state = self._state
        taken = state.taken_tokens
        self._most_held = max(self._most_held, taken)
        mean = (taken_before + taken) // 2
        self._history.append((self._now_s, state.n_running, len(state.waiting), mean))

    def _notify(self, plan: StepPlan, start_s: float, steps: int, end_s: float) -> None:
        if self._observe is not None:
            self._observe(self._state, plan, start_s=start_s, steps=steps, end_s=end_s)

    def make_result(self) -> ServingRun:
        """Return what was counted."""
        columns = list(zip(*self._history, strict=True))
        return ServingRun(
            load=self._load,
            limits=self._state.limits,
            scheduled_s=self._scheduled_s,
            first_token_s=self._first_token_s,
            end_s=self._end_s,
            preemptions=self._state.preemptions,
            history=EngineHistory(
                np.array(columns[0]), *(np.array(column, dtype=np.int64) for column in columns[1:])
            ),
            most_held_tokens=self._most_held,
            gap_counts=self._gaps.make_histogram(),
            longest_gap_s=self._gaps.longest_s,
            steps=self._n_steps,
            busy_s=self._busy_s,
            request_seconds=self._request_seconds,
            prefilled_tokens=self._prefilled,
            recomputed_tokens=self._state.recomputed_tokens,
        )


def _sum_shape(state: EngineState, plan: StepPlan) -> StepShape:
    """Return the sums that decide how long a step takes."""
    decodes = len(state.decoding) if plan.decodes else 0
    return StepShape(
        prefills=len(plan.prefills),
        prefill_tokens=sum(chunk.tokens for chunk in plan.prefills),
        prefill_pairs=sum(chunk.pairs for chunk in plan.prefills),
        decodes=decodes,
        decode_kv_tokens=state.decoding.held_tokens + decodes if decodes else 0,
    )


def _list_lengths(state: EngineState, plan: StepPlan) -> StepLengths:
    """Return the lengths of each request of a step, prefills first."""
    queries = [chunk.tokens for chunk in plan.prefills]
    kv_lengths = [chunk.context + chunk.tokens for chunk in plan.prefills]
    if plan.decodes:
        queries += [1] * len(state.decoding)
        kv_lengths += (state.decoding.list_held() + 1).tolist()
    return StepLengths(tuple(queries), tuple(kv_lengths))
