"""A GPU: the parameters of a product and of its architecture, and the values derived from both."""

from msgspec import Struct
from msgspec.structs import replace

from analyzer.hardware.resource_scaling import ScaledFigure
from analyzer.hardware.schema import Arch, GpuFile, HardwareParameter, OperatorTraits, SchedClassTiming
from analyzer.ir.opcode import MmaShape
from analyzer.ir.scheduling import Basis, SchedClass, TensorRate


class Gpu(Struct, frozen=True):
    """A product and its architecture."""

    key: str  # name of its file in `hwdb/gpu`
    file: GpuFile  # the product's parameters
    arch: Arch | None  # None for a GPU that only operator models support
    scaled_figures: tuple[ScaledFigure, ...] = ()  # parameters that followed an edited one
    twin: str | None = None  # key of the GPU whose figures it has, all of them

    @property
    def measured_key(self) -> str:
        """Key by which measurements know the machine."""
        return self.twin or self.key

    @property
    def code(self) -> tuple[str, ...]:
        """Architectures whose machine code runs, the native one first."""
        return self.arch.code if self.arch else (self.file.arch,)

    @property
    def compute_capability(self) -> int:
        """Number by which compilers know the native code: 90 for sm_90."""
        return int(self.code[0].removeprefix("sm_"))

    @property
    def correction_arch(self) -> str:
        """Architecture whose GPUs' learned corrections hold."""
        return (self.arch and self.arch.corrections) or self.code[0]

    @property
    def operators(self) -> OperatorTraits:
        """What models of operators read of the architecture; what the GPU's own file gives goes first."""
        below, own = self.arch.operators if self.arch else OperatorTraits(), self.file.operators
        given = {} if own is None else {name: getattr(own, name) for name in own.__struct_fields__}
        return replace(below, **{name: value for name, value in given.items() if value is not None})

    def has_unit(self, *classes: SchedClass) -> bool:
        """Return whether the SMs are known to have a unit for one of these scheduling classes."""
        return self.arch is not None and not set(classes) <= set(self.arch.unsupported)

    @property
    def name(self) -> str:
        """Full name of the product."""
        return self.file.name

    @property
    def sm_count(self) -> int:
        """Enabled SMs of the product."""
        return int(self.file.sm.count.value)

    @property
    def deciding_figures(self) -> dict[str, HardwareParameter]:
        """Parameters that affect a kernel's time most, by key (`sm.count`, `tensor.f16`)."""
        file = self.file
        return {
            "sm.count": file.sm.count,
            "clock.boost_mhz": file.clock.boost_mhz,
            "memory.bandwidth_gbps": file.memory.bandwidth_gbps,
            "l2.size_bytes": file.l2.size_bytes,
            **{f"tensor.{rate.value}": row.fma_per_cycle_per_sm for rate, row in file.tensor.items()},
        }

    @property
    def assumed_deciding_keys(self) -> tuple[str, ...]:
        """Keys of the deciding figures that are assumed: neither measured, calibrated nor the vendor's."""
        return tuple(key for key, figure in self.deciding_figures.items() if figure.basis is Basis.ASSUMED)

    @property
    def is_verified(self) -> bool:
        """True if every deciding figure is measured, calibrated or the vendor's."""
        return not self.assumed_deciding_keys

    def find_clock_mhz(
        self, *, tensor: TensorRate | None, fills_float: bool = False, lasts: bool = False
    ) -> HardwareParameter:
        """Return the SM clock in MHz under load: the sustained clock for this work if known, else boost.

        tensor: rate of most of the kernel's matrix products, None if it has none.
        fills_float: FP32 work keeps the SMs busy, which can lower the clock as tensor work does.
        lasts: the work goes on for longer than a few milliseconds.
        """
        clock = self.file.clock
        lowered = clock.sustained_float_mhz if fills_float else None
        if tensor is not None:
            lowered = (None if lasts else clock.launch_tensor_mhz) or clock.sustained_tensor_mhz
        if tensor in _NARROW_TENSOR_RATES:
            lowered = clock.sustained_narrow_mhz or lowered
        return lowered or clock.sustained_mhz or clock.boost_mhz

    @property
    def peak_dram_gbps(self) -> HardwareParameter:
        """DRAM bandwidth in GB/s: the best measured, else the datasheet's."""
        return self.file.memory.sustained_gbps or self.file.memory.bandwidth_gbps

    @property
    def sustained_dram_gbps(self) -> HardwareParameter:
        """DRAM bandwidth in GB/s that kernels reach: measured, else the datasheet's times an efficiency."""
        memory = self.file.memory
        if memory.streaming_gbps is not None or self.arch is None:
            return memory.streaming_gbps or self.peak_dram_gbps
        part = self.arch.memory.dram_efficiency
        return HardwareParameter(
            value=memory.bandwidth_gbps.value * part.value, basis=part.basis, source=part.source
        )

    @property
    def dram_read_gbps(self) -> HardwareParameter:
        """DRAM bandwidth in GB/s that kernels reach that only read."""
        memory = self.file.memory
        if memory.read_gbps is not None or memory.streaming_gbps is not None or self.arch is None:
            return memory.read_gbps or self.sustained_dram_gbps
        part = self.arch.memory.dram_read_efficiency
        return HardwareParameter(
            value=memory.bandwidth_gbps.value * part.value, basis=part.basis, source=part.source
        )

    def compute_l2_gbps(self, clock_mhz: float) -> float:
        """Return the L2's bandwidth for loads in GB/s: the product's, else its SMs' shares at an SM clock.

        A GPU without an architecture has 32 bytes for each SM and cycle.
        """
        if self.file.l2.bandwidth_gbps is not None:
            return self.file.l2.bandwidth_gbps.value
        share = 32.0 if self.arch is None else self.arch.memory.l2_bytes_per_cycle_per_sm.value
        return share * self.sm_count * clock_mhz * 1e-3

    def find_l2_store_factor(self) -> float:
        """Return the L2's cycles for a stored byte over those for a loaded one; 1 where not measured."""
        figure = self.file.l2.store_factor or self.operators.l2_store_factor
        return 1.0 if figure is None else figure.value

    def find_tensor_fma_per_cycle(self, rate: TensorRate) -> HardwareParameter | None:
        """Return dense multiply-adds per cycle and SM, None if the product has no such rate."""
        row = self.file.tensor.get(rate) or self.file.tensor.get(_FALLBACK_TENSOR_RATES.get(rate, rate))
        return None if row is None else row.fma_per_cycle_per_sm


