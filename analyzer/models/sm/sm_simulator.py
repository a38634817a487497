"""One SM, event by event: its resident warps step by step, in the order in which they reach each resource.

The idea: a resource that serves requests in the order of their arrival is one number, the time from which
it is free. So the simulation needs no clock. It takes the warp with the earliest time from a heap and follows
it until its time is later than that of the next one; then it puts the warp back. A step has three phases: the
warp waits for its operands, it issues and takes its pipes, and its last instruction makes a request (see
`StepPhase`). A phase that ends later than the next warp's time ends the warp's turn.

The invariant: requests to what warps share (load/store path, L2, DRAM, barriers, products) are made in the
order of their times. Of the warps that a scheduler could issue from, the youngest goes first (Huerta et al.,
MICRO 2025); where the load/store path is full, mostly the oldest's request does. In code with products of
warpgroups the one goes first that has issued longest ago: an H100's two warpgroups end their softmax
together, and wait 41 cycles for each other at the barrier behind P V (traces/h100, 128x64_w8 attention),
where youngest first makes 190 of it.

Example: two warps of one sub-core with steps of 4 issue slots, both ready at 0. The younger one issues from
0 to 4; the other one finds the issue port free at 4, counts 4 cycles of `not selected`, and issues to 8.

Each resource is a class with a handler for the steps that ask for it: `Subcores`, `LoadStorePath` (with
`L2Share` and `DramShare`), `CtaBarriers`, `Mbarriers`. Here are the central loop and the life of CTAs. Pipes
are taken in that loop: each step does so, and one in two steps makes no call at all. With one record per step
in place of columns, this takes 0.86 to 1.05 of the time of one function with everything inline (10 kernels).
"""

import math
from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush, heappushpop
from itertools import chain

from msgspec import Struct

from analyzer.demand.opcode_costs import PIPE_INDEX
from analyzer.ir.scheduling import Pipe
from analyzer.models.sm.cta_barriers import CtaBarriers
from analyzer.models.sm.cta_sequence import CtaSequence
from analyzer.models.sm.fast_forward import MIN_SKIPPED_ITERATIONS, FastForward
from analyzer.models.sm.instruction_fetch import InstructionCache
from analyzer.models.sm.iteration_plan import find_listed_share, plan_warp
from analyzer.models.sm.mbarriers import Mbarriers
from analyzer.models.sm.memory_resources import FENCE_KINDS, LoadStorePath
from analyzer.models.sm.resource_demand import StepKind
from analyzer.models.sm.simulated_warp import (
    EventHeap,
    SimulatedCta,
    SimulatedStep,
    SimulatedWarp,
    StepHandler,
    StepPhase,
    WarpProducts,
    make_steps,
)
from analyzer.models.sm.simulation_state import (
    N_WAIT_COLUMNS,
    NO_INSTRUCTIONS_COLUMN,
    NOT_SELECTED_COLUMN,
    ROUNDING_TOLERANCE,
    SimulationResult,
    SmParameters,
)
from analyzer.models.sm.subcores import ISSUE_INDEX, OWNER_INDEX, Subcores
from analyzer.models.sm.warp_program import WarpProgram
from analyzer.models.wait_causes import WAIT_CAUSE_BY_PIPE, WaitCause

TENSOR_PIPE_INDEX = PIPE_INDEX[Pipe.TENSOR]
_WAIT_CAUSE_BY_PIPE = tuple(
    int(WAIT_CAUSE_BY_PIPE.get(pipe, WaitCause.MEMORY_PIPE)) for pipe in range(ISSUE_INDEX)
)
_GMMA, _DISPATCH, _MATH_PIPE = (
    int(cause) for cause in (WaitCause.GMMA, WaitCause.DISPATCH, WaitCause.MATH_PIPE)
)
_START, _HAS_WAITED, _HAS_ISSUED = (
    int(phase) for phase in (StepPhase.START, StepPhase.HAS_WAITED, StepPhase.HAS_ISSUED)
)
_NEVER = 1e300
_MEETING_KINDS = frozenset(
    {
        *(StepKind.CTA_BARRIER, StepKind.MBARRIER_WAIT, StepKind.MBARRIER_ARRIVE),
        *(StepKind.MBARRIER_COMMIT, StepKind.BULK_COPY_IN),
    }
)
# After so many steps, what is left takes the pace of those behind a part of them: warps of many CTAs at
# different places of their loops, where no state comes again before one of them ends.
MOST_STEPS, _PACE_START_SHARE = 100_000, 0.3
_FIRST_WARP_NUMBER = 1 << 30  # the number of the first warp; later ones have lower numbers and come first
_RUN_LEAD = 1 << 50  # on all turns: a warp that goes on without a wait comes first


