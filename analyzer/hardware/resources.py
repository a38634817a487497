"""The machine as resources: which figure of the hardware database belongs to which, and how it scales.

Every figure of the schema stands in exactly one resource, with its scaling: what it does where the resource
gets twice its rate.

    rate       twice as much: bytes or operations per second or per cycle
    time       half as long: what one piece of work takes of the resource
    latency    stays: time that work spends on its way, however little there is
    size       stays: what the resource holds
    nothing    stays: ratios, counts, widths and limits

Figures of one part of a resource measure the same rate. An edit of a rate moves the whole part; a time is a
base figure, and an edit of it moves nothing else unless the table says so. Three more relations:

    per        the figure is also a product of these of other resources: a peak of SMs and clock, an SM's
               share of the L2 of the inverse of SMs
    follows    the figure is derived from, or stands in for, the nearest of these that an edit names
    bases      the rate of the resource is a product of these, units and clock: an edit of one moves all

An edit names a figure, or a resource with what changes of it: `l2.rate=x2` (or `l2.units`, `l2.clock` where
the bases are known), `l2.latency=x0.5`, `l2.size=x2`.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache, partial

from msgspec import Struct

from analyzer.ir.scheduling import SchedClass, TensorRate


class Scaling(StrEnum):
    """What a figure does where its resource gets twice its rate."""

    RATE = "rate"
    TIME = "time"
    LATENCY = "latency"
    SIZE = "size"
    NOTHING = "nothing"


class PerformanceDirection(StrEnum):
    """Effect of a larger figure on a kernel's time."""

    MORE_IS_FASTER = "more is faster"
    LESS_IS_FASTER = "less is faster"
    CAPACITY = "capacity"  # a size or an allocation unit: the effect has no fixed sign


_MORE, _LESS = PerformanceDirection.MORE_IS_FASTER, PerformanceDirection.LESS_IS_FASTER
_DIRECTIONS = {
    Scaling.RATE: _MORE,
    Scaling.TIME: _LESS,
    Scaling.LATENCY: _LESS,
    Scaling.SIZE: PerformanceDirection.CAPACITY,
    Scaling.NOTHING: PerformanceDirection.CAPACITY,
}


class Factor(Struct, frozen=True):
    """A figure of another resource by which one is multiplied: the nearest of `keys` that is edited."""

    keys: tuple[str, ...]
    exponent: int


class FigureRow(Struct, frozen=True, kw_only=True):
    """How one figure scales."""

    key: str
    resource: str
    scaling: Scaling
    part: str = ""  # figures of one resource and part move together; "": this one moves by itself
    moves_part: bool = False  # an edit of it is one of the whole part
    per: tuple[Factor, ...] = ()
    follows: tuple[str, ...] = ()  # from the most general to the nearest
    direction: PerformanceDirection

    @property
    def exponent(self) -> int:
        """Exponent of the resource's rate in this figure."""
        return {Scaling.RATE: 1, Scaling.TIME: -1}.get(self.scaling, 0)

    @property
    def relation(self) -> str:
        """Say what else the figure scales with; empty for nothing."""
        signs = {1: "times", -1: "over"}
        parts = [f"{signs[one.exponent]} {' or '.join(one.keys)}" for one in self.per]
        parts += [f"follows {', '.join(self.follows)}"] if self.follows else []
        return "; ".join(parts)


class Resource(Struct, frozen=True, kw_only=True):
    """A resource of the machine with its figures."""

    name: str  # as edits name it
    title: str
    rows: tuple[FigureRow, ...]
    bases: Mapping[str, str] = {}  # figure by the role that edits name: `units`, `clock`

    @property
    def roles(self) -> tuple[str, ...]:
        """List what an edit can name of it: `rate`, its bases, `latency`, `size`."""
        has = {row.scaling for row in self.rows}
        found = ["rate"] if has & {Scaling.RATE, Scaling.TIME} else []
        return (*found, *self.bases, *(one.value for one in (Scaling.LATENCY, Scaling.SIZE) if one in has))


