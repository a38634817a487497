"""Schema of the files in `hwdb/arch`, `hwdb/chip` and `hwdb/gpu`, against which they are validated.

Units are part of the field names. Every parameter has its basis and its source. Unless a comment
says otherwise, cycles are SM clock cycles and an optional parameter is None if it is unknown.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from analyzer.ir.scheduling import Basis, Completion, Pipe, SchedClass, TensorRate


class HardwareParameter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number with its basis and source."""

    value: float
    basis: Basis  # how the value was obtained
    source: str  # id of an entry in the file's [sources], or plain text
    note: str = ""


class SmLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Capacities of one SM and the units in which they are allocated to warps and CTAs."""

    subcores_per_sm: HardwareParameter
    max_warps_per_sm: HardwareParameter
    max_ctas_per_sm: HardwareParameter
    max_threads_per_cta: HardwareParameter
    registers_per_sm: HardwareParameter  # of 32 bits
    max_registers_per_thread: HardwareParameter
    register_banks: HardwareParameter  # per sub-core; each delivers one operand of a warp per cycle
    register_allocation_unit: HardwareParameter  # registers; each warp gets a multiple of it
    warp_allocation_granularity: HardwareParameter  # warps; registers are allocated to a multiple of it
    shared_bytes_per_sm: HardwareParameter
    shared_bytes_per_cta: HardwareParameter  # maximum, with opt-in
    shared_allocation_unit_bytes: HardwareParameter  # each CTA gets a multiple of it
    # taken by the system in each CTA, added to the kernel's request
    shared_reserved_bytes_per_cta: HardwareParameter
    # offset of the kernel's first shared variable; None: 0
    shared_start_bytes: HardwareParameter | None = None
    tensor_columns_per_sm: HardwareParameter | None = None  # columns of tensor memory; None: no tensor memory


class MemorySubsystem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latencies, rates and contention parameters of the memory hierarchy, seen from one SM.

    A line has `line_bytes`, a sector `sector_bytes`. The "share of the L2" (or DRAM) is an SM's part of its
    bandwidth while all SMs use it.
    """

    l1_latency_cycles: HardwareParameter  # of a load that the L1 serves, unloaded; the next three likewise
    shared_latency_cycles: HardwareParameter
    l2_latency_cycles: HardwareParameter
    dram_latency_cycles: HardwareParameter
    l1_bytes_per_cycle_per_sm: HardwareParameter
    shared_bytes_per_cycle_per_sm: HardwareParameter
    l2_bytes_per_cycle_per_sm: HardwareParameter  # the SM's share of the L2
    l2_port_bytes_per_cycle: HardwareParameter  # maximum rate of one SM from the L2 while other SMs are idle
    # maximum rate of one SM's copy engine (TMA) from DRAM over the SM's share, while other SMs are idle
    copy_stream_factor: HardwareParameter
    l1_shared_bytes_per_sm: HardwareParameter  # L1 and shared memory together
    instruction_cache_bytes: HardwareParameter  # last instruction cache before the L2
    constant_line_bytes: HardwareParameter  # line of the first-level constant cache
    # from the issue of a memory instruction until it has read its source registers
    read_release_cycles: HardwareParameter
    system_fence_cycles: HardwareParameter  # of a fence of the system's scope beyond one of the GPU's
    # load/store path, per pass beyond the first of a shared-memory request or of a load through the L1
    shared_pass_cycles: HardwareParameter
    lines_per_store_pass: HardwareParameter  # lines of a store that take the path no longer than its bytes
    store_line_cycles: HardwareParameter  # load/store path, per further line of a store
    line_fill_cycles: HardwareParameter  # load/store path, per 128 bytes that a load brings into the L1
    barrier_path_cycles: HardwareParameter  # load/store path, per warp that arrives at a CTA barrier
    cta_start_cycles: HardwareParameter  # between CTAs that begin on an SM
    cta_turnover_cycles: HardwareParameter  # from the end of a CTA until the next one in its slot begins
    lines_per_pass: HardwareParameter  # lines of a store that the L2 takes no longer than its bytes
    # the SM's share of the L2, per line beyond `lines_per_pass` of a store
    l2_store_line_cycles: HardwareParameter
    partial_write_factor: HardwareParameter  # sectors that the DRAM moves for one partly written sector
    # L2 atomic unit, per request of one sector to a contended line; each further sector adds half of it
    atomic_line_cycles: HardwareParameter
    # added to the DRAM latency at half of its rate; grows as load / (1 - load)
    dram_load_cycles: HardwareParameter
    spill_dram_factor: HardwareParameter  # factor on the DRAM time of a sector of local memory
    # part of a cache that resident threads may touch between two accesses to a spilled word
    # before some words are evicted; all are where they touch as much as it holds
    spill_lost_from: HardwareParameter
    # stall of a warp per line of code that prefetching leaves, in loops larger than the instruction cache
    instruction_miss_cycles: HardwareParameter
    l2_kept_share: HardwareParameter  # part of the L2 that still holds the previous launch's data
    atomic_slice_bytes: HardwareParameter  # range of addresses that one atomic unit of the L2 serves
    # L2 atomic unit, per further lane that adds a floating-point number to the same word
    atomic_float_cycles: HardwareParameter
    # lanes whose integer additions to one word are combined into one
    atomic_combined_lanes: HardwareParameter
    path_queue_cycles: HardwareParameter  # work queued on the load/store path before warps stall on it
    # work that the SM's share of L2 or DRAM accepts at once, before it limits the rate
    l2_burst_cycles: HardwareParameter
    # part of the datasheet's bandwidth that kernels reach, if the product has no `streaming_gbps`
    dram_efficiency: HardwareParameter
    dram_read_efficiency: HardwareParameter  # likewise, of kernels that only read
    # DRAM time of a byte written over that of a byte read, where the DRAM turns from reads to writes and back
    dram_turnaround_factor: HardwareParameter
    line_bytes: HardwareParameter
    sector_bytes: HardwareParameter
    l1_ways: HardwareParameter
    l2_ways: HardwareParameter
    # copy engine, per request to the L2 (one line of one row of a box)
    copy_request_cycles: HardwareParameter | None = None
    # work that the SM's share of the DRAM accepts at once, since others ask at other times;
    # None: `l2_burst_cycles`
    dram_burst_cycles: HardwareParameter | None = None
    # What the slowest of a batch of lines from the DRAM takes beyond the latency of one, where CTAs share
    # them and wait for the same fill; None: it is not known that they do.
    dram_batch_cycles: HardwareParameter | None = None
    # part of what is stored to local memory that goes on to the L2; None: what the L1 cannot keep
    local_store_l2_share: HardwareParameter | None = None
    # load/store path, per line that an LDGSTS reads; None: no more than its issue cycles
    copy_line_path_cycles: HardwareParameter | None = None
    # L1 tags, per 128 bytes of a load that hits what is still on its way into the L1; None: as any hit
    second_look_cycles: HardwareParameter | None = None
    # between memory instructions, conversions and special functions that an SM hands to their units, of all
    # sub-cores together; None: no limit
    dispatch_cycles: HardwareParameter | None = None
    # part of the bank-conflict passes of LDSM that costs time; None: all
    matrix_conflict_share: HardwareParameter | None = None
    # rate at which warpgroup MMAs fetch operands from shared memory, per SM; None: no limit
    warpgroup_operand_bytes_per_cycle: HardwareParameter | None = None


