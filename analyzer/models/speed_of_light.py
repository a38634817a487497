"""Achieved operations and bytes per second of a launch, and their shares of the GPU's peaks (speed of light).

Operations are those of the code: a multiply-add counts two. A matrix product counts as if it were dense; its
share of the peak counts half the work where the code is 2:4 sparse. Peaks are those of the hardware database
at the clock of the datasheet, or the launch's own where that is higher, so an edited GPU has edited peaks:

    H100 SXM, FP16 tensor: 2,048 FMA per cycle and SM x 2 x 132 SMs x 1,830 MHz = 989 TFLOP/s

The launch's time includes launch overhead.
"""

from enum import StrEnum

import numpy as np
from msgspec import Struct

from analyzer.hardware.gpu import Gpu, find_sched_timing
from analyzer.hardware.schema import Arch
from analyzer.ir.arrays import order_by_first_place
from analyzer.ir.opcode import OpKind
from analyzer.ir.scheduling import WARP_SIZE, SchedClass, TensorRate
from analyzer.models.arithmetic import measure_arithmetic
from analyzer.models.bounds import DRAM_BOUND, L1_BOUND, L2_BOUND
from analyzer.models.interface import ModelInput
from analyzer.models.l2_rate import compute_launch_l2_gbps
from analyzer.models.miss_rates import estimate_miss_rates
from analyzer.models.model_result import ModelResult

_MICRO, _MEGA, _GIGA = 1e-6, 1e6, 1e9
_LEAST_US = 1e-9  # of a launch that does nothing


class Unit(StrEnum):
    """Units that operations run on."""

    TENSOR = "tensor"
    VECTOR = "vector"  # the pipes of 32 lanes


class ComputeThroughput(Struct, frozen=True, kw_only=True):
    """Achieved operations of one data type on one kind of unit."""

    data_type: str  # `FP16`
    unit: Unit
    is_float: bool
    operations: float  # of the whole grid
    per_second: float
    peak_per_second: float | None  # None where the GPU has no figure
    peak_share: float | None


class MemoryThroughput(Struct, frozen=True, kw_only=True):
    """Achieved bytes of one memory level."""

    level: str
    moved_bytes: float  # of the whole grid
    gbps: float
    peak_gbps: float
    peak_share: float


class SpeedOfLight(Struct, frozen=True, kw_only=True):
    """Achieved throughput of one launch on one GPU."""

    compute: tuple[ComputeThroughput, ...]  # largest share of the peak first
    memory: tuple[MemoryThroughput, ...]  # DRAM, L2
    l1: MemoryThroughput  # bytes that lanes ask for
    issue_share: float  # of all issue slots, those in which an instruction issues


_TENSOR_TYPES = {
    TensorRate.F16: "FP16",
    TensorRate.F16_ACC16: "FP16",
    TensorRate.BF16: "BF16",
    TensorRate.TF32: "TF32",
    TensorRate.F64: "FP64",
    TensorRate.INT8: "INT8",
    TensorRate.INT4: "INT4",
    TensorRate.BINARY: "INT1",
    TensorRate.FP8: "FP8",
    TensorRate.FP8_ACC16: "FP8",
    TensorRate.FP8_SCALED: "FP8",
    TensorRate.FP6: "FP6",
    TensorRate.FP4: "FP4",
}
_INTEGER_RATES = frozenset({TensorRate.INT8, TensorRate.INT4, TensorRate.BINARY})
# By type: the scheduling class of its multiply-adds, and operations of one lane's instruction.
_VECTOR_TYPES = {"FP32": (SchedClass.FP32, 2), "FP16": (SchedClass.FP16, 4), "FP64": (SchedClass.FP64, 2)}
_VECTOR_TYPE_BY_KIND = {OpKind.HALF: "FP16", OpKind.DOUBLE: "FP64"}


def measure_speed_of_light(result: ModelResult) -> SpeedOfLight:
    """Return the operations and bytes of a launch per second of its predicted time."""
    model_input, prediction = result.model_input, result.prediction
    seconds = max(prediction.time_us, _LEAST_US) * _MICRO
    instructions = model_input.demand.instructions * _count_warps(model_input)
    slots = prediction.cycles * model_input.gpu.sm_count * model_input.arch.limits.subcores_per_sm.value
    return SpeedOfLight(
        compute=_measure_compute(model_input, seconds, prediction.clock_mhz),
        memory=_measure_memory(result, seconds),
        l1=_measure_l1(model_input, seconds, prediction.clock_mhz),
        issue_share=instructions / slots if slots else 0.0,
    )


def _count_warps(model_input: ModelInput) -> int:
    return model_input.grid_ctas * model_input.occupancy.warps_per_cta


class _Work(Struct):
    """Operations of one type, summed up."""

    operations: float = 0.0
    dense_operations: float = 0.0  # sparse products counted half
    peak_per_second: float | None = None


