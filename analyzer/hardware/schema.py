"""Shape of the files in `hwdb/arch` and `hwdb/gpu`: what is read is checked against these.

Units stand in the names. Every figure carries what it rests on and its source.
"""

from typing import Literal

import msgspec

from analyzer.ir.machine import Basis, Completion, Pipe, SchedClass, TensorRate


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number with its basis and source; `source` is an id of the file's [sources] or plain text."""

    value: float
    basis: Basis
    source: str
    note: str = ""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one SM holds, and in which units it hands it out.

    register_banks: of a sub-core's register file, each of which gives a warp one operand a cycle.
    shared_start_bytes: what lies in a CTA's shared memory before the kernel's own, None where nothing does.
    tensor_columns_per_sm: of tensor memory, None where there is none.
    """

    subcores_per_sm: Figure
    max_warps_per_sm: Figure
    max_ctas_per_sm: Figure
    max_threads_per_cta: Figure
    registers_per_sm: Figure
    max_registers_per_thread: Figure
    register_banks: Figure
    register_allocation_unit: Figure
    warp_allocation_granularity: Figure
    shared_bytes_per_sm: Figure
    shared_bytes_per_cta: Figure
    shared_allocation_unit_bytes: Figure
    shared_reserved_bytes_per_cta: Figure
    shared_start_bytes: Figure | None = None
    tensor_columns_per_sm: Figure | None = None


class MemoryPath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latencies in SM cycles, widths in bytes per SM cycle and SM.

    l2_bytes_per_cycle_per_sm: an SM's share of the L2's rate while all read; l2_port_bytes_per_cycle: what
    one SM gets of it while others pause.
    read_release_cycles: from the issue of a memory instruction until it has read its registers.
    copy_stream_factor: of its share of the DRAM's rate at which an SM's copy engine gets a tile, while others
    pause; copy_request_cycles: of that engine for a request to the L2, of one line of one row of a box.
    shared_pass_cycles: of the SM's load/store path for each pass beyond the first of a request to
    shared memory, or of a load through the L1; matrix_conflict_share: the part of the passes of a load of
    matrices that it takes, though one for each matrix; absent where it takes all. line_fill_cycles: for each
    128 bytes that a load brings into the L1; barrier_path_cycles: for a warp that comes to a barrier.
    line_pass_cycles: of the L1's tags for each line of a request to global memory beyond lines_per_pass;
    line_path_share: the part of these that holds the path: shared memory is served meanwhile;
    store_line_cycles: how many times as long such a line of a store takes there. l2_store_line_cycles: of an
    SM's share of the L2 for such a line of a store.
    partial_write_factor: sectors that the DRAM moves for one of which a part is written. atomic_line_cycles:
    of the L2 for an atomic request of one sector on a busy line; atomic_float_cycles: for each further lane
    that adds a floating-point number to the same word; atomic_combined_lanes: that add whole numbers to one
    word as one.
    dram_load_cycles: that the latency of DRAM grows by at half of its rate, with load / (1 - load).
    dram_spread_cycles: that one copy to shared memory takes longer from DRAM than another, absent where
    nothing is known of it.
    spill_dram_factor: sectors' worth of DRAM time that one of local memory takes; lone_sector_dram_factor:
    that the one sector takes that a request loads. spill_lost_from, spill_lost_by: parts of a cache that the
    resident threads may touch between two touches of a spilled word before some are lost, and before all are.
    instruction_cache_bytes: the last one before the L2; instruction_miss_cycles: that a warp waits for a line
    of code that is longer, beyond what prefetching hides.
    path_queue_cycles: work of the load/store path that may wait before warps stall; l2_burst_cycles: of an
    SM's share of L2 or DRAM that is taken at once; store_queue_cycles: of it that stores may leave behind.
    l2_kept_share: part of the L2 that still holds the last launch's data. atomic_slice_bytes: of addresses
    that one unit of the L2 serves.
    dram_efficiency: part of the datasheet's rate that kernels reach on products without `streaming_gbps`.
    mshrs_per_sm: L1 misses in flight, absent where nothing limits them; ldgsts_per_warp: likewise.
    warpgroup_operand_bytes_per_cycle: of shared memory, that an SM's products of warpgroups fetch.
    """

    l1_latency_cycles: Figure
    shared_latency_cycles: Figure
    l2_latency_cycles: Figure
    dram_latency_cycles: Figure
    l1_bytes_per_cycle_per_sm: Figure
    shared_bytes_per_cycle_per_sm: Figure
    l2_bytes_per_cycle_per_sm: Figure
    l2_port_bytes_per_cycle: Figure
    copy_stream_factor: Figure
    l1_shared_bytes_per_sm: Figure
    instruction_cache_bytes: Figure
    constant_line_bytes: Figure
    read_release_cycles: Figure
    shared_pass_cycles: Figure
    line_pass_cycles: Figure
    lines_per_pass: Figure
    store_line_cycles: Figure
    line_path_share: Figure
    line_fill_cycles: Figure
    barrier_path_cycles: Figure
    l2_store_line_cycles: Figure
    partial_write_factor: Figure
    atomic_line_cycles: Figure
    dram_load_cycles: Figure
    spill_dram_factor: Figure
    lone_sector_dram_factor: Figure
    spill_lost_from: Figure
    spill_lost_by: Figure
    instruction_miss_cycles: Figure
    l2_kept_share: Figure
    atomic_slice_bytes: Figure
    atomic_float_cycles: Figure
    atomic_combined_lanes: Figure
    path_queue_cycles: Figure
    l2_burst_cycles: Figure
    store_queue_cycles: Figure
    dram_efficiency: Figure
    line_bytes: Figure
    sector_bytes: Figure
    l1_ways: Figure
    l2_ways: Figure
    copy_request_cycles: Figure | None = None
    dram_spread_cycles: Figure | None = None
    mshrs_per_sm: Figure | None = None
    ldgsts_per_warp: Figure | None = None
    matrix_conflict_share: Figure | None = None
    warpgroup_operand_bytes_per_cycle: Figure | None = None


class SharedCarveouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes that the driver cuts shared memory to, ascending; the L1 has the rest of the SM's memory."""

    kib: tuple[int, ...]
    basis: Basis
    source: str

    def bytes_for(self, shared_bytes: float) -> int:
        """The least size that holds so much."""
        sizes = [1024 * size for size in self.kib]
        return next((size for size in sizes if size >= shared_bytes), sizes[-1])


class ClassFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scheduling class on one architecture.

    issue_cycles: cycles that one warp instruction holds its pipe of one sub-core
    (32 / lanes; 0 for MMA classes, whose interval follows from the product's tensor rate).
    latency_cycles: from issue to the first dependent issue, unloaded.
    """

    pipe: Pipe
    alternate_pipe: Pipe | None = None
    issue_cycles: Figure
    latency_cycles: Figure
    completion: Completion


class ConstantBankWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Byte offsets in constant bank 0 of what the driver writes there; absent where there is no such word.

    block_dim, grid_dim, cluster_dim, cluster_counts (clusters in the grid) and cluster_reciprocals (1 /
    cluster_dim as floats) are three words; windows, global_descriptor and grid_id have 64 bits.
    argument_window holds the generic address of the word at argument_window_start, user_window that of
    bank 3, workspace that of a cooperative launch's workspace. On sm_100 and later code subtracts
    SR_CgaSize x 0xa0 from the offsets of workspace, dynamic_shared_bytes and the cluster's words.
    """

    arguments: Figure
    block_dim: Figure
    grid_dim: Figure
    stack_pointer: Figure
    dynamic_shared_bytes: Figure
    local_window: Figure
    user_window: Figure
    grid_id: Figure
    sm_count: Figure
    argument_window: Figure
    argument_window_start: Figure
    workspace_low: Figure
    workspace_high: Figure
    shared_window: Figure | None = None
    global_descriptor: Figure | None = None
    reserved_shared_bytes: Figure | None = None
    explicit_cluster: Figure | None = None
    cluster_dim: Figure | None = None
    cluster_reciprocals: Figure | None = None
    cluster_counts: Figure | None = None
    cluster_ctas: Figure | None = None


class TensorCoreProduct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """tcgen05.mma by where A lies, CTAs of a group and M, for any N and type.

    rows: of each CTA that its time is that of; operand_cycles, operand_column_cycles: to fetch the operands
    of N = 0 and of each column more, which it never runs below; latency_cycles, latency_column_cycles:
    likewise from issue to the mbarrier.
    """

    a: Literal["shared", "tensor"]
    ctas: int
    m: int
    rows: int
    operand_cycles: float
    operand_column_cycles: float
    latency_cycles: float
    latency_column_cycles: float
    basis: Basis
    source: str


class Arch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """hwdb/arch/NAME.toml, after its parent's rows have been filled in.

    typical_gpu: the part taken where the user names none.
    warp_mma_share: part of a product's tensor rate that MMA of single warps reaches; below 1 where
    only warpgroup or tensor-core instructions reach the whole.
    """

    schema: Literal["warplens/arch/1"]
    name: str
    family: str
    typical_gpu: str | None = None
    inherits: str | None = None
    sources: dict[str, str] = {}
    unsupported: tuple[SchedClass, ...] = ()
    warp_mma_share: Figure
    tensor_cores_per_sm: Figure
    constant_bank: ConstantBankWords
    limits: Limits
    shared_carveouts: SharedCarveouts
    memory: MemoryPath
    tensor_core_product: tuple[TensorCoreProduct, ...] = ()
    sched: dict[SchedClass, ClassFigures]


class Sm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Figure


class Clock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clocks of the SMs.

    sustained: under any load, or where tensor cores work; sustained_narrow_mhz: where most of that are
    products of numbers of eight bits or fewer. sustained_float_mhz: where FP32 work fills the SMs, on cards
    whose power does not suffice for that; kernels that wait for memory run at the clock above.
    """

    boost_mhz: Figure
    base_mhz: Figure | None = None
    tensor_mhz: Figure | None = None
    sustained_mhz: Figure | None = None
    sustained_tensor_mhz: Figure | None = None
    sustained_narrow_mhz: Figure | None = None
    sustained_float_mhz: Figure | None = None


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Device memory.

    sustained_gbps: the best rate seen, where anybody measured it; streaming_gbps: what kernels reach that
    do little but read and write, below the best. Without it `dram_efficiency` of the datasheet stands.
    """

    kind: str
    bandwidth_gbps: Figure
    size_gb: Figure | None = None
    bus_bits: Figure | None = None
    sustained_gbps: Figure | None = None
    streaming_gbps: Figure | None = None
    l2_latency_cycles: Figure | None = None
    dram_latency_cycles: Figure | None = None


class L2Cache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """bandwidth_gbps: of loads; store_factor: loaded bytes that a stored one counts for, where stores share
    the rate of loads. Without it each of the two has that rate. kept_share, lost_share: of its size that
    launches touch, up to which the next one finds all, and from which it finds nothing; without them
    `MemoryPath.l2_kept_share` is both.
    """

    size_bytes: Figure
    bandwidth_gbps: Figure | None = None
    store_factor: Figure | None = None
    kept_share: Figure | None = None
    lost_share: Figure | None = None


class TensorFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fma_per_cycle_per_sm: Figure


class Peaks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dense peaks as the vendor prints them (FP32 accumulation where the two differ)."""

    fp64_tflops: Figure | None = None
    fp64_tensor_tflops: Figure | None = None
    fp32_tflops: Figure | None = None
    fp16_tflops: Figure | None = None
    tf32_tensor_tflops: Figure | None = None
    fp16_tensor_tflops: Figure | None = None
    bf16_tensor_tflops: Figure | None = None
    fp8_tensor_tflops: Figure | None = None
    int8_tensor_tops: Figure | None = None
    fp4_tensor_tflops: Figure | None = None


class Power(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tdp_w: Figure


class Links(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPU to GPU (sum of both directions) and host link."""

    nvlink_gbps: Figure | None = None
    pcie: str = ""


class LaunchLatency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients of AMALI's kernel launch latency (equations 27 and 28), in cycles, CTA size in warps."""

    alpha: Figure
    beta: Figure
    gamma: Figure
    intercept_cycles: Figure


class LaunchCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """overhead_us: an empty kernel's own duration; ctas_per_us: rate at which CTAs are handed out."""

    overhead_us: Figure
    interval_us: Figure | None = None
    ctas_per_us: Figure
    latency: LaunchLatency | None = None


class GpuFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """hwdb/gpu/NAME.toml, after its parent's rows have been filled in.

    support "kernels" needs an architecture file; "operators" serves operator models alone.
    """

    schema: Literal["warplens/gpu/1"]
    name: str
    vendor: str
    chip: str
    arch: str
    support: Literal["kernels", "operators"] = "kernels"
    year: int | None = None
    inherits: str | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    sources: dict[str, str] = {}
    sm: Sm
    clock: Clock
    memory: DeviceMemory
    l2: L2Cache
    tensor: dict[TensorRate, TensorFigures] = {}
    peak: Peaks = Peaks()
    power: Power | None = None
    link: Links = Links()
    launch: LaunchCosts