class InstructionCaches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instruction caches of an SM: its own, and what brings lines of 128 bytes that it lacks.

    The cache beyond it holds `memory.instruction_cache_bytes`, and several SMs share it.
    """

    sm_bytes: HardwareParameter  # of the SM's own cache
    # between two lines that warps of an SM at places of their own get, while all SMs fetch
    line_cycles: HardwareParameter
    miss_bytes: HardwareParameter  # of code that one request to the L2 brings
    shared_ways: HardwareParameter  # of the cache beyond the SM's, whose entries have as many bytes
    miss_cycles: HardwareParameter  # from that request until the code is here


class SharedMemoryCarveouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shared-memory sizes that the driver can configure; the L1 gets the rest of the SM's memory."""

    kib: tuple[int, ...]  # ascending
    basis: Basis
    source: str

    def find_carveout_bytes(self, shared_bytes: float) -> int:
        """Return the smallest size of at least `shared_bytes`, else the largest."""
        sizes = [1024 * size for size in self.kib]
        return next((size for size in sizes if size >= shared_bytes), sizes[-1])


class SchedClassTiming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing of one scheduling class on one architecture."""

    pipe: Pipe
    alternate_pipe: Pipe | None = None  # second pipe that executes the class
    # cycles for which one warp instruction occupies its pipe of one sub-core: 32 / lanes;
    # 0 for MMA classes, whose interval follows from the product's tensor rate
    issue_cycles: HardwareParameter
    latency_cycles: HardwareParameter  # from issue to the issue of the first dependent instruction, unloaded
    completion: Completion  # how a dependent instruction waits for the result


class IssueTiming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Least cycles between instructions, as compilers space them by stall counts.

    They are read where code has no control words.
    """

    # added to the latency of a result of fixed latency whose consumer is on another pipe
    other_pipe_cycles: HardwareParameter
    guard_cycles: HardwareParameter  # from writing a predicate to its use as guard or by a memory instruction
    uniform_guard_cycles: HardwareParameter  # likewise, of a uniform predicate
    uniform_address_cycles: HardwareParameter  # from writing a uniform register to its use in an address
    uniform_interval_cycles: HardwareParameter  # between two instructions of the uniform pipe
    memory_interval_cycles: HardwareParameter  # between two memory instructions
    product_interval_cycles: HardwareParameter  # between two matrix instructions, at most
    product_operand_cycles: HardwareParameter  # from writing a register to its use by a matrix instruction
    barrier_cycles: HardwareParameter  # from a CTA barrier or a fence to a memory instruction or a branch
    scoreboard_cycles: HardwareParameter  # from setting a scoreboard to waiting for it
    # latency of IMAD.WIDE while the sub-core's tensor core works for a warpgroup; None: as ever
    wide_beside_warpgroup_cycles: HardwareParameter | None = None
    # a warp keeps the issue port until it waits, then the one that has issued longest ago; None: the youngest
    runs_in_turns: HardwareParameter | None = None
    # in which an instruction reads its registers, so that conflicts even out; None: all at once
    operand_window_cycles: HardwareParameter | None = None


