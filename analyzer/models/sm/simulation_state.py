"""What the simulation of an SM is told, what it keeps of CTAs and warps, and what it gives."""

from msgspec import Struct, field

from analyzer.models.wait_causes import WaitCause

ROUNDING_TOLERANCE = 1e-6
_SHORT_SCOREBOARD = int(WaitCause.SHORT_SCOREBOARD)


class PipelineParameters(Struct, frozen=True):
    """arrivals: of a CTA's warps that end a phase of a ring of mbarriers; free_waits: see `MbarrierPipeline`.

    each: arrivals of one warp of each script in every phase; empty where warps do not take part in all, so
    that it is not known whose arrival counts for which.
    """

    arrivals_per_phase: float
    n_free_waits: int
    arrivals_by_role: tuple[float, ...] = ()


class SmParameters(Struct, frozen=True, kw_only=True):
    """What an SM is, in cycles.

    crew: which script each warp of a CTA follows; slots: resident CTAs; path_depth: cycles of work that may
    queue for the load/store path before warps stall; burst: of the L2's and the DRAM's work that is taken at
    once; store_depth: that stores may leave behind them; dram_load: see `MemorySubsystem.dram_load_cycles`;
    launch_cycles: between two CTAs that come to the SM; read_release: until a memory instruction has read its
    registers; most_visits: of a run; rings: of mbarriers; copies: LDGSTS that a warp
    has in flight at most, 0 where nothing limits them; l2_store_factor: see `L2Cache`, 0 where
    there is none.
    """

    n_subcores: int
    role_by_warp: tuple[int, ...]
    ctas_per_sm: int
    load_store_queue_cycles: float
    l2_burst_cycles: float
    store_queue_cycles: float
    dram_load_cycles: float
    cta_launch_interval_cycles: float
    read_release_cycles: float
    max_iterations: int
    pipelines: tuple[PipelineParameters, ...] = ()
    max_ldgsts_in_flight: int = 0
    l2_store_factor: float = 0.0


class IterationProgress(Struct, eq=False):
    """Visits of one run by all warps together: when the low-th and the high-th ended."""

    low_count: int
    high_count: int
    n_warps: int
    n_done: int = 0
    low_time: float = 0.0
    high_time: float = 0.0

    @property
    def cycles_per_iteration(self) -> float:
        """Cycles in which every warp goes through the run once."""
        return (
            self.n_warps * max(0.0, self.high_time - self.low_time) / max(1, self.high_count - self.low_count)
        )


class SimulationResult(Struct, eq=False):
    """What a simulation of some CTAs gives.

    cycles: until the last CTA ended, or the last request was served; n_ctas: how many; visits: of the runs
    that were cut short, by script, run and wave of CTAs; waits: of all warps, by script,
    [step * N_WAITS + cause]; ends: when each CTA ended, in that order.
    """

    cycles: float = 0.0
    n_ctas: int = 0
    iteration_progress: "dict[tuple[int, int, int], IterationProgress]" = field(default_factory=dict)
    waits: list[list[float]] = field(default_factory=list)
    cta_end_cycles: list[float] = field(default_factory=list)


class BarrierState:
    """Warps that have come to a barrier of the CTA, and those of them that wait there."""

    __slots__ = ("n_arrived", "waiting_warps")

    def __init__(self) -> None:
        self.n_arrived = 0
        self.waiting_warps: list[SimulatedWarp] = []


