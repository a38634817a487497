"""Input and output of all models: `ModelInput`, `Prediction` and the stalls of a CPI stack."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import numpy as np
from msgspec import Struct

from analyzer.demand.access_bytes import AccessBytes
from analyzer.demand.hit_rates import KernelHitRates
from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.demand.warp_demand import WarpDemand
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.mbarrier_pipelines import MbarrierPipelines
from analyzer.execution.static_counts.block_counts import BlockCounts
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.occupancy import Occupancy
from analyzer.hardware.schema import Arch, HardwareParameter
from analyzer.ir.arrays import FloatArray, order_by_first_place
from analyzer.ir.launch import Dim3, Timing
from analyzer.ir.module import Kernel
from analyzer.ir.scheduling import Basis, TensorRate
from analyzer.isa.control_encoding import N_SCOREBOARDS, ControlCodeColumns
from analyzer.models.prediction_figures import PredictionFigures

# Beside those of a warp: of loads in code as it would be if they started earlier.
EARLY_SCOREBOARD = N_SCOREBOARDS

_Key = TypeVar("_Key", bound=str)


class Stall(StrEnum):
    """Stall reason of a warp, with the names of Nsight Compute (smsp__average_warps_issue_stalled_*).

    Two are our own: `launch`, the time around the kernel in which no warp runs, and `idle`, a sub-core
    without work while others have some (AMALI's instruction divergence).
    """

    SELECTED = "selected"
    WAIT = "wait"
    SHORT_SCOREBOARD = "short_scoreboard"
    LONG_SCOREBOARD = "long_scoreboard"
    MATH_PIPE_THROTTLE = "math_pipe_throttle"
    DISPATCH_STALL = "dispatch_stall"
    MIO_THROTTLE = "mio_throttle"
    LG_THROTTLE = "lg_throttle"
    TEX_THROTTLE = "tex_throttle"
    BARRIER = "barrier"
    MEMBAR = "membar"
    BRANCH_RESOLVING = "branch_resolving"
    GMMA = "gmma"
    NOT_SELECTED = "not_selected"
    DRAIN = "drain"
    NO_INSTRUCTIONS = "no_instructions"
    IMC_MISS = "imc_miss"
    IDLE = "idle"
    LAUNCH = "launch"


class ModelInput(Struct, frozen=True, kw_only=True):
    """Analysis of one kernel on one GPU, from which models predict; n instructions."""

    kernel: Kernel
    cfg: Cfg
    loop_forest: LoopForest
    block_counts: BlockCounts
    profile: ExecutionProfile | None  # None where the kernel was neither executed nor traced
    execution_counts: FloatArray  # [n], executions of each instruction by the mean warp
    gpu: Gpu
    arch: Arch
    costs: OpcodeCosts
    control_codes: ControlCodeColumns  # assumed where the kernel has no control words
    access_bytes: AccessBytes
    cache_rates: KernelHitRates | None  # None where addresses are unknown or no load looks into the L1
    # Sectors of the whole grid that come from DRAM, and that the L2 writes back to it; None: not known.
    dram_read_sectors: float | None
    dram_written_sectors: float | None
    mbarrier_pipelines: MbarrierPipelines | None  # None without mbarriers, or with unknown addresses
    demand: WarpDemand
    occupancy: Occupancy
    grid: Dim3 | None  # None where the launch is not known
    grid_ctas: int  # of one full wave where `grid` is None
    block: Dim3 | None
    block_threads: int  # an assumption where `block` is None
    n_unknown_mma_tiles: int  # tcgen05 instructions whose tile is not a constant
    shared_bytes_per_cta: int  # static and dynamic
    clock_mhz: float | None = None  # the launch's own SM clock, see `Launch`
    settled_clock: HardwareParameter | None = None  # where another run of a model has found it
    l2_is_cold: bool = False  # see `Launch`
    timing: Timing = Timing.INTERVAL  # see `Launch`
    # By instruction that waits for `EARLY_SCOREBOARD` too: results that may be pending when it goes on.
    early_waits: Mapping[int, int] = {}

    @property
    def waves(self) -> float:
        """CTAs of the grid divided by the CTAs that the GPU holds at a time."""
        return self.grid_ctas / (self.gpu.sm_count * self.occupancy.ctas_per_sm)

    @property
    def dominant_tensor_rate(self) -> TensorRate | None:
        """Tensor core rate of most executed multiply-adds; None without any."""
        opcodes, ids = self.kernel.form_table.opcodes, self.kernel.opcode_ids
        executed = (
            np.bincount(ids, weights=self.execution_counts, minlength=len(opcodes)) * self.costs.tensor_fma
        )
        if not executed.any():
            return None
        order = order_by_first_place(ids, len(opcodes))  # of equal ones the first decides
        products = opcodes[int(order[executed[order].argmax()])].mma_shape
        return None if products is None else products.tensor_rate


class Prediction(PredictionFigures, frozen=True, kw_only=True):
    """Cycles and time of one launch, and the assumptions behind them."""

    cpi_stack: Mapping[Stall, float]  # sums to `cycles`; empty for models that know no stalls
    bounds_cycles: Mapping[str, float]
    basis: Basis
    assumptions: tuple[str, ...]


def sort_largest_first(cycles: Mapping[_Key, float]) -> dict[_Key, float]:
    """Return the entries in descending order of cycles, as reports show them."""
    return dict(sorted(cycles.items(), key=lambda item: -item[1]))