class WarpgroupContention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What other instructions have left while a product of a warpgroup (wgmma) runs.

    Its sums go through the register file, whose ports results of other pipes need as well.
    """

    alu_factor: HardwareParameter  # on the cycles for which a warp instruction occupies the ALU
    max_queued_products: HardwareParameter  # of a sub-core, that are not done when another one issues


class ConstantBankLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Byte offsets in constant bank 0 of the words that the driver writes there.

    An offset is None if the architecture has no such word. On sm_100 and later, code
    subtracts SR_CgaSize x 0xa0 from the offsets of the workspace, `dynamic_shared_bytes` and the words of the
    cluster.
    """

    arguments: HardwareParameter  # first kernel argument
    block_dim: HardwareParameter  # three words: x, y, z
    grid_dim: HardwareParameter  # three words: x, y, z
    stack_pointer: HardwareParameter  # initial stack pointer
    dynamic_shared_bytes: HardwareParameter
    local_window: HardwareParameter  # generic address of local memory, 64 bits
    user_window: HardwareParameter  # generic address of constant bank 3, 64 bits
    grid_id: HardwareParameter  # %gridid, 64 bits
    sm_count: HardwareParameter  # %nsmid
    argument_window: HardwareParameter  # generic address of the word at `argument_window_start`, 64 bits
    argument_window_start: HardwareParameter  # offset whose generic address `argument_window` holds
    workspace_low: HardwareParameter  # address of a cooperative launch's workspace, lower half
    workspace_high: HardwareParameter  # upper half
    shared_window: HardwareParameter | None = None  # generic address of shared memory, 64 bits
    global_descriptor: HardwareParameter | None = None  # descriptor of global accesses, 64 bits
    reserved_shared_bytes: HardwareParameter | None = None  # see `SmLimits.shared_reserved_bytes_per_cta`
    explicit_cluster: HardwareParameter | None = None  # 1 if the launch has clusters, else 0
    cluster_dim: HardwareParameter | None = None  # three words: CTAs of a cluster by x, y, z
    cluster_reciprocals: HardwareParameter | None = None  # three words: 1 / `cluster_dim`, as floats
    cluster_counts: HardwareParameter | None = None  # three words: clusters of the grid by x, y, z
    cluster_ctas: HardwareParameter | None = None  # CTAs of a cluster, in all