class _Figures(Struct, frozen=True, kw_only=True):
    """Rows of the table below that scale alike; see `FigureRow`."""

    scaling: Scaling
    keys: tuple[str, ...]
    part: str
    moves_part: bool
    per: tuple[Factor, ...]
    follows: tuple[str, ...]
    direction: PerformanceDirection


def _group_figures(
    scaling: Scaling,
    *keys: str,
    part: str | None = None,
    moves_part: bool | None = None,
    per: tuple[Factor, ...] = (),
    follows: tuple[str, ...] = (),
    direction: PerformanceDirection | None = None,
) -> _Figures:
    """Return rows: by default, rates move the part `rate` of their resource, and times move with it."""
    is_of_rate = scaling in {Scaling.RATE, Scaling.TIME}
    return _Figures(
        scaling=scaling,
        keys=keys,
        part=("rate" if is_of_rate else "") if part is None else part,
        moves_part=scaling is Scaling.RATE if moves_part is None else moves_part,
        per=per,
        follows=follows,
        direction=direction or _DIRECTIONS[scaling],
    )


_rates = partial(_group_figures, Scaling.RATE)
_times = partial(_group_figures, Scaling.TIME)
_latencies = partial(_group_figures, Scaling.LATENCY)
_sizes = partial(_group_figures, Scaling.SIZE)
_ratios = partial(_group_figures, Scaling.NOTHING)


def _issue(*classes: SchedClass) -> tuple[str, ...]:
    return tuple(f"sched.{one.value}.issue_cycles" for one in classes)


def _latency(*classes: SchedClass) -> tuple[str, ...]:
    return tuple(f"sched.{one.value}.latency_cycles" for one in classes)


def _fma(*rates: TensorRate) -> tuple[str, ...]:
    return tuple(f"tensor.{one.value}.fma_per_cycle_per_sm" for one in rates)


# ---- scheduling classes by resource ------------------------------------------------------------

_S, _T = SchedClass, TensorRate
# Classes whose latency follows from the memory level that serves the access.
CACHED_LOAD_CLASSES = (_S.GLOBAL_LOAD, _S.GENERIC_LOAD, _S.ASYNC_COPY)
_TENSOR_CLASSES = (
    _S.MMA_HALF, _S.MMA_INT, _S.MMA_BINARY, _S.MMA_DOUBLE, _S.MMA_FP8, _S.MMA_FP4, _S.MMA_WARPGROUP,
    _S.MMA_TENSOR_CORE, _S.TENSOR_CORE_COPY, _S.TENSOR_CORE_CONTROL, _S.WARPGROUP_CONTROL,
)  # fmt: skip
_TENSOR_MEMORY_CLASSES = (_S.TENSOR_MEMORY_LOAD, _S.TENSOR_MEMORY_STORE)
_SHARED_LOAD_CLASSES = (_S.SHARED_LOAD, _S.SHARED_MATRIX)
_SHARED_CLASSES = (*_SHARED_LOAD_CLASSES, _S.SHARED_STORE, _S.SHARED_ATOMIC)
_PATH_CLASSES = (
    _S.GLOBAL_STORE, _S.GLOBAL_REDUCTION, _S.GENERIC_STORE, _S.LOCAL_STORE, _S.SHUFFLE, _S.MATRIX_MOVE,
    _S.CACHE_CONTROL, _S.TEXTURE, _S.SURFACE, _S.RAY, _S.GRAPHICS,
)  # fmt: skip
_BARRIER_CLASSES = (_S.CTA_BARRIER, _S.CLUSTER_BARRIER, _S.MBARRIER, _S.FENCE)
_OTHER_THAN_PIPE_CLASSES = frozenset(
    {
        *CACHED_LOAD_CLASSES, *_TENSOR_CLASSES, *_TENSOR_MEMORY_CLASSES, *_SHARED_CLASSES, *_PATH_CLASSES,
        *_BARRIER_CLASSES, _S.BULK_COPY, _S.LOCAL_LOAD, _S.GLOBAL_ATOMIC,
    }
)  # fmt: skip
_PIPE_CLASSES = tuple(one for one in _S if one not in _OTHER_THAN_PIPE_CLASSES)
# Classes that vendors print a peak of: their issue cycles are its inverse.
_PEAK_CLASSES = {"fp32": (_S.FP32, _S.FP32_PACKED), "fp16": (_S.FP16,), "fp64": (_S.FP64,)}
_WITH_PEAK = frozenset(one for classes in _PEAK_CLASSES.values() for one in classes)

