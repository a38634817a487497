"""The figures of a GPU that operator models read, as plain numbers."""

from math import log2

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.l2_retention import read_l2_retention
from analyzer.hardware.schema import Arch, HardwareParameter
from analyzer.ir.scheduling import SchedClass, TensorRate
from analyzer.operators.names import DataType
from analyzer.operators.sustained_rates import SustainedRates, compute_soft_minimum, find_sustained_rates
from analyzer.text.errors import HardwareError


class OperatorHardware(Struct, frozen=True):
    """A GPU as operator models see it. Rates are dense peaks; 1 FMA counts as two operations."""

    key: str  # by which measurements know the GPU: the name of its file in `hwdb/gpu`
    architecture: str  # whose code is native: "sm_90"
    correction_arch: str  # whose GPUs' learned corrections hold
    sm_count: float
    boost_mhz: float
    dram_gbps: float  # datasheet's
    sustained_dram_gbps: float  # measured, or the datasheet's times an efficiency
    dram_bytes: float
    l2_bytes: float
    l2_gbps: float
    l2_copy_gbps: float  # loads and stores together, half of each, of data that stay in the L2
    l2_partitions: float  # parts of the L2 that each keep copies of what the other's SMs read
    is_l2_whole: bool  # known to be of one part
    l2_half_lost_share: float  # working set, in L2 sizes, of which half is lost from launch to launch
    shares_requests: bool  # the two SMs of a TPC ask the L2 once for what both read
    l2_latency_cycles: float  # of a load that the L2 serves, unloaded
    dram_latency_cycles: float
    fp32_tflops: float
    fp32_product_tflops: float  # of matrix products: that of matrix units where they take FP32
    sustained: SustainedRates  # of large products
    tdp_w: float
    l1_bytes_per_sm: float  # shared memory's part included where the two are one
    shared_bytes_per_sm: float
    registers_per_sm: float
    max_warps_per_sm: float
    max_ctas_per_sm: float
    tensor_fma_per_cycle: tuple[tuple[TensorRate, float], ...]  # per SM, of the rates that it has
    sustained_tensor_mhz: float  # clock under matrix products where known, else boost
    has_stacked_dram: bool  # HBM; else GDDR or LPDDR
    nvlink_gbps: float  # one direction; 0: none
    pcie_gbps: float  # one direction
    switch_adds: bool  # where NVLink has a switch; latencies are shorter, too
    has_warpgroup_mma: bool
    has_asynchronous_mma: bool  # of warpgroups, or tcgen05
    has_tensor_memory: bool
    process_nm: float  # as vendors name it; where it is not known, as the middle of the known ones
    warp_mma_share: float  # of the tensor rate, that MMA of single warps reaches
    attention_mma_share: float  # likewise in attention
    exponentials_per_cycle: float  # of an SM's special-function units
    splits_latent_decode: bool  # TensorRT-LLM's decode by MLA cuts a request's keys among CTAs
    splits_fp8_decode: bool  # likewise of FP8 keys that several heads share
    fp32_linear_tiles: tuple[str, ...]  # that cuBLAS has, columns x rows; empty: all
    fp32_batched_tiles: tuple[str, ...]

    def find_peak_tflops(self, dtype: DataType) -> float:
        """Return the dense peak of matrix products at the boost clock in TFLOP/s.

        A data type that the GPU has no rate for is computed in the next wider one that it has; FP32, and
        all types where there are no tensor cores, on the CUDA cores.
        """
        rates = dict(self.tensor_fma_per_cycle)
        for rate in _RATES.get(dtype, ()):
            if rate in rates:
                return 2.0 * rates[rate] * self.sm_count * self.boost_mhz * 1e-6
        return self.fp32_product_tflops

    def find_burst_tflops(self, dtype: DataType, share: float = 1.0) -> float:
        """Return the rate of matrix products in the milliseconds of a measurement in TFLOP/s.

        It is a share of the peak, less where power ends it sooner: for so long that allows half as much again
        as what it sustains.
        """
        by_power = _BURST * self.sustained.find(dtype)
        return compute_soft_minimum(share * self.find_peak_tflops(dtype), by_power, POWER_SOFTNESS)


