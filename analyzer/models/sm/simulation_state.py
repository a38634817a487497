"""What the simulation of an SM is told, what it keeps of CTAs and warps, and what it gives."""

from msgspec import Struct, field

from analyzer.models.wait_causes import N_WAIT_CAUSES

ROUNDING_TOLERANCE = 1e-6
# Columns of waits behind those of `WaitCause`.
NOT_SELECTED_COLUMN, NO_INSTRUCTIONS_COLUMN = N_WAIT_CAUSES, N_WAIT_CAUSES + 1
N_WAIT_COLUMNS = N_WAIT_CAUSES + 2


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
