"""A kernel with its execution counts put on a GPU: what models are given."""

from typing import TYPE_CHECKING

from msgspec import Struct

from analyzer.demand.accesses import access_bytes
from analyzer.demand.copies import copied_boxes, copied_bytes, with_parts
from analyzer.demand.costs import OpcodeCosts, opcode_costs
from analyzer.demand.demand import instruction_weights, measure_demand
from analyzer.demand.operands import with_fetched_operands
from analyzer.demand.tensor_memory import tensor_columns
from analyzer.demand.tiles import with_known_tiles
from analyzer.execution.counts import BlockCounts
from analyzer.execution.profile import ExecutionProfile
from analyzer.flow.cfg import Cfg
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.occupancy import Occupancy, occupancy
from analyzer.hardware.schema import Arch
from analyzer.ir.launch import Launch
from analyzer.ir.program import Kernel
from analyzer.models.base import Situation
from analyzer.models.portability import missing_units
from analyzer.pipeline.program import LoadedKernel

if TYPE_CHECKING:
    from analyzer.pipeline.caching import CacheLab

ASSUMED_BLOCK_THREADS = 256


class Counted(Struct, frozen=True, kw_only=True, eq=False):
    """A kernel and a launch with what they execute, whatever the GPU."""

    loaded: LoadedKernel
    launch: Launch
    counts: BlockCounts
    profile: ExecutionProfile | None
    caches: "CacheLab | None" = None


class Refused(Struct, frozen=True):
    """Why a kernel cannot run on a GPU."""

    reason: str


def put_on(
    counted: Counted, gpu: Gpu, costs: OpcodeCosts | None = None, *, assumed_ctas: int | None = None
) -> Situation | Refused:
    """The situation of a kernel on a GPU.

    costs: of the module's opcodes there, where they are at hand; assumed_ctas: of a launch whose grid is not
    known, one full wave of this GPU where not given.
    """
    missing = missing_units(counted.loaded.kernel, gpu)
    if gpu.arch is None:
        return Refused(f"{gpu.name} has figures for operator models only")
    if missing:
        units = ", ".join(missing)
        return Refused(f"{gpu.name} ({gpu.file.arch}) has no {units}, which the kernel needs")
    vocabulary = counted.loaded.kernel.vocabulary
    costs = costs or opcode_costs(vocabulary, gpu, gpu.arch)
    situation = _situation(counted, gpu, gpu.arch, costs, assumed_ctas)
    if situation.occupancy.ctas_per_sm:
        return situation
    return Refused(f"a CTA does not fit on {gpu.name}: too much {situation.occupancy.limiter.value}")


def _situation(
    counted: Counted, gpu: Gpu, arch: Arch, costs: OpcodeCosts, assumed_ctas: int | None
) -> Situation:
    kernel, cfg, launch = counted.loaded.kernel, counted.loaded.cfg, counted.launch
    rings = None if counted.caches is None else counted.caches.rings()
    tiled = with_known_tiles(cfg, costs, arch, {} if rings is None else rings.descriptors)
    costs = with_fetched_operands(cfg, tiled.costs, arch)
    threads = launch.block.count if launch.block else ASSUMED_BLOCK_THREADS
    resident = _occupancy(cfg, launch, arch, threads)
    weights = instruction_weights(cfg, counted.counts.per_warp)
    if rings is not None:
        rings = with_parts(rings, cfg, counted.loaded.loops, weights)
    copied = {} if rings is None else copied_bytes(rings, weights)
    boxes = {} if rings is None else copied_boxes(rings, copied)
    share = arch.memory.matrix_conflict_share
    moved = access_bytes(cfg, costs, counted.profile, copied, boxes, 1.0 if share is None else share.value)
    rates = moves = None
    if counted.caches is not None:
        moves = counted.caches.dram_traffic(gpu, arch, resident)
        rates = counted.caches.rates(gpu, arch, resident, _shared_bytes(kernel, launch))
    wave = gpu.sm_count * max(1, resident.ctas_per_sm)
    return Situation(
        kernel=kernel,
        cfg=cfg,
        nest=counted.loaded.loops,
        counts=counted.counts,
        profile=counted.profile,
        weights=weights,
        gpu=gpu,
        arch=arch,
        costs=costs,
        moved=moved,
        caches=rates,
        dram_read_sectors=None if moves is None else moves.read,
        dram_written_sectors=None if moves is None else moves.written,
        rings=rings,
        demand=measure_demand(kernel.opcode_ids, weights, costs, moved),
        occupancy=resident,
        grid=launch.grid,
        grid_ctas=launch.grid.count if launch.grid else assumed_ctas or wave,
        block=launch.block,
        block_threads=threads,
        guessed_tiles=tiled.guessed,
        shared_bytes=_shared_bytes(kernel, launch),
        clock_mhz=launch.clock_mhz,
        l2_is_cold=launch.l2_is_cold,
    )


def _occupancy(cfg: Cfg, launch: Launch, arch: Arch, threads: int) -> Occupancy:
    return occupancy(
        arch.limits,
        block_threads=threads,
        registers=cfg.kernel.resources.registers or 0,
        shared_bytes=_shared_bytes(cfg.kernel, launch),
        tensor_columns=tensor_columns(cfg),
    )


def _shared_bytes(kernel: Kernel, launch: Launch) -> int:
    return (kernel.resources.shared_bytes or 0) + (launch.dynamic_shared_bytes or 0)