POWER_SOFTNESS = 6.0  # of the minimum of what tensor cores and power allow
_BURST = 1.5  # what power allows in the milliseconds of a measurement, over the sustained rate

_HALF = (TensorRate.BF16, TensorRate.F16)
_RATES: dict[DataType, tuple[TensorRate, ...]] = {
    DataType.TF32: (TensorRate.TF32,),
    DataType.FP16: (TensorRate.F16,),
    DataType.BF16: _HALF,
    DataType.FP8: (TensorRate.FP8, *_HALF),
    DataType.FP8_BLOCK: (TensorRate.FP8, *_HALF),
    DataType.INT8: (TensorRate.INT8, *_HALF),
    DataType.INT8_WEIGHTS: _HALF,
    DataType.INT4_WEIGHTS: _HALF,
    DataType.NVFP4: (TensorRate.FP4, TensorRate.FP8, *_HALF),
}


_KEPT_GPUS = 64
# By identity: a GPU has no hash and is never changed. It is kept, so that no other takes its place.
_kept: dict[int, tuple[Gpu, OperatorHardware]] = {}


def read_operator_hardware(gpu: Gpu) -> OperatorHardware:
    """Return the figures of a GPU; what its file lacks follows from the bandwidth, clock and SMs it has."""
    known = _kept.get(id(gpu))
    if known is None:
        if len(_kept) >= _KEPT_GPUS:
            _kept.clear()
        known = _kept[id(gpu)] = (gpu, _read(gpu))
    return known[1]


def _read(gpu: Gpu) -> OperatorHardware:
    file = gpu.file
    clock_mhz = file.clock.boost_mhz.value
    dram_gbps = file.memory.bandwidth_gbps.value
    fp32 = _find(file.peak.fp32_tflops if file.peak else None, 128 * 2 * gpu.sm_count * clock_mhz * 1e-6)
    limits = gpu.arch.limits if gpu.arch else None
    latency = gpu.arch.memory if gpu.arch else None
    warp_mma_share = gpu.arch.warp_mma_share.value if gpu.arch else 1.0
    traits = gpu.operators
    return OperatorHardware(
        key=gpu.measured_key,
        architecture=gpu.code[0],
        correction_arch=gpu.correction_arch,
        sm_count=float(gpu.sm_count),
        boost_mhz=clock_mhz,
        dram_gbps=dram_gbps,
        sustained_dram_gbps=gpu.sustained_dram_gbps.value,
        dram_bytes=1e9 * _find(file.memory.size_gb, 16.0),
        l2_bytes=file.l2.size_bytes.value,
        l2_gbps=gpu.compute_l2_gbps(clock_mhz),
        l2_copy_gbps=_estimate_l2_copy_gbps(gpu, clock_mhz),
        l2_partitions=2.0 if traits.l2_layout == "halves" else 1.0,
        is_l2_whole=traits.l2_layout == "whole",
        l2_half_lost_share=read_l2_retention(gpu).half_lost_bytes / file.l2.size_bytes.value,
        shares_requests=bool(traits.shares_requests),
        l2_latency_cycles=latency.l2_latency_cycles.value if latency else 260.0,
        dram_latency_cycles=latency.dram_latency_cycles.value if latency else 500.0,
        fp32_tflops=fp32,
        fp32_product_tflops=_find(file.peak.fp32_matrix_tflops if file.peak else None, fp32),
        sustained=_find_sustained_rates(gpu, fp32),
        tdp_w=_find(file.power.tdp_w if file.power else None, 250.0),
        l1_bytes_per_sm=_find(traits.l1_bytes_per_sm, _find_most_l1_bytes(gpu.arch) if gpu.arch else 65536.0),
        shared_bytes_per_sm=limits.shared_bytes_per_sm.value if limits else 65536.0,
        registers_per_sm=limits.registers_per_sm.value if limits else 65536.0,
        max_warps_per_sm=limits.max_warps_per_sm.value if limits else 64.0,
        max_ctas_per_sm=limits.max_ctas_per_sm.value if limits else 32.0,
        tensor_fma_per_cycle=tuple(
            (rate, row.fma_per_cycle_per_sm.value) for rate, row in file.tensor.items()
        ),
        sustained_tensor_mhz=gpu.find_clock_mhz(tensor=TensorRate.BF16, lasts=True).value,
        has_stacked_dram=file.memory.kind.startswith("HBM"),
        nvlink_gbps=0.5 * _find(file.link.nvlink_gbps, 0.0),
        pcie_gbps=_read_pcie_gbps(file.link.pcie),
        switch_adds=_find(traits.nvlink_generation, 0.0) >= _MULTICAST_GENERATION,
        has_warpgroup_mma=gpu.has_unit(SchedClass.MMA_WARPGROUP),
        has_asynchronous_mma=gpu.has_unit(SchedClass.MMA_WARPGROUP, SchedClass.MMA_TENSOR_CORE),
        has_tensor_memory=gpu.has_unit(SchedClass.MMA_TENSOR_CORE),
        process_nm=_find(traits.process_nm, 7.0),
        warp_mma_share=warp_mma_share,
        attention_mma_share=_find(traits.attention_mma_share, warp_mma_share),
        exponentials_per_cycle=_find(traits.exponentials_per_cycle, 16.0),
        splits_latent_decode=traits.splits_latent_decode is not False,
        splits_fp8_decode=traits.splits_fp8_decode is not False,
        fp32_linear_tiles=traits.fp32_linear_tiles or (),
        fp32_batched_tiles=traits.fp32_batched_tiles or (),
    )


