"""How the prediction of a launch follows figures of its GPU, one at a time: what-if curves of a report.

A launch is counted once, then a model runs at each point. `whatif` answers for any figure and any values;
these curves take a handful of figures that people ask about, each at the same factors, so that a page can
show them without running a model:

    memory.bandwidth_gbps  x0.5 357 us   x0.75 342 us   x1 338 us   x1.5 338 us   x2 338 us

The report's own model takes a third of a second a point. It is asked where the report has few kernels; for
others the quick model without noise that `whatif` takes elasticities from.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import ParameterSetting, find_hardware_parameter, with_settings
from analyzer.hardware.schema import HardwareParameter
from analyzer.models.calibration import apply_to_kernel
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import choose_edited_gpu_model, find_model
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.model_runs import choose_models
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import CurvePoint, HardwareCurve
from analyzer.text.demangling import demangle
from analyzer.text.errors import HardwareError

_FACTORS = (0.5, 0.75, 1.5, 2.0)
_MAX_SLOW_CURVE_SETS = 2  # kernels times GPUs whose curves the report's own model may compute
_MAX_GPUS = 4  # of a report that get curves
_MAX_KERNELS = 64  # of a report that get curves
_L2_KEY, _L2_PORT_KEY = (
    "l2.bandwidth_gbps",
    "memory.l2_bytes_per_cycle_per_sm",
)  # the port where no rate is known
_ALWAYS_SHOWN = (
    "memory.bandwidth_gbps",
    _L2_KEY,
    "l2.size_bytes",
    "sm.count",
    "clock.boost_mhz",
    "memory.dram_latency_cycles",
)
_SHARED_KEY, _REGISTERS_KEY = "limits.shared_bytes_per_sm", "limits.registers_per_sm"


def trace_hardware_curves(
    counted: CountedLaunch,
    gpus: tuple[Gpu, ...],
    options: Options,
    n_kernels: int,
    tell: Callable[[str], None],
) -> tuple[HardwareCurve, ...]:
    """Return the curves of a launch on each GPU that runs it, of a report on so many kernels.

    tell: is told what is done.
    """
    chosen = gpus[:_MAX_GPUS] if n_kernels <= _MAX_KERNELS else ()
    model = choose_models(options, counted.launch)[0]
    if n_kernels * len(chosen) > _MAX_SLOW_CURVE_SETS:
        model = choose_edited_gpu_model(is_launch_known=counted.launch.has_dimensions)
    found: list[HardwareCurve] = []
    for gpu in chosen:
        tell(f"{demangle(counted.loaded.name)} on edited figures of {gpu.name}")
        model_input = bind_to_gpu(counted, gpu)
        if not isinstance(model_input, Refusal):
            found += _trace_on_gpu(counted, model_input, model, options)
    return tuple(found)


def _trace_on_gpu(
    counted: CountedLaunch, model_input: ModelInput, model: str, options: Options
) -> Iterator[HardwareCurve]:
    gpu, ctas = model_input.gpu, model_input.grid_ctas
    base = _make_point(1.0, 0.0, apply_to_kernel(options.calibration, find_model(model)(model_input)))
    for key, figure in _list_figures(model_input):
        points = [replace(base, value=figure.value)]
        for factor in _FACTORS:
            edited = with_settings(gpu, (ParameterSetting(key, factor, is_factor=True),))
            value = find_hardware_parameter(edited, key).value
            bound = bind_to_gpu(counted, edited, assumed_ctas=ctas)
            found = (
                bound
                if isinstance(bound, Refusal)
                else apply_to_kernel(options.calibration, find_model(model)(bound))
            )
            points.append(_make_point(value / figure.value, value, found))
        yield HardwareCurve(
            gpu=gpu.key,
            model=model,
            key=key,
            value=figure.value,
            basis=figure.basis.value,
            points=tuple(sorted(points, key=lambda point: point.factor)),
        )


def _list_figures(model_input: ModelInput) -> Iterator[tuple[str, HardwareParameter]]:
    """Yield the figures that the GPU has, those of tensor cores and sizes where the kernel uses them."""
    has_l2_rate = model_input.gpu.file.l2.bandwidth_gbps is not None
    keys = [_L2_PORT_KEY if key == _L2_KEY and not has_l2_rate else key for key in _ALWAYS_SHOWN]
    rate = model_input.dominant_tensor_rate
    if rate is not None:
        keys.append(f"tensor.{rate.value}.fma_per_cycle_per_sm")
    keys += [_SHARED_KEY] if model_input.shared_bytes_per_cta else []
    keys.append(_REGISTERS_KEY)
    for key in keys:
        try:
            figure = find_hardware_parameter(model_input.gpu, key)
        except HardwareError:
            continue
        if figure.value > 0:
            yield key, figure


def _make_point(factor: float, value: float, found: ModelResult | Refusal) -> CurvePoint:
    if isinstance(found, Refusal):
        return CurvePoint(factor=factor, value=value, cycles=None, time_us=None, refused=found.reason)
    prediction = found.prediction
    return CurvePoint(
        factor=factor,
        value=value,
        cycles=prediction.cycles,
        time_us=prediction.time_us,
        bound=prediction.bound,
        cpi_stack={stall.value: cycles for stall, cycles in prediction.cpi_stack.items()},
    )