class Tcgen05MmaTiming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured timing of one kind of tcgen05.mma, for any N and any type.

    The kind is given by the place of operand A, the CTAs of a group and M.
    """

    a: Literal["shared", "tensor"]  # memory that holds operand A
    ctas: int  # CTAs of a group: 1 or 2
    m: int  # M of the instruction, over all CTAs of the group
    rows: int  # rows per CTA whose time the instruction takes: M = 64 can take as long as 128
    operand_cycles: float  # minimum interval at N = 0, set by the fetch of the operands
    operand_column_cycles: float  # added to it per column of N
    latency_cycles: float  # from issue to the arrival at the mbarrier, at N = 0
    latency_column_cycles: float  # added to it per column of N
    basis: Basis
    source: str


class WorkEnergy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Energy that work takes, in picojoules, and how the SMs' voltage follows their clock.

    All but the DRAM's is at the lowest voltage, and grows with the voltage squared. The voltage is the lowest
    up to `voltage_floor_mhz`, and grows linearly above.
    """

    voltage_floor_mhz: HardwareParameter
    voltage_per_ghz: HardwareParameter  # share of the lowest voltage that it grows by, per GHz
    sm_cycle_pj: HardwareParameter  # of a cycle of an SM that has warps, whatever they do
    lane_pj: HardwareParameter  # of one lane of an instruction other than matrix products
    double_lane_pj: HardwareParameter  # likewise, of FP64 instructions
    tensor_pj: Mapping[TensorRate, HardwareParameter]  # of a multiply-add of a matrix product, random data
    shared_byte_pj: HardwareParameter  # of a byte between shared memory or L1 and registers
    l2_byte_pj: HardwareParameter  # of a byte between L2 and an SM
    dram_byte_pj: HardwareParameter  # of a byte between DRAM and L2
    # part of the cycles that is left while tensor cores work, whatever the power: the others are skipped,
    # which no clock that the driver reports shows; None: all
    tensor_clock_share: HardwareParameter | None = None


Fp32Tile = Literal["128x128", "128x64", "64x64", "32x128", "128x32", "64x32", "32x32"]