def _find_sustained_rates(gpu: Gpu, fp32_tflops: float) -> SustainedRates:
    """Return the sustained rates; of a GPU whose file has no peak at all, FP32's for all types."""
    try:
        return find_sustained_rates(gpu)
    except HardwareError:
        return find_sustained_rates(gpu, gemm_tflops=fp32_tflops)


_MULTICAST_GENERATION = 4  # of NVLink, whose switch adds what GPUs send it


def _find_most_l1_bytes(arch: Arch) -> float:
    """Return the largest L1 of an SM: what shared memory leaves of the array that both share."""
    return arch.memory.l1_shared_bytes_per_sm.value - 1024.0 * min(arch.shared_carveouts.kib)


def _find(figure: HardwareParameter | None, otherwise: float) -> float:
    return otherwise if figure is None else figure.value


# GB/s of one lane and direction, after the line code; generation 3 where none is named
_PCIE_LANE_GBPS = {"3": 0.985, "4": 1.969, "5": 3.938, "6": 7.563}


def _read_pcie_gbps(text: str) -> float:
    """Return GB/s of one direction of a host link: "5.0 x16", or "C2C 900 GB/s" for both directions."""
    if text.startswith("C2C"):
        return 0.5 * float(text.split()[1])
    generation, _, lanes = text.partition(".0 x")
    return _PCIE_LANE_GBPS.get(generation, _PCIE_LANE_GBPS["3"]) * float(lanes or 16)


def _estimate_l2_copy_gbps(gpu: Gpu, clock_mhz: float) -> float:
    """Return the rate of copies within the L2: what loads alone reach, less what stores cost more."""
    l2 = gpu.file.l2
    traits = gpu.operators
    per_cycle = _find(traits.l2_slice_bytes_per_cycle_per_mib, 0.0) / 2**20 * l2.size_bytes.value
    loads_gbps = _find(l2.bandwidth_gbps, max(gpu.compute_l2_gbps(clock_mhz), per_cycle * clock_mhz * 1e-3))
    return 2.0 * loads_gbps / (1.0 + gpu.find_l2_store_factor())


def compute_hardware_features(hardware: OperatorHardware) -> tuple[float, ...]:
    """Return log2 of a GPU's main figures, which tell known GPUs apart."""
    figures = (
        hardware.sm_count,
        hardware.boost_mhz,
        hardware.dram_gbps,
        hardware.l2_bytes,
        hardware.l2_gbps,
        hardware.fp32_tflops,
        hardware.find_peak_tflops(DataType.BF16),
        hardware.tdp_w,
    )
    return tuple(log2(figure) for figure in figures)
