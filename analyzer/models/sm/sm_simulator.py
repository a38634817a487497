"""The SM itself: its resident warps step by step, in the order in which they come to each resource.

Four schedulers with their pipes, one load/store path, the SM's share of the L2 and of the DRAM, barriers, and
CTAs that follow each other in the slots. Of the warps that a scheduler could issue from, the youngest goes
first (Huerta et al., MICRO 2025); where the load/store path is full, the oldest's request does. All else is
taken in the order of arrival, without gaps.
"""

from heapq import heappop, heappush, heappushpop

from analyzer.demand.opcode_costs import PIPE_INDEX
from analyzer.ir.scheduling import SM_LEVEL_PIPES, Pipe
from analyzer.models.sm.resource_demand import OUTGOING_KINDS, StepKind
from analyzer.models.sm.simulation_state import (
    ROUNDING_TOLERANCE,
    BarrierState,
    DeferredWait,
    IterationProgress,
    SimulatedCta,
    SimulatedWarp,
    SimulationResult,
    SmParameters,
)
from analyzer.models.sm.warp_program import WHOLE_CTA_KEY, CtaBarrier, WarpProgram
from analyzer.models.wait_causes import N_WAIT_CAUSES, REGISTER_PORTS_INDEX, WAIT_CAUSE_BY_PIPE, WaitCause

_N_PIPE_INDICES = REGISTER_PORTS_INDEX + 1
TENSOR_PIPE_INDEX = PIPE_INDEX[Pipe.TENSOR]
_SHARED_PIPES = frozenset(PIPE_INDEX[pipe] for pipe in SM_LEVEL_PIPES)
NOT_SELECTED_COLUMN, NO_INSTRUCTIONS_COLUMN = N_WAIT_CAUSES, N_WAIT_CAUSES + 1
N_WAIT_COLUMNS = N_WAIT_CAUSES + 2
_RESULT_KIND, _LOAD_KIND, _STORE_KIND, _BARRIER_KIND = (
    int(act) for act in (StepKind.RESULT, StepKind.LOAD, StepKind.STORE, StepKind.CTA_BARRIER)
)
_WAIT_KIND, _ARRIVE_KIND, _COMMIT_KIND, _COPY_KIND = (
    int(act)
    for act in (
        StepKind.MBARRIER_WAIT,
        StepKind.MBARRIER_ARRIVE,
        StepKind.MBARRIER_COMMIT,
        StepKind.BULK_COPY_IN,
    )
)
_ARRIVAL_KINDS = (_ARRIVE_KIND, _COMMIT_KIND)
_LONG_SCOREBOARD, _SHORT_SCOREBOARD = int(WaitCause.LONG_SCOREBOARD), int(WaitCause.SHORT_SCOREBOARD)
_WAIT_CAUSE_BY_PIPE = tuple(
    int(WAIT_CAUSE_BY_PIPE.get(pipe, WaitCause.MEMORY_PIPE)) for pipe in range(_N_PIPE_INDICES)
)


# Part of all visits of a run behind which its pace is taken: before, warps start.
_PACE_START_SHARE = 0.34
_UNLIMITED_ITERATIONS = 1 << 60
_FIRST_WARP_NUMBER = 1 << 40  # the number of the first warp; later ones have lower numbers and come first
_GOLDEN_RATIO_STEP = 0.618034  # of the spread: steps that fill it evenly
# Of the DRAM: beyond it what queues is simulated; and cycles over which the load is taken at least.
_MAX_DRAM_LOAD_SHARE, _DRAM_LOAD_WINDOW_CYCLES = 0.8, 2000.0


def simulate_ctas(
    warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int
) -> SimulationResult:
    """Simulate so many CTAs on one SM."""
    return _SmSimulator(warp_programs, parameters, n_ctas).run()


