"""Shape of the files in `hwdb/arch`, `hwdb/chip` and `hwdb/gpu`: what is read is checked against these.

Units stand in the names. Every figure carries what it rests on and its source.
"""

from typing import Literal

import msgspec

from analyzer.ir.scheduling import Basis, Completion, Pipe, SchedClass, TensorRate


class HardwareParameter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number with its basis and source; `source` is an id of the file's [sources] or plain text."""

    value: float
    basis: Basis
    source: str
    note: str = ""


class SmLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one SM holds, and in which units it hands it out.

    register_banks: of a sub-core's register file, each of which gives a warp one operand a cycle.
    shared_start_bytes: what lies in a CTA's shared memory before the kernel's own, None where nothing does.
    tensor_columns_per_sm: of tensor memory, None where there is none.
    """

    subcores_per_sm: HardwareParameter
    max_warps_per_sm: HardwareParameter
    max_ctas_per_sm: HardwareParameter
    max_threads_per_cta: HardwareParameter
    registers_per_sm: HardwareParameter
    max_registers_per_thread: HardwareParameter
    register_banks: HardwareParameter
    register_allocation_unit: HardwareParameter
    warp_allocation_granularity: HardwareParameter
    shared_bytes_per_sm: HardwareParameter
    shared_bytes_per_cta: HardwareParameter
    shared_allocation_unit_bytes: HardwareParameter
    shared_reserved_bytes_per_cta: HardwareParameter
    shared_start_bytes: HardwareParameter | None = None
    tensor_columns_per_sm: HardwareParameter | None = None


class MemorySubsystem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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

    l1_latency_cycles: HardwareParameter
    shared_latency_cycles: HardwareParameter
    l2_latency_cycles: HardwareParameter
    dram_latency_cycles: HardwareParameter
    l1_bytes_per_cycle_per_sm: HardwareParameter
    shared_bytes_per_cycle_per_sm: HardwareParameter
    l2_bytes_per_cycle_per_sm: HardwareParameter
    l2_port_bytes_per_cycle: HardwareParameter
    copy_stream_factor: HardwareParameter
    l1_shared_bytes_per_sm: HardwareParameter
    instruction_cache_bytes: HardwareParameter
    constant_line_bytes: HardwareParameter
    read_release_cycles: HardwareParameter
    shared_pass_cycles: HardwareParameter
    line_pass_cycles: HardwareParameter
    lines_per_pass: HardwareParameter
    store_line_cycles: HardwareParameter
    line_path_share: HardwareParameter
    line_fill_cycles: HardwareParameter
    barrier_path_cycles: HardwareParameter
    l2_store_line_cycles: HardwareParameter
    partial_write_factor: HardwareParameter
    atomic_line_cycles: HardwareParameter
    dram_load_cycles: HardwareParameter
    spill_dram_factor: HardwareParameter
    lone_sector_dram_factor: HardwareParameter
    spill_lost_from: HardwareParameter
    spill_lost_by: HardwareParameter
    instruction_miss_cycles: HardwareParameter
    l2_kept_share: HardwareParameter
    atomic_slice_bytes: HardwareParameter
    atomic_float_cycles: HardwareParameter
    atomic_combined_lanes: HardwareParameter
    path_queue_cycles: HardwareParameter
    l2_burst_cycles: HardwareParameter
    store_queue_cycles: HardwareParameter
    dram_efficiency: HardwareParameter
    line_bytes: HardwareParameter
    sector_bytes: HardwareParameter
    l1_ways: HardwareParameter
    l2_ways: HardwareParameter
    copy_request_cycles: HardwareParameter | None = None
    dram_spread_cycles: HardwareParameter | None = None
    mshrs_per_sm: HardwareParameter | None = None
    ldgsts_per_warp: HardwareParameter | None = None
    matrix_conflict_share: HardwareParameter | None = None
    warpgroup_operand_bytes_per_cycle: HardwareParameter | None = None


class SharedMemoryCarveouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes that the driver cuts shared memory to, ascending; the L1 has the rest of the SM's memory."""

    kib: tuple[int, ...]
    basis: Basis
    source: str

    def find_carveout_bytes(self, shared_bytes: float) -> int:
        """The least size that holds so much."""
        sizes = [1024 * size for size in self.kib]
        return next((size for size in sizes if size >= shared_bytes), sizes[-1])