class OperatorTraits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What models of operators read of an architecture, and of the chip of a GPU that has none."""

    # rate of large products that power allows: TF over the root of watts times peak TF;
    # None: `other_factor` of `hwdb/serving.toml`
    product_factor: HardwareParameter | None = None
    process_nm: HardwareParameter | None = None  # as vendors name it; energy per operation goes with it
    # part of the tensor rate that warp-wide MMA reaches there; None: `Arch.warp_mma_share`
    attention_mma_share: HardwareParameter | None = None
    exponentials_per_cycle: HardwareParameter | None = None  # of an SM; None: 16
    l1_bytes_per_sm: HardwareParameter | None = None  # None: all that shared memory leaves at its smallest
    # what the L2's slices hand out, by its size in MiB; None: no less than the SMs ask for
    l2_slice_bytes_per_cycle_per_mib: HardwareParameter | None = None
    l2_store_factor: HardwareParameter | None = None  # where a product has no `l2.store_factor`; None: 1
    # "halves": near and far latencies differ twofold, and what SMs of both halves read is kept twice
    l2_layout: Literal["whole", "halves"] | None = None
    shares_requests: bool | None = None  # the two SMs of a TPC ask the L2 once for what both read
    nvlink_generation: HardwareParameter | None = None  # None: no NVLink
    # tiles of cuBLAS's FP32 products, columns x rows; None: of linear ones all, of batched ones 128x128
    fp32_linear_tiles: tuple[Fp32Tile, ...] | None = None
    fp32_batched_tiles: tuple[Fp32Tile, ...] | None = None
    # whether TensorRT-LLM's decode cuts a request's keys among CTAs: of MLA, and of FP8 keys that several
    # heads share; None: it does
    splits_latent_decode: bool | None = None
    splits_fp8_decode: bool | None = None


class Arch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An architecture: hwdb/arch/NAME.toml, or one in the user's folder, merged with its parents."""

    schema: Literal["warplens/arch/1"]
    name: str  # sm_NN
    family: str
    # Architectures whose machine code runs, the best first; that of the first one is native: tables that are
    # kept by architecture (weights, compiled facts) know it by that name.
    code: Annotated[tuple[Annotated[str, msgspec.Meta(pattern=r"^sm_\d+$")], ...], msgspec.Meta(min_length=1)]
    corrections: str | None = None  # architecture whose GPUs' learned corrections hold; None: the native one
    typical_gpu: str | None = None  # GPU used if the user names none
    inherits: str | None = None  # name of the parent
    sources: Mapping[str, str] = {}  # source by id
    unsupported: tuple[SchedClass, ...] = ()  # classes that no instruction of the architecture has
    # part of the product's tensor rate that single-warp MMA reaches;
    # below 1 where only warpgroup or tcgen05 instructions reach all of it
    warp_mma_share: HardwareParameter
    tensor_cores_per_sm: HardwareParameter
    constant_bank: ConstantBankLayout
    limits: SmLimits
    shared_carveouts: SharedMemoryCarveouts
    memory: MemorySubsystem
    # None: not measured; what misses takes `memory.instruction_miss_cycles`
    instruction_caches: InstructionCaches | None = None
    issue: IssueTiming
    warpgroup_contention: WarpgroupContention | None = None  # None: none known
    energy: WorkEnergy | None = None  # None: not known, and no clock follows from a power limit
    tensor_core_product: tuple[Tcgen05MmaTiming, ...] = ()  # empty: no tcgen05, or not measured
    operators: OperatorTraits = OperatorTraits()
    sched: Mapping[SchedClass, SchedClassTiming]


