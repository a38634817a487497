"""What all models share: what they are given, and what they answer."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct

from analyzer.demand.access_bytes import AccessBytes
from analyzer.demand.opcode_costs import FloatArray, OpcodeCosts
from analyzer.demand.warp_demand import WarpDemand
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.mbarrier_pipelines import MbarrierPipelines
from analyzer.execution.static_counts.block_counts import BlockCounts
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.occupancy import Occupancy
from analyzer.hardware.schema import Arch
from analyzer.ir.launch import Dim3
from analyzer.ir.module import Kernel
from analyzer.ir.scheduling import Basis, TensorRate
from analyzer.models.prediction_figures import PredictionFigures

if TYPE_CHECKING:
    from analyzer.demand.cache_simulation import KernelHitRates

_Key = TypeVar("_Key", bound=str)


class Stall(StrEnum):
    """Where a warp's cycles go, in Nsight Compute's names (smsp__average_warps_issue_stalled_*).

    Ours are `launch`, the time around the kernel that no warp sees, and `idle`, a sub-core without work while
    others have some (AMALI's instruction divergence).
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
    BRANCH_RESOLVING = "branch_resolving"
    GMMA = "gmma"
    NOT_SELECTED = "not_selected"
    DRAIN = "drain"
    NO_INSTRUCTIONS = "no_instructions"
    IMC_MISS = "imc_miss"
    IDLE = "idle"
    LAUNCH = "launch"


class ModelInput(Struct, frozen=True, kw_only=True):
    """One kernel on one GPU, ready for a model.

    weights[n]: executions of each instruction by the mean warp; profile: where the kernel was executed or
    traced; caches: hit rates, where addresses are known and some load looks into the L1;
    dram_read_sectors, dram_written_sectors: that the grid reads from DRAM, and that the L2 hands on to it,
    whichever CTAs write to them; None where not known; rings: of mbarriers, where there
    are any and their addresses are known. grid_ctas: CTAs of the launch, of one full wave where the grid is
    not known (`grid` None). block_threads: an assumption where `block` is None. guessed_tiles: tcgen05
    instructions of unknown tile. shared_bytes: that the launch gives a CTA.
    clock_mhz, l2_is_cold: see `Launch`.
    """

    kernel: Kernel
    cfg: Cfg
    loop_forest: LoopForest
    block_counts: BlockCounts
    profile: ExecutionProfile | None
    execution_counts: FloatArray
    gpu: Gpu
    arch: Arch
    costs: OpcodeCosts
    access_bytes: AccessBytes
    cache_rates: "KernelHitRates | None"
    dram_read_sectors: float | None
    dram_written_sectors: float | None
    mbarrier_pipelines: MbarrierPipelines | None
    demand: WarpDemand
    occupancy: Occupancy
    grid: Dim3 | None
    grid_ctas: int
    block: Dim3 | None
    block_threads: int
    n_unknown_mma_tiles: int
    shared_bytes_per_cta: int
    clock_mhz: float | None = None
    l2_is_cold: bool = False

    @property
    def waves(self) -> float:
        """CTAs over what the GPU holds at a time."""
        return self.grid_ctas / (self.gpu.sm_count * self.occupancy.ctas_per_sm)

    @property
    def dominant_tensor_rate(self) -> TensorRate | None:
        """What most multiply-adds of the tensor cores are."""
        opcodes, ids = self.kernel.form_table.opcodes, self.kernel.opcode_ids
        executed = (
            np.bincount(ids, weights=self.execution_counts, minlength=len(opcodes)) * self.costs.tensor_fma
        )
        if not executed.any():
            return None
        products = opcodes[int(executed.argmax())].mma_shape
        return None if products is None else products.tensor_rate


class Prediction(PredictionFigures, frozen=True, kw_only=True):
    """Cycles and time of one launch, and what they rest on."""

    cpi_stack: dict[Stall, float]  # sums to `cycles`
    bounds_cycles: dict[str, float]
    basis: Basis
    assumptions: tuple[str, ...]


def sort_largest_first(cycles: Mapping[_Key, float]) -> dict[_Key, float]:
    """The same entries in the order in which reports show them."""
    return dict(sorted(cycles.items(), key=lambda item: -item[1]))


BASIS_ORDER = tuple(Basis)


def find_weakest_basis(*bases: Basis) -> Basis:
    """The least trustworthy of several bases, which is what a result of all of them carries."""
    return max(bases, key=BASIS_ORDER.index)