_NARROW_TENSOR_RATES = frozenset(
    {
        TensorRate.INT8,
        TensorRate.INT4,
        TensorRate.BINARY,
        TensorRate.FP8,
        TensorRate.FP8_ACC16,
        TensorRate.FP8_SCALED,
        TensorRate.FP6,
        TensorRate.FP4,
    }
)
_FALLBACK_TENSOR_RATES = {
    TensorRate.F16_ACC16: TensorRate.F16,
    TensorRate.FP8_ACC16: TensorRate.FP8,
    TensorRate.FP8_SCALED: TensorRate.FP8,
    TensorRate.FP6: TensorRate.FP8,
    TensorRate.FP8: TensorRate.F16,
    TensorRate.BF16: TensorRate.F16,
}


class IssueCost(Struct, frozen=True):
    """Cycles for which one warp instruction occupies its pipe."""

    cycles: float
    basis: Basis  # of the hardware parameter that they follow from


def compute_mma_issue_cycles(gpu: Gpu, arch: Arch, sched: SchedClass, shape: MmaShape) -> IssueCost | None:
    """Return the initiation interval of a matrix instruction: FMA count over tensor rate (AMALI equation 25).

    The instruction of a warpgroup is divided among the sub-cores of its four warps. A tcgen05 instruction has
    the rate of the whole SM, because its pipe is the SM's. None if the GPU has no such rate.
    """
    figure = gpu.find_tensor_fma_per_cycle(shape.tensor_rate)
    if figure is None:
        return None
    work = shape.n_fmas * (0.5 if shape.is_sparse else 1.0) / shape.n_warps
    if sched is SchedClass.MMA_TENSOR_CORE:
        return IssueCost(work / figure.value, figure.basis)
    is_slower = shape.n_warps == 1 and sched is not SchedClass.MMA_DOUBLE  # FP64 has no warpgroup form
    share = arch.warp_mma_share.value if is_slower else 1.0
    per_subcore = figure.value / arch.limits.subcores_per_sm.value * share
    return IssueCost(work / per_subcore, figure.basis)


def find_sched_timing(arch: Arch, sched: SchedClass) -> SchedClassTiming:
    """Return the timing of a scheduling class; an unsupported one has that of the conservative `unknown`."""
    return arch.sched.get(sched) or arch.sched[SchedClass.UNKNOWN]
