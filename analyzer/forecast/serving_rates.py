"""Rates and latencies that the steps of a served model run at on one GPU.

The most important is the sustained rate of large products, because they take nine tenths of a prefill. It
is what the user measured, else what others measured on this GPU, else what a rule makes of the datasheet:
power limits most GPUs below their peak. On one manufacturing process the power-limited rate grows as the
square root of power times size (twice the chip at the same power runs slower, at a lower voltage, and so
saves energy):

    power_limited = factor(process) * sqrt(TDP * full peak)      full peak: without halved FP32 accumulation
    sustained = soft minimum of power_limited and ceiling * peak

Example: an A40 at 300 W, 150 TF: 0.585 * sqrt(300 * 150) = 124, soft minimum with 0.94 * 150 = 141: 117 TF.

All figures are in `hwdb/serving.toml` with basis and source, or in the GPU's own file.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.serving_figures import MemoryFigures, ServingFigures, load_serving_figures
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.schema import HardwareParameter
from analyzer.ir.scheduling import Basis, TensorRate
from analyzer.operators.names import DataType
from analyzer.text.errors import HardwareError

_MULTICAST_ARCHS = ("sm_90", "sm_100", "sm_103")  # their switches add up messages of eight GPUs
_MHZ_TFLOPS = 2e-6  # TF of one multiply-add per cycle at one MHz
_SHARE_WITHOUT_POWER = 0.75  # of the peak, for a GPU whose file has no TDP
_UNLIMITED = 0.9  # of the ceiling: a GPU at this rate has power to spare


class RateFigure(Struct, frozen=True):
    """One figure with its origin, as reports list it."""

    name: str
    value: float
    unit: str
    basis: Basis
    source: str


class ServingRates(Struct, frozen=True):
    """Plain numbers that `step_times` computes with; `figures` says where they come from.

    Rates in TF (1e12 operations a second) and GB/s, times in us. A share is of the datasheet's bandwidth or
    of the sustained rate of products.
    """

    gpu: str
    framework: Framework
    tensor_tflops: float  # 16-bit products
    narrow_tflops: float  # 8-bit products
    fp4_tflops: float
    fp32_tflops: float
    bandwidth_gbps: float
    weight_share: float
    row_step: float
    cache_share: float
    row_share: float
    sharpness: float
    product_floor_us: float
    product_row_padding: float
    prefill_attention_share: float
    prefill_attention_share_fa3: float
    decode_attention_share_fa3: float
    padded_rows_fa3: float
    padded_rows: float
    attention_floor_us: float
    moe_tensor_share: float
    moe_weight_share: float
    moe_row_padding: float
    moe_floor_us: float
    small_kernel_us: float
    decode_host_us: float
    prefill_host_us: float
    launch_us: float
    pair_share: float
    group_share: float
    multicast_share: float
    small_pair_us: float
    small_group_us: float
    pcie_share: float
    pcie_us: float
    pcie_gpu_us: float
    has_multicast: bool
    nvlink_gbps: float  # of one direction; 0: none that joins all GPUs of a group
    pcie_gbps: float  # of one direction
    tensor_basis: Basis
    cache_element_bytes: float = 2.0
    figures: tuple[RateFigure, ...] = ()


def find_rates(deployment: Deployment) -> ServingRates:
    """Return the rates of a deployment's GPU.

    Raises HardwareError for a GPU whose file has neither a tensor peak nor an FP32 peak.
    """
    return compute_rates(deployment.gpu, framework=deployment.framework, gemm_tflops=deployment.gemm_tflops)


def compute_rates(
    gpu: Gpu,
    *,
    framework: Framework = Framework.SGLANG,
    gemm_tflops: float | None = None,
    uses_measured: bool = True,
    figures: ServingFigures | None = None,
) -> ServingRates:
    """Return the rates of a GPU.

    gemm_tflops: the sustained rate of large 16-bit products, where the user measured it.
    uses_measured: take what others measured on this GPU; else the datasheet's rule alone.
    figures: other figures than those shipped.
    """
    table = figures or load_serving_figures()
    tensor = find_sustained_tflops(gpu, gemm_tflops=gemm_tflops, uses_measured=uses_measured, figures=table)
    memory = _find_memory(gpu, table)
    architecture = next(
        entry for entry in table.architecture if not entry.archs or gpu.file.arch in entry.archs
    )
    small, transfer = architecture.small_kernel_us, table.transfer
    bandwidth = gpu.file.memory.bandwidth_gbps
    nvlink_gbps, pcie_gbps = _find_links(gpu)
    attention, product, moe, host = table.attention, table.product, table.moe, table.host
    return ServingRates(
        gpu=gpu.key,
        framework=framework,
        tensor_tflops=tensor.value,
        narrow_tflops=_compute_narrow_tflops(gpu, tensor.value, table),
        fp4_tflops=_compute_fp4_tflops(gpu, tensor.value, table),
        fp32_tflops=_compute_fp32_tflops(gpu, tensor.value, table),
        bandwidth_gbps=bandwidth.value,
        weight_share=memory.weight_share.value,
        row_step=memory.row_step.value,
        cache_share=memory.cache_share.value,
        row_share=memory.row_share.value,
        sharpness=architecture.sharpness.value,
        product_floor_us=product.floor_us.value,
        product_row_padding=product.row_padding.value,
        prefill_attention_share=attention.prefill_share.value,
        prefill_attention_share_fa3=attention.prefill_share_fa3.value,
        decode_attention_share_fa3=attention.decode_share_fa3.value,
        padded_rows_fa3=attention.padded_rows_fa3.value,
        padded_rows=attention.padded_rows.value,
        attention_floor_us=attention.floor_us.value,
        moe_tensor_share=moe.tensor_share.value,
        moe_weight_share=moe.weight_share.value,
        moe_row_padding=moe.row_padding.value,
        moe_floor_us=moe.floor_us.value,
        small_kernel_us=small.value,
        decode_host_us=host.decode_us.value,
        prefill_host_us=host.prefill_us.value,
        launch_us=host.launch_us.value,
        pair_share=transfer.pair_share.value,
        group_share=transfer.group_share.value,
        multicast_share=transfer.multicast_share.value,
        small_pair_us=transfer.small_pair_us.value,
        small_group_us=transfer.small_group_us.value,
        pcie_share=transfer.pcie_share.value,
        pcie_us=transfer.pcie_us.value,
        pcie_gpu_us=transfer.pcie_gpu_us.value,
        has_multicast=gpu.file.arch in _MULTICAST_ARCHS,
        nvlink_gbps=nvlink_gbps,
        pcie_gbps=pcie_gbps,
        tensor_basis=tensor.basis,
        figures=_list_figures(
            (
                ("sustained rate of 16-bit products", "TF", tensor),
                ("memory bandwidth", "GB/s", bandwidth),
                ("share of it that weights stream at", "", memory.weight_share),
                ("share of it that the KV cache streams at", "", memory.cache_share),
                ("floor of a product", "us", product.floor_us),
                ("floor of a small kernel", "us", small),
                ("framework's time per decode step", "us", host.decode_us),
                ("framework's time per prefill", "us", host.prefill_us),
            )
        ),
    )


def _list_figures(figures: Iterable[tuple[str, str, HardwareParameter]]) -> tuple[RateFigure, ...]:
    return tuple(
        RateFigure(name, figure.value, unit, figure.basis, figure.source) for name, unit, figure in figures
    )


def find_sustained_tflops(
    gpu: Gpu,
    *,
    gemm_tflops: float | None = None,
    uses_measured: bool = True,
    figures: ServingFigures | None = None,
) -> HardwareParameter:
    """Return the sustained rate of large 16-bit products in TF: given, measured, else by the rule."""
    table = figures or load_serving_figures()
    if gemm_tflops is not None:
        return HardwareParameter(value=gemm_tflops, basis=Basis.MEASURED, source="given by the user")
    known = next((entry for entry in table.measured if entry.gpu == gpu.key), None)
    if uses_measured and known is not None:
        source = table.sources.get(known.tflops.source, known.tflops.source)
        return msgspec.structs.replace(known.tflops, source=source)
    peak = find_peak_tflops(gpu)
    tensor = table.tensor
    ceiling = tensor.ceiling.value * peak
    limited = compute_power_limited_tflops(gpu, table)
    if limited is None:
        return HardwareParameter(
            value=0.75 * peak, basis=Basis.ASSUMED, source="0.75 of the datasheet's peak"
        )
    return HardwareParameter(
        value=_compute_soft_minimum(ceiling, limited, tensor.softness.value),
        basis=Basis.ASSUMED,
        source="rule by power, size and process (hwdb/serving.toml)",
    )


def compute_power_limited_tflops(gpu: Gpu, figures: ServingFigures) -> float | None:
    """Return the rate that the power allows, in TF, however many tensor cores there are; None without TDP."""
    if gpu.file.power is None or gpu.file.power.tdp_w.value <= 0:
        return None
    process = next(entry for entry in figures.process if not entry.chips or gpu.file.chip in entry.chips)
    full = find_peak_tflops(gpu) * _find_halving(gpu)
    exponent = figures.tensor.power_exponent.value
    power_w = gpu.file.power.tdp_w.value
    return float(process.power_factor.value * power_w**exponent * full ** (1.0 - exponent))


def _compute_soft_minimum(first: float, second: float, softness: float) -> float:
    low, high = sorted((first, second))
    return float(low / (1.0 + (low / high) ** softness) ** (1.0 / softness))


def _find_halving(gpu: Gpu) -> float:
    """Return by how much FP16 accumulation is faster than FP32 accumulation: 2 on parts that halve it."""
    tensor = gpu.file.tensor
    whole, product = tensor.get(TensorRate.F16_ACC16), tensor.get(TensorRate.F16)
    if whole is None or product is None or product.fma_per_cycle_per_sm.value <= 0:
        return 1.0
    return max(1.0, whole.fma_per_cycle_per_sm.value / product.fma_per_cycle_per_sm.value)


def find_peak_tflops(gpu: Gpu) -> float:
    """Return the datasheet's dense peak of 16-bit products with FP32 accumulation, in TF.

    Without tensor cores it is the peak of FP16, else of FP32, arithmetic.
    """
    peak = gpu.file.peak
    for figure in (peak.bf16_tensor_tflops, peak.fp16_tensor_tflops):
        if figure is not None and figure.value > 0:
            return figure.value
    row = gpu.find_tensor_fma_per_cycle(TensorRate.BF16)
    if row is not None and row.value > 0:
        return row.value * gpu.sm_count * gpu.file.clock.boost_mhz.value * _MHZ_TFLOPS
    for figure in (peak.fp16_tflops, peak.fp32_tflops):
        if figure is not None and figure.value > 0:
            return figure.value
    raise HardwareError(
        f"{gpu.name} has neither a tensor peak nor an FP32 peak in its file, so no product can be timed",
        hint="add [peak] bf16_tensor_tflops to the file, or give the measured rate of large products",
    )


def _compute_narrow_tflops(gpu: Gpu, tensor_tflops: float, figures: ServingFigures) -> float:
    """Return the sustained rate of 8-bit products in TF: that of 16 bits where there are no faster ones."""
    peak = gpu.file.peak.fp8_tensor_tflops
    if peak is None or peak.value <= 0:
        return tensor_tflops
    tensor = figures.tensor
    ceiling = tensor.ceiling.value * find_peak_tflops(gpu)
    has_power = tensor_tflops >= _UNLIMITED * ceiling
    gain = tensor.unlimited_narrow_gain if has_power else tensor.narrow_gain
    return min(gain.value * tensor_tflops, tensor.ceiling.value * peak.value)


def _compute_fp4_tflops(gpu: Gpu, tensor_tflops: float, figures: ServingFigures) -> float:
    narrow = _compute_narrow_tflops(gpu, tensor_tflops, figures)
    peak = gpu.file.peak.fp4_tensor_tflops
    if peak is None or peak.value <= 0:
        return narrow
    return min(figures.tensor.narrow_gain.value * narrow, figures.tensor.ceiling.value * peak.value)


def _compute_fp32_tflops(gpu: Gpu, tensor_tflops: float, figures: ServingFigures) -> float:
    peak = gpu.file.peak.fp32_tflops
    return min(tensor_tflops, figures.tensor.ceiling.value * peak.value) if peak else tensor_tflops / 8.0


def select_tflops(rates: ServingRates, dtype: DataType) -> float:
    """Return the sustained rate of large products of a data type, in TF."""
    match dtype:
        case DataType.FP8 | DataType.FP8_BLOCK | DataType.INT8:
            return rates.narrow_tflops
        case DataType.NVFP4:
            return rates.fp4_tflops
        case DataType.FP32:
            return rates.fp32_tflops
        case DataType.TF32:
            return rates.tensor_tflops / 2.0
        case _:
            return rates.tensor_tflops


def _find_memory(gpu: Gpu, figures: ServingFigures) -> MemoryFigures:
    """Return the shares for a kind of memory; one that is not listed has those of its family."""
    kind = gpu.file.memory.kind
    for entry in figures.memory:
        if kind in entry.kinds:
            return entry
    family = kind[:3].upper()
    return next(
        (entry for entry in figures.memory if any(name.startswith(family) for name in entry.kinds)),
        figures.memory[-1],
    )


_PCIE_GBPS = {"3.0 x16": 16.0, "4.0 x16": 32.0, "5.0 x16": 64.0, "6.0 x16": 128.0}
_LEAST_NVLINK_GBPS = (
    200.0  # of both directions; below, it is a bridge of two cards, which servers rarely have
)


def _find_links(gpu: Gpu) -> tuple[float, float]:
    """Return rates of one direction in GB/s: NVLink (0 without one that joins a group), PCIe."""
    link = gpu.file.link
    nvlink = 0.0 if link.nvlink_gbps is None else link.nvlink_gbps.value
    return (nvlink / 2.0 if nvlink >= _LEAST_NVLINK_GBPS else 0.0), _PCIE_GBPS.get(link.pcie, 16.0)
