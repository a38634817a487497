"""Kernels on edited hardware: counts once, then one model run for each edit."""

import itertools
import math
from collections.abc import Sequence

from msgspec import Struct

from analyzer import __version__
from analyzer.hardware.edit import (
    MAX_POINTS,
    Direction,
    Setting,
    Sweep,
    direction,
    figure,
    figure_keys,
    followers,
    full_key,
    parse_setting,
    parse_sweep,
    with_settings,
)
from analyzer.hardware.gpu import Gpu
from analyzer.models.base import Situation
from analyzer.models.portability import is_native
from analyzer.models.registry import edit_model, find_model
from analyzer.models.verdict import Verdict
from analyzer.pipeline.analyst import Analyst, Options
from analyzer.pipeline.program import Program, load
from analyzer.pipeline.run import choose_kernels, gpu_for
from analyzer.pipeline.situations import Counted, Refused, put_on
from analyzer.report.demangle import demangle
from analyzer.report.kernel_view import prediction_entry
from analyzer.report.report import PredictionEntry
from analyzer.report.whatif import WHATIF_SCHEMA, FigureEntry, PointEntry, WhatIfKernel, WhatIfReport
from analyzer.text.errors import HardwareError, UsageError, WarplensError

# Steps of the central difference; that of counts is so large that waves of CTAs show their trend.
_STEP = 1.05
_STEP_OF_COUNTS = 2.0
_LEAST_ELASTICITY = 0.0005


