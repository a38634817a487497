"""Figures of the same thing: which ones follow when one of them is edited, and by how much.

A datasheet's bandwidth stands beside the measured one, the rate of the L2 beside one SM's share of it, a
boost clock beside the clocks that it is held at. Models read the measured or derived figure where there is
one, so an edit of the other would have no effect. Therefore what is not edited scales by the same ratio.

    memory.bandwidth_gbps 7672 -> 22000     memory.sustained_gbps 7260 -> 20818, streaming_gbps likewise

A tensor peak is a product of SMs, clock and the rate of one SM. An edit of it scales the rate by what the
edited SMs and clock leave over.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

# Parameter that a model reads if another one is not known.
FALLBACK_KEYS = {
    "clock.sustained_tensor_mhz": "clock.sustained_mhz",
    "clock.launch_tensor_mhz": "clock.sustained_tensor_mhz",
    "clock.sustained_narrow_mhz": "clock.sustained_tensor_mhz",
    "clock.sustained_float_mhz": "clock.sustained_mhz",
    "clock.sustained_mhz": "clock.boost_mhz",
    "memory.sustained_gbps": "memory.bandwidth_gbps",
    "l2.kept_share": "memory.l2_kept_share",
}

# Classes whose latency follows from the memory level that serves the access.
CACHED_LOAD_CLASSES = ("global_load", "generic_load", "async_copy")

_SUSTAINED_CLOCK_KEYS = (
    "clock.sustained_tensor_mhz",
    "clock.launch_tensor_mhz",
    "clock.sustained_narrow_mhz",
    "clock.sustained_float_mhz",
)
_REACHED_BANDWIDTH_KEYS = ("memory.sustained_gbps", "memory.streaming_gbps", "memory.read_gbps")

# Parameters that take the factor of another one; if two of those are set, the factor of the later row.
_COUPLED_KEYS: Mapping[str, tuple[str, ...]] = {
    "clock.boost_mhz": ("clock.sustained_mhz", "clock.tensor_mhz", *_SUSTAINED_CLOCK_KEYS),
    "clock.tensor_mhz": (
        "clock.sustained_tensor_mhz",
        "clock.launch_tensor_mhz",
        "clock.sustained_narrow_mhz",
    ),
    "clock.sustained_mhz": _SUSTAINED_CLOCK_KEYS,
    "clock.sustained_tensor_mhz": ("clock.launch_tensor_mhz", "clock.sustained_narrow_mhz"),
    "memory.bus_bits": ("memory.bandwidth_gbps", *_REACHED_BANDWIDTH_KEYS),
    "memory.bandwidth_gbps": _REACHED_BANDWIDTH_KEYS,
    "memory.dram_efficiency": ("memory.streaming_gbps", "memory.dram_read_efficiency", "memory.read_gbps"),
    # Rates that kernels reach, of which each model reads one.
    "memory.dram_read_efficiency": ("memory.read_gbps",),
    "memory.sustained_gbps": ("memory.streaming_gbps", "memory.read_gbps"),
    "memory.streaming_gbps": ("memory.sustained_gbps", "memory.read_gbps"),
    "memory.read_gbps": ("memory.sustained_gbps", "memory.streaming_gbps"),
    "memory.dram_turnaround_factor": ("memory.turnaround_factor",),
    "memory.turnaround_factor": ("memory.dram_turnaround_factor",),
    # The same path twice: of the whole GPU and of one SM.
    "l2.bandwidth_gbps": ("memory.l2_bytes_per_cycle_per_sm",),
    "memory.l2_bytes_per_cycle_per_sm": ("l2.bandwidth_gbps",),
    # The product's own share stands beside the architecture's.
    "memory.l2_kept_share": ("l2.kept_share", "l2.lost_share"),
    "l2.kept_share": ("l2.lost_share", "memory.l2_kept_share"),
    # A rate, and the cycles of one pass at that rate.
    "memory.shared_bytes_per_cycle_per_sm": ("memory.shared_pass_cycles",),
    "memory.shared_pass_cycles": ("memory.shared_bytes_per_cycle_per_sm",),
    # Latencies of the memory path that scheduling classes repeat.
    "memory.l1_latency_cycles": tuple(
        f"sched.{name}.latency_cycles" for name in (*CACHED_LOAD_CLASSES, "local_load")
    ),
    "memory.l2_latency_cycles": ("sched.global_atomic.latency_cycles",),
    "memory.shared_latency_cycles": (
        "sched.shared_load.latency_cycles",
        "sched.shared_matrix.latency_cycles",
    ),
    # Types that take the same units at the same rate.
    "tensor.f16.fma_per_cycle_per_sm": (
        "tensor.bf16.fma_per_cycle_per_sm",
        "tensor.f16_acc16.fma_per_cycle_per_sm",
    ),
    "tensor.fp8.fma_per_cycle_per_sm": (
        "tensor.fp8_acc16.fma_per_cycle_per_sm",
        "tensor.fp8_scaled.fma_per_cycle_per_sm",
        "tensor.fp6.fma_per_cycle_per_sm",
    ),
    # What an empty kernel takes is also part of a stream's period and of a fitted launch latency.
    "launch.overhead_us": (
        "launch.interval_us",
        "launch.kernel_us",
        "launch.ncu_us",
        "launch.latency.intercept_cycles",
    ),
    "launch.ctas_per_us": ("launch.latency.alpha", "launch.latency.beta", "launch.latency.gamma"),
}

# Costs coupled to a rate, and rates coupled to a cost, take the inverse of its factor.
_INVERSE_PAIRS = frozenset(
    {
        *(("launch.ctas_per_us", key) for key in _COUPLED_KEYS["launch.ctas_per_us"]),
        ("memory.shared_bytes_per_cycle_per_sm", "memory.shared_pass_cycles"),
        ("memory.shared_pass_cycles", "memory.shared_bytes_per_cycle_per_sm"),
    }
)

# Rates of one SM behind a printed peak; the issue cycles of a class are the inverse of its rate.
_PEAK_RATE_KEYS: Mapping[str, tuple[str, ...]] = {
    "peak.fp16_tensor_tflops": ("tensor.f16", "tensor.f16_acc16", "tensor.bf16"),
    "peak.bf16_tensor_tflops": ("tensor.bf16",),
    "peak.tf32_tensor_tflops": ("tensor.tf32",),
    "peak.fp64_tensor_tflops": ("tensor.f64",),
    "peak.fp8_tensor_tflops": ("tensor.fp8", "tensor.fp8_acc16", "tensor.fp8_scaled", "tensor.fp6"),
    "peak.int8_tensor_tops": ("tensor.int8",),
    "peak.fp4_tensor_tflops": ("tensor.fp4",),
    "peak.fp64_tflops": ("sched.fp64",),
    "peak.fp32_tflops": ("sched.fp32", "sched.fp32_packed"),
    "peak.fp16_tflops": ("sched.fp16",),
}
_TENSOR_RATE_FIELD, _ISSUE_FIELD = "fma_per_cycle_per_sm", "issue_cycles"
# Datasheets round: where SMs or clock are edited too, a rest as small as this is no other rate.
_PEAK_ROUNDING = 0.03


class ScaledFigure(Struct, frozen=True):
    """A parameter that followed an edited one."""

    key: str
    factor: float
    leader: str  # key of the edited one

    def __str__(self) -> str:
        return f"{self.key} scaled by {self.factor:.4g} with {self.leader}"


def describe_scaled_figures(figures: Iterable[ScaledFigure]) -> tuple[str, ...]:
    """Return one line for all figures that one edit has scaled by the same factor."""
    groups: dict[tuple[str, float], list[str]] = {}
    for one in figures:
        groups.setdefault((one.leader, one.factor), []).append(one.key)
    return tuple(
        f"{', '.join(keys)} scaled by {factor:.4g} with {leader}" for (leader, factor), keys in groups.items()
    )


def find_coupled_keys(key: str) -> tuple[str, ...]:
    """Return the keys that an edit of this full key scales, unless the GPU lacks them or they are set too."""
    return _COUPLED_KEYS.get(key) or tuple(_list_peak_rates(key))


def find_scaled_figures(factors: Mapping[str, float]) -> tuple[ScaledFigure, ...]:
    """Return the figures that follow edits, each once.

    factors: by key of all edited figures, the new value over the old one; 0 where there was no old one.
    """
    found: dict[str, ScaledFigure] = {}
    for leader in (*_PEAK_RATE_KEYS, *_COUPLED_KEYS):
        factor = factors.get(leader, 0.0)
        if leader in _PEAK_RATE_KEYS and factor:
            factor = _compute_rate_factor(leader, factor, factors)
        if factor in {0.0, 1.0}:
            continue
        for key in find_coupled_keys(leader):
            if key in factors:
                continue
            is_inverse = (leader, key) in _INVERSE_PAIRS or (
                leader in _PEAK_RATE_KEYS and key.endswith(_ISSUE_FIELD)
            )
            found[key] = ScaledFigure(key, 1 / factor if is_inverse else factor, leader)
    return tuple(found.values())


def _list_peak_rates(peak: str) -> Iterator[str]:
    for row in _PEAK_RATE_KEYS.get(peak, ()):
        yield f"{row}.{_TENSOR_RATE_FIELD if row.startswith('tensor') else _ISSUE_FIELD}"


def _compute_rate_factor(peak: str, factor: float, factors: Mapping[str, float]) -> float:
    """Return the factor of one SM's rate per cycle that a peak's factor leaves to it."""
    is_tensor = "_tensor_" in peak
    clock = factors.get("clock.tensor_mhz") if is_tensor else None
    others = (factors.get("sm.count") or 1.0) * (clock or factors.get("clock.boost_mhz") or 1.0)
    rest = factor / others
    return 1.0 if others != 1.0 and abs(rest - 1) <= _PEAK_ROUNDING else rest
