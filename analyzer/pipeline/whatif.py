"""Kernels on edited hardware: counts once, then one model run for each edit."""

import itertools
import math
from collections.abc import Sequence

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import (
    MAX_SWEEP_POINTS,
    ParameterSetting,
    ParameterSweep,
    PerformanceDirection,
    find_coupled_keys,
    find_direction,
    find_hardware_parameter,
    list_parameter_keys,
    parse_setting,
    parse_sweep,
    resolve_alias,
    with_settings,
)
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.models.portability import is_native
from analyzer.models.registry import choose_edited_gpu_model, find_model
from analyzer.pipeline.analysis import choose_kernels, find_single_gpu
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer, Options
from analyzer.pipeline.loaded_program import Program, load
from analyzer.report.analyze_schema import PredictionEntry
from analyzer.report.kernel_entries import make_prediction_entry
from analyzer.report.whatif_schema import WHATIF_SCHEMA, FigureEntry, PointEntry, WhatIfKernel, WhatIfReport
from analyzer.text.demangling import demangle
from analyzer.text.errors import HardwareError, UsageError, WarplensError
from analyzer.version import __version__

# Steps of the central difference; that of counts is so large that waves of CTAs show their trend.
_ELASTICITY_STEP_RATIO = 1.05
_SM_COUNT_STEP_RATIO = 2.0
_MIN_ELASTICITY = 0.0005


class HardwareEdits(Struct, frozen=True, kw_only=True):
    """What to edit: all settings hold at every point; the sweeps' values are combined with each other."""

    settings: tuple[ParameterSetting, ...] = ()
    sweeps: tuple[ParameterSweep, ...] = ()
    elasticity: bool = True

    def list_points(self) -> tuple[tuple[ParameterSetting, ...], ...]:
        """The settings of each point. Raises UsageError where there are too many."""
        count = math.prod(len(sweep.values) for sweep in self.sweeps)
        if count > MAX_SWEEP_POINTS:
            raise UsageError(
                f"the sweeps make {count:,} points, at most {MAX_SWEEP_POINTS:,}", hint="take a larger STEP"
            )
        if not self.settings and not self.sweeps:
            return ()
        swept = itertools.product(*(sweep.settings for sweep in self.sweeps))
        return tuple((*self.settings, *one) for one in swept)


def whatif(
    source: str | Program,
    gpu: str | None = None,
    *,
    settings: Sequence[str] = (),
    sweeps: Sequence[str] = (),
    elasticity: bool = True,
    options: Options | None = None,
) -> WhatIfReport:
    """A dump on edited hardware; settings and sweeps as on the command line: `dram=x2`, `sms=54:216:54`.

    Raises InputError, HardwareError or UsageError.
    """
    edits = HardwareEdits(
        settings=tuple(map(parse_setting, settings)),
        sweeps=tuple(map(parse_sweep, sweeps)),
        elasticity=elasticity,
    )
    program = source if isinstance(source, Program) else load(source)
    return whatif_programs([program], gpu, edits, options or Options())


def whatif_programs(
    programs: Sequence[Program], gpu: str | None, edits: HardwareEdits, options: Options
) -> WhatIfReport:
    """Predictions on a GPU as it is and on each edited one.

    gpu: name, alias or TOML path; None for the typical part of the first kernel's architecture. A point
    where the kernel does not fit is reported as refused. Raises InputError, HardwareError or UsageError.
    """
    chosen = [kernel for program in programs for kernel in choose_kernels(program, options)]
    if not chosen:
        raise UsageError(f"no kernel fits {', '.join(options.kernels)}")
    base = find_single_gpu(gpu, chosen[0].kernel)
    points = [(settings, with_settings(base, settings)) for settings in edits.list_points()]
    kernel_analyzer = KernelAnalyzer(options, len(chosen))
    counted = [one for kernel in chosen for one in kernel_analyzer.count_launches(kernel)]
    found = [_evaluate_kernel(one, base, points, edits, options) for one in counted]
    keys = {key for kernel in found for point in kernel.points for key in point.set}
    keys |= {key for kernel in found for key in kernel.elasticity}
    return WhatIfReport(
        schema=WHATIF_SCHEMA,
        tool_version=__version__,
        gpu=base.key,
        gpu_name=base.name,
        model=found[0].base.model,
        figures={key: _make_figure_entry(base, key) for key in sorted(keys) if _has_figure(base, key)},
        kernels=tuple(found),
    )


def _evaluate_kernel(
    counted: CountedLaunch,
    base: Gpu,
    points: Sequence[tuple[tuple[ParameterSetting, ...], Gpu]],
    edits: HardwareEdits,
    options: Options,
) -> WhatIfKernel:
    model = (
        options.models[0]
        if options.models
        else choose_edited_gpu_model(is_launch_known=counted.launch.has_dimensions)
    )
    before = _predict(counted, base, model)
    if isinstance(before, Refusal):
        raise HardwareError(before.reason, hint="choose another GPU with --gpu")
    kernel, ctas = counted.loaded.kernel, before.model_input.grid_ctas
    return WhatIfKernel(
        name=kernel.name,
        demangled=demangle(kernel.name),
        architecture=kernel.arch,
        base=_make_prediction_entry(before, counted, base),
        points=tuple(_make_point_entry(counted, model, settings, gpu, ctas) for settings, gpu in points),
        elasticity=_compute_elasticities(counted, base, model, before.model_input)
        if edits.elasticity
        else {},
    )