_PER_SM = Factor(("sm.count",), 1)
_PEAK = (_PER_SM, Factor(("clock.boost_mhz",), 1))
_TENSOR_PEAK = (_PER_SM, Factor(("clock.boost_mhz", "clock.tensor_mhz"), 1))
_SHARE_OF_WHOLE = Factor(("sm.count",), -1)
# What the L2 does by a clock of its own, in cycles of the SMs.
_OWN_CLOCK_RATE = Factor(("clock.boost_mhz",), -1)
_OWN_CLOCK_TIME = Factor(("clock.boost_mhz",), 1)

# ---- the table ---------------------------------------------------------------------------------


def _make_resource(
    name: str, title: str, *figures: _Figures, bases: Mapping[str, str] | None = None
) -> Resource:
    rows = tuple(
        FigureRow(
            key=key,
            resource=name,
            scaling=one.scaling,
            part=one.part,
            moves_part=one.moves_part,
            per=one.per,
            follows=tuple(leader for leader in one.follows if leader != key),
            direction=one.direction,
        )
        for one in figures
        for key in one.keys
    )
    return Resource(name=name, title=title, rows=rows, bases=bases or {})


RESOURCES: tuple[Resource, ...] = (
    _make_resource(
        "sms", "SMs: how many, and the warps that each holds",
        _ratios("sm.count", direction=_MORE),
        _sizes("limits.max_warps_per_sm", "limits.max_ctas_per_sm", "limits.max_threads_per_cta"),
        _ratios("limits.subcores_per_sm", "limits.warp_allocation_granularity"),
    ),
    _make_resource(
        "issue", "instruction issue of a sub-core: one instruction a cycle, and what spaces them",
        _times(
            "issue.uniform_interval_cycles", "issue.memory_interval_cycles", "issue.product_interval_cycles",
            "memory.dispatch_cycles",
        ),
        _latencies(
            "issue.other_pipe_cycles", "issue.guard_cycles", "issue.uniform_guard_cycles",
            "issue.uniform_address_cycles", "issue.product_operand_cycles", "issue.scoreboard_cycles",
            "issue.wide_beside_warpgroup_cycles",
        ),
        _ratios("issue.runs_in_turns"),
    ),
    _make_resource(
        "pipes", "pipes of a sub-core other than tensor cores: lanes for each class of instructions",
        *(
            _rates(f"peak.{name}_tflops", part=name, per=_PEAK)
            for name in _PEAK_CLASSES
        ),
        *(
            _times(*_issue(*classes), part=name, moves_part=True)
            for name, classes in _PEAK_CLASSES.items()
        ),
        _times(*_issue(*(one for one in _PIPE_CLASSES if one not in _WITH_PEAK))),
        _latencies(*_latency(*_PIPE_CLASSES)),
        _ratios("warpgroup_contention.alu_factor"),
    ),
    _make_resource(
        "tensor", "tensor cores of an SM",
        _rates("peak.fp16_tensor_tflops", "peak.bf16_tensor_tflops", part="f16", per=_TENSOR_PEAK),
        _rates(*_fma(_T.F16, _T.BF16, _T.F16_ACC16), part="f16"),
        _rates("peak.fp8_tensor_tflops", part="fp8", per=_TENSOR_PEAK),
        _rates(*_fma(_T.FP8, _T.FP8_ACC16, _T.FP8_SCALED, _T.FP6), part="fp8"),
        _rates("peak.tf32_tensor_tflops", part="tf32", per=_TENSOR_PEAK),
        _rates(*_fma(_T.TF32), part="tf32"),
        _rates("peak.fp64_tensor_tflops", part="f64", per=_PEAK),
        _rates(*_fma(_T.F64), part="f64"),
        _rates("peak.int8_tensor_tops", part="int8", per=_TENSOR_PEAK),
        _rates(*_fma(_T.INT8), part="int8"),
        _rates("peak.fp4_tensor_tflops", part="fp4", per=_TENSOR_PEAK),
        _rates(*_fma(_T.FP4), part="fp4"),
        _rates("peak.fp32_matrix_tflops", part="fp32", per=_PEAK),
        _rates(*_fma(_T.INT4), part="int4"),
        _rates(*_fma(_T.BINARY), part="binary"),
        _times(*_issue(*_TENSOR_CLASSES)),
        _latencies(*_latency(*_TENSOR_CLASSES)),
        _ratios("warp_mma_share", direction=_MORE),
        _ratios("tensor_cores_per_sm", "warpgroup_contention.max_queued_products"),
    ),
    _make_resource(
        "registers", "register file and its ports",
        _sizes("limits.registers_per_sm", "limits.max_registers_per_thread"),
        _ratios("limits.register_banks", "limits.register_allocation_unit"),
        _ratios("issue.operand_window_cycles", direction=_LESS),
    ),
    _make_resource(
        "load_store", "load/store path of an SM, by which memory instructions and shuffles go",
        _times(
            *_issue(*CACHED_LOAD_CLASSES, _S.LOCAL_LOAD, _S.GLOBAL_ATOMIC, *_PATH_CLASSES, *_SHARED_CLASSES),
            "memory.store_line_cycles", "memory.line_fill_cycles", "memory.copy_line_path_cycles",
        ),
        _latencies(*_latency(*_PATH_CLASSES), "memory.read_release_cycles"),
        _ratios("memory.path_queue_cycles", "memory.lines_per_store_pass"),
    ),
    _make_resource(
        "shared", "shared memory of an SM and its banks",
        _rates("memory.shared_bytes_per_cycle_per_sm", "memory.warpgroup_operand_bytes_per_cycle"),
        _times("memory.shared_pass_cycles", moves_part=True),
        _latencies("memory.shared_latency_cycles", *_latency(_S.SHARED_STORE, _S.SHARED_ATOMIC)),
        _latencies(*_latency(*_SHARED_LOAD_CLASSES), follows=("memory.shared_latency_cycles",)),
        _sizes("limits.shared_bytes_per_sm", "limits.shared_bytes_per_cta"),
        _ratios(
            "limits.shared_allocation_unit_bytes", "limits.shared_reserved_bytes_per_cta",
            "limits.shared_start_bytes",
        ),
        _ratios("memory.matrix_conflict_share", direction=_LESS),
    ),
    _make_resource(
        "l1", "L1 cache of an SM, its tags, and its port to the L2",
        _rates("memory.l1_bytes_per_cycle_per_sm"),
        _rates("memory.l2_port_bytes_per_cycle", part="port"),
        _times("memory.second_look_cycles"),
        _latencies("memory.l1_latency_cycles"),
        _latencies(
            *_latency(*CACHED_LOAD_CLASSES, _S.LOCAL_LOAD), follows=("memory.l1_latency_cycles",)
        ),
        _sizes("memory.l1_shared_bytes_per_sm"),
        _ratios(
            "memory.line_bytes", "memory.sector_bytes", "memory.l1_ways",
            "memory.spill_lost_from",
        ),
        _ratios("memory.local_store_l2_share", direction=_LESS),
    ),
    _make_resource(
        "l2", "L2 cache of the GPU: slices, and the network between them and the SMs",
        _ratios("l2.slices", "l2.slice_efficiency"),
        _rates("l2.clock_mhz", moves_part=False),
        _rates("l2.slice_gbps", "l2.requests_per_us", follows=("l2.slice_efficiency",)),
        _rates("l2.missed_lines_per_us", "l2.bandwidth_gbps"),
        _rates("memory.l2_bytes_per_cycle_per_sm", per=(_SHARE_OF_WHOLE, _OWN_CLOCK_RATE)),
        _times("memory.l2_store_line_cycles", per=(_PER_SM, _OWN_CLOCK_TIME)),
        _times("memory.atomic_line_cycles", "memory.atomic_float_cycles", per=(_OWN_CLOCK_TIME,)),
        _latencies("memory.l2_latency_cycles"),
        _latencies(*_latency(_S.GLOBAL_ATOMIC), follows=("memory.l2_latency_cycles",)),
        _sizes("l2.size_bytes"),
        _ratios(
            "memory.l2_kept_share", "l2.kept_share", direction=_MORE,
            follows=("memory.l2_kept_share", "l2.kept_share"),
        ),
        _ratios("l2.lost_share", direction=_MORE, follows=("memory.l2_kept_share", "l2.kept_share")),
        _ratios("l2.scattered_share", direction=_MORE),
        _ratios("l2.store_factor", "l2.first_wave_lookup_share", direction=_LESS),
        _ratios(
            "l2.lookup_share_growth", "l2.miss_lookups", "l2.miss_requests", "memory.l2_burst_cycles",
            "memory.atomic_slice_bytes", "memory.atomic_combined_lanes", "memory.l2_ways",
            "memory.lines_per_pass",
        ),
        bases={"units": "l2.slices", "clock": "l2.clock_mhz"},
    ),
    _make_resource(
        "dram", "device memory",
        _ratios("memory.bus_bits"),
        _rates("memory.bandwidth_gbps", "memory.sustained_gbps"),
        _rates("memory.streaming_gbps", follows=("memory.dram_efficiency",)),
        _rates("memory.read_gbps", follows=("memory.dram_efficiency", "memory.dram_read_efficiency")),
        _latencies("memory.dram_latency_cycles", "memory.dram_batch_cycles", "memory.dram_load_cycles"),
        _sizes("memory.size_gb"),
        _ratios("memory.dram_efficiency", direction=_MORE),
        _ratios("memory.dram_read_efficiency", direction=_MORE, follows=("memory.dram_efficiency",)),
        _ratios(
            "memory.dram_turnaround_factor", "memory.turnaround_factor",
            follows=("memory.dram_turnaround_factor", "memory.turnaround_factor"),
        ),
        _ratios(
            "memory.partial_write_factor", "memory.spill_dram_factor", "memory.dram_burst_cycles",
        ),
        bases={"units": "memory.bus_bits"},
    ),
    _make_resource(
        "copy_engine", "copy engine of an SM (TMA)",
        _times(*_issue(_S.BULK_COPY), "memory.copy_request_cycles"),
        _latencies(*_latency(_S.BULK_COPY)),
        _ratios("memory.copy_stream_factor"),
    ),
    _make_resource(
        "tensor_memory", "tensor memory of an SM",
        _times(*_issue(*_TENSOR_MEMORY_CLASSES)),
        _latencies(*_latency(*_TENSOR_MEMORY_CLASSES)),
        _sizes("limits.tensor_columns_per_sm"),
    ),
    _make_resource(
        "fetch", "instruction fetch: the caches of code, and of constants",
        _times("instruction_caches.line_cycles", "memory.instruction_miss_cycles"),
        _latencies("instruction_caches.miss_cycles"),
        _sizes("instruction_caches.sm_bytes", "memory.instruction_cache_bytes"),
        _ratios(
            "instruction_caches.miss_bytes", "instruction_caches.shared_ways", "memory.constant_line_bytes"
        ),
    ),
    _make_resource(
        "barriers", "barriers and fences",
        _times(*_issue(*_BARRIER_CLASSES), "memory.barrier_path_cycles"),
        _latencies(*_latency(*_BARRIER_CLASSES), "issue.barrier_cycles", "memory.system_fence_cycles"),
    ),
    _make_resource(
        "launch", "launch of a kernel and of its CTAs",
        _times("launch.overhead_us", "memory.cta_start_cycles"),
        _times(
            "launch.interval_us", "launch.kernel_us", "launch.ncu_us", "launch.latency.intercept_cycles",
            follows=("launch.overhead_us",),
        ),
        _rates("launch.ctas_per_us", part="CTAs"),
        _times("launch.latency.alpha", "launch.latency.beta", "launch.latency.gamma", part="CTAs"),
        _latencies("memory.cta_turnover_cycles"),
    ),
    _make_resource(
        "clock", "clock of the SMs: all cycles of the database are its cycles unless a figure says otherwise",
        _rates("clock.boost_mhz", moves_part=False),
        _rates("clock.base_mhz", "clock.tensor_mhz", "clock.sustained_mhz",
               moves_part=False, follows=("clock.boost_mhz",)),
        _rates("clock.sustained_float_mhz", moves_part=False,
               follows=("clock.boost_mhz", "clock.sustained_mhz")),
        _rates("clock.sustained_tensor_mhz", moves_part=False,
               follows=("clock.boost_mhz", "clock.tensor_mhz", "clock.sustained_mhz")),
        _rates(
            "clock.launch_tensor_mhz", "clock.sustained_narrow_mhz", moves_part=False,
            follows=(
                "clock.boost_mhz", "clock.tensor_mhz", "clock.sustained_mhz", "clock.sustained_tensor_mhz"
            ),
        ),
        _ratios("clock.tensor_share", "energy.tensor_clock_share", direction=_MORE),
    ),
    _make_resource(
        "power", "power limit, and the energy of work, which set the clock",
        _rates("power.tdp_w", moves_part=False),
        _rates("power.limit_w", "power.burst_w", moves_part=False),
        _ratios("power.idle_w", "power.standby_w", direction=_LESS),
        _ratios(
            "energy.voltage_floor_mhz", "energy.voltage_per_ghz", "energy.sm_cycle_pj", "energy.lane_pj",
            "energy.double_lane_pj", "energy.shared_byte_pj", "energy.l2_byte_pj", "energy.dram_byte_pj",
            *(f"energy.tensor_pj.{one.value}" for one in _T), direction=_LESS,
        ),
    ),
    _make_resource(
        "links", "links to other GPUs and the host", _rates("link.nvlink_gbps"), _sizes("link.domain_gpus")
    ),
    _make_resource(
        "operators", "what models of operators and of serving read beside all this; each moves by itself",
        _rates(
            "operators.product_factor", "operators.attention_mma_share", "operators.exponentials_per_cycle",
            "operators.l2_slice_bytes_per_cycle_per_mib", part="", moves_part=False,
        ),
        _sizes("operators.l1_bytes_per_sm"),
        _ratios(
            "operators.process_nm", "operators.l2_store_factor",
            "operators.nvlink_generation",
        ),
    ),
)  # fmt: skip


