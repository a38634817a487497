"""Parameters and results of the simulation of an SM."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field

from analyzer.models.sm.instruction_fetch import FetchParameters
from analyzer.models.wait_causes import N_WAIT_CAUSES

ROUNDING_TOLERANCE = 1e-6
# Columns of waits behind those of `WaitCause`.
NOT_SELECTED_COLUMN, NO_INSTRUCTIONS_COLUMN = N_WAIT_CAUSES, N_WAIT_CAUSES + 1
N_WAIT_COLUMNS = N_WAIT_CAUSES + 2


class PipelineParameters(Struct, frozen=True):
    """Arrivals at one pipeline of mbarriers."""

    arrivals_per_phase: float  # of all warps of a CTA
    n_free_waits: int  # see `MbarrierPipeline`
    # Of one warp of each role in every phase. Empty where a warp does not take part in every phase: then the
    # phase that an arrival belongs to is not known.
    arrivals_by_role: tuple[float, ...] = ()


class SmParameters(Struct, frozen=True, kw_only=True):
    """Parameters of one SM and of the CTAs that it runs; times in cycles."""

    n_subcores: int
    role_by_warp: tuple[int, ...]  # of each warp of a CTA: its program
    ctas_per_sm: int  # resident at once
    load_store_queue_cycles: float  # work that queues for the load/store path before warps stall
    l2_burst_cycles: float  # work that the L2 takes at once
    dram_burst_cycles: float  # likewise the DRAM
    dram_load_cycles: float  # see `MemorySubsystem.dram_load_cycles`
    cta_start_interval_cycles: float  # between two CTAs that begin on the SM
    cta_end_interval_cycles: float  # between two CTAs of the SM whose ends the GPU takes notice of
    cta_turnover_cycles: float  # from the end of a CTA until the next one in its slot begins
    read_release_cycles: float  # until a memory instruction has read its registers
    pipelines: tuple[PipelineParameters, ...] = ()  # of mbarriers
    l2_store_factor: float = 1.0  # see `L2Share`
    pipe_slowdowns: Mapping[int, float] = {}  # factor on the cycles of pipes while a warpgroup's product runs
    max_queued_products: int = 0  # of a sub-core, see `WarpgroupContention`; 0 where nothing limits them
    dispatch_cycles: float = 0.0  # of the port that LDG and the XU share; 0: no limit
    issues_in_runs: bool = False  # see `issue_order`
    fetch: FetchParameters | None = None  # of code that the SM's own instruction cache cannot hold


class SimulationResult(Struct, eq=False):
    """Cycles and waits of the CTAs of one SM, of which some iterations and CTAs are skipped."""

    cycles: float = 0.0  # until the last CTA has ended and the last request is served
    # By role and first step: simulated iterations of a sequence, of all warps.
    iterations: list[Counter[int]] = field(default_factory=list)
    waits: list[list[float]] = field(
        default_factory=list
    )  # of all warps: [role][step * N_WAIT_COLUMNS + cause]
    ended_ctas: list[int] = field(default_factory=list)  # CTAs that have ended with each simulated one
    cta_end_cycles: list[float] = field(default_factory=list)  # at which that is
    n_steps: int = 0  # simulated ones