class LastWave(Struct, frozen=True, eq=False):
    """CTAs of the last wave, which have other shares of the L2 and the DRAM."""

    n_full: int  # CTAs of full waves before it
    n_ctas: int  # of the last wave
    warp_programs: tuple[WarpProgram, ...]  # by role
    # Returns the last wave by when the CTAs of full waves have ended.
    gather: Callable[[SimulationResult], "LastWave"]


def simulate_ctas(
    warp_programs: tuple[WarpProgram, ...],
    parameters: SmParameters,
    n_ctas: int,
    last_wave: LastWave | None = None,
    *,
    most_steps: float = MOST_STEPS,
    skips: bool = True,
) -> SimulationResult:
    """Simulate so many CTAs on one SM.

    most_steps: after which the rest takes the pace of those behind a part of them.
    skips: iterations and CTAs that repeat others; False simulates each of them.
    """
    listed = min(map(find_listed_share, warp_programs))
    simulator = _SmSimulator(warp_programs, parameters, n_ctas, last_wave, listed, skips=skips)
    return simulator.run(most_steps if skips else math.inf)


class _SmSimulator:
    """The event loop, and CTAs that follow each other in the slots of an SM."""

    def __init__(
        self,
        warp_programs: tuple[WarpProgram, ...],
        parameters: SmParameters,
        n_ctas: int,
        last_wave: LastWave | None,
        listed_share: float,
        *,
        skips: bool,
    ) -> None:
        self.warp_programs, self.parameters, self.listed_share = warp_programs, parameters, listed_share
        self.last_time = 0.0
        self.next_warp_number = _FIRST_WARP_NUMBER
        self.resident_ctas: list[SimulatedCta] = []
        self.result = SimulationResult(iterations=[Counter() for _ in warp_programs])
        n_full = n_ctas if last_wave is None else last_wave.n_full
        self.last_wave = last_wave
        self.ctas = CtaSequence(n_ctas, n_full, parameters, self.result)
        self.heap: EventHeap = []
        # Beside products of warpgroups, and in runs, warps issue in turns; see the module and `issue_order`.
        self.takes_turns, self.turn = bool(parameters.pipe_slowdowns) or parameters.issues_in_runs, 0
        self.subcores = Subcores(parameters.n_subcores, parameters.read_release_cycles)
        self.mbarriers = Mbarriers(parameters, self.heap, warp_programs)
        self.path = LoadStorePath(parameters, self.heap, self.mbarriers)
        self.barriers = CtaBarriers(self.heap, self.path)
        self.code = None if parameters.fetch is None else InstructionCache(parameters.fetch)
        self.handlers = self.list_handlers()
        self.wait_cycles = [
            [[0.0] * N_WAIT_COLUMNS for _ in range(len(program))] for program in warp_programs
        ]
        self.steps = self.make_all_steps(warp_programs)
        self.last_steps = self.steps if last_wave is None else self.make_all_steps(last_wave.warp_programs)
        self.plans = [plan_warp(program, listed_share) for program in warp_programs]
        meeting_sequences = list(map(_find_meeting_sequences, warp_programs))
        self.fast_forward = FastForward(self.plans, meeting_sequences, self.ctas.pace_steps, skips=skips)

    def make_all_steps(self, warp_programs: tuple[WarpProgram, ...]) -> list[list[SimulatedStep]]:
        """Build the steps of all programs."""
        return [
            make_steps(
                program,
                self.handlers,
                self.parameters.pipe_slowdowns,
                wait_cycles,
                max_queued_products=self.parameters.max_queued_products,
                fetches_code=self.code is not None,
                issues_in_runs=self.parameters.issues_in_runs,
            )
            for program, wait_cycles in zip(warp_programs, self.wait_cycles, strict=True)
        ]

    def list_handlers(self) -> list[StepHandler | None]:
        """Return the handler of each kind of step."""
        handlers: dict[StepKind, StepHandler] = {
            StepKind.RESULT: self.subcores.serve_result,
            StepKind.DISPATCHED_RESULT: self.serve_dispatched_result,
            StepKind.WIDE_PRODUCT: self.subcores.serve_wide_product,
            StepKind.CTA_BARRIER: self.barriers.arrive,
            StepKind.MBARRIER_WAIT: self.mbarriers.serve_wait,
            StepKind.MBARRIER_ARRIVE: self.mbarriers.serve_arrival,
            StepKind.MBARRIER_COMMIT: self.mbarriers.serve_arrival,
            StepKind.FENCE: self.path.serve_fence,
            StepKind.FULL_FENCE: self.path.serve_fence,
        }
        if any(kind in FENCE_KINDS for program in self.warp_programs for kind in program.kind):
            handlers[StepKind.STORE] = self.path.serve_store
        return [None if kind is StepKind.NONE else handlers.get(kind, self.path.request) for kind in StepKind]

    def serve_dispatched_result(
        self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float
    ) -> float:
        """Start an instruction of the XU after its turn at the port that memory instructions take."""
        return self.subcores.serve_result(warp, step, self.path.dispatch(step, at), time)

    def run(self, most_steps: float) -> SimulationResult:
        """Run all CTAs to their end, or until so many steps are simulated; the rest then takes their pace."""
        for _ in range(min(self.parameters.ctas_per_sm, self.ctas.n_ctas)):
            self.launch_cta(0.0)
        self.run_events(_PACE_START_SHARE * most_steps)
        begin, n_begun = self.last_time, self.count_done_steps()
        self.run_events(most_steps)
        result = self.result
        result.cycles = max([self.path.end_cycles + self.fast_forward.skipped_cycles, *result.cta_end_cycles])
        if self.resident_ctas:
            n_done = self.count_done_steps()
            pace = (self.last_time - begin) / max(1, n_done - n_begun)
            for n_ctas in sorted({max(self.ctas.n_full, self.ctas.n_ended + 1), self.ctas.n_ctas}):
                result.cycles = self.last_time + max(0, n_ctas * self.count_cta_steps() - n_done) * pace
                result.ended_ctas.append(n_ctas)
                result.cta_end_cycles.append(result.cycles)
        result.cycles /= self.listed_share
        result.cta_end_cycles = [cycles / self.listed_share for cycles in result.cta_end_cycles]
        result.waits = [list(chain.from_iterable(by_step)) for by_step in self.wait_cycles]
        return result

    def count_cta_steps(self) -> int:
        """Count the steps of a CTA."""
        return sum(int(self.plans[role].n_steps[-1]) for role in self.parameters.role_by_warp)

    def count_done_steps(self) -> int:
        """Count the steps that all warps have done, skipped ones too."""
        return self.ctas.n_ended * self.count_cta_steps() + sum(
            self.plans[warp.role].count_steps(warp.sequence, warp.iteration)
            for cta in self.resident_ctas
            for warp in cta.warps
        )

    def run_events(self, most_steps: float) -> None:  # noqa: C901 - see the module: all that each step does
        """Follow the warp with the earliest time until another one's comes first, and so on.

        most_steps: after which the rest is left.
        """
        heap, code, takes_turns = self.heap, self.code, self.takes_turns
        in_runs = self.parameters.issues_in_runs
        resumed: tuple[float, int, SimulatedWarp] | None = None  # the last warp, where it is not kept
        result, time = self.result, 0.0
        while resumed is not None or heap or self.release_blocked_warps():
            if result.n_steps >= most_steps:
                if resumed is not None:
                    heappush(heap, resumed)
                break
            time, _, entry = heappop(heap) if resumed is None else heappushpop(heap, resumed)
            resumed = None
            warp = self.path.admit_warp() if entry is None else entry
            phase, warp.phase = warp.phase, _START
            steps, free = warp.steps, warp.pipe_free
            limit = heap[0][0] if heap else _NEVER
            while True:
                step = steps[warp.position]
                handler = step.handler
                if phase < _HAS_ISSUED:
                    if step.may_wait and phase == _START:
                        ready = wait_for_operands(warp, step, time)
                        if step.code_lines and ready is not None and code is not None:
                            ready = _wait_for_code(code, step, ready)
                        if ready is None:
                            break
                        time = ready
                        if time > limit:
                            # others come first: queues are taken in order of arrival
                            warp.phase = _HAS_WAITED
                            resumed = (time, warp.turn, warp)
                            break
                    pipe_cycles = step.pipe_cycles
                    free_at, cause = free[ISSUE_INDEX], NOT_SELECTED_COLUMN
                    for pipe, _, _ in pipe_cycles:
                        if free[pipe] > free_at and pipe != TENSOR_PIPE_INDEX:
                            free_at, cause = free[pipe], _WAIT_CAUSE_BY_PIPE[pipe]
                    if free_at > time:
                        step.wait_cycles[cause] += free_at - time
                        time = free_at
                        if limit <= time:
                            # others may be ready as well then, and younger
                            warp.phase = _HAS_WAITED
                            is_run = free[OWNER_INDEX] == warp.number and cause == NOT_SELECTED_COLUMN
                            resumed = (time, warp.number - _RUN_LEAD if is_run else warp.turn, warp)
                            break
                    free[ISSUE_INDEX] = time + step.issue_slots
                    if in_runs:
                        free[OWNER_INDEX] = warp.number
                    if takes_turns:
                        self.turn += 1
                        warp.turn = self.turn
                    end, slowest = 0.0, 0
                    if free[TENSOR_PIPE_INDEX] > time:
                        pipe_cycles = step.slow_pipe_cycles
                    for pipe, cycles, last_cycles in pipe_cycles:
                        begin = free[pipe]
                        if begin > time:  # the tensor core's queue
                            step.wait_cycles[_WAIT_CAUSE_BY_PIPE[pipe]] += begin - time
                            time = begin
                        free[pipe] = begin = time + cycles
                        if begin - last_cycles > end:
                            end, slowest = begin - last_cycles, pipe
                    time += step.stall_cycles
                    at = time - step.tail_cycles
                    if end > at:
                        late = end - time + step.tail_cycles
                        step.wait_cycles[_WAIT_CAUSE_BY_PIPE[slowest]] += late
                        time += late
                        at = time - step.tail_cycles
                    if handler is not None and at > limit:
                        # others come first: what the SM shares is taken in order of arrival
                        warp.phase = _HAS_ISSUED
                        resumed = (at, warp.turn, warp)
                        break
                elif phase == _HAS_ISSUED:
                    at = time
                    time += step.tail_cycles
                else:
                    handler = None
                phase = _START
                if handler is not None:
                    ready = handler(warp, step, at, time)
                    if ready is None:
                        break
                    time = ready
                    limit = heap[0][0] if heap else _NEVER
                if not step.ends_sequence:
                    warp.position += 1
                elif not self.end_iteration(warp, time):
                    break
                if time > limit:
                    is_run = (
                        free[OWNER_INDEX] == warp.number and time <= free[ISSUE_INDEX] + ROUNDING_TOLERANCE
                    )
                    resumed = (time, warp.number - _RUN_LEAD if is_run else warp.turn, warp)
                    break

        self.last_time = time + self.fast_forward.skipped_cycles

    def launch_cta(self, time: float) -> None:
        """Put the warps of the next CTA on the heap, an interval after the last start at the earliest."""
        parameters = self.parameters
        time = max(time, self.ctas.last_start + parameters.cta_start_interval_cycles)
        self.ctas.last_start = time
        all_steps = self.steps if self.ctas.n_launched < self.ctas.n_full else self.last_steps
        self.ctas.n_launched += 1
        cta = SimulatedCta(len(parameters.role_by_warp), parameters.pipelines)
        self.resident_ctas.append(cta)
        self.fast_forward.forget()
        for role in parameters.role_by_warp:
            subcore = self.subcores.assign_warp()
            warp = SimulatedWarp(
                self.next_warp_number,
                role,
                cta,
                all_steps[role],
                self.plans[role].sequences,
                self.subcores.pipe_free[subcore],
                WarpProducts(self.subcores.product_ends[subcore]),
            )
            self.next_warp_number -= 1
            cta.warps.append(warp)
            # before all that have issued, where warps take turns
            warp.turn = warp.number - self.takes_turns * 2 * _FIRST_WARP_NUMBER
            heappush(self.heap, (time, warp.turn, warp))

    def end_iteration(self, warp: SimulatedWarp, time: float) -> bool:
        """Move a warp from the end of a sequence to its next iteration or the next sequence.

        Return False where the warp has come to its end.
        """
        sequence = warp.sequences[warp.sequence]
        warp.iteration += 1
        self.result.iterations[warp.role][sequence.start] += 1
        self.result.n_steps += sequence.stop - sequence.start
        if warp.iteration < sequence.iterations:
            if sequence.iterations - warp.iteration >= MIN_SKIPPED_ITERATIONS:
                self.mark_iteration(warp, (warp.sequence, -1), time)
            warp.position = sequence.start
            return True
        warp.iteration = 0
        warp.sequence += 1
        if warp.sequence == len(warp.sequences):
            self.retire_warp(warp, time)
            return False
        plan = self.plans[warp.role]
        kind = int(plan.kinds[warp.sequence])
        if kind in plan.loop_starts:
            self.mark_iteration(warp, (-1, kind), time)
        warp.position = warp.sequences[warp.sequence].start
        return True

    def mark_iteration(self, warp: SimulatedWarp, key: tuple[int, int], time: float) -> None:
        """Mark the end of an iteration, and skip what repeats; see `fast_forward`."""
        self.fast_forward.mark(warp, key, time, self.result.n_steps, self.resident_ctas, self.path)

    def retire_warp(self, warp: SimulatedWarp, time: float) -> None:
        """Remove a warp that has ended; with the last one of a CTA, launch the next CTA."""
        self.subcores.release_warp(warp)
        cta = warp.cta
        cta.n_warps_left -= 1
        self.barriers.remove_warp(cta, time)
        if cta.n_warps_left:
            return
        self.resident_ctas.remove(cta)
        self.fast_forward.forget()
        time = max(time, cta.drain_end)
        time = self.ctas.last_end = max(time, self.ctas.last_end + self.parameters.cta_end_interval_cycles)
        self.ctas.end_cta(time + self.fast_forward.skipped_cycles)
        if self.fast_forward.skips:
            self.fast_forward.skipped_cycles += self.ctas.skip_waves()
        if self.last_wave is not None and self.ctas.n_ended == self.last_wave.n_full:
            self.gather_last_wave(self.last_wave)
        while self.ctas.n_launched < self.ctas.n_ctas and len(self.resident_ctas) < self.ctas.n_slots:
            self.launch_cta(time + self.parameters.cta_turnover_cycles)

    def gather_last_wave(self, last_wave: LastWave) -> None:
        """Let the SM have as many CTAs of the last wave as come together there, with their shares."""
        gathered = last_wave.gather(self.result)
        if gathered is last_wave:
            return
        self.ctas.n_ctas = gathered.n_full + gathered.n_ctas
        self.last_steps = self.make_all_steps(gathered.warp_programs)
        for cta in self.resident_ctas:
            for warp in cta.warps:
                warp.steps = self.last_steps[warp.role]

    def release_blocked_warps(self) -> bool:
        """Let warps go on that wait for others which never come, and return whether there were any.

        Barriers come first. This happens where parts of one warp come to a barrier one by one, which are
        counted like several warps; and where phases of mbarriers are waited for in another order than that
        of the simulated loops.
        """
        states = [
            state for cta in self.resident_ctas for state in cta.barriers.values() if state.waiting_warps
        ]
        for state in states:
            self.barriers.release(state, 0.0)
        for cta in self.resident_ctas if not states else ():
            self.mbarriers.release_hopeless_waits(cta)
        return bool(self.heap)