class Sm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Streaming multiprocessors of a product."""

    count: HardwareParameter  # enabled SMs


class SmClocks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SM clocks of a product."""

    boost_mhz: HardwareParameter  # datasheet
    base_mhz: HardwareParameter | None = None  # datasheet
    tensor_mhz: HardwareParameter | None = None  # clock for which the vendor's tensor peaks are computed
    sustained_mhz: HardwareParameter | None = None  # under load of any kind; None: boost clock
    # part of the cycles that is left while tensor cores work; None: the architecture's `tensor_clock_share`
    tensor_share: HardwareParameter | None = None
    # while tensor cores are busy; None: `sustained_mhz`
    sustained_tensor_mhz: HardwareParameter | None = None
    # while tensor cores are busy for a few milliseconds at most, before the power limit lowers the clock;
    # None: `sustained_tensor_mhz`
    launch_tensor_mhz: HardwareParameter | None = None
    # while most of that work is MMA on types of 8 bits or fewer; None: `sustained_tensor_mhz`
    sustained_narrow_mhz: HardwareParameter | None = None
    # while FP32 work fills the SMs, on cards whose power limit lowers the clock then;
    # kernels that are bound by memory run at `sustained_mhz`
    sustained_float_mhz: HardwareParameter | None = None


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Device memory of a product."""

    kind: str  # e.g. HBM3e
    has_ecc: bool = True  # as delivered
    bandwidth_gbps: HardwareParameter  # datasheet, GB/s
    size_gb: HardwareParameter | None = None
    bus_bits: HardwareParameter | None = None
    sustained_gbps: HardwareParameter | None = None  # best measured rate, GB/s; None: `bandwidth_gbps`
    # rate of kernels that do little but read and write, GB/s;
    # None: `bandwidth_gbps` times `MemorySubsystem.dram_efficiency`
    streaming_gbps: HardwareParameter | None = None
    read_gbps: HardwareParameter | None = None  # of kernels that only read; None: as above
    turnaround_factor: HardwareParameter | None = None  # None: `MemorySubsystem.dram_turnaround_factor`
    l2_latency_cycles: HardwareParameter | None = None  # the product's own; None: the architecture's
    dram_latency_cycles: HardwareParameter | None = None  # the product's own; None: the architecture's


class L2Cache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Size, bandwidth and retention of a product's L2."""

    size_bytes: HardwareParameter
    bandwidth_gbps: HardwareParameter | None = None  # of loads, GB/s
    # loaded bytes that one stored byte costs; None: `OperatorTraits.l2_store_factor`
    store_factor: HardwareParameter | None = None
    # working set, in L2 sizes, up to which the next launch finds all data;
    # None: `MemorySubsystem.l2_kept_share`
    kept_share: HardwareParameter | None = None
    slices: HardwareParameter | None = None
    clock_mhz: HardwareParameter | None = None  # of the slices, which is not that of the SMs
    slice_efficiency: HardwareParameter | None = None  # part of a slice's cycles in which it serves
    # What its slices hand out, GB/s; SMs that ask for the same lines in step get more, see `l2_sharing`.
    # None: derived from the slices, and where those are not known `bandwidth_gbps` for all.
    slice_gbps: HardwareParameter | None = None
    first_wave_lookup_share: HardwareParameter | None = None  # look-ups for a request, in a first wave
    lookup_share_growth: HardwareParameter | None = None  # in e times as many waves
    miss_lookups: HardwareParameter | None = None  # further look-ups of a sector that comes from the DRAM
    # further requests of a line that comes from the DRAM, with fills and writes; None: as `miss_lookups`
    miss_requests: HardwareParameter | None = None
    # lines that loads look up in a microsecond at most, however few of their sectors; None: derived from the
    # slices, one in each cycle, and where those are not known no limit
    requests_per_us: HardwareParameter | None = None
    # lines that the L2 fetches in a microsecond at most, however few of their sectors; None: no limit
    missed_lines_per_us: HardwareParameter | None = None
    # part of the L2 that holds sectors of random places; None: as `kept_share`
    scattered_share: HardwareParameter | None = None
    # working set, in L2 sizes, from which the next launch finds nothing; None: as `kept_share`
    lost_share: HardwareParameter | None = None


class TensorThroughput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dense MMA throughput of a product for one tensor rate."""

    fma_per_cycle_per_sm: HardwareParameter  # multiply-adds


class PeakThroughput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dense peaks as the vendor prints them (with FP32 accumulation, where the accumulator matters)."""

    fp64_tflops: HardwareParameter | None = None
    fp64_tensor_tflops: HardwareParameter | None = None
    fp32_tflops: HardwareParameter | None = None
    fp32_matrix_tflops: HardwareParameter | None = None  # of FP32 inputs, where matrix units take them (AMD)
    fp16_tflops: HardwareParameter | None = None
    tf32_tensor_tflops: HardwareParameter | None = None
    fp16_tensor_tflops: HardwareParameter | None = None
    bf16_tensor_tflops: HardwareParameter | None = None
    fp8_tensor_tflops: HardwareParameter | None = None
    int8_tensor_tops: HardwareParameter | None = None
    fp4_tensor_tflops: HardwareParameter | None = None