def _measure_compute(
    model_input: ModelInput, seconds: float, clock_mhz: float
) -> tuple[ComputeThroughput, ...]:
    opcodes, gpu = model_input.kernel.form_table.opcodes, model_input.gpu
    flops = measure_arithmetic(model_input).flops * _count_warps(model_input)
    flops_by_opcode = np.bincount(model_input.kernel.opcode_ids, weights=flops, minlength=len(opcodes))
    found: dict[tuple[str, Unit, bool], _Work] = {}
    for number in order_by_first_place(model_input.kernel.opcode_ids, len(opcodes)).tolist():
        opcode = opcodes[number]
        operations = float(flops_by_opcode[number])
        if not operations:
            continue
        rate = None if opcode.mma_shape is None else opcode.mma_shape.tensor_rate
        if rate is None:
            name = _VECTOR_TYPE_BY_KIND.get(opcode.kind, "FP32")
            work = found.setdefault((name, Unit.VECTOR, True), _Work())
            work.peak_per_second = _compute_vector_peak(gpu, model_input.arch, name, clock_mhz)
        else:
            key = (_TENSOR_TYPES[rate], Unit.TENSOR, rate not in _INTEGER_RATES)
            work = found.setdefault(key, _Work())
            work.peak_per_second = _compute_tensor_peak(gpu, rate, clock_mhz)
        is_sparse = opcode.mma_shape is not None and opcode.mma_shape.is_sparse
        work.operations += operations
        work.dense_operations += operations * (0.5 if is_sparse else 1.0)
    entries = [
        ComputeThroughput(
            data_type=name,
            unit=unit,
            is_float=is_float,
            operations=work.operations,
            per_second=work.operations / seconds,
            peak_per_second=work.peak_per_second,
            peak_share=work.dense_operations / seconds / work.peak_per_second
            if work.peak_per_second
            else None,
        )
        for (name, unit, is_float), work in found.items()
    ]
    return tuple(sorted(entries, key=lambda one: (-(one.peak_share or 0.0), one.data_type, one.unit)))


def _compute_tensor_peak(gpu: Gpu, rate: TensorRate, clock_mhz: float) -> float | None:
    figure = gpu.find_tensor_fma_per_cycle(rate)
    if figure is None:
        return None
    clock = gpu.file.clock.tensor_mhz or gpu.file.clock.boost_mhz
    if rate is TensorRate.F64:
        clock = gpu.file.clock.boost_mhz
    return 2.0 * figure.value * gpu.sm_count * max(clock.value, clock_mhz) * _MEGA


def _compute_vector_peak(gpu: Gpu, arch: Arch, name: str, clock_mhz: float) -> float:
    sched, operations = _VECTOR_TYPES[name]
    timing = find_sched_timing(arch, sched)
    pipes = 1 if timing.alternate_pipe is None else 2
    per_cycle = pipes * WARP_SIZE * operations / timing.issue_cycles.value
    subcores = arch.limits.subcores_per_sm.value * gpu.sm_count
    return float(per_cycle * subcores * max(gpu.file.clock.boost_mhz.value, clock_mhz) * _MEGA)


def _measure_memory(result: ModelResult, seconds: float) -> tuple[MemoryThroughput, ...]:
    model_input = result.model_input
    miss_rates = estimate_miss_rates(model_input)
    requested_bytes = model_input.demand.global_bytes * _count_warps(model_input)
    dram_bytes = result.dram_bytes
    if dram_bytes is None:
        dram_bytes = requested_bytes * miss_rates.dram_share
    moved = {
        DRAM_BOUND: (dram_bytes, model_input.gpu.file.memory.bandwidth_gbps.value),
        L2_BOUND: (
            requested_bytes * miss_rates.l1_miss_rate,
            compute_launch_l2_gbps(model_input, miss_rates, result.prediction.clock_mhz),
        ),
    }
    return tuple(
        _make_memory_throughput(level, moved_bytes, seconds, peak_gbps)
        for level, (moved_bytes, peak_gbps) in moved.items()
    )


def _make_memory_throughput(
    level: str, moved_bytes: float, seconds: float, peak_gbps: float
) -> MemoryThroughput:
    gbps = moved_bytes / seconds / _GIGA
    return MemoryThroughput(
        level=level, moved_bytes=moved_bytes, gbps=gbps, peak_gbps=peak_gbps, peak_share=gbps / peak_gbps
    )


def _measure_l1(model_input: ModelInput, seconds: float, clock_mhz: float) -> MemoryThroughput:
    """Return the bytes of global and local memory that pass the L1s, whether they hit or not."""
    demand, memory = model_input.demand, model_input.arch.memory
    return _make_memory_throughput(
        L1_BOUND,
        (demand.global_bytes + demand.local_bytes) * _count_warps(model_input),
        seconds,
        _convert_to_gbps(model_input.gpu, memory.l1_bytes_per_cycle_per_sm.value, clock_mhz),
    )


def _convert_to_gbps(gpu: Gpu, bytes_per_cycle_per_sm: float, clock_mhz: float) -> float:
    """Return the rate of all SMs together at the boost clock, or at the launch's where that is higher."""
    clock_mhz = max(gpu.file.clock.boost_mhz.value, clock_mhz)
    return bytes_per_cycle_per_sm * gpu.sm_count * clock_mhz * _MEGA / _GIGA