class WhatIf(Struct, frozen=True, kw_only=True):
    """What to edit: all settings hold at every point; the sweeps' values are combined with each other."""

    settings: tuple[Setting, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    elasticity: bool = True

    def points(self) -> tuple[tuple[Setting, ...], ...]:
        """The settings of each point. Raises UsageError where there are too many."""
        count = math.prod(len(sweep.values) for sweep in self.sweeps)
        if count > MAX_POINTS:
            raise UsageError(
                f"the sweeps make {count:,} points, at most {MAX_POINTS:,}", hint="take a larger STEP"
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
    edits = WhatIf(
        settings=tuple(map(parse_setting, settings)),
        sweeps=tuple(map(parse_sweep, sweeps)),
        elasticity=elasticity,
    )
    program = source if isinstance(source, Program) else load(source)
    return whatif_programs([program], gpu, edits, options or Options())


def whatif_programs(
    programs: Sequence[Program], gpu: str | None, edits: WhatIf, options: Options
) -> WhatIfReport:
    """Predictions on a GPU as it is and on each edited one.

    gpu: name, alias or TOML path; None for the typical part of the first kernel's architecture. A point
    where the kernel does not fit is reported as refused. Raises InputError, HardwareError or UsageError.
    """
    chosen = [kernel for program in programs for kernel in choose_kernels(program, options)]
    if not chosen:
        raise UsageError(f"no kernel fits {', '.join(options.kernels)}")
    base = gpu_for(gpu, chosen[0].kernel)
    points = [(settings, with_settings(base, settings)) for settings in edits.points()]
    analyst = Analyst(options, len(chosen))
    counted = [one for kernel in chosen for one in analyst.count(kernel)]
    found = [_kernel(one, base, points, edits, options) for one in counted]
    keys = {key for kernel in found for point in kernel.points for key in point.set}
    keys |= {key for kernel in found for key in kernel.elasticity}
    return WhatIfReport(
        schema=WHATIF_SCHEMA,
        tool_version=__version__,
        gpu=base.key,
        gpu_name=base.name,
        model=found[0].base.model,
        figures={key: _figure_entry(base, key) for key in sorted(keys) if _is_known(base, key)},
        kernels=tuple(found),
    )


def _kernel(
    counted: Counted,
    base: Gpu,
    points: Sequence[tuple[tuple[Setting, ...], Gpu]],
    edits: WhatIf,
    options: Options,
) -> WhatIfKernel:
    model = options.models[0] if options.models else edit_model(launch_known=counted.launch.has_dimensions)
    before = _predict(counted, base, model)
    if isinstance(before, Refused):
        raise HardwareError(before.reason, hint="choose another GPU with --gpu")
    kernel, ctas = counted.loaded.kernel, before.situation.grid_ctas
    return WhatIfKernel(
        name=kernel.name,
        demangled=demangle(kernel.name),
        architecture=kernel.arch,
        base=_entry(before, counted, base),
        points=tuple(_point(counted, model, settings, gpu, ctas) for settings, gpu in points),
        elasticity=_elasticities(counted, base, model, before.situation) if edits.elasticity else {},
    )


def _predict(counted: Counted, gpu: Gpu, model: str, ctas: int | None = None) -> Verdict | Refused:
    """ctas: those of the GPU as it is, where the grid is not known: an edit must not change the work."""
    situation = put_on(counted, gpu, assumed_ctas=ctas)
    return situation if isinstance(situation, Refused) else find_model(model)(situation)


def _point(counted: Counted, model: str, settings: Sequence[Setting], gpu: Gpu, ctas: int) -> PointEntry:
    found = _predict(counted, gpu, model, ctas)
    values = {full_key(setting.key): figure(gpu, setting.key).value for setting in settings}
    if isinstance(found, Refused):
        return PointEntry(set=values, prediction=None, refused=found.reason)
    return PointEntry(set=values, prediction=_entry(found, counted, gpu))


def _entry(verdict: Verdict, counted: Counted, gpu: Gpu) -> PredictionEntry:
    return prediction_entry(verdict, gpu.name, transferred=not is_native(counted.loaded.kernel, gpu))


def _elasticities(counted: Counted, base: Gpu, model: str, situation: Situation) -> dict[str, float]:
    """Those that are not nought, the strongest first; figures that are nought have none."""
    ctas = situation.grid_ctas
    found = {
        key: _elasticity(counted, base, model, key, ctas)
        for key in _keys(base, situation)
        if figure(base, key).value > 0
    }
    kept = {key: value for key, value in found.items() if abs(value) >= _LEAST_ELASTICITY}
    return dict(sorted(kept.items(), key=lambda item: (-abs(item[1]), item[0])))


def _keys(base: Gpu, situation: Situation) -> list[str]:
    """Figures that can matter: rates and costs of what the kernel uses; followers go with their leaders."""
    used = _used(situation)
    kept: list[str] = []
    led: set[str] = set()
    for key in figure_keys(base):
        section, _, rest = key.partition(".")
        is_used = section not in _BY_USE or f"{section}.{rest.partition('.')[0]}" in used
        # a share of one can only fall, together with what it is a share of
        is_rate = direction(key) is not Direction.CAPACITY and not (
            key.endswith("_share") and figure(base, key).value >= 1
        )
        if is_used and is_rate and key not in led:
            kept.append(key)
            led.update(followers(key))
    return kept


# Sections of which a kernel reads the rows that its opcodes need; nothing reads peaks and links.
_BY_USE = frozenset({"sched", "tensor", "peak", "link"})


def _used(situation: Situation) -> frozenset[str]:
    """Rows of those sections."""
    kernel, gpu = situation.kernel, situation.gpu
    opcodes = [kernel.vocabulary.opcodes[number] for number in set(kernel.opcode_ids.tolist())]
    classes = {f"sched.{opcode.sched.value}" for opcode in opcodes}
    wanted = [gpu.tensor_fma_per_cycle(opcode.mma.rate) for opcode in opcodes if opcode.mma]
    rates = {
        f"tensor.{rate.value}"
        for rate, row in gpu.file.tensor.items()
        if any(row.fma_per_cycle_per_sm is figure for figure in wanted)
    }
    return frozenset(classes | rates)


def _elasticity(counted: Counted, base: Gpu, model: str, key: str, ctas: int) -> float:
    """d log time / d log figure; nought where an edit does not change the figure or the kernel is refused."""
    logs = []
    step = _STEP_OF_COUNTS if key == "sm.count" else _STEP
    for factor in (step, 1 / step):
        edited = _scaled(base, key, factor)
        found = _predict(counted, edited, model, ctas)
        if isinstance(found, Refused):
            return 0.0
        logs.append((math.log(figure(edited, key).value), math.log(found.prediction.time_us)))
    (more, slow), (less, fast) = logs
    return (slow - fast) / (more - less) if more != less else 0.0


def _scaled(base: Gpu, key: str, factor: float) -> Gpu:
    """The GPU with one figure scaled; as it is where it cannot be that large, such as a share of 1."""
    try:
        return with_settings(base, (Setting(key, factor, is_factor=True),))
    except WarplensError:
        return base


def _figure_entry(gpu: Gpu, key: str) -> FigureEntry:
    found = figure(gpu, key)
    return FigureEntry(value=found.value, basis=found.basis.value, source=found.source)


def _is_known(gpu: Gpu, key: str) -> bool:
    try:
        figure(gpu, key)
    except HardwareError:
        return False
    return True