class _SmSimulator:
    def __init__(self, warp_programs: tuple[WarpProgram, ...], parameters: SmParameters, n_ctas: int) -> None:
        self.warp_programs, self.parameters = warp_programs, parameters
        self.n_ctas_to_launch = self.n_ctas = n_ctas
        self.heap: list[tuple[float, int, SimulatedWarp | None]] = []
        self.warps_per_subcore = [0] * parameters.n_subcores
        self.next_warp_number = _FIRST_WARP_NUMBER
        self.resident_ctas: list[SimulatedCta] = []
        self.last_launch = -parameters.cta_launch_interval_cycles
        self.result = SimulationResult(
            waits=[[0.0] * (len(warp_program) * N_WAIT_COLUMNS) for warp_program in warp_programs]
        )

    def launch_cta(self, time: float) -> None:
        """A CTA takes a slot."""
        role_by_warp, loads = self.parameters.role_by_warp, self.warps_per_subcore
        time = max(time, self.last_launch + self.parameters.cta_launch_interval_cycles)
        self.last_launch = time
        self.n_ctas_to_launch -= 1
        wave = (self.n_ctas - self.n_ctas_to_launch - 1) // self.parameters.ctas_per_sm
        cta = SimulatedCta(len(role_by_warp), wave, self.parameters.pipelines)
        self.resident_ctas.append(cta)
        for warp_program in role_by_warp:
            subcore = loads.index(min(loads))
            loads[subcore] += 1
            warp = SimulatedWarp(self.next_warp_number, warp_program, cta, subcore)
            warp.step = self.warp_programs[warp_program].sequences[0].start
            self.next_warp_number -= 1
            heappush(self.heap, (time, warp.number, warp))

    def run(self) -> SimulationResult:  # noqa: C901 - calls would double the time of the innermost loop
        for _ in range(min(self.parameters.ctas_per_sm, self.n_ctas_to_launch)):
            self.launch_cta(0.0)
        parameters, found, heap = self.parameters, self.result, self.heap
        n_sub = parameters.n_subcores
        issue_free = [0.0] * n_sub
        pipe_free = [[0.0] * _N_PIPE_INDICES for _ in range(n_sub)]
        load_store_free = tags_free = dram_free = atomic_free = dram_work = spread_phase = 0.0
        load_latency = parameters.dram_load_cycles
        l2_frees = [0.0, 0.0]  # to the SM, and from it
        l2_joint, store_factor = 0.0, parameters.l2_store_factor
        load_store_queue_cycles, burst, release = (
            parameters.load_store_queue_cycles,
            parameters.l2_burst_cycles,
            parameters.read_release_cycles,
        )
        store_depth = parameters.store_queue_cycles
        load_store_queue: list[
            tuple[int, SimulatedWarp]
        ] = []  # warps whose memory instruction has no room on the path
        max_iterations, max_ldgsts = parameters.max_iterations, parameters.max_ldgsts_in_flight
        is_full = False
        steps = [
            list(
                zip(
                    s.kind,
                    _mask_waiting_steps(s),
                    s.tail_cycles,
                    s.issue_slots,
                    s.pipe_cycles,
                    s.stall_cycles,
                    strict=True,
                )
            )
            for s in self.warp_programs
        ]
        resumed_warp: tuple[float, int, SimulatedWarp] | None = None  # of the last warp: when it goes on
        while resumed_warp is not None or heap or self.release_blocked_warps():
            time, _, entry = heappop(heap) if resumed_warp is None else heappushpop(heap, resumed_warp)
            resumed_warp = None
            has_room = entry is None
            warp = heappop(load_store_queue)[1] if entry is None else entry
            resumes = has_room or warp.has_issued_step
            warp.has_issued_step = False
            warp_program, steps_of_role = self.warp_programs[warp.role], steps[warp.role]
            waits = found.waits[warp.role]
            runs = warp_program.sequences
            boards = warp.scoreboards
            issue, free = issue_free[warp.subcore], pipe_free[warp.subcore]
            limit = heap[0][0] if heap else 1e300
            stop = runs[warp.sequence].stop
            while True:
                i = warp.step
                if warp.is_released:
                    warp.is_released = False  # of a barrier: the step itself is done
                else:
                    base = i * N_WAIT_COLUMNS
                    kind, may_wait, tail_cycles, issued, pipe_cycles, stall = steps_of_role[i]
                    if warp.has_waited:
                        warp.has_waited = False
                    elif may_wait and not resumes:
                        share = warp_program.share[i]
                        if warp_program.wait_scoreboards[i]:
                            if warp.deferred_waits:
                                if warp.is_waiting_for_phase:
                                    warp.is_waiting_for_phase = False
                                    waits[base + WaitCause.BARRIER] += time - warp.blocked_since
                                if not warp.resolve_deferred_waits(warp_program.wait_scoreboards[i]):
                                    warp.is_waiting_for_phase, warp.blocked_since = True, time
                                    break
                            for b in warp_program.wait_scoreboards[i]:
                                late = boards[b] - time
                                if late > 0:
                                    waits[base + warp.wait_causes[b]] += share * late
                                    time += share * late
                        pending = warp_program.depbar_waits[i]
                        if pending is not None:
                            b, left = pending
                            queue = warp.pending_results[b]
                            if queue and len(queue) > left:
                                late = max(queue[: len(queue) - left]) - time
                                if late > 0:
                                    waits[base + warp.wait_causes[b]] += share * late
                                    time += share * late
                                del queue[: len(queue) - left]
                        if warp_program.max_pending_groups[i] >= 0:
                            groups = warp.wgmma_group_ends
                            keep = warp_program.max_pending_groups[i]
                            done = max(groups[: len(groups) - keep], default=0.0)
                            if keep < len(groups):
                                del groups[: len(groups) - keep]
                            late = done - time
                            if late > 0:
                                waits[base + WaitCause.GMMA] += share * late
                                time += share * late
                        if max_ldgsts and warp_program.is_ldgsts[i] and len(warp.ldgsts_ends) >= max_ldgsts:
                            late = warp.ldgsts_ends.pop(0) - time
                            if late > 0:
                                waits[base + WaitCause.LONG_SCOREBOARD] += share * late
                                time += share * late
                        fetch = warp_program.fetch_cycles[i]
                        if fetch:
                            waits[base + NO_INSTRUCTIONS_COLUMN] += fetch
                            time += fetch
                        if time > limit:
                            # others come first: queues are taken in order of arrival
                            warp.has_waited = True
                            resumed_warp = (time, warp.number, warp)
                            break
                    if not resumes:
                        free_at, which = issue, NOT_SELECTED_COLUMN
                        for p, _, _ in pipe_cycles:
                            if free[p] > free_at and p != TENSOR_PIPE_INDEX:
                                free_at, which = free[p], _WAIT_CAUSE_BY_PIPE[p]
                        if free_at > time:
                            waits[base + which] += free_at - time
                            time = free_at
                            if heap and heap[0][0] <= time:
                                # others may be ready as well then, and younger
                                warp.has_waited = True
                                resumed_warp = (time, warp.number, warp)
                                break
                        issue = time + issued
                        end = 0.0
                        for p, cycles, last in pipe_cycles:
                            begin = free[p]
                            if begin > time:  # the tensor core's queue
                                waits[base + _WAIT_CAUSE_BY_PIPE[p]] += begin - time
                                time = begin
                            free[p] = begin = time + cycles
                            if begin - last > end:
                                end = begin - last
                                slow = p
                        time += stall
                        if end > time - tail_cycles:
                            late = end - time + tail_cycles
                            waits[base + _WAIT_CAUSE_BY_PIPE[slow]] += late
                            time += late
                    if kind:
                        if resumes:
                            at = time
                            time += tail_cycles
                            resumes = False
                        else:
                            at = time - tail_cycles
                            if at > limit:
                                # others come first: what the SM shares is taken in order of arrival
                                warp.has_issued_step = True
                                resumed_warp = (at, warp.number, warp)
                                break
                        if kind == _RESULT_KIND:
                            matrix = warp_program.async_mma_cycles[i]
                            if matrix:
                                p = warp_program.async_mma_pipe[i]
                                cores = pipe_free[0] if p in _SHARED_PIPES else free
                                done = max(cores[p], warp.async_mma_end, at) + matrix
                                warp.async_mma_end = cores[p] = done
                                if warp_program.ends_wgmma_group[i]:
                                    warp.wgmma_group_ends.append(done)
                                released = at + release
                            else:
                                released = done = at + warp_program.latency_cycles[i]
                        elif kind == _BARRIER_KIND:
                            barrier = warp_program.barriers[i]
                            load_store_free = (
                                load_store_free if load_store_free > at else at
                            ) + warp_program.load_store_cycles[i]
                            time += warp_program.latency_cycles[i] if barrier.waits else 0.0
                            if self.arrive_at_barrier(warp, barrier, time):
                                warp.is_released = True
                                warp.blocked_since = time
                                break
                            if heap and heap[0][0] < limit:
                                limit = heap[0][0]
                            done = released = time
                        elif kind == _WAIT_KIND:
                            takes_part = (
                                warp_program.predicated_ramp[i] not in runs[warp.sequence].skipped_ramps
                            )
                            pipeline, b = warp_program.pipeline[i], warp_program.write_scoreboard[i]
                            if takes_part and not warp.is_waiting_for_phase:
                                warp.wait_counts[pipeline] += warp_program.share[i]
                            number = int(warp.wait_counts[pipeline] + ROUNDING_TOLERANCE)
                            if takes_part and b >= 0:
                                warp.deferred_waits.append(
                                    DeferredWait(b, pipeline, number, warp_program.latency_cycles[i])
                                )
                            elif takes_part:  # no scoreboard is known: it waits here
                                if not warp.is_waiting_for_phase:
                                    warp.is_waiting_for_phase, warp.blocked_since = True, at
                                ready = warp.cta.pipeline_phases[pipeline].find_phase_end(number, warp)
                                if ready is None:
                                    warp.has_issued_step = True
                                    break
                                warp.is_waiting_for_phase = False
                                time += max(0.0, ready - at)
                                at = max(at, ready)
                                waits[base + WaitCause.BARRIER] += at - warp.blocked_since
                            done = released = at + warp_program.latency_cycles[i]
                        elif kind in _ARRIVAL_KINDS:
                            done = released = at + warp_program.latency_cycles[i]
                            if kind == _COMMIT_KIND:
                                released = at + release  # it waits for products; its warp does not
                                if warp.async_mma_end > at:
                                    done += warp.async_mma_end - at
                            if warp_program.predicated_ramp[i] not in runs[warp.sequence].skipped_ramps:
                                self.arrive_at_mbarrier(
                                    warp, warp_program.pipeline[i], warp_program.arrivals[i], done
                                )
                            if heap and heap[0][0] < limit:
                                limit = heap[0][0]
                        else:
                            if has_room:
                                has_room = False
                                if at < warp.blocked_since:
                                    time += warp.blocked_since - at
                                    at = warp.blocked_since
                                waits[base + WaitCause.MEMORY_PIPE] += at - warp.blocked_since
                                is_full = bool(load_store_queue)
                            elif load_store_queue or load_store_free - at > load_store_queue_cycles:
                                warp.blocked_since = at
                                heappush(load_store_queue, (-warp.number, warp))
                                if len(load_store_queue) == 1:
                                    heappush(heap, (load_store_free - load_store_queue_cycles, -1, None))
                                break
                            begin = load_store_free if load_store_free > at else at
                            load_store_free = begin + warp_program.load_store_cycles[i]
                            done = load_store_free
                            busy_cycles = warp_program.tag_cycles[i]
                            if busy_cycles:
                                tags_free = (tags_free if tags_free > begin else begin) + busy_cycles
                                if tags_free > done:
                                    done = tags_free
                                if tags_free - load_store_queue_cycles > load_store_free:
                                    load_store_free = tags_free - load_store_queue_cycles
                            if is_full:
                                is_full = False
                                heappush(
                                    heap,
                                    (
                                        load_store_free - load_store_queue_cycles
                                        if load_store_free - load_store_queue_cycles > at
                                        else at,
                                        -1,
                                        None,
                                    ),
                                )
                                if load_store_free - load_store_queue_cycles < limit:
                                    limit = load_store_free - load_store_queue_cycles
                            done += warp_program.latency_cycles[i]
                            released = begin + release
                            busy_cycles = warp_program.l2_cycles[i]
                            if busy_cycles:
                                is_outgoing = kind in OUTGOING_KINDS
                                l2_free = l2_frees[is_outgoing]
                                l2_frees[is_outgoing] = l2_free = (
                                    l2_free if l2_free > begin else begin
                                ) + busy_cycles
                                if store_factor and kind != _COPY_KIND:
                                    # loads go first: what both take together holds up stores;
                                    # cycles of copies are those of their stream, not of the L2
                                    l2_joint = l2_joint if l2_joint > begin else begin
                                    l2_joint += busy_cycles * store_factor if is_outgoing else busy_cycles
                                    if is_outgoing:
                                        l2_free = l2_joint
                                if kind == _COPY_KIND:
                                    # a stream of its own, ahead of its share by as much as it waits
                                    late = max(
                                        l2_free - begin, dram_free + warp_program.dram_cycles[i] - done
                                    )
                                    if late > 0:
                                        done += late
                                queued = l2_free - begin - burst
                                busy_cycles = warp_program.dram_cycles[i]
                                if busy_cycles:
                                    dram_free = (dram_free if dram_free > begin else begin) + busy_cycles
                                    if dram_free - begin - burst > queued:
                                        queued = dram_free - begin - burst
                                    if load_latency and kind not in OUTGOING_KINDS:
                                        dram_work += busy_cycles
                                        load = min(
                                            _MAX_DRAM_LOAD_SHARE,
                                            dram_work / (begin + _DRAM_LOAD_WINDOW_CYCLES),
                                        )
                                        wait = load_latency * load / (1.0 - load)
                                        if kind == _COPY_KIND and late > burst:
                                            # its lines wait for the DRAM side by side
                                            wait = max(0.0, wait - late + burst)
                                        done += wait
                                    spread = warp_program.spread_cycles[i]
                                    if spread:
                                        spread_phase = (spread_phase + _GOLDEN_RATIO_STEP) % 1.0
                                        done += spread * (spread_phase - 0.5)
                                busy_cycles = warp_program.atomic_cycles[i]
                                if busy_cycles:
                                    atomic_free = (
                                        atomic_free if atomic_free > begin else begin
                                    ) + busy_cycles
                                    if atomic_free - begin - burst > queued:
                                        queued = atomic_free - begin - burst
                                if queued > 0:
                                    if kind == _LOAD_KIND:
                                        done += queued
                                    elif kind == _STORE_KIND and queued > store_depth:
                                        load_store_free += queued - store_depth
                            if warp_program.is_ldgsts[i]:
                                if done > warp.last_ldgsts_end:
                                    warp.last_ldgsts_end = done
                                if max_ldgsts:
                                    warp.ldgsts_ends.append(done)
                            elif warp.last_ldgsts_end and warp_program.is_ldgdepbar[i]:
                                done = max(begin, warp.last_ldgsts_end)
                                warp.last_ldgsts_end = 0.0
                            if kind == _COPY_KIND:
                                if warp_program.predicated_ramp[i] not in runs[warp.sequence].skipped_ramps:
                                    self.arrive_at_mbarrier(
                                        warp, warp_program.pipeline[i], warp_program.arrivals[i], done
                                    )
                                if heap and heap[0][0] < limit:
                                    limit = heap[0][0]
                        b = warp_program.write_scoreboard[i]
                        if b >= 0:
                            if done > boards[b]:
                                boards[b] = done
                                warp.wait_causes[b] = (
                                    _LONG_SCOREBOARD if warp_program.is_long[i] else _SHORT_SCOREBOARD
                                )
                            queue = warp.pending_results[b]
                            if queue is None:
                                queue = warp.pending_results[b] = []
                            queue.append(done)
                            if len(queue) > 64:
                                del queue[0]
                        b = warp_program.read_scoreboard[i]
                        if b >= 0 and released > boards[b]:
                            boards[b] = released
                            warp.wait_causes[b] = (
                                _LONG_SCOREBOARD if warp_program.is_long[i] else _SHORT_SCOREBOARD
                            )
                i += 1
                if i == stop:
                    run = runs[warp.sequence]
                    warp.iteration += 1
                    is_truncated = run.iterations > run.limit_iterations(max_iterations)
                    if self.count_iteration(warp, time) if is_truncated else warp.iteration < run.iterations:
                        i = run.start
                    else:
                        warp.iteration = 0
                        warp.sequence += 1
                        if warp.sequence == len(runs):
                            self.retire_warp(warp, time)
                            break
                        i = runs[warp.sequence].start
                        stop = runs[warp.sequence].stop
                warp.step = i
                if time > limit:
                    resumed_warp = (time, warp.number, warp)
                    break
            issue_free[warp.subcore] = issue
        found.cycles = max(load_store_free, *l2_frees, l2_joint, dram_free, atomic_free, found.cycles)
        return found

    def arrive_at_barrier(self, warp: SimulatedWarp, meeting: CtaBarrier, time: float) -> bool:
        """Whether a warp that comes to a barrier is kept there; the last one lets the others go."""
        cta = warp.cta
        state = cta.barriers.get(meeting.key)
        if state is None:
            state = cta.barriers[meeting.key] = BarrierState()
        state.n_arrived += 1
        if state.n_arrived < (meeting.n_warps or cta.n_warps_left):
            if meeting.waits:
                state.waiting_warps.append(warp)
            return meeting.waits
        self.release_warps(state, time)
        return False

    def release_warps(self, state: BarrierState, time: float) -> None:
        """The warps at a barrier go on."""
        for other in state.waiting_warps:
            step = other.step * N_WAIT_COLUMNS + WaitCause.BARRIER
            self.result.waits[other.role][step] += max(0.0, time - other.blocked_since)
            heappush(self.heap, (max(time, other.blocked_since), other.number, other))
        state.waiting_warps, state.n_arrived = [], 0

    def arrive_at_mbarrier(self, warp: SimulatedWarp, pipeline: int, arrivals: float, time: float) -> None:
        """An arrival at a ring, which may end a phase and let warps go on."""
        if not arrivals:
            return
        phases, parameters = warp.cta.pipeline_phases[pipeline], self.parameters.pipelines[pipeline]
        number = (
            int((warp.arrival_counts[pipeline] + ROUNDING_TOLERANCE) / parameters.arrivals_by_role[warp.role])
            if parameters.arrivals_by_role
            else None
        )
        warp.arrival_counts[pipeline] += arrivals
        if not phases.add_arrivals(arrivals, time, parameters.arrivals_per_phase, number):
            return
        for other in phases.waiting_warps:  # each looks anew whether this was the phase
            heappush(self.heap, (max(phases.phase_ends[-1], other.blocked_since), other.number, other))
        phases.waiting_warps = []

    def release_blocked_warps(self) -> bool:
        """Let go on who waits for warps that never come, at barriers first.

        Parts of a warp that come to a barrier one by one are not told apart from warps; and phases of
        mbarriers may be asked for in another order than that in which loops are taken.
        """
        points = [
            point for cta in self.resident_ctas for point in cta.barriers.values() if point.waiting_warps
        ]
        for point in points:
            self.release_warps(point, 0.0)
        for cta in self.resident_ctas if not points else ():
            for phases in cta.pipeline_phases:
                phases.n_free_waits += bool(phases.waiting_warps)
                for warp in phases.waiting_warps:
                    heappush(self.heap, (warp.blocked_since, warp.number, warp))
                phases.waiting_warps = []
        return bool(self.heap)

    def count_iteration(self, warp: SimulatedWarp, time: float) -> bool:
        """Count a visit of a run that is cut short; whether the warp goes through the run once more.

        All CTAs that came together stay until they have made so many visits in all: those that have priority
        go through the run more often, as they would for as long as it lasts. Warps that meet at barriers make
        equally many.
        """
        cta = warp.cta
        key = (warp.role, warp.sequence, cta.wave)
        progress = self.result.iteration_progress.get(key)
        if progress is None:
            before = cta.wave * self.parameters.ctas_per_sm
            n_ctas = min(self.parameters.ctas_per_sm, self.n_ctas - before)
            n_warps = self.parameters.role_by_warp.count(warp.role) * n_ctas
            low, high = (
                n_warps * int(part * self.parameters.max_iterations) for part in (_PACE_START_SHARE, 1.0)
            )
            progress = self.result.iteration_progress[key] = IterationProgress(low, high, n_warps)
        progress.n_done += 1
        if progress.n_done == progress.low_count:
            progress.low_time = time
        elif progress.n_done == progress.high_count:
            progress.high_time = time
        if not self.warp_programs[warp.role].sequences[warp.sequence].has_barrier:
            return progress.n_done < progress.high_count
        place = (warp.role, warp.sequence)
        begun = cta.begun_iterations.get(place, 0)
        if progress.n_done >= progress.high_count and place not in cta.last_iterations:
            cta.last_iterations[place] = max(warp.iteration, begun)
        if warp.iteration >= cta.last_iterations.get(place, _UNLIMITED_ITERATIONS):
            return False
        cta.begun_iterations[place] = max(warp.iteration + 1, begun)
        return True

    def retire_warp(self, warp: SimulatedWarp, time: float) -> None:
        """A warp is done, and with the last one its CTA."""
        self.warps_per_subcore[warp.subcore] -= 1
        cta = warp.cta
        cta.n_warps_left -= 1
        cta_barrier = cta.barriers.get(WHOLE_CTA_KEY)
        if (
            cta_barrier is not None
            and cta_barrier.waiting_warps
            and cta_barrier.n_arrived == cta.n_warps_left
        ):
            self.release_warps(cta_barrier, time)
        if cta.n_warps_left:
            return
        self.resident_ctas.remove(cta)
        self.result.n_ctas += 1
        self.result.cta_end_cycles.append(time)
        self.result.cycles = max(self.result.cycles, time)
        if self.n_ctas_to_launch:
            self.launch_cta(time)


def _mask_waiting_steps(warp_program: WarpProgram) -> list[bool]:
    """Steps before which a warp may have to wait for something of its own."""
    columns = zip(
        warp_program.wait_scoreboards,
        warp_program.depbar_waits,
        warp_program.max_pending_groups,
        warp_program.is_ldgsts,
        warp_program.fetch_cycles,
        strict=True,
    )
    return [
        bool(waits or pending or groups >= 0 or copies or fetch)
        for waits, pending, groups, copies, fetch in columns
    ]
