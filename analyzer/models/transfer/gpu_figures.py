"""The figures of a GPU that transfer reads, as plain numbers."""

from msgspec import Struct

from analyzer.hardware.gpu import Gpu, find_sched_timing
from analyzer.hardware.l2_retention import L2Retention, read_l2_retention
from analyzer.hardware.schema import Arch, HardwareParameter, SmLimits
from analyzer.ir.launch import Timing
from analyzer.ir.scheduling import WARP_SIZE, SchedClass
from analyzer.text.errors import HardwareError

# Periods of small kernels in a stream exceed the duration of an empty kernel by 0.7 us (L40), 0.9 (A100) and
# 1.2 (H100): RRZE-HPC/gpu-benches, gpu-small-kernels, as the files of these GPUs have it.
_INTERVAL_BEYOND_OVERHEAD_US = 0.9


class TransferFigures(Struct, frozen=True, kw_only=True):
    """A GPU as transfer sees it. 1 FMA counts as two operations."""

    key: str  # name of the GPU's file in `hwdb/gpu`
    measured_key: str  # by which measurements know it
    name: str
    arch: str  # whose code is native: sm_NN
    limits: SmLimits
    sm_count: int
    clock_mhz: float  # under load
    float_clock_mhz: float  # while FP32 work fills the SMs
    fp32_lanes_per_sm: float
    l1_bytes_per_cycle_per_sm: float
    peak_gflops: float  # datasheet, FP32 on CUDA cores
    sustained_gflops: float  # the same at the clock under such load
    peak_gbps: float  # datasheet, device memory
    sustained_gbps: float  # measured, or the datasheet's times an efficiency
    l2_gbps: float
    l2_retention: L2Retention
    dram_latency_us: float  # of one load, unloaded
    overhead_us: float  # part of the time between launches that nothing hides
    kernel_us: float  # duration of an empty kernel, as a profiler sees it
    interval_us: float  # least time between launches

    def compute_memory_us(self, moved_bytes: float, resident_share: float) -> float:
        """Return the least time of the traffic, of which the L2 serves a share."""
        in_l2, in_dram = resident_share / self.l2_gbps, (1.0 - resident_share) / self.sustained_gbps
        return moved_bytes * (in_l2 + in_dram) * 1e-3

    def find_empty_us(self, timing: Timing) -> float:
        """Return the part of a time that is the launch's."""
        return self.overhead_us if timing is Timing.INTERVAL else self.kernel_us


def read_transfer_figures(gpu: Gpu) -> TransferFigures:
    """Return the figures of a GPU. Raises HardwareError for one that only operator models support."""
    if gpu.arch is None:
        raise HardwareError(
            f"{gpu.name} has figures for operator models only",
            hint="`warplens gpus` tells which GPUs have the figures of an SM",
        )
    file, memory = gpu.file, gpu.arch.memory
    boost_mhz = file.clock.boost_mhz.value
    clock_mhz = _find(file.clock.sustained_mhz, boost_mhz)
    float_clock_mhz = _find(file.clock.sustained_float_mhz, clock_mhz)
    lanes = _count_fp32_lanes(gpu.arch)
    computed_tflops = 2.0 * lanes * gpu.sm_count * boost_mhz * 1e-6
    peak_gflops = 1e3 * _find(file.peak.fp32_tflops, computed_tflops)
    overhead_us = file.launch.overhead_us.value
    return TransferFigures(
        key=gpu.key,
        measured_key=gpu.measured_key,
        name=gpu.name,
        arch=gpu.code[0],
        limits=gpu.arch.limits,
        sm_count=gpu.sm_count,
        clock_mhz=clock_mhz,
        float_clock_mhz=float_clock_mhz,
        fp32_lanes_per_sm=lanes,
        l1_bytes_per_cycle_per_sm=memory.l1_bytes_per_cycle_per_sm.value,
        peak_gflops=peak_gflops,
        sustained_gflops=peak_gflops * float_clock_mhz / boost_mhz,
        peak_gbps=file.memory.bandwidth_gbps.value,
        sustained_gbps=gpu.sustained_dram_gbps.value,
        l2_gbps=gpu.compute_l2_gbps(clock_mhz),
        l2_retention=read_l2_retention(gpu),
        dram_latency_us=_find(file.memory.dram_latency_cycles, memory.dram_latency_cycles.value) / clock_mhz,
        overhead_us=overhead_us,
        kernel_us=_find(file.launch.kernel_us, overhead_us),
        interval_us=_find(file.launch.interval_us, overhead_us + _INTERVAL_BEYOND_OVERHEAD_US),
    )


def _find(figure: HardwareParameter | None, otherwise: float) -> float:
    return otherwise if figure is None else figure.value


def _count_fp32_lanes(arch: Arch) -> float:
    """Return the FP32 lanes of an SM: 64, or 128 where a second pipe of the sub-core executes FP32 too."""
    timing = find_sched_timing(arch, SchedClass.FP32)
    pipes = 1 if timing.alternate_pipe is None else 2
    return arch.limits.subcores_per_sm.value * WARP_SIZE / timing.issue_cycles.value * pipes