def _find_meeting_sequences(warp_program: WarpProgram) -> frozenset[int]:
    """Return the first steps of sequences in which warps of a CTA wait for each other."""
    return frozenset(
        sequence.start
        for sequence in warp_program.sequences
        if _MEETING_KINDS.intersection(warp_program.kind[sequence.start : sequence.stop])
    )


def wait_for_operands(warp: SimulatedWarp, step: SimulatedStep, time: float) -> float | None:
    """Return when a step can issue by what it needs of its own warp; None where the warp is kept."""
    share = step.share
    if step.wait_scoreboards:
        if warp.deferred_waits and not warp.resolve_deferred_waits(step, time):
            return None
        scoreboards = warp.scoreboards
        for board in step.wait_scoreboards:
            late = scoreboards[board] - time
            if late > 0:
                step.wait_cycles[warp.wait_causes[board]] += share * late
                time += share * late
    if step.may_wait_for_counts:
        time = _wait_for_counts(warp, step, time)
    if step.fetch_cycles:
        step.wait_cycles[NO_INSTRUCTIONS_COLUMN] += step.fetch_cycles
        time += step.fetch_cycles
    return time


def _wait_for_code(code: InstructionCache, step: SimulatedStep, time: float) -> float:
    """Return when a step's instructions are there."""
    late = step.share * (code.fetch(step.code_lines, time) - time)
    step.wait_cycles[NO_INSTRUCTIONS_COLUMN] += late
    return time + late


