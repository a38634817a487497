"""A counted launch bound to a GPU: the input of models, or the reason why it does not run there."""

from typing import TYPE_CHECKING

from msgspec import Struct

from analyzer.demand.access_bytes import compute_access_bytes
from analyzer.demand.control_codes import find_control_codes
from analyzer.demand.opcode_costs import OpcodeCosts, build_opcode_costs
from analyzer.demand.tcgen05_tiles import add_tcgen05_tiles
from analyzer.demand.tensor_memory import find_occupied_columns
from analyzer.demand.tma_copies import add_iteration_shares, count_copied_bytes, find_tma_boxes
from analyzer.demand.warp_demand import compute_warp_demand, count_instruction_executions
from analyzer.demand.wgmma_operands import add_wgmma_operand_fetches
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.static_counts.block_counts import BlockCounts
from analyzer.flow.cfg import Cfg
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.occupancy import Occupancy, compute_occupancy
from analyzer.hardware.schema import Arch
from analyzer.ir.launch import Launch
from analyzer.ir.module import Kernel
from analyzer.models.interface import ModelInput
from analyzer.models.portability import find_unsupported_opcodes
from analyzer.pipeline.loaded_program import LoadedKernel

if TYPE_CHECKING:
    from analyzer.traffic.cache_experiment import CacheExperiment

ASSUMED_BLOCK_THREADS = 256


class CountedLaunch(Struct, frozen=True, kw_only=True, eq=False):
    """Execution counts of a kernel and a launch, the same on every GPU."""

    loaded: LoadedKernel
    launch: Launch
    counts: BlockCounts
    profile: ExecutionProfile | None  # None where the launch was neither executed nor traced
    cache_experiment: "CacheExperiment | None" = None  # None where addresses are not known


class Refusal(Struct, frozen=True):
    """Reason why a kernel cannot run on a GPU."""

    reason: str


def bind_to_gpu(
    counted: CountedLaunch,
    gpu: Gpu,
    costs: OpcodeCosts | None = None,
    *,
    assumed_ctas: int | None = None,
    simulates_caches: bool = True,
) -> ModelInput | Refusal:
    """Return what models read of a launch on a GPU, or why the kernel does not run there.

    costs: of the module's opcodes on this GPU, computed where None.
    assumed_ctas: CTAs of a launch whose grid is not known; one full wave of this GPU where None.
    simulates_caches: find hit rates where addresses are known.
    """
    missing = find_unsupported_opcodes(counted.loaded.kernel, gpu)
    if gpu.arch is None:
        return Refusal(f"{gpu.name} has figures for operator models only")
    if missing:
        units = ", ".join(missing)
        return Refusal(f"{gpu.name} ({gpu.file.arch}) has no {units}, which the kernel needs")
    form_table = counted.loaded.kernel.form_table
    costs = costs or build_opcode_costs(form_table, gpu, gpu.arch)
    model_input = _build_model_input(
        counted, gpu, gpu.arch, costs, assumed_ctas, simulates_caches=simulates_caches
    )
    if model_input.occupancy.ctas_per_sm:
        return model_input
    return Refusal(f"a CTA does not fit on {gpu.name}: too much {model_input.occupancy.limiter.value}")


def _build_model_input(
    counted: CountedLaunch,
    gpu: Gpu,
    arch: Arch,
    costs: OpcodeCosts,
    assumed_ctas: int | None,
    *,
    simulates_caches: bool,
) -> ModelInput:
    kernel, cfg, launch = counted.loaded.kernel, counted.loaded.cfg, counted.launch
    mbarrier_pipelines = (
        None if counted.cache_experiment is None else counted.cache_experiment.find_mbarrier_pipelines()
    )
    tiled = add_tcgen05_tiles(
        cfg, costs, arch, {} if mbarrier_pipelines is None else mbarrier_pipelines.matrix_descriptors
    )
    costs = add_wgmma_operand_fetches(cfg, tiled.costs, arch)
    threads = launch.block.count if launch.block else ASSUMED_BLOCK_THREADS
    occupancy = _compute_kernel_occupancy(cfg, launch, arch, threads)
    execution_counts = count_instruction_executions(cfg, counted.counts.per_warp)
    if mbarrier_pipelines is not None:
        mbarrier_pipelines = add_iteration_shares(
            mbarrier_pipelines, cfg, counted.loaded.loops, execution_counts
        )
    copied_bytes = (
        {} if mbarrier_pipelines is None else count_copied_bytes(mbarrier_pipelines, execution_counts)
    )
    boxes = {} if mbarrier_pipelines is None else find_tma_boxes(mbarrier_pipelines, copied_bytes)
    conflict_share = arch.memory.matrix_conflict_share
    access_bytes = compute_access_bytes(
        cfg,
        costs,
        counted.profile,
        copied_bytes,
        boxes,
        1.0 if conflict_share is None else conflict_share.value,
    )
    hit_rates = dram_traffic = None
    if counted.cache_experiment is not None and simulates_caches:
        dram_traffic = counted.cache_experiment.count_dram_traffic(gpu, arch, occupancy)
        hit_rates = counted.cache_experiment.simulate_hit_rates(
            gpu, arch, occupancy, _sum_shared_bytes(kernel, launch)
        )
    wave_ctas = occupancy.count_wave_ctas(gpu.sm_count)
    return ModelInput(
        kernel=kernel,
        cfg=cfg,
        loop_forest=counted.loaded.loops,
        block_counts=counted.counts,
        profile=counted.profile,
        execution_counts=execution_counts,
        gpu=gpu,
        arch=arch,
        costs=costs,
        control_codes=find_control_codes(cfg, costs, arch),
        access_bytes=access_bytes,
        cache_rates=hit_rates,
        dram_read_sectors=None if dram_traffic is None else dram_traffic.read_sectors,
        dram_written_sectors=None if dram_traffic is None else dram_traffic.written_sectors,
        mbarrier_pipelines=mbarrier_pipelines,
        demand=compute_warp_demand(kernel.opcode_ids, execution_counts, costs, access_bytes),
        occupancy=occupancy,
        grid=launch.grid,
        grid_ctas=launch.grid.count if launch.grid else assumed_ctas or wave_ctas,
        block=launch.block,
        block_threads=threads,
        n_unknown_mma_tiles=tiled.n_guessed,
        shared_bytes_per_cta=_sum_shared_bytes(kernel, launch),
        clock_mhz=launch.clock_mhz,
        l2_is_cold=launch.l2_is_cold,
        timing=launch.timing,
    )


def _compute_kernel_occupancy(cfg: Cfg, launch: Launch, arch: Arch, threads: int) -> Occupancy:
    return compute_occupancy(
        arch.limits,
        block_threads=threads,
        registers=cfg.kernel.resources.registers or 0,
        shared_bytes=_sum_shared_bytes(cfg.kernel, launch),
        tensor_columns=find_occupied_columns(cfg, arch.limits),
    )


def _sum_shared_bytes(kernel: Kernel, launch: Launch) -> int:
    return (kernel.resources.shared_bytes or 0) + (launch.dynamic_shared_bytes or 0)