# ---- what a key means --------------------------------------------------------------------------


@cache
def _index_rows() -> Mapping[str, FigureRow]:
    return {row.key: row for resource in RESOURCES for row in resource.rows}


@cache
def _index_resources() -> Mapping[str, Resource]:
    return {one.name: one for one in RESOURCES}


def find_row(key: str) -> FigureRow | None:
    """Return how a figure scales; None where the schema has no such figure."""
    return _index_rows().get(key)


def find_resource(name: str) -> Resource:
    """Return a resource by its name."""
    return _index_resources()[name]


def iterate_rows() -> Iterator[FigureRow]:
    """Yield all figures of the table, resource by resource."""
    return iter(_index_rows().values())


def parse_resource_key(key: str) -> tuple[Resource, str] | None:
    """Return the resource and the role that a key names, such as `l2.latency`; None if it names neither.

    The name of a resource alone stands for its rate.
    """
    name, _, role = key.partition(".")
    found = _index_resources().get(name)
    if found is None or (role or "rate") not in found.roles:
        return None
    return found, role or "rate"


def find_direction(key: str) -> PerformanceDirection:
    """Return whether a larger figure, or role of a resource, is faster, slower, or a capacity."""
    row = find_row(key)
    if row is not None:
        return row.direction
    named = parse_resource_key(key)
    if named is None or named[1] == Scaling.SIZE:
        return PerformanceDirection.CAPACITY
    return _LESS if named[1] == Scaling.LATENCY else _MORE
