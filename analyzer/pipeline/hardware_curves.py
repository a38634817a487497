"""How the prediction of a launch follows figures of its GPU, one at a time: what-if curves of a report.

`whatif` answers for any figure and any values; these curves take a handful of figures that people ask about,
each at half and twice its value, so that a page can show them without running a model:

    memory.bandwidth_gbps  x0.5 357 us   x1 338 us   x2 338 us

The model is the report's own. The search for what has an effect (`figure_search`) has a handful of runs: the
figures that are likely to decide first, then all others together. A figure that it does not come to has no
curve. Registers and shared memory of an SM decide how many CTAs it holds, and nothing else: they are asked
for where that changes.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import find_hardware_parameter
from analyzer.hardware.schema import HardwareParameter
from analyzer.models.elasticity import list_relevant_keys
from analyzer.models.figure_search import (
    CLOCK_KEY,
    DRAM_KEY,
    SM_COUNT_KEY,
    FigureSearch,
    Group,
    count_affordable_runs,
    find_l2_key,
    improve_figures,
    list_expected_keys,
    make_tensor_key,
)
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.pipeline.edited_launch import EditedLaunch
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import CurvePoint, HardwareCurve
from analyzer.report.kernel_analysis import KernelAnalysis
from analyzer.report.whatif_entries import judge_change
from analyzer.text.demangling import demangle
from analyzer.text.errors import HardwareError

_WORSE, _BETTER = 0.5, 2.0
_RUNS_WITH_JITTER = 6  # from so many on, one of them tells how far the time jumps
_MAX_STEPS = 600_000  # of simulations, those of advice among them: as long as the report's text takes
_FLAT = 0.01  # of log time: less is no effect, of half or twice a figure
_MAX_GPUS = 4  # of a report that get curves
_MAX_KERNELS = 64  # of a report that get curves
_ALWAYS_SHOWN = ("l2.size_bytes", SM_COUNT_KEY, CLOCK_KEY, "memory.dram_latency_cycles")
_SHARED_KEY = "limits.shared_bytes_per_sm"
_OCCUPANCY_KEYS = (_SHARED_KEY, "limits.registers_per_sm")


def trace_hardware_curves(
    counted: CountedLaunch,
    analysis: KernelAnalysis,
    options: Options,
    n_kernels: int,
    tell: Callable[[str], None],
) -> tuple[HardwareCurve, ...]:
    """Return the curves of a launch on each GPU that runs it, of a report on so many kernels.

    analysis: of the launch with its advice; the first model on each GPU is followed.
    tell: is told what is done.
    """
    results = [(one.gpu, one.result) for one in analysis.results if one.result is not None]
    first = dict(reversed(results))
    chosen = [first[gpu] for gpu in dict.fromkeys(gpu for gpu, _ in results)]
    n_asked = sum(not one.gain_is_limit for one in analysis.findings)
    found: list[HardwareCurve] = []
    for base in chosen[:_MAX_GPUS] if n_kernels <= _MAX_KERNELS else ():
        tell(f"{demangle(counted.loaded.name)} on edited figures of {base.prediction.gpu_name}")
        edited = EditedLaunch(counted, base, calibration=options.calibration)
        found += _CurveSearch(edited, n_asked).trace()
    return tuple(found)


class _Point(Struct, frozen=True, eq=False):
    """What was found on an edited GPU."""

    gpu: Gpu
    found: ModelResult | Refusal


class _CurveSearch:
    """The curves of one launch."""

    def __init__(self, edited: EditedLaunch, n_asked: int) -> None:
        self.edited, self.gpu = edited, edited.model_input.gpu
        self.points: dict[tuple[Group, float], _Point] = {}
        self.by_occupancy = {self.edited.model_input.occupancy.ctas_per_sm: edited.base}  # by CTAs of an SM
        n_runs = count_affordable_runs(edited.base, _MAX_STEPS) - n_asked
        self.search = FigureSearch(self._measure_change, _BETTER, n_runs, _FLAT)

    def trace(self) -> Iterator[HardwareCurve]:
        """Yield the curves in the order in which they are shown."""
        figures = dict(_list_figures(self.edited.model_input))
        expected = list_expected_keys(self.edited.base)
        others = [key for key in figures if key not in {*expected, *_OCCUPANCY_KEYS}]
        groups = [[key] for key in expected]
        groups.insert(expected.index(CLOCK_KEY), others)
        if self.search.n_runs >= _RUNS_WITH_JITTER:
            self.search.measure_jitter(list_relevant_keys(self.gpu), 1)
        searched = set(_OCCUPANCY_KEYS)
        for group in groups:
            if self.search.n_runs > 0:
                self.search.run([group])
                searched.update(group)
        searched.difference_update(key for _, group in self.search.unresolved for key in group)
        for key, figure in figures.items():
            points = [self._find_point(key, one) for one in (_WORSE, _BETTER)] if key in searched else []
            found = [point for point in points if point is not None]
            if len(found) == 2:
                yield self._make_curve(key, figure, found)

    def _measure_change(self, keys: Group, factor: float) -> float:
        """Return the change of log time where figures are better, endless where the kernel does not run."""
        gpu = improve_figures(self.gpu, keys, factor)
        point = self.points[keys, factor] = _Point(gpu, self.edited.predict(gpu))
        return self.edited.compare(point.found)

    def _find_point(self, key: str, factor: float) -> _Point | None:
        """Return a point: one that was asked for, else the result on the GPU as it is, as nothing changes.

        Figures of occupancy are asked for where they change it; None where no run is left for that.
        """
        if (asked := self.points.get(((key,), factor))) is not None:
            return asked
        gpu = improve_figures(self.gpu, [key], factor)
        if key not in _OCCUPANCY_KEYS:
            return _Point(gpu, self.edited.base)
        bound = self.edited.bind(gpu)
        if isinstance(bound, Refusal):
            return _Point(gpu, bound)
        ctas = bound.occupancy.ctas_per_sm
        if ctas not in self.by_occupancy:
            if self.search.n_runs <= 0:
                return None
            self.search.n_runs -= 1
            self.by_occupancy[ctas] = self.edited.predict_bound(bound)
        return _Point(gpu, self.by_occupancy[ctas])

    def _make_curve(self, key: str, figure: HardwareParameter, points: Sequence[_Point]) -> HardwareCurve:
        base = self.edited.base
        shown = [self._make_point(key, figure, point) for point in (_Point(self.gpu, base), *points)]
        return HardwareCurve(
            gpu=self.gpu.key,
            model=base.prediction.model,
            key=key,
            value=figure.value,
            basis=figure.basis.value,
            points=tuple(sorted(shown, key=lambda point: point.factor)),
        )

    def _make_point(self, key: str, figure: HardwareParameter, point: _Point) -> CurvePoint:
        value = find_hardware_parameter(point.gpu, key).value
        factor, found = value / figure.value, point.found
        if isinstance(found, Refusal):
            return CurvePoint(factor=factor, value=value, cycles=None, time_us=None, refused=found.reason)
        prediction = found.prediction
        ratio = prediction.time_us / self.edited.base.prediction.time_us
        return CurvePoint(
            factor=factor,
            value=value,
            cycles=prediction.cycles,
            time_us=prediction.time_us,
            effect=judge_change(ratio, math.expm1(max(self.search.noise, _FLAT))),
            bound=prediction.bound,
            cpi_stack={stall.value: cycles for stall, cycles in prediction.cpi_stack.items()},
        )


def _list_figures(model_input: ModelInput) -> Iterator[tuple[str, HardwareParameter]]:
    """Yield the figures that the GPU has, those of tensor cores and sizes where the kernel uses them."""
    keys = [DRAM_KEY, find_l2_key(model_input.gpu), *_ALWAYS_SHOWN]
    rate = model_input.dominant_tensor_rate
    if rate is not None:
        keys.append(make_tensor_key(rate))
    keys += [key for key in _OCCUPANCY_KEYS if key != _SHARED_KEY or model_input.shared_bytes_per_cta]
    for key in keys:
        try:
            figure = find_hardware_parameter(model_input.gpu, key)
        except HardwareError:
            continue
        if figure.value > 0:
            yield key, figure
