"""Rates and latencies that the steps of a served model run at on one GPU: plain numbers, and their origin.

The figures are in `hwdb/serving.toml` with basis and source, or in the GPU's own file; `tensor_rates` has the
most important one.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from analyzer.forecast.collective_times import GroupLink, find_group_link
from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.operator_times import OperatorTimer
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.schema import HardwareParameter
from analyzer.hardware.serving_figures import (
    HostFigures,
    ServingFigures,
    load_serving_figures,
)
from analyzer.ir.scheduling import Basis
from analyzer.operators.names import Backend
from analyzer.operators.sustained_rates import SustainedRates, find_sustained_rates

_TAUGHT_FRAMEWORK = Framework.SGLANG  # the one whose runs the figures of the host were fitted on


class RateFigure(Struct, frozen=True):
    """One figure with its origin, as reports list it."""

    name: str
    value: float
    unit: str
    basis: Basis
    source: str


class Spreads(NamedTuple):
    """Standard deviations of the logarithm, by what a time rests on: parts of a `CallTime`, then the host."""

    tensor: float
    weights: float
    cache: float
    rows: float
    experts: float
    transfer: float
    host: float


class ServingRates(Struct, frozen=True):
    """Plain numbers that `step_times` computes with; `figures` says where they come from.

    Rates in TF (1e12 operations a second) and GB/s, times in us. A share is of the datasheet's bandwidth or
    of the sustained rate of products.
    """

    gpu: str
    framework: Framework
    sustained: SustainedRates
    operators: OperatorTimer
    decode_host_us: float
    prefill_host_us: float
    launch_us: float
    link: GroupLink  # between the GPUs of a group
    spreads: Spreads
    figures: tuple[RateFigure, ...] = ()


def find_rates(deployment: Deployment) -> ServingRates:
    """Return the rates of a deployment's GPU.

    Raises HardwareError for a GPU whose file has neither a tensor peak nor an FP32 peak.
    """
    return compute_rates(
        deployment.gpu,
        framework=deployment.framework,
        gemm_tflops=deployment.gemm_tflops,
        has_bridge=deployment.has_bridge,
    )


def compute_rates(
    gpu: Gpu,
    *,
    framework: Framework = Framework.SGLANG,
    gemm_tflops: float | None = None,
    uses_measured: bool = True,
    has_bridge: bool = False,
    figures: ServingFigures | None = None,
) -> ServingRates:
    """Return the rates of a GPU.

    gemm_tflops: the sustained rate of large 16-bit products, where the user measured it.
    uses_measured: take what others measured on this GPU; else the datasheet's rule alone.
    has_bridge: whether NVLink bridges join pairs of GPUs that have no switch.
    figures: other figures than those shipped.
    """
    table = figures or load_serving_figures()
    sustained = find_sustained_rates(gpu, gemm_tflops=gemm_tflops, uses_measured=uses_measured, figures=table)
    bandwidth = gpu.file.memory.bandwidth_gbps
    host = _find_host(framework, table)
    link = find_group_link(gpu, framework, has_bridge=has_bridge, figures=table)
    return ServingRates(
        gpu=gpu.key,
        framework=framework,
        sustained=sustained,
        operators=OperatorTimer(gpu, Backend(framework.value)),
        decode_host_us=host.decode_us.value,
        prefill_host_us=host.prefill_us.value,
        launch_us=host.launch_us.value,
        link=link,
        spreads=_find_spreads(gpu, framework, sustained.origin.basis, link.is_linked(2), table),
        figures=_list_figures(
            (
                ("sustained rate of 16-bit products", "TF", sustained.origin),
                ("memory bandwidth", "GB/s", bandwidth),
                ("framework's time per decode step", "us", host.decode_us),
                ("framework's time per prefill", "us", host.prefill_us),
            ),
            {**gpu.file.sources, **table.sources},
        ),
    )


def _find_host(framework: Framework, table: ServingFigures) -> HostFigures:
    """Return the framework's own times; those of one of which no run taught are assumed to be SGLang's."""
    host = table.host
    if framework is _TAUGHT_FRAMEWORK:
        return host
    assumed = {
        name: msgspec.structs.replace(getattr(host, name), basis=Basis.ASSUMED)
        for name in host.__struct_fields__
    }
    return HostFigures(**assumed)


def _find_spreads(
    gpu: Gpu,
    framework: Framework,
    tensor: Basis,
    has_nvlink: bool,
    table: ServingFigures,
) -> Spreads:
    """Return the spreads of a GPU; those of kernels widen where no run of its architecture taught."""
    spread = table.spread
    rate = {Basis.MEASURED: spread.tensor_measured, Basis.CALIBRATED: spread.tensor_calibrated}.get(
        tensor, spread.tensor_assumed
    )
    has_taught = gpu.code[0] in spread.taught and gpu.file.memory.has_ecc
    factor = 1.0 if has_taught else spread.untaught.value
    return Spreads(
        tensor=rate.value,
        weights=factor * spread.weights.value,
        cache=factor * spread.cache.value,
        rows=factor * spread.rows.value,
        experts=spread.experts.value,
        transfer=(spread.nvlink if has_nvlink else spread.pcie).value,
        host=(spread.host if framework is _TAUGHT_FRAMEWORK else spread.other_host).value,
    )


def _list_figures(
    figures: Iterable[tuple[str, str, HardwareParameter]], sources: Mapping[str, str]
) -> tuple[RateFigure, ...]:
    return tuple(
        RateFigure(name, figure.value, unit, figure.basis, sources.get(figure.source, figure.source))
        for name, unit, figure in figures
    )
