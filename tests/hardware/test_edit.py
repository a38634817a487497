"""Edited figures: what a setting says, what it changes and takes along, and how slips are told."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analyzer.hardware.gpu import Gpu, compute_mma_issue_cycles, find_sched_timing
from analyzer.hardware.gpu_database import load_all_gpus, load_gpu
from analyzer.hardware.occupancy import compute_occupancy
from analyzer.hardware.parameter_edits import (
    MAX_SWEEP_POINTS,
    PARAMETER_ALIASES,
    WHAT_IF_SOURCE,
    ParameterSetting,
    ParameterSweep,
    PerformanceDirection,
    find_direction,
    find_hardware_parameter,
    list_parameter_keys,
    parse_setting,
    parse_sweep,
    resolve_alias,
    with_settings,
)
from analyzer.hardware.resource_scaling import find_coupled_keys
from analyzer.hardware.resources import iterate_rows
from analyzer.hardware.schema import Arch
from analyzer.ir.opcode import MmaShape
from analyzer.ir.scheduling import Basis, SchedClass, TensorRate
from analyzer.text.errors import HardwareError, UsageError, WarplensError

SHIPPED = load_all_gpus()
A100 = load_gpu("a100")
H100 = load_gpu("h100")
T4 = load_gpu("t4")
A10 = load_gpu("a10")
MI300X = load_gpu("mi300x")
BF16 = "tensor.bf16.fma_per_cycle_per_sm"
F16 = "tensor.f16.fma_per_cycle_per_sm"


def edited(gpu: Gpu, *texts: str) -> Gpu:
    return with_settings(gpu, [parse_setting(text) for text in texts])


def arch_of(gpu: Gpu) -> Arch:
    assert gpu.arch is not None
    return gpu.arch


def leaves(value: object, key: str) -> dict[str, object]:
    """All that a file holds, by dotted path; a figure counts as its value alone."""
    if isinstance(value, dict):
        inner = value.items() if "value" not in value else [("", value["value"])]
        return {path: leaf for name, row in inner for path, leaf in leaves(row, f"{key}.{name}").items()}
    return {} if value is None else {key.strip("."): value}


def contents(gpu: Gpu) -> dict[str, object]:
    """The GPU's own and the architecture's figures and facts, apart from each other."""
    return leaves(msgspec.to_builtins(gpu.file), "file") | leaves(msgspec.to_builtins(gpu.arch), "arch")


def changes(before: Gpu, after: Gpu) -> dict[str, tuple[Any, Any]]:
    """Old and new by key, of all that differs; a key that both files hold must change in one alone."""
    old, new = contents(before), contents(after)
    found = {
        path: (old.get(path), new.get(path)) for path in {**old, **new} if old.get(path) != new.get(path)
    }
    keys = {path.partition(".")[2]: pair for path, pair in found.items()}
    assert len(keys) == len(found)
    return keys


# ---- text --------------------------------------------------------------------------------------

SETTINGS = [
    (f"{BF16}=4096", ParameterSetting(BF16, 4096)),
    ("memory.bandwidth_gbps=2.5e3", ParameterSetting("memory.bandwidth_gbps", 2500)),
    ("dram=x1.5", ParameterSetting("memory.bandwidth_gbps", 1.5, is_factor=True)),
    (" sms = X2 ", ParameterSetting("sm.count", 2, is_factor=True)),
    ("no.such.figure=1", ParameterSetting("no.such.figure", 1)),  # a GPU has to say so
]


@pytest.mark.parametrize(("text", "setting"), SETTINGS)
def test_a_setting_is_read(text: str, setting: ParameterSetting) -> None:
    assert parse_setting(text) == setting


@pytest.mark.parametrize(("alias", "key"), PARAMETER_ALIASES.items())
def test_an_alias_stands_for_its_key(alias: str, key: str) -> None:
    assert resolve_alias(alias) == resolve_alias(key) == parse_setting(f"{alias}=1").key == key
    assert find_direction(alias) is find_direction(key)
    assert find_hardware_parameter(A100, alias) is find_hardware_parameter(A100, key)
    assert with_settings(A100, [ParameterSetting(alias, 100)]) == with_settings(
        A100, [ParameterSetting(key, 100)]
    )


NO_SETTINGS = [
    ("dram", "'dram' does not say which figure takes which value"),
    ("dram=", "'dram=' does not say which figure takes which value"),
    ("=5", "'=5' does not say which figure takes which value"),
    ("", "'' does not say which figure takes which value"),
    ("dram=fast", "'fast' in 'dram=fast' is not a number"),
    ("dram=x", "'x' in 'dram=x' is not a number"),
    ("dram=1.5x", "'1.5x' in 'dram=1.5x' is not a number"),
    ("dram=1:2:1", "'1:2:1' in 'dram=1:2:1' is not a number"),
    ("dram=2=3", "'2=3' in 'dram=2=3' is not a number"),
    ("dram=-3", "'-3' in 'dram=-3' is not a positive, finite number"),
    ("dram=0", "'0' in 'dram=0' is not a positive, finite number"),
    ("dram=x0", "'x0' in 'dram=x0' is not a positive, finite number"),
    ("dram=nan", "'nan' in 'dram=nan' is not a positive, finite number"),
    ("dram=inf", "'inf' in 'dram=inf' is not a positive, finite number"),
    ("dram=1e300", "'1e300' in 'dram=1e300' is not a positive, finite number"),
]


@pytest.mark.parametrize(("text", "message"), NO_SETTINGS)
def test_what_is_no_setting_is_told(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_setting(text)
    assert str(caught.value) == message
    assert "KEY=VALUE or KEY=xFACTOR" in caught.value.diagnostic.hint


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_setting_made_in_python_is_checked_alike(value: float) -> None:
    with pytest.raises(UsageError, match=r"^dram=x.*: not a positive, finite number$"):
        ParameterSetting("dram", value, is_factor=True)


@given(
    st.sampled_from(list_parameter_keys(A100)),
    st.floats(1e-6, 1e12).map(lambda v: float(f"{v:.9g}")),
    st.booleans(),
)
def test_a_setting_as_text_is_read_back(key: str, value: float, is_factor: bool) -> None:
    setting = ParameterSetting(key, value, is_factor)
    assert parse_setting(str(setting)) == setting


SWEEPS = [
    ("clock=1200:1500:100", ParameterSweep("clock.boost_mhz", (1200, 1300, 1400, 1500))),
    ("clock=1200:1499:100", ParameterSweep("clock.boost_mhz", (1200, 1300, 1400))),
    ("sms=108:108:4", ParameterSweep("sm.count", (108,))),
    (
        "dram=1:2:0.1",
        ParameterSweep("memory.bandwidth_gbps", (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2)),
    ),
    ("dram=1:2:0.33333333", ParameterSweep("memory.bandwidth_gbps", (1, 1.33333333, 1.66666666, 2))),
    ("dram=1:2:0.33333334", ParameterSweep("memory.bandwidth_gbps", (1, 1.33333334, 1.66666668, 2))),
    ("dram=x0.5:x2:x0.5", ParameterSweep("memory.bandwidth_gbps", (0.5, 1, 1.5, 2), is_factor=True)),
    ("dram=x0.5:2:0.5", ParameterSweep("memory.bandwidth_gbps", (0.5, 1, 1.5, 2), is_factor=True)),
    (f"{F16} = 128, 256 ,512", ParameterSweep(F16, (128, 256, 512))),
    ("l2=x2,x0.5", ParameterSweep("l2.bandwidth_gbps", (2, 0.5), is_factor=True)),
    ("l2=5000", ParameterSweep("l2.bandwidth_gbps", (5000,))),
]


@pytest.mark.parametrize(("text", "sweep"), SWEEPS)
def test_a_sweep_is_read(text: str, sweep: ParameterSweep) -> None:
    assert parse_sweep(text) == sweep
    assert sweep.settings == tuple(
        ParameterSetting(sweep.key, value, sweep.is_factor) for value in sweep.values
    )


NO_SWEEPS = [
    ("dram", "'dram' does not say which figure takes which value"),
    ("dram=1:2", "'dram=1:2' is not FIRST:LAST:STEP"),
    ("dram=1:2:3:4", "'dram=1:2:3:4' is not FIRST:LAST:STEP"),
    ("dram=1:2:0", "'0' in 'dram=1:2:0' is not a positive, finite number"),
    ("dram=1:2:-1", "'-1' in 'dram=1:2:-1' is not a positive, finite number"),
    ("dram=2:1:1", "'dram=2:1:1' ends before it begins"),
    ("dram=1:2:", "'' in 'dram=1:2:' is not a number"),
    ("dram=1,,2", "'' in 'dram=1,,2' is not a number"),
    ("dram=1,x2", "'dram=1,x2' mixes values and factors"),
    ("dram=x1,2", "'dram=x1,2' mixes values and factors"),
    ("dram=1:x2:1", "'dram=1:x2:1' mixes values and factors"),
    ("dram=1:1001:1", "'dram=1:1001:1' has more than 1000 points"),
    ("dram=1:1e18:1e-12", "'dram=1:1e18:1e-12' has more than 1000 points"),
    (f"dram={','.join(['1'] * 1001)}", "has more than 1000 points"),
]


@pytest.mark.parametrize(("text", "message"), NO_SWEEPS)
def test_what_is_no_sweep_is_told(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_sweep(text)
    assert str(caught.value).endswith(message)
    assert caught.value.diagnostic.hint


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**4),
    st.integers(0, MAX_SWEEP_POINTS - 1),
    st.sampled_from([1, 7, 1000]),
)
def test_a_range_has_both_ends_and_equal_steps(first: int, step: int, steps: int, part: int) -> None:
    ends = f"{first / part!r}:{(first + steps * step) / part!r}:{step / part!r}"
    values = parse_sweep(f"dram={ends}").values
    assert len(values) == steps + 1
    assert values == tuple(pytest.approx((first + i * step) / part, rel=1e-9) for i in range(steps + 1))
    assert values[0] == first / part
    assert values[-1] == (first + steps * step) / part


# ---- keys --------------------------------------------------------------------------------------


def test_keys_are_those_of_the_file_then_of_the_architecture() -> None:
    keys = list_parameter_keys(A100)
    assert len(set(keys)) == len(keys)
    own = ["sm.count", "memory.bandwidth_gbps", "memory.sustained_gbps", BF16, "launch.overhead_us"]
    below = [
        "warp_mma_share",
        "limits.subcores_per_sm",
        "memory.l1_latency_cycles",
        "sched.fp32.issue_cycles",
    ]
    assert [key for key in keys if key in {*own, *below}] == own + below
    assert not [key for key in keys if key.startswith("constant_bank")]
    assert "memory.l2_latency_cycles" in keys
    assert "l2.bandwidth_gbps" not in list_parameter_keys(T4)


def test_keys_without_an_architecture() -> None:
    keys = list_parameter_keys(MI300X)
    assert {"memory.l2_latency_cycles", "memory.bandwidth_gbps"} <= set(keys)
    assert not [key for key in keys if key.startswith(("sched", "limits"))]


@pytest.mark.parametrize("gpu", SHIPPED, ids=lambda gpu: gpu.key)
def test_every_key_has_its_figure(gpu: Gpu) -> None:
    held = contents(gpu)
    for key in list_parameter_keys(gpu):
        assert find_hardware_parameter(gpu, key).value == held.get(f"file.{key}", held.get(f"arch.{key}"))


def test_the_file_s_figure_goes_before_the_architecture_s() -> None:
    assert find_hardware_parameter(T4, "memory.l2_latency_cycles") is arch_of(T4).memory.l2_latency_cycles
    own = msgspec.structs.replace(T4.file.memory, l2_latency_cycles=arch_of(T4).memory.dram_latency_cycles)
    gpu = Gpu(T4.key, msgspec.structs.replace(T4.file, memory=own), T4.arch)
    assert find_hardware_parameter(gpu, "memory.l2_latency_cycles") is own.l2_latency_cycles
    assert list_parameter_keys(gpu).count("memory.l2_latency_cycles") == 1
    after = edited(gpu, "memory.l2_latency_cycles=300")
    assert after.file.memory.l2_latency_cycles is find_hardware_parameter(after, "memory.l2_latency_cycles")
    assert arch_of(after).memory == arch_of(gpu).memory


STAND_INS = [
    (T4, BF16, F16),
    (T4, "memory.sustained_gbps", "memory.bandwidth_gbps"),
    (H100, "memory.sustained_gbps", "memory.bandwidth_gbps"),
    (load_gpu("l20"), "clock.sustained_mhz", "clock.boost_mhz"),
    (load_gpu("l20"), "clock.sustained_tensor_mhz", "clock.boost_mhz"),
    (load_gpu("rtx-4090"), "clock.sustained_tensor_mhz", "clock.sustained_mhz"),
]


@pytest.mark.parametrize(("gpu", "key", "stand_in"), STAND_INS)
def test_another_figure_stands_for_an_absent_one(gpu: Gpu, key: str, stand_in: str) -> None:
    assert key not in list_parameter_keys(gpu)
    assert find_hardware_parameter(gpu, key) is find_hardware_parameter(gpu, stand_in)
    after = edited(gpu, f"{key}=x2")
    assert find_hardware_parameter(after, key).value == 2 * find_hardware_parameter(gpu, stand_in).value
    moved = 2 if stand_in in find_coupled_keys(key) else 1  # the same units, or a clock of its own
    old = find_hardware_parameter(gpu, stand_in).value
    assert find_hardware_parameter(after, stand_in).value == moved * old
    assert changes(gpu, after).keys() - find_coupled_keys(key) == {key}


NO_FIGURES = [
    (A100, "memory.bandwith_gbps", "A100-80GB SXM has no figure 'memory.bandwith_gbps'", "nearest: memory.bandwidth_gbps, "),
    (A100, "bandwidth", "A100-80GB SXM has no figure 'bandwidth'", "nearest: l2.bandwidth_gbps, memory.bandwidth_gbps; "),
    (A100, "sm", "A100-80GB SXM has no figure 'sm'", "nearest: sms, sm.count, "),
    (A100, "qqqq", "A100-80GB SXM has no figure 'qqqq'", "nearest: none; `warplens gpus a100-80gb-sxm --explain` shows all"),
    (A100, "name", "A100-80GB SXM has no figure 'name'", "nearest: "),
    (A100, "sources.S3", "A100-80GB SXM has no figure 'sources.S3'", "nearest: "),
    (A100, "sm.count.value", "A100-80GB SXM has no figure 'sm.count.value'", "nearest: sm.count; "),
    (A100, "tensor.f17.fma_per_cycle_per_sm", "A100-80GB SXM has no figure 'tensor.f17.fma_per_cycle_per_sm'", F16),
    (A100, "constant_bank.arguments", "A100-80GB SXM has no figure 'constant_bank.arguments'", "nearest: "),
    (T4, "l2", "l2.bandwidth_gbps is not known for T4", "`--set l2.bandwidth_gbps=VALUE`"),
    (T4, "clock.tensor_mhz", "clock.tensor_mhz is not known for T4", "`--set clock.tensor_mhz=VALUE`"),
    (T4, "tensor.f64.fma_per_cycle_per_sm", "tensor.f64.fma_per_cycle_per_sm is not known for T4", "VALUE"),
    (MI300X, "limits.max_warps_per_sm", "MI300X has figures for operator models only, and limits.max_warps_per_sm is an architecture's", "`warplens gpus`"),
    (A100, "sched.mma_half.issue_cycles", "sched.mma_half.issue_cycles has no effect of its own: tensor.*.fma_per_cycle_per_sm and warp_mma_share decide", "set one of those"),
    (A100, "sched.global_load.latency_cycles", "sched.global_load.latency_cycles has no effect of its own: memory.l1_latency_cycles, memory.l2_latency_cycles and memory.dram_latency_cycles decide", "set one of those"),
]  # fmt: skip


@pytest.mark.parametrize(("gpu", "key", "message", "hint"), NO_FIGURES)
def test_a_key_without_a_figure_is_told(gpu: Gpu, key: str, message: str, hint: str) -> None:
    for attempt in (lambda: find_hardware_parameter(gpu, key), lambda: edited(gpu, f"{key}=x1.5")):
        with pytest.raises(HardwareError) as caught:
            attempt()
        assert str(caught.value) == message
        assert hint in caught.value.diagnostic.hint


DIRECTIONS = {
    PerformanceDirection.MORE_IS_FASTER: [
        "sm.count", "clock.boost_mhz", "memory.bandwidth_gbps", "l2.bandwidth_gbps", BF16, "launch.ctas_per_us",
        "memory.l1_bytes_per_cycle_per_sm", "warp_mma_share", "peak.fp16_tensor_tflops", "peak.int8_tensor_tops",
        "power.tdp_w",
    ],
    PerformanceDirection.LESS_IS_FASTER: [
        "memory.dram_latency_cycles", "sched.fp32.issue_cycles", "sched.fp32.latency_cycles", "launch.overhead_us",
        "memory.read_release_cycles", "launch.latency.alpha", "launch.latency.intercept_cycles",
    ],
    PerformanceDirection.CAPACITY: [
        "limits.max_warps_per_sm", "limits.shared_bytes_per_sm", "l2.size_bytes", "memory.line_bytes",
        "memory.l1_shared_bytes_per_sm", "memory.size_gb", "memory.bus_bits",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "keys"), DIRECTIONS.items())
def test_the_key_tells_what_more_of_it_does(wanted: PerformanceDirection, keys: list[str]) -> None:
    assert {key: find_direction(key) for key in keys} == dict.fromkeys(keys, wanted)


# ---- edits -------------------------------------------------------------------------------------


def test_an_edit_says_what_it_rests_on() -> None:
    after = edited(A100, f"{BF16}=4096", "memory.dram_latency_cycles=x0.5")
    rate, latency = (
        find_hardware_parameter(after, BF16),
        find_hardware_parameter(after, "memory.dram_latency_cycles"),
    )
    assert (rate.value, rate.basis, rate.source) == (4096, Basis.ASSUMED, WHAT_IF_SOURCE)
    assert rate.note == "in place of 1024 (vendor)"
    assert (latency.value, latency.basis, latency.note) == (266.5, Basis.ASSUMED, "x0.5 of 533 (measured)")
    assert (after.key, after.name) == (A100.key, A100.name)


def test_the_given_gpu_stays_as_it_is() -> None:
    before = contents(A100)
    edited(A100, "sms=x2", "sched.fp32.issue_cycles=1", f"{BF16}=x2", "dram=x2")
    assert contents(A100) == before
    assert with_settings(A100, []) == A100


def hmma_cycles(gpu: Gpu) -> float:
    shape = MmaShape(m=16, n=8, k=16, is_sparse=False, tensor_rate=TensorRate.F16, accumulator_bits=32)
    cost = compute_mma_issue_cycles(gpu, arch_of(gpu), SchedClass.MMA_HALF, shape)
    assert cost is not None
    return cost.cycles


EFFECTS = [
    ("sms=132", lambda gpu: gpu.sm_count, 108, 132),
    ("dram=x2", lambda gpu: gpu.peak_dram_gbps.value, 1894, 3788),
    ("dram=4078", lambda gpu: gpu.peak_dram_gbps.value, 1894, 3788),
    ("memory.sustained_gbps=1000", lambda gpu: gpu.peak_dram_gbps.value, 1894, 1000),
    ("clock=x0.5", lambda gpu: gpu.find_clock_mhz(tensor=TensorRate.BF16).value, 1410, 705),
    (f"{BF16}=x2", lambda gpu: gpu.find_tensor_fma_per_cycle(TensorRate.BF16).value, 1024, 2048),
    ("sched.fp32.issue_cycles=1", lambda gpu: find_sched_timing(gpu.arch, SchedClass.FP32).issue_cycles.value, 2, 1),
    ("limits.max_ctas_per_sm=x0.5", lambda gpu: compute_occupancy(gpu.arch.limits, block_threads=32, registers=16, shared_bytes=0).ctas_per_sm, 32, 16),
    ("warp_mma_share=0.5", hmma_cycles, 8, 16),
    (f"{F16}=x2", hmma_cycles, 8, 4),
]  # fmt: skip


@pytest.mark.parametrize(("text", "read", "before", "after"), EFFECTS, ids=[row[0] for row in EFFECTS])
def test_a_reader_sees_the_edit(text: str, read: Callable[[Gpu], float], before: float, after: float) -> None:
    assert read(A100) == before
    assert read(edited(A100, text)) == after


TENSOR_PEAKS = ("fp64", "tf32", "fp16", "bf16", "fp8", "int8")
H100_PEAKS = {
    **{f"peak.{name}_tflops": 2.0 for name in ("fp64", "fp32", "fp16")},
    **{f"peak.{name}_tensor_{'tops' if name == 'int8' else 'tflops'}": 2.0 for name in TENSOR_PEAKS},
}
H100_L2 = {
    **{f"l2.{name}_per_us": 2.0 for name in ("requests", "missed_lines")},
    **{f"l2.{name}": 2.0 for name in ("bandwidth_gbps", "slice_gbps", "clock_mhz")},
    "memory.l2_bytes_per_cycle_per_sm": 2.0,
    **{
        f"memory.{name}": 0.5
        for name in ("l2_store_line_cycles", "atomic_line_cycles", "atomic_float_cycles")
    },
}
L2_OF_OTHER_CLOCK = {
    "memory.l2_bytes_per_cycle_per_sm": 0.5,
    "memory.l2_store_line_cycles": 2.0,
    "memory.atomic_line_cycles": 2.0,
    "memory.atomic_float_cycles": 2.0,
}
H100_CLOCKS = {f"clock.{name}_mhz": 2.0 for name in ("boost", "tensor", "launch_tensor", "sustained_tensor")}
B200_DRAM = {f"memory.{name}_gbps": 2.0 for name in ("bandwidth", "sustained", "streaming", "read")}
HALF_PRECISION = {
    F16: 2.0,
    BF16: 2.0,
    "tensor.f16_acc16.fma_per_cycle_per_sm": 2.0,
    "peak.fp16_tensor_tflops": 2.0,
    "peak.bf16_tensor_tflops": 2.0,
}
COUPLINGS = [
    ("rtx-4090", "clock=x2", {
        "clock.boost_mhz": 2, "clock.base_mhz": 2, "clock.sustained_mhz": 2, **L2_OF_OTHER_CLOCK,
        **{f"peak.{name}": 2 for name in (
            "fp64_tflops", "fp32_tflops", "fp16_tflops", "tf32_tensor_tflops", "fp16_tensor_tflops", "bf16_tensor_tflops",
            "fp8_tensor_tflops", "int8_tensor_tops",
        )},
    }),
    ("h100", "clock=x2", {**H100_CLOCKS, **H100_PEAKS, **L2_OF_OTHER_CLOCK}),
    ("h100", "clock.rate=x2", {**H100_CLOCKS, **H100_PEAKS, **L2_OF_OTHER_CLOCK}),
    ("h100", "clock.sustained_tensor_mhz=x2", {
        "clock.sustained_tensor_mhz": 2, "clock.launch_tensor_mhz": 2,
    }),
    ("h100", "sms=x2", {
        "sm.count": 2, "memory.l2_bytes_per_cycle_per_sm": 0.5, "memory.l2_store_line_cycles": 2, **H100_PEAKS,
    }),
    ("t4", "dram=x1.5", {"memory.bandwidth_gbps": 1.5, "memory.streaming_gbps": 1.5, "memory.read_gbps": 1.5}),
    ("h100", "dram=x1.5", {"memory.bandwidth_gbps": 1.5}),
    ("b200", "dram=x2", B200_DRAM),
    ("b200", "dram.rate=x2", B200_DRAM),
    ("b200", "memory.read_gbps=x2", B200_DRAM),
    ("b200", "dram.units=x2", {"memory.bus_bits": 2, **B200_DRAM}),
    ("h100", "l2=x2", H100_L2),
    ("h100", "l2.rate=x2", H100_L2),
    ("h100", "l2.requests_per_us=x2", H100_L2),
    ("h100", "l2.clock=x2", H100_L2),
    ("h100", "l2.units=x2", {**{k: v for k, v in H100_L2.items() if k != "l2.clock_mhz"}, "l2.slices": 2}),
    ("h100", "memory.l2_port_bytes_per_cycle=x2", {"memory.l2_port_bytes_per_cycle": 2}),
    ("h100", "l2.latency=x2", {"memory.l2_latency_cycles": 2, "sched.global_atomic.latency_cycles": 2}),
    ("h100", "l2.size=x2", {"l2.size_bytes": 2}),
    ("t4", "l2.rate=x2", {
        "memory.l2_bytes_per_cycle_per_sm": 2,
        "memory.atomic_line_cycles": 0.5, "memory.atomic_float_cycles": 0.5,
    }),
    ("a100", "memory.l1_latency_cycles=x2", {
        "memory.l1_latency_cycles": 2,
        "sched.global_load.latency_cycles": 2,
        "sched.generic_load.latency_cycles": 2,
        "sched.local_load.latency_cycles": 2,
        "sched.async_copy.latency_cycles": 2,
    }),
    ("a100", "memory.l2_latency_cycles=x2", {"memory.l2_latency_cycles": 2, "sched.global_atomic.latency_cycles": 2}),
    ("a100", "memory.shared_latency_cycles=x2", {
        "memory.shared_latency_cycles": 2,
        "sched.shared_load.latency_cycles": 2,
        "sched.shared_matrix.latency_cycles": 2,
    }),
    ("a100", "launch.overhead_us=x2", {
        "launch.overhead_us": 2,
        "launch.interval_us": 2,
        "launch.latency.intercept_cycles": 2,
    }),
    ("b200", "memory.dram_efficiency=x0.5", {
        "memory.dram_efficiency": 0.5,
        "memory.dram_read_efficiency": 0.5,
        "memory.streaming_gbps": 0.5,
        "memory.read_gbps": 0.5,
    }),
    ("h100", "memory.dram_efficiency=x0.5", {"memory.dram_efficiency": 0.5, "memory.dram_read_efficiency": 0.5}),
    ("b200", "l2.kept_share=x0.5", {"l2.kept_share": 0.5, "memory.l2_kept_share": 0.5}),
    ("a100", "memory.l2_kept_share=x0.5", {"memory.l2_kept_share": 0.5, "l2.kept_share": 0.5, "l2.lost_share": 0.5}),
    ("h100", "shared=x2", {
        "memory.shared_bytes_per_cycle_per_sm": 2,
        "memory.warpgroup_operand_bytes_per_cycle": 2,
        "memory.shared_pass_cycles": 0.5,
    }),
    ("h100", "memory.shared_pass_cycles=x0.5", {
        "memory.shared_bytes_per_cycle_per_sm": 2,
        "memory.warpgroup_operand_bytes_per_cycle": 2,
        "memory.shared_pass_cycles": 0.5,
    }),
    ("h100", f"{F16}=x2", HALF_PRECISION),
    ("h100", "peak.bf16_tensor_tflops=x2", HALF_PRECISION),
    ("h100", "peak.fp64_tflops=x2", {"peak.fp64_tflops": 2, "sched.fp64.issue_cycles": 0.5}),
    ("h100", "sched.fp64.issue_cycles=x0.5", {"peak.fp64_tflops": 2, "sched.fp64.issue_cycles": 0.5}),
    ("a100", "launch.ctas_per_us=x2", {
        "launch.ctas_per_us": 2,
        "launch.latency.alpha": 0.5,
        "launch.latency.beta": 0.5,
        "launch.latency.gamma": 0.5,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "factors"), COUPLINGS)
def test_figures_of_the_same_thing_move_together(name: str, text: str, factors: dict[str, float]) -> None:
    gpu = load_gpu(name)
    found = changes(gpu, edited(gpu, text))
    assert {key: new / old for key, (old, new) in found.items()} == pytest.approx(factors)


def test_a_value_takes_figures_along_as_its_factor_does() -> None:
    by_value, by_factor = edited(H100, "clock=990"), edited(H100, "clock=x0.5")
    assert H100.file.clock.boost_mhz.value == 1980
    assert contents(by_value) == contents(by_factor)
    assert (
        by_value.find_clock_mhz(tensor=TensorRate.BF16).value
        == H100.find_clock_mhz(tensor=TensorRate.BF16).value / 2
    )


def test_a_peak_gives_a_rate_what_sms_and_clock_leave_over() -> None:
    peak = "peak.bf16_tensor_tflops"
    rate = {
        texts: find_hardware_parameter(edited(H100, *texts), BF16).value
        for texts in (
            (f"{peak}=x4", "sms=x2"),
            (f"{peak}=x4", "sms=x2", "clock.tensor_mhz=x2"),
            (f"{peak}=x2.02", "sms=x2"),  # a datasheet rounds
            (f"{peak}=x4", f"{BF16}=x3"),
        )
    }
    assert list(rate.values()) == pytest.approx([4096, 2048, 2048, 6144])


@pytest.mark.parametrize("key", ["memory.sustained_gbps", "memory.streaming_gbps", "memory.bandwidth_gbps"])
@pytest.mark.parametrize(
    "gpu", [H100, T4, A100, load_gpu("b200"), load_gpu("l40"), MI300X], ids=lambda gpu: gpu.key
)
def test_an_edited_bandwidth_reaches_every_model(gpu: Gpu, key: str) -> None:
    after = edited(gpu, f"{key}=x0.5")
    assert after.peak_dram_gbps.value == pytest.approx(gpu.peak_dram_gbps.value / 2)
    assert after.sustained_dram_gbps.value == pytest.approx(gpu.sustained_dram_gbps.value / 2)


def test_edits_list_what_they_took_along() -> None:
    after = edited(A100, "dram=x2")
    assert [str(one) for one in after.scaled_figures] == [
        "memory.sustained_gbps scaled by 2 with memory.bandwidth_gbps",
        "memory.streaming_gbps scaled by 2 with memory.bandwidth_gbps",
        "memory.read_gbps scaled by 2 with memory.bandwidth_gbps",
    ]
    assert not edited(A100, "launch.ctas_per_us=x1").scaled_figures


def test_a_share_that_follows_stays_a_share() -> None:
    after = edited(load_gpu("b200"), "memory.l2_kept_share=0.5", "l2.kept_share=0.9")
    assert after.file.l2.kept_share.value == 0.9
    assert find_hardware_parameter(edited(A100, "l2.kept_share=1"), "l2.lost_share").value <= 1
    assert find_hardware_parameter(edited(load_gpu("l40"), "l2.lost_share=1.6"), "l2.lost_share").value == 1.6


def test_a_figure_that_followed_says_so() -> None:
    assert (
        edited(A100, "dram=x2").peak_dram_gbps.note
        == "x2 of 1894 (measured), as memory.bandwidth_gbps is set"
    )
    assert edited(A100, "dram=x2").peak_dram_gbps.source == WHAT_IF_SOURCE


def test_what_is_set_itself_does_not_follow() -> None:
    for texts in (("dram=x2", "memory.sustained_gbps=1500"), ("memory.sustained_gbps=1500", "dram=x2")):
        after = edited(A100, *texts)
        assert (after.file.memory.bandwidth_gbps.value, after.peak_dram_gbps.value) == (4078, 1500)


def test_the_nearer_of_two_leaders_counts() -> None:
    gpu = edited(H100, "clock.sustained_mhz=1600")
    sustained = H100.find_clock_mhz(tensor=TensorRate.BF16).value
    assert gpu.find_clock_mhz(tensor=TensorRate.BF16).value == pytest.approx(sustained * 1600 / 1980)
    for texts in (("clock=x2", "clock.sustained_mhz=x0.5"), ("clock.sustained_mhz=x0.5", "clock=x2")):
        after = edited(gpu, *texts)
        assert after.file.clock.boost_mhz.value == 3960
        assert after.find_clock_mhz(tensor=None).value == 800
        assert after.find_clock_mhz(tensor=TensorRate.BF16).value == pytest.approx(
            gpu.find_clock_mhz(tensor=TensorRate.BF16).value / 2
        )


ABSENT = [
    (T4, "l2.bandwidth_gbps", 1500),
    (T4, "memory.second_look_cycles", 0.5),
    (T4, "tensor.fp4.fma_per_cycle_per_sm", 8192),
    (MI300X, "clock.sustained_mhz", 1900),
    (load_gpu("p100-sxm2"), "memory.l2_latency_cycles", 300),
]


@pytest.mark.parametrize(("gpu", "key", "value"), ABSENT)
def test_an_absent_figure_can_be_set(gpu: Gpu, key: str, value: float) -> None:
    after = edited(gpu, f"{key}={value}")
    assert find_hardware_parameter(after, key).value == value
    assert key in list_parameter_keys(after)
    assert changes(gpu, after) == {key: (None, value)}


def test_an_absent_section_of_one_figure_can_be_set() -> None:
    gpu = Gpu(T4.key, msgspec.structs.replace(T4.file, power=None), T4.arch)
    assert edited(gpu, "power.tdp_w=70").file.power.tdp_w.value == 70


SLIPS = [
    (A100, ["sms=1.5"], UsageError, "sm.count cannot be 1.5", "it is a whole number; a factor rounds"),
    (A100, ["limits.max_warps_per_sm=10.5"], UsageError, "limits.max_warps_per_sm cannot be 10.5", "whole"),
    (A100, ["l2.size_bytes=0.5"], UsageError, "l2.size_bytes cannot be 0.5", "whole"),
    (A100, ["memory.l1_shared_bytes_per_sm=0.5"], UsageError, "memory.l1_shared_bytes_per_sm cannot be 0.5", "whole"),
    (A100, ["warp_mma_share=1.5"], UsageError, "warp_mma_share cannot be 1.5", "it is a share, 1 at most"),
    (A100, ["warp_mma_share=x1.5"], UsageError, "warp_mma_share cannot be 1.5", "it is a share, 1 at most"),
    (A100, ["dram=x1e17"], UsageError, "memory.bandwidth_gbps cannot be 2.039e+20", "figures lie between 1e-12 and 1e+18"),
    (A100, ["sms=x1e17"], UsageError, "sm.count cannot be 1.08e+19", "figures lie between"),
    (A100, ["launch.overhead_us=1e17"], UsageError, "launch.latency.intercept_cycles cannot be 1.13793e+20", "figures lie between"),
    (A100, ["sms=1", "dram=1", "sm.count=2"], UsageError, "sm.count is set twice", "give each figure one value"),
    (T4, ["limits.shared_reserved_bytes_per_cta=x2"], HardwareError, "limits.shared_reserved_bytes_per_cta is 0 on T4: a factor leaves it so", "set a value"),
    (T4, ["launch.latency.alpha=1"], HardwareError, "launch.latency.alpha cannot be set alone: beta, gamma, intercept_cycles would be missing beside it, as T4 has none", "`warplens gpus new`"),
    (T4, ["sched.mma_fp8.latency_cycles=9"], HardwareError, "sched.mma_fp8.latency_cycles cannot be set alone: pipe, issue_cycles, completion would be missing beside it, as T4 has none", "`warplens gpus new`"),
]  # fmt: skip


@pytest.mark.parametrize(("gpu", "texts", "kind", "message", "hint"), SLIPS)
def test_a_value_that_a_figure_cannot_have_is_told(
    gpu: Gpu, texts: list[str], kind: type[WarplensError], message: str, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        edited(gpu, *texts)
    assert str(caught.value) == message
    assert hint in caught.value.diagnostic.hint


ROUNDED = [
    ("sms=x1.005", 109),
    ("sms=x0.001", 1),
    ("limits.max_warps_per_sm=x0.3", 19),
    ("limits.subcores_per_sm=x0.1", 1),
]


@pytest.mark.parametrize(("text", "value"), ROUNDED)
def test_a_factor_on_a_count_rounds(text: str, value: int) -> None:
    assert find_hardware_parameter(edited(A100, text), parse_setting(text).key).value == value


# ---- properties --------------------------------------------------------------------------------


@st.composite
def a_figure(draw: st.DrawFn) -> tuple[Gpu, str]:
    """A GPU and one of its keys whose figure a factor can scale."""
    gpu = draw(st.sampled_from(SHIPPED))
    key = draw(st.sampled_from(list_parameter_keys(gpu)))
    assume(find_hardware_parameter(gpu, key).value)
    return gpu, key


@given(a_figure())
def test_a_factor_of_one_and_the_same_value_leave_all_values(case: tuple[Gpu, str]) -> None:
    gpu, key = case
    assert changes(gpu, with_settings(gpu, [ParameterSetting(key, 1, is_factor=True)])) == {}
    assert (
        changes(gpu, with_settings(gpu, [ParameterSetting(key, find_hardware_parameter(gpu, key).value)]))
        == {}
    )


@given(a_figure(), st.sampled_from([0.25, 0.5, 0.8]))
def test_a_factor_changes_the_figure_and_its_followers_alone(case: tuple[Gpu, str], factor: float) -> None:
    gpu, key = case
    after = with_settings(gpu, [ParameterSetting(key, factor, is_factor=True)])
    held = {path.partition(".")[2] for path in contents(gpu)}
    found = changes(gpu, after)
    old, new = find_hardware_parameter(gpu, key).value, find_hardware_parameter(after, key).value
    assert new in (old * factor, max(1, round(old * factor)))
    products = {row.key for row in iterate_rows() if any(key in one.keys for one in row.per)}
    followers = held.intersection({*find_coupled_keys(key), *products}) - {key}
    assert set(found) == ({key, *followers} if new != old else set())
    for follower in set(found) - {key}:
        before, now = found[follower]
        assert now / before in (pytest.approx(new / old), pytest.approx(old / new))  # counts are rounded


@given(st.sampled_from(SHIPPED), st.data())
def test_the_order_of_settings_is_of_no_account(gpu: Gpu, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.sampled_from(list_parameter_keys(gpu)), unique=True, max_size=6))
    # Twice and one more: whole where the figure is whole.
    settings = [
        ParameterSetting(key, 2 * find_hardware_parameter(gpu, key).value + 1)
        for key in keys
        if not key.endswith("_share")  # at most 1
    ]
    shuffled = data.draw(st.permutations(settings))
    assert with_settings(gpu, settings) == with_settings(gpu, shuffled)
