"""CTAs, warps and steps as the simulation of an SM keeps them.

A warp goes through the steps of its program. Between two steps, or inside one, it may be kept: on the event
heap until a time, or in a list of waiting warps until another warp releases it. `StepPhase` says where in its
step it goes on. A warp is in one place only: it runs, or it is on the heap once, or in one waiting list.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from operator import or_

from msgspec import Struct

from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp
from analyzer.models.interface import EARLY_SCOREBOARD
from analyzer.models.sm.resource_demand import OUTGOING_KINDS
from analyzer.models.sm.simulation_state import ROUNDING_TOLERANCE, PipelineParameters
from analyzer.models.sm.warp_program import CtaBarrier, StepSequence, WarpProgram
from analyzer.models.wait_causes import REGISTER_PORTS_INDEX, WaitCause

_SHORT_SCOREBOARD, _LONG_SCOREBOARD = int(WaitCause.SHORT_SCOREBOARD), int(WaitCause.LONG_SCOREBOARD)
_BARRIER = int(WaitCause.BARRIER)
_N_SCOREBOARDS = EARLY_SCOREBOARD + 1
_MAX_PENDING_RESULTS = 64  # of one scoreboard: more than a DEPBAR can name

# (time, number, warp): the lowest first, so of warps at the same time the youngest. No warp: the load/store
# path has room for one of those that wait for it.
EventHeap = list[tuple[float, int, "SimulatedWarp | None"]]

# Serve the request of a step: (warp, step, time of the request, time at which the warp would go on) to the
# time at which it goes on, or None where it is kept.
StepHandler = Callable[["SimulatedWarp", "SimulatedStep", float, float], "float | None"]


class StepPhase(IntEnum):
    """Place in its current step at which a warp goes on."""

    START = 0
    HAS_WAITED = 1  # for its operands: it issues next
    HAS_ISSUED = 2  # its request comes next
    IS_SERVED = 3  # the step is done: advance to the next step


class SimulatedStep(Struct, eq=False):
    """A step of a `WarpProgram`: one record of what the simulation looks up, instead of columns."""

    handler: StepHandler | None  # serves the request of the last instruction; None where there is none
    may_wait: bool  # for operands, older groups or the fetch of its instructions
    may_wait_for_counts: bool  # for something other than scoreboards and fetch
    uses_scoreboards: bool  # writes or reads one
    ends_sequence: bool
    is_outgoing: bool  # goes from the SM to the L2
    uses_ldgsts: bool  # is an LDGSTS or what waits for them
    is_cached_load: bool  # into registers through the L1
    wait_cause: int  # of a warp that waits for its result
    wait_cycles: list[float]  # of all warps, by cause [N_WAIT_COLUMNS]: what the simulation fills
    # Columns of the program, in this order.
    kind: int
    wait_scoreboards: tuple[int, ...]
    depbar_wait: tuple[int, int] | None
    max_pending_groups: int
    issue_slots: float
    stall_cycles: float
    pipe_cycles: tuple[tuple[int, float, float], ...]
    slow_pipe_cycles: tuple[tuple[int, float, float], ...]  # the same while a warpgroup's product runs
    tail_cycles: float
    load_store_cycles: float
    tag_cycles: float
    l2_cycles: float
    dram_cycles: float
    atomic_cycles: float
    latency_cycles: float
    share: float
    pipeline: int
    arrivals: float
    predicated_ramp: PipelineRamp | None
    barrier: CtaBarrier
    write_scoreboard: int
    read_scoreboard: int
    async_mma_cycles: float
    async_mma_pipe: int
    ends_wgmma_group: bool
    is_ldgsts: bool
    is_ldgdepbar: bool
    fetch_cycles: float
    code_lines: tuple[int, ...]
    wide_waits: tuple[int, ...]
    last_row: int
    write_cycles: float
    max_queued_products: int  # of the sub-core, while which a product can issue; 0: no limit, or no product


def make_steps(
    program: WarpProgram,
    handlers: list[StepHandler | None],
    pipe_slowdowns: Mapping[int, float],
    wait_cycles: list[list[float]],
    *,
    max_queued_products: int,
    fetches_code: bool,
    issues_in_runs: bool,
) -> list[SimulatedStep]:
    """Build the steps of one program.

    handlers: by kind of step.
    pipe_slowdowns: by pipe, factor on its cycles while a product of a warpgroup runs.
    wait_cycles: of each step, by cause: what the simulation fills.
    fetches_code: the SM's instruction cache does not hold all.
    issues_in_runs: see `issue_order`.
    """
    code_lines = program.code_lines if fetches_code else [()] * len(program)
    last_steps = {sequence.stop - 1 for sequence in program.sequences}
    max_queued = [max_queued_products if cycles else 0 for cycles in program.async_mma_cycles]
    may_wait_for_counts = [
        depbar is not None or groups >= 0 or bool(wide_waits) or queued > 0
        for depbar, groups, wide_waits, queued in zip(
            program.depbar_waits, program.max_pending_groups, program.wide_waits, max_queued, strict=True
        )
    ]
    columns = (
        [handlers[kind] for kind in program.kind],
        [
            bool(waits or counts or fetch or lines)
            for waits, counts, fetch, lines in zip(
                program.wait_scoreboards, may_wait_for_counts, program.fetch_cycles, code_lines, strict=True
            )
        ],
        may_wait_for_counts,
        [
            board >= 0 or other >= 0
            for board, other in zip(program.write_scoreboard, program.read_scoreboard, strict=True)
        ],
        [step in last_steps for step in range(len(program))],
        [kind in OUTGOING_KINDS for kind in program.kind],
        list(map(or_, program.is_ldgsts, program.is_ldgdepbar)),
        program.is_cached_load,
        [_LONG_SCOREBOARD if is_long else _SHORT_SCOREBOARD for is_long in program.is_long],
        wait_cycles,
        program.kind,
        program.wait_scoreboards,
        program.depbar_waits,
        program.max_pending_groups,
        [
            _find_held_slots(slots, pipes) if issues_in_runs else slots
            for slots, pipes in zip(program.issue_slots, program.pipe_cycles, strict=True)
        ],
        program.stall_cycles,
        program.pipe_cycles,
        [_slow_down(pipes, pipe_slowdowns) for pipes in program.pipe_cycles],
        program.tail_cycles,
        program.load_store_cycles,
        program.tag_cycles,
        program.l2_cycles,
        program.dram_cycles,
        program.atomic_cycles,
        program.latency_cycles,
        program.share,
        program.pipeline,
        program.arrivals,
        program.predicated_ramp,
        program.barriers,
        program.write_scoreboard,
        program.read_scoreboard,
        program.async_mma_cycles,
        program.async_mma_pipe,
        program.ends_wgmma_group,
        program.is_ldgsts,
        program.is_ldgdepbar,
        program.fetch_cycles,
        code_lines,
        program.wide_waits,
        program.last_row,
        program.write_cycles,
        max_queued,
    )
    return list(map(SimulatedStep, *columns))


def _find_held_slots(slots: float, pipe_cycles: tuple[tuple[int, float, float], ...]) -> float:
    """Return the cycles in which no other warp issues: those of the register ports, where they are more."""
    return max([slots, *(cycles for pipe, cycles, _ in pipe_cycles if pipe == REGISTER_PORTS_INDEX)])


def _slow_down(
    pipe_cycles: tuple[tuple[int, float, float], ...], factors: Mapping[int, float]
) -> tuple[tuple[int, float, float], ...]:
    return tuple(
        (pipe, cycles * factors.get(pipe, 1.0), last_cycles * factors.get(pipe, 1.0))
        for pipe, cycles, last_cycles in pipe_cycles
    )


class BarrierState:
    """Warps that have come to a barrier of the CTA, and those of them that wait there."""

    __slots__ = ("n_arrived", "waiting_warps")

    def __init__(self) -> None:
        self.n_arrived = 0
        self.waiting_warps: list[SimulatedWarp] = []


class MbarrierPhases:
    """Phases of one pipeline of mbarriers in one CTA.

    Example: with 2 arrivals a phase, arrivals at times 5 and 9 end phase 1 at 9.
    """

    __slots__ = ("arrivals", "latest_arrivals", "n_free_waits", "phase_ends", "waiting_warps")

    def __init__(self, n_free_waits: int) -> None:
        # of the current phase and of later ones: how many, and when the latest came
        self.arrivals, self.latest_arrivals = [0.0], [0.0]
        self.n_free_waits = n_free_waits  # phases that count as ended from the start
        self.phase_ends: list[float] = []
        self.waiting_warps: list[SimulatedWarp] = []

    def add_arrivals(
        self, arrivals: float, time: float, arrivals_per_phase: float, number: int | None
    ) -> bool:
        """Count arrivals, and return whether they end the current phase.

        number: of the phase that they belong to, from 0; None for the current one.
        """
        ahead = 0 if number is None else max(0, number - len(self.phase_ends))
        while ahead >= len(self.arrivals):
            self.arrivals.append(0.0)
            self.latest_arrivals.append(0.0)
        self.arrivals[ahead] += arrivals
        self.latest_arrivals[ahead] = max(self.latest_arrivals[ahead], time)
        if self.arrivals[0] < arrivals_per_phase - ROUNDING_TOLERANCE:
            return False
        self.phase_ends.append(self.latest_arrivals[0])
        if number is None:
            self.arrivals[0] -= arrivals_per_phase
        else:
            del self.arrivals[0], self.latest_arrivals[0]
            self.arrivals, self.latest_arrivals = self.arrivals or [0.0], self.latest_arrivals or [0.0]
        return True

    def find_phase_end(self, number: int, warp: "SimulatedWarp") -> float | None:
        """Return when a phase ended, the first being 1; where it has not, keep the warp and return None."""
        number -= self.n_free_waits
        if number <= 0:
            return 0.0
        if number <= len(self.phase_ends):
            return self.phase_ends[number - 1]
        self.waiting_warps.append(warp)
        return None


class SimulatedCta:
    """A resident CTA: its warps, its barriers and its mbarriers."""

    __slots__ = ("barriers", "drain_end", "n_warps_left", "pipeline_phases", "warps")

    def __init__(self, n_warps: int, pipelines: tuple[PipelineParameters, ...]) -> None:
        self.n_warps_left = n_warps
        self.warps: list[SimulatedWarp] = []
        self.drain_end = 0.0  # when the L2 has taken all that its warps have stored
        self.barriers: dict[int, BarrierState] = {}
        self.pipeline_phases = [MbarrierPhases(pipeline.n_free_waits) for pipeline in pipelines]


class DeferredWait(Struct, frozen=True):
    """A scoreboard that a test of an mbarrier writes: it clears a latency after the end of a phase."""

    scoreboard: int
    pipeline: int
    phase: int
    latency_cycles: float


class WarpProducts:
    """Products that a warp does not wait for, and what waits for them."""

    __slots__ = ("group_ends", "last_end", "queue", "wide_ends")

    def __init__(self, queue: deque[float]) -> None:
        self.queue = queue  # of its sub-core: ends of products that are not known to be done, in order
        self.last_end = 0.0
        self.group_ends: list[float] = []
        self.wide_ends: dict[int, float] = {}  # by IMAD.WIDE: when its result is there


class SimulatedWarp:
    """A warp: where it stands in its program, and when what it has started ends."""

    __slots__ = (
        "arrival_counts",
        "blocked_since",
        "cta",
        "deferred_waits",
        "is_waiting_for_phase",
        "iteration",
        "last_ldgsts_end",
        "number",
        "pending_results",
        "phase",
        "pipe_free",
        "position",
        "products",
        "role",
        "scoreboards",
        "sequence",
        "sequences",
        "steps",
        "turn",
        "wait_causes",
        "wait_counts",
    )

    def __init__(
        self,
        number: int,
        role: int,
        cta: SimulatedCta,
        steps: list[SimulatedStep],
        sequences: list[StepSequence],
        pipe_free: list[float],
        products: WarpProducts,
    ) -> None:
        self.number, self.role, self.cta = number, role, cta
        self.turn = number  # of warps at the same time, the lowest goes first
        self.steps, self.sequences = steps, sequences
        self.pipe_free = pipe_free  # of its sub-core, see `Subcores`
        # Where it stands: its sequence, iterations of it that are done, its step, and the phase of that.
        self.sequence = self.iteration = 0
        self.position = sequences[0].start
        self.phase = int(StepPhase.START)
        self.is_waiting_for_phase = False
        self.blocked_since = 0.0
        # By scoreboard: when it clears, what a warp that waits for it waits for, ends of results in order.
        self.scoreboards = [0.0] * _N_SCOREBOARDS
        self.wait_causes = [_SHORT_SCOREBOARD] * _N_SCOREBOARDS
        self.pending_results: list[list[float] | None] = [None] * _N_SCOREBOARDS
        self.deferred_waits: list[DeferredWait] = []
        # Asynchronous work: products, and ends of LDGSTS.
        self.products = products
        self.last_ldgsts_end = 0.0
        # By pipeline of mbarriers: waits and arrivals so far.
        self.wait_counts = [0.0] * len(cta.pipeline_phases)
        self.arrival_counts = [0.0] * len(cta.pipeline_phases)

    def takes_part(self, step: SimulatedStep) -> bool:
        """Return whether the mbarrier operation of a step executes in this iteration."""
        return step.predicated_ramp not in self.sequences[self.sequence].skipped_ramps

    def write_scoreboards(self, step: SimulatedStep, done: float, released: float) -> None:
        """Set the scoreboards of a step.

        done: when its result is there; released: when its sources have been read.
        """
        board = step.write_scoreboard
        if board >= 0:
            if done > self.scoreboards[board]:
                self.scoreboards[board] = done
                self.wait_causes[board] = step.wait_cause
            queue = self.pending_results[board]
            if queue is None:
                queue = self.pending_results[board] = []
            queue.append(done)
            if len(queue) > _MAX_PENDING_RESULTS:
                del queue[0]
        board = step.read_scoreboard
        if board >= 0 and released > self.scoreboards[board]:
            self.scoreboards[board] = released
            self.wait_causes[board] = step.wait_cause

    def resolve_deferred_waits(self, step: SimulatedStep, time: float) -> bool:
        """Set the scoreboards of a step that depend on phases of mbarriers.

        Return False, and keep the warp, where one of these phases has not ended.
        """
        if self.is_waiting_for_phase:
            self.is_waiting_for_phase = False
            step.wait_cycles[_BARRIER] += time - self.blocked_since
        awaited = [wait for wait in self.deferred_waits if wait.scoreboard in step.wait_scoreboards]
        for deferred in awaited:
            ready = self.cta.pipeline_phases[deferred.pipeline].find_phase_end(deferred.phase, self)
            if ready is None:
                self.is_waiting_for_phase, self.blocked_since = True, time
                return False
            self.deferred_waits.remove(deferred)
            if ready + deferred.latency_cycles > self.scoreboards[deferred.scoreboard]:
                self.scoreboards[deferred.scoreboard] = ready + deferred.latency_cycles
                self.wait_causes[deferred.scoreboard] = _BARRIER
        return True
