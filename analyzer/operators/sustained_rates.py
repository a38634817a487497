"""Sustained rates of large products on a GPU: measured, or by a rule of power, size and process.

Power limits most GPUs below their peak. On one manufacturing process the power-limited rate grows as the
square root of power times size: twice the chip at the same power runs slower, at a lower voltage, and so
saves energy.

    power_limited = factor(process) * sqrt(TDP * full peak)      full peak: without halved FP32 accumulation
    sustained = soft minimum of power_limited and ceiling * peak

Example: an A40 at 300 W, 150 TF: 0.585 * sqrt(300 * 150) = 124, soft minimum with 0.94 * 150 = 141: 116 TF.
"""

import msgspec
from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.schema import HardwareParameter
from analyzer.hardware.serving_figures import ServingFigures, load_serving_figures
from analyzer.ir.scheduling import Basis, TensorRate
from analyzer.operators.names import DataType
from analyzer.text.errors import HardwareError

_MHZ_TFLOPS = 2e-6  # TF of one multiply-add per cycle at one MHz
_UNLIMITED = 0.9  # of the ceiling: a GPU at this rate has power to spare
_SINGLE_PRECISION_PART = 8.0  # of the 16-bit rate, where the file has no FP32 peak


class SustainedRates(Struct, frozen=True):
    """Sustained rates of a GPU's large products in TF (1e12 operations a second), by the operands' width."""

    tensor_tflops: float  # 16 bits
    narrow_tflops: float  # 8 bits
    fp4_tflops: float
    fp32_tflops: float
    origin: HardwareParameter  # of the first, from which the others follow

    def find(self, dtype: DataType) -> float:
        """Return the rate of products of a data type."""
        match dtype:
            case DataType.FP8 | DataType.FP8_BLOCK | DataType.INT8:
                return self.narrow_tflops
            case DataType.NVFP4:
                return self.fp4_tflops
            case DataType.FP32:
                return self.fp32_tflops
            case DataType.TF32:
                return self.tensor_tflops / 2.0
            case _:
                return self.tensor_tflops


def find_sustained_rates(
    gpu: Gpu,
    *,
    gemm_tflops: float | None = None,
    uses_measured: bool = True,
    figures: ServingFigures | None = None,
) -> SustainedRates:
    """Return the sustained rates of a GPU, all from that of 16-bit products; see `find_sustained_tflops`."""
    table = figures or load_serving_figures()
    found = find_sustained_tflops(gpu, gemm_tflops=gemm_tflops, uses_measured=uses_measured, figures=table)
    return SustainedRates(
        tensor_tflops=found.value,
        narrow_tflops=_compute_narrow_tflops(gpu, found.value, table),
        fp4_tflops=_compute_fp4_tflops(gpu, found.value, table),
        fp32_tflops=_compute_fp32_tflops(gpu, found.value, table),
        origin=found,
    )


def find_sustained_tflops(
    gpu: Gpu,
    *,
    gemm_tflops: float | None = None,
    uses_measured: bool = True,
    figures: ServingFigures | None = None,
) -> HardwareParameter:
    """Return the sustained rate of large 16-bit products in TF: given, measured, else by the rule.

    Of an edited GPU the measured rate changes as much as the rule's.
    """
    table = figures or load_serving_figures()
    if gemm_tflops is not None:
        return HardwareParameter(value=gemm_tflops, basis=Basis.MEASURED, source="given by the user")
    known = next((entry for entry in table.measured if entry.gpu == gpu.measured_key), None)
    if not uses_measured or known is None:
        return _apply_rule(gpu, table)
    source = table.sources.get(known.tflops.source, known.tflops.source)
    edited = _apply_rule(gpu, table).value / _apply_rule(load_gpu(known.gpu), table).value
    if edited == 1.0:
        return msgspec.structs.replace(known.tflops, source=source)
    return HardwareParameter(
        value=edited * known.tflops.value,
        basis=Basis.ASSUMED,
        source=f"{source}; scaled by what the rule says of the edit",
    )


def _apply_rule(gpu: Gpu, table: ServingFigures) -> HardwareParameter:
    """Return the sustained rate by power and size; without a power limit a share of the peak."""
    peak = find_peak_tflops(gpu)
    tensor = table.tensor
    ceiling = tensor.ceiling.value * peak
    limited = compute_power_limited_tflops(gpu, table)
    if limited is None:
        return HardwareParameter(
            value=0.75 * peak, basis=Basis.ASSUMED, source="0.75 of the datasheet's peak"
        )
    return HardwareParameter(
        value=compute_soft_minimum(ceiling, limited, tensor.softness.value),
        basis=Basis.ASSUMED,
        source="rule by power, size and process (hwdb/serving.toml)",
    )


def compute_power_limited_tflops(gpu: Gpu, figures: ServingFigures) -> float | None:
    """Return the rate that the power allows, in TF, however many tensor cores there are; None without TDP."""
    if gpu.file.power is None or gpu.file.power.tdp_w.value <= 0:
        return None
    factor = gpu.operators.product_factor or figures.tensor.other_factor
    full = find_peak_tflops(gpu) * _find_halving(gpu)
    exponent = figures.tensor.power_exponent.value
    power_w = gpu.file.power.tdp_w.value
    return float(factor.value * power_w**exponent * full ** (1.0 - exponent))


def compute_soft_minimum(first: float, second: float, softness: float) -> float:
    """Return (first^-softness + second^-softness)^(-1 / softness) of rates > 0."""
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
    peak = gpu.file.peak.fp8_tensor_tflops or gpu.file.peak.int8_tensor_tops
    if peak is None or peak.value <= 0:
        return tensor_tflops
    tensor = figures.tensor
    ceiling = tensor.ceiling.value * find_peak_tflops(gpu)
    has_power = tensor_tflops >= _UNLIMITED * ceiling
    gain = tensor.unlimited_narrow_gain if has_power else tensor.narrow_gain
    return min(gain.value * tensor_tflops, tensor.ceiling.value * peak.value)


def _compute_fp4_tflops(gpu: Gpu, tensor_tflops: float, figures: ServingFigures) -> float:
    """Return the sustained rate of 4-bit products in TF: that of 8 bits where there are no faster ones."""
    narrow = _compute_narrow_tflops(gpu, tensor_tflops, figures)
    peak = gpu.file.peak.fp4_tensor_tflops
    if peak is None or peak.value <= 0:
        return narrow
    return min(figures.tensor.narrow_gain.value * narrow, figures.tensor.ceiling.value * peak.value)


def _compute_fp32_tflops(gpu: Gpu, tensor_tflops: float, figures: ServingFigures) -> float:
    """Return the sustained rate of products in single precision, in TF."""
    peak = gpu.file.peak.fp32_tflops
    return (
        min(tensor_tflops, figures.tensor.ceiling.value * peak.value)
        if peak
        else tensor_tflops / _SINGLE_PRECISION_PART
    )