class SchedClassTiming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scheduling class on one architecture.

    issue_cycles: cycles that one warp instruction holds its pipe of one sub-core
    (32 / lanes; 0 for MMA classes, whose interval follows from the product's tensor rate).
    latency_cycles: from issue to the first dependent issue, unloaded.
    """

    pipe: Pipe
    alternate_pipe: Pipe | None = None
    issue_cycles: HardwareParameter
    latency_cycles: HardwareParameter
    completion: Completion


class ConstantBankLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Byte offsets in constant bank 0 of what the driver writes there; absent where there is no such word.

    block_dim, grid_dim, cluster_dim, cluster_counts (clusters in the grid) and cluster_reciprocals (1 /
    cluster_dim as floats) are three words; windows, global_descriptor and grid_id have 64 bits.
    argument_window holds the generic address of the word at argument_window_start, user_window that of
    bank 3, workspace that of a cooperative launch's workspace. On sm_100 and later code subtracts
    SR_CgaSize x 0xa0 from the offsets of workspace, dynamic_shared_bytes and the cluster's words.
    """

    arguments: HardwareParameter
    block_dim: HardwareParameter
    grid_dim: HardwareParameter
    stack_pointer: HardwareParameter
    dynamic_shared_bytes: HardwareParameter
    local_window: HardwareParameter
    user_window: HardwareParameter
    grid_id: HardwareParameter
    sm_count: HardwareParameter
    argument_window: HardwareParameter
    argument_window_start: HardwareParameter
    workspace_low: HardwareParameter
    workspace_high: HardwareParameter
    shared_window: HardwareParameter | None = None
    global_descriptor: HardwareParameter | None = None
    reserved_shared_bytes: HardwareParameter | None = None
    explicit_cluster: HardwareParameter | None = None
    cluster_dim: HardwareParameter | None = None
    cluster_reciprocals: HardwareParameter | None = None
    cluster_counts: HardwareParameter | None = None
    cluster_ctas: HardwareParameter | None = None


class Tcgen05MmaTiming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    warp_mma_share: HardwareParameter
    tensor_cores_per_sm: HardwareParameter
    constant_bank: ConstantBankLayout
    limits: SmLimits
    shared_carveouts: SharedMemoryCarveouts
    memory: MemorySubsystem
    tensor_core_product: tuple[Tcgen05MmaTiming, ...] = ()
    sched: dict[SchedClass, SchedClassTiming]


class Sm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: HardwareParameter


class SmClocks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clocks of the SMs.

    sustained: under any load, or where tensor cores work; sustained_narrow_mhz: where most of that are
    products of numbers of eight bits or fewer. sustained_float_mhz: where FP32 work fills the SMs, on cards
    whose power does not suffice for that; kernels that wait for memory run at the clock above.
    """

    boost_mhz: HardwareParameter
    base_mhz: HardwareParameter | None = None
    tensor_mhz: HardwareParameter | None = None
    sustained_mhz: HardwareParameter | None = None
    sustained_tensor_mhz: HardwareParameter | None = None
    sustained_narrow_mhz: HardwareParameter | None = None
    sustained_float_mhz: HardwareParameter | None = None


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Device memory.

    sustained_gbps: the best rate seen, where anybody measured it; streaming_gbps: what kernels reach that
    do little but read and write, below the best. Without it `dram_efficiency` of the datasheet stands.
    """

    kind: str
    bandwidth_gbps: HardwareParameter
    size_gb: HardwareParameter | None = None
    bus_bits: HardwareParameter | None = None
    sustained_gbps: HardwareParameter | None = None
    streaming_gbps: HardwareParameter | None = None
    l2_latency_cycles: HardwareParameter | None = None
    dram_latency_cycles: HardwareParameter | None = None


class L2Cache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """bandwidth_gbps: of loads; store_factor: loaded bytes that a stored one counts for, where stores share
    the rate of loads. Without it each of the two has that rate. kept_share, lost_share: of its size that
    launches touch, up to which the next one finds all, and from which it finds nothing; without them
    `MemorySubsystem.l2_kept_share` is both.
    """

    size_bytes: HardwareParameter
    bandwidth_gbps: HardwareParameter | None = None
    store_factor: HardwareParameter | None = None
    kept_share: HardwareParameter | None = None
    lost_share: HardwareParameter | None = None


class TensorThroughput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fma_per_cycle_per_sm: HardwareParameter


class PeakThroughput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dense peaks as the vendor prints them (FP32 accumulation where the two differ)."""

    fp64_tflops: HardwareParameter | None = None
    fp64_tensor_tflops: HardwareParameter | None = None
    fp32_tflops: HardwareParameter | None = None
    fp16_tflops: HardwareParameter | None = None
    tf32_tensor_tflops: HardwareParameter | None = None
    fp16_tensor_tflops: HardwareParameter | None = None
    bf16_tensor_tflops: HardwareParameter | None = None
    fp8_tensor_tflops: HardwareParameter | None = None
    int8_tensor_tops: HardwareParameter | None = None
    fp4_tensor_tflops: HardwareParameter | None = None


class Power(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tdp_w: HardwareParameter


class Interconnect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPU to GPU (sum of both directions) and host link."""

    nvlink_gbps: HardwareParameter | None = None
    pcie: str = ""


class LaunchLatency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients of AMALI's kernel launch latency (equations 27 and 28), in cycles, CTA size in warps."""

    alpha: HardwareParameter
    beta: HardwareParameter
    gamma: HardwareParameter
    intercept_cycles: HardwareParameter


class LaunchCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """overhead_us: an empty kernel's own duration; ctas_per_us: rate at which CTAs are handed out."""

    overhead_us: HardwareParameter
    interval_us: HardwareParameter | None = None
    ctas_per_us: HardwareParameter
    latency: LaunchLatency | None = None


class GpuFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """hwdb/gpu/NAME.toml, after its parent's rows have been filled in.

    A shipped product inherits from its chip, hwdb/chip/NAME.toml: what the products of one die share, in the
    same tables. A user's file may inherit from a chip or a product.
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
    clock: SmClocks
    memory: DeviceMemory
    l2: L2Cache
    tensor: dict[TensorRate, TensorThroughput] = {}
    peak: PeakThroughput = PeakThroughput()
    power: Power | None = None
    link: Interconnect = Interconnect()
    launch: LaunchCosts
