"""One GPU: its product's figures and those of its architecture."""

from msgspec import Struct

from analyzer.hardware.schema import Arch, ClassFigures, Figure, GpuFile
from analyzer.ir.machine import Basis, SchedClass, TensorRate
from analyzer.ir.opcode import MmaShape


class Gpu(Struct, frozen=True):
    """A product with its architecture; `arch` is None for GPUs that serve operator models only.

    key: name of its file in `hwdb/gpu`.
    """

    key: str
    file: GpuFile
    arch: Arch | None

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def sm_count(self) -> int:
        return int(self.file.sm.count.value)

    def clock(self, *, tensor: TensorRate | None, fills_float: bool = False) -> Figure:
        """SM clock in MHz under load: sustained where known, which tensor work, or FP32 work that fills the
        SMs, may lower; else boost.

        tensor: what most of a kernel's products are, None where it has none.
        """
        clock = self.file.clock
        lowered = clock.sustained_float_mhz if fills_float else None
        lowered = lowered if tensor is None else clock.sustained_tensor_mhz
        if tensor in _NARROW:
            lowered = clock.sustained_narrow_mhz or lowered
        return lowered or clock.sustained_mhz or clock.boost_mhz

    @property
    def dram(self) -> Figure:
        """Device memory rate in GB/s: the best measured, else the datasheet's."""
        return self.file.memory.sustained_gbps or self.file.memory.bandwidth_gbps

    @property
    def dram_sustained(self) -> Figure:
        """Device memory rate in GB/s that kernels reach: as measured, else part of the datasheet's."""
        memory = self.file.memory
        if memory.streaming_gbps is not None or self.arch is None:
            return memory.streaming_gbps or self.dram
        part = self.arch.memory.dram_efficiency
        return Figure(value=memory.bandwidth_gbps.value * part.value, basis=part.basis, source=part.source)

    def tensor_fma_per_cycle(self, rate: TensorRate) -> Figure | None:
        """Dense multiply-adds per cycle and SM, None where the product has no such rate."""
        row = self.file.tensor.get(rate) or self.file.tensor.get(_FALLBACK.get(rate, rate))
        return None if row is None else row.fma_per_cycle_per_sm


_NARROW = frozenset(
    {
        TensorRate.INT8,
        TensorRate.INT4,
        TensorRate.BINARY,
        TensorRate.FP8,
        TensorRate.FP8_ACC16,
        TensorRate.FP6,
        TensorRate.FP4,
    }
)
_FALLBACK = {
    TensorRate.F16_ACC16: TensorRate.F16,
    TensorRate.FP8_ACC16: TensorRate.FP8,
    TensorRate.FP6: TensorRate.FP8,
    TensorRate.FP8: TensorRate.F16,
    TensorRate.BF16: TensorRate.F16,
}


class IssueCost(Struct, frozen=True):
    """Cycles that one warp instruction holds its pipe of one sub-core, and what that rests on."""

    cycles: float
    basis: Basis


def mma_issue_cycles(gpu: Gpu, arch: Arch, sched: SchedClass, shape: MmaShape) -> IssueCost | None:
    """Initiation interval of a matrix instruction: FMA count over the tensor rate (AMALI equation 25).

    A warpgroup's instruction is spread over its four warps' sub-cores. One of the tensor core's own
    (tcgen05) has the whole SM's rate: its pipe is the SM's. None where the GPU has no such rate.
    """
    figure = gpu.tensor_fma_per_cycle(shape.rate)
    if figure is None:
        return None
    work = shape.fma_count * (0.5 if shape.sparse else 1.0) / shape.warps
    if sched is SchedClass.MMA_TENSOR_CORE:
        return IssueCost(work / figure.value, figure.basis)
    is_slower = shape.warps == 1 and sched is not SchedClass.MMA_DOUBLE  # FP64 has no other way
    share = arch.warp_mma_share.value if is_slower else 1.0
    per_subcore = figure.value / arch.limits.subcores_per_sm.value * share
    return IssueCost(work / per_subcore, figure.basis)


def class_figures(arch: Arch, sched: SchedClass) -> ClassFigures:
    """Figures of a scheduling class; an unsupported one is taken as the conservative `unknown`."""
    return arch.sched.get(sched) or arch.sched[SchedClass.UNKNOWN]