class MbarrierPhases:
    """What one ring of a CTA has come to: arrivals of the phase that goes on and later ones, the latest of
    these, when each earlier phase ended, warps that wait.
    """

    __slots__ = ("arrivals", "latest_arrivals", "n_free_waits", "phase_ends", "waiting_warps")

    def __init__(self, free: int) -> None:
        self.arrivals, self.latest_arrivals = [0.0], [0.0]
        self.n_free_waits = free
        self.phase_ends: list[float] = []
        self.waiting_warps: list[SimulatedWarp] = []

    def add_arrivals(
        self, arrivals: float, time: float, arrivals_per_phase: float, number: int | None
    ) -> bool:
        """Arrivals for phase `number` from 0, or for whichever goes on; whether that ends it."""
        place = 0 if number is None else max(0, number - len(self.phase_ends))
        while place >= len(self.arrivals):
            self.arrivals.append(0.0)
            self.latest_arrivals.append(0.0)
        self.arrivals[place] += arrivals
        self.latest_arrivals[place] = max(self.latest_arrivals[place], time)
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
        """When a phase ended, the first of all being 1; None, and the warp is kept, where that is to come."""
        number -= self.n_free_waits
        if number <= 0:
            return 0.0
        if number <= len(self.phase_ends):
            return self.phase_ends[number - 1]
        self.waiting_warps.append(warp)
        return None


class SimulatedCta:
    """last_visits: of its warps in runs with barriers, by script and run, once they are known; begun: which
    visit there the first of them has come to.
    """

    __slots__ = ("barriers", "begun_iterations", "last_iterations", "n_warps_left", "pipeline_phases", "wave")

    def __init__(self, warps: int, wave: int, pipelines: tuple[PipelineParameters, ...]) -> None:
        self.n_warps_left, self.wave = warps, wave
        self.begun_iterations: dict[tuple[int, int], int] = {}
        self.last_iterations: dict[tuple[int, int], int] = {}
        self.barriers: dict[int, BarrierState] = {}
        self.pipeline_phases = [MbarrierPhases(pipeline.n_free_waits) for pipeline in pipelines]


class DeferredWait(Struct, frozen=True):
    """A scoreboard that a look at an mbarrier raises: until the latency behind the end of a ring's phase."""

    scoreboard: int
    pipeline: int
    phase: int
    latency_cycles: float


class SimulatedWarp:
    __slots__ = (
        "arrival_counts",
        "async_mma_end",
        "blocked_since",
        "cta",
        "deferred_waits",
        "has_issued_step",
        "has_waited",
        "is_released",
        "is_waiting_for_phase",
        "iteration",
        "last_ldgsts_end",
        "ldgsts_ends",
        "number",
        "pending_results",
        "role",
        "scoreboards",
        "sequence",
        "step",
        "subcore",
        "wait_causes",
        "wait_counts",
        "wgmma_group_ends",
    )

    def __init__(self, number: int, role: int, cta: SimulatedCta, subcore: int) -> None:
        self.number, self.role, self.cta, self.subcore = number, role, cta, subcore
        self.scoreboards = [0.0] * 6
        self.wait_causes = [_SHORT_SCOREBOARD] * 6
        self.pending_results: list[list[float] | None] = [None] * 6
        self.wgmma_group_ends: list[float] = []
        self.deferred_waits: list[DeferredWait] = []
        self.ldgsts_ends: list[float] = []
        self.async_mma_end = self.last_ldgsts_end = 0.0
        self.sequence = 0
        self.iteration = 0
        self.step = 0
        self.has_waited = self.is_released = self.has_issued_step = self.is_waiting_for_phase = False
        self.wait_counts = [0.0] * len(cta.pipeline_phases)
        self.arrival_counts = [0.0] * len(cta.pipeline_phases)
        self.blocked_since = 0.0

    def resolve_deferred_waits(self, boards: tuple[int, ...]) -> bool:
        """Set scoreboards that stand for phases; False, and the warp is kept, where one is still to end."""
        for deferred in [deferred for deferred in self.deferred_waits if deferred.scoreboard in boards]:
            ready = self.cta.pipeline_phases[deferred.pipeline].find_phase_end(deferred.phase, self)
            if ready is None:
                return False
            self.deferred_waits.remove(deferred)
            if ready + deferred.latency_cycles > self.scoreboards[deferred.scoreboard]:
                self.scoreboards[deferred.scoreboard] = ready + deferred.latency_cycles
                self.wait_causes[deferred.scoreboard] = int(WaitCause.BARRIER)
        return True