def _wait_for_counts(warp: SimulatedWarp, step: SimulatedStep, time: float) -> float:
    """Return when no more results or groups of products are pending than a step allows."""
    if step.depbar_wait is not None:
        board, max_pending = step.depbar_wait
        queue = warp.pending_results[board]
        if queue and len(queue) > max_pending:
            done = _pop_older(queue, max_pending)
            if done > time:
                time = _wait_until(done, step, warp.wait_causes[board], time)
    if step.max_pending_groups >= 0:
        done = _pop_older(warp.products.group_ends, step.max_pending_groups)
        time = _wait_until(done, step, _GMMA, time)
    for product in step.wide_waits:
        time = _wait_until(warp.products.wide_ends.get(product, 0.0), step, _DISPATCH, time)
    if step.max_queued_products:
        time = _wait_for_room(warp.products.queue, step, time)
    return time


def _wait_for_room(ends: deque[float], step: SimulatedStep, time: float) -> float:
    """Return when the tensor core of a sub-core has room for another product."""
    while ends and ends[0] <= time:
        ends.popleft()
    late = len(ends) - step.max_queued_products
    return time if late < 0 else _wait_until(ends[late], step, _MATH_PIPE, time)


def _pop_older(ends: list[float], max_pending: int) -> float:
    """Remove all but the last ends, and return the latest of those removed, 0 if none."""
    n_removed = len(ends) - max_pending
    if n_removed <= 0:
        return 0.0
    done = max(ends[:n_removed])
    del ends[:n_removed]
    return done


def _wait_until(done: float, step: SimulatedStep, cause: int, time: float) -> float:
    """Return the time of a warp that waits for `done`, a part of the wait where a part of warps executes."""
    late = done - time
    if late <= 0:
        return time
    step.wait_cycles[cause] += step.share * late
    return time + step.share * late