class Power(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Power limits of a product, watts."""

    tdp_w: HardwareParameter
    limit_w: HardwareParameter | None = None  # set by the owners of the measured cards; None: `tdp_w`
    # at which the clock falls within microseconds, before the mean of some 50 ms exceeds `limit_w`;
    # None: `limit_w`, as all but the first launches of a row run
    burst_w: HardwareParameter | None = None
    idle_w: HardwareParameter | None = None  # without work, at its highest clock; None: a share of `tdp_w`
    standby_w: HardwareParameter | None = None  # without work, at its lowest clock; None: `idle_w`


class Interconnect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Links of a product to other GPUs and to the host."""

    nvlink_gbps: HardwareParameter | None = None  # GB/s, sum of both directions
    is_bridged: bool = False  # NVLink joins pairs of cards, by a bridge that may be there
    domain_gpus: HardwareParameter | None = None  # GPUs that NVLink joins; None: those of a server, 8
    pcie: str = ""  # host link, e.g. "5.0 x16"


class LaunchLatency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients of AMALI's kernel launch latency (equations 27 and 28), in cycles.

    Latency = (alpha w^2 - beta w + gamma) * CTAs + intercept_cycles, for w warps in a CTA.
    """

    alpha: HardwareParameter
    beta: HardwareParameter
    gamma: HardwareParameter
    intercept_cycles: HardwareParameter


class LaunchCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times that launching a kernel adds to its execution."""

    overhead_us: HardwareParameter  # duration of an empty kernel
    interval_us: HardwareParameter | None = None  # minimum period of small kernels in a stream
    # duration of an empty kernel as profilers that trace kernels record it; None: `overhead_us`
    kernel_us: HardwareParameter | None = None
    # duration of an empty kernel by Nsight Compute; None: `interval_us`
    ncu_us: HardwareParameter | None = None
    ctas_per_us: HardwareParameter  # rate at which the GPU dispatches CTAs
    latency: LaunchLatency | None = None  # None: derived from `overhead_us` and `ctas_per_us`


class GpuFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A product: hwdb/gpu/NAME.toml, merged with its parents.

    A shipped product inherits from its chip, hwdb/chip/NAME.toml, which holds what all products of a die
    share, in the same tables. A user's file may inherit from a chip or a product.
    """

    schema: Literal["warplens/gpu/1"]
    name: str
    vendor: str
    chip: str
    arch: str  # name of the architecture
    # "kernels" needs an architecture file; "operators" is for operator models alone
    support: Literal["kernels", "operators"] = "kernels"
    year: int | None = None  # of release
    inherits: str | None = None  # name of the parent, a chip or a product
    aliases: tuple[str, ...] = ()  # other names by which users find it
    device_name: str = ""  # as the CUDA or HIP runtime calls it, torch.cuda.get_device_name()
    pooled_word: str = ""  # vLLM tunes devices with this word in their names under this one's name
    has_small_vllm_steps: bool = False  # vLLM's steps are those of GPUs with less memory, whatever it has
    note: str = ""
    sources: Mapping[str, str] = {}  # source by id
    sm: Sm
    clock: SmClocks
    memory: DeviceMemory
    l2: L2Cache
    # a missing rate falls back to another, see `Gpu.find_tensor_fma_per_cycle`
    tensor: Mapping[TensorRate, TensorThroughput] = {}
    peak: PeakThroughput = PeakThroughput()
    power: Power | None = None
    link: Interconnect = Interconnect()
    launch: LaunchCosts
    operators: OperatorTraits | None = None  # in place of the architecture's