def _predict(counted: CountedLaunch, gpu: Gpu, model: str, ctas: int | None = None) -> ModelResult | Refusal:
    """ctas: those of the GPU as it is, where the grid is not known: an edit must not change the work."""
    model_input = bind_to_gpu(counted, gpu, assumed_ctas=ctas)
    return model_input if isinstance(model_input, Refusal) else find_model(model)(model_input)


def _make_point_entry(
    counted: CountedLaunch, model: str, settings: Sequence[ParameterSetting], gpu: Gpu, ctas: int
) -> PointEntry:
    found = _predict(counted, gpu, model, ctas)
    values = {
        resolve_alias(setting.key): find_hardware_parameter(gpu, setting.key).value for setting in settings
    }
    if isinstance(found, Refusal):
        return PointEntry(set=values, prediction=None, refused=found.reason)
    return PointEntry(set=values, prediction=_make_prediction_entry(found, counted, gpu))


def _make_prediction_entry(result: ModelResult, counted: CountedLaunch, gpu: Gpu) -> PredictionEntry:
    return make_prediction_entry(result, gpu.name, transferred=not is_native(counted.loaded.kernel, gpu))


def _compute_elasticities(
    counted: CountedLaunch, base: Gpu, model: str, model_input: ModelInput
) -> dict[str, float]:
    """Those that are not nought, the strongest first; figures that are nought have none."""
    ctas = model_input.grid_ctas
    found = {
        key: _compute_elasticity(counted, base, model, key, ctas)
        for key in _list_relevant_keys(base, model_input)
        if find_hardware_parameter(base, key).value > 0
    }
    kept = {key: value for key, value in found.items() if abs(value) >= _MIN_ELASTICITY}
    return dict(sorted(kept.items(), key=lambda item: (-abs(item[1]), item[0])))


def _list_relevant_keys(base: Gpu, model_input: ModelInput) -> list[str]:
    """Figures that can matter: rates and costs of what the kernel uses; followers go with their leaders."""
    used = _find_used_rows(model_input)
    kept: list[str] = []
    led: set[str] = set()
    for key in list_parameter_keys(base):
        section, _, rest = key.partition(".")
        is_used = section not in _PER_OPCODE_SECTIONS or f"{section}.{rest.partition('.')[0]}" in used
        # a share of one can only fall, together with what it is a share of
        is_rate = find_direction(key) is not PerformanceDirection.CAPACITY and not (
            key.endswith("_share") and find_hardware_parameter(base, key).value >= 1
        )
        if is_used and is_rate and key not in led:
            kept.append(key)
            led.update(find_coupled_keys(key))
    return kept


# Sections of which a kernel reads the rows that its opcodes need; nothing reads peaks and links.
_PER_OPCODE_SECTIONS = frozenset({"sched", "tensor", "peak", "link"})


def _find_used_rows(model_input: ModelInput) -> frozenset[str]:
    """Rows of those sections."""
    kernel, gpu = model_input.kernel, model_input.gpu
    opcodes = [kernel.form_table.opcodes[number] for number in set(kernel.opcode_ids.tolist())]
    classes = {f"sched.{opcode.sched_class.value}" for opcode in opcodes}
    wanted = [
        gpu.find_tensor_fma_per_cycle(opcode.mma_shape.tensor_rate) for opcode in opcodes if opcode.mma_shape
    ]
    rates = {
        f"tensor.{rate.value}"
        for rate, row in gpu.file.tensor.items()
        if any(row.fma_per_cycle_per_sm is figure for figure in wanted)
    }
    return frozenset(classes | rates)


def _compute_elasticity(counted: CountedLaunch, base: Gpu, model: str, key: str, ctas: int) -> float:
    """d log time / d log figure; nought where an edit does not change the figure or the kernel is refused."""
    logs = []
    step = _SM_COUNT_STEP_RATIO if key == "sm.count" else _ELASTICITY_STEP_RATIO
    for factor in (step, 1 / step):
        edited = _scale_figure(base, key, factor)
        found = _predict(counted, edited, model, ctas)
        if isinstance(found, Refusal):
            return 0.0
        logs.append(
            (math.log(find_hardware_parameter(edited, key).value), math.log(found.prediction.time_us))
        )
    (more, slow), (less, fast) = logs
    return (slow - fast) / (more - less) if more != less else 0.0


def _scale_figure(base: Gpu, key: str, factor: float) -> Gpu:
    """The GPU with one figure scaled; as it is where it cannot be that large, such as a share of 1."""
    try:
        return with_settings(base, (ParameterSetting(key, factor, is_factor=True),))
    except WarplensError:
        return base


def _make_figure_entry(gpu: Gpu, key: str) -> FigureEntry:
    found = find_hardware_parameter(gpu, key)
    return FigureEntry(value=found.value, basis=found.basis.value, source=found.source)


def _has_figure(gpu: Gpu, key: str) -> bool:
    try:
        find_hardware_parameter(gpu, key)
    except HardwareError:
        return False
    return True
