"""How the prediction of a launch follows figures of its GPU, one at a time: what-if curves of a report.

`whatif` answers for any figure and any values; these curves take a handful of figures that people ask about,
each at half and twice its value, so that a page can show them without running a model:

    memory.bandwidth_gbps  x0.5 357 us   x1 338 us   x2 338 us

The model is the report's own, and runs no more than it must:

1. Figures that nothing waits for have no effect. All but those that the report says to matter are made worse
   together; where that costs no time, none of them has an effect, else half of them are, and so on.
2. A time is a sum of maxima, so that a better figure gains nothing where a worse one costs nothing.
3. Registers and shared memory of an SM decide how many CTAs it holds, and nothing else.

A change in the wrong direction, or of a figure that hardly moves, is noise of the model: its resolution.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import (
    ParameterSetting,
    PerformanceDirection,
    find_direction,
    find_hardware_parameter,
    with_settings,
)
from analyzer.hardware.schema import HardwareParameter
from analyzer.ir.scheduling import TensorRate
from analyzer.models.bounds import DRAM_BOUND, L2_BOUND
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.pipeline.edited_launch import EditedLaunch
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import CurvePoint, HardwareCurve
from analyzer.report.kernel_analysis import GpuResult
from analyzer.report.whatif_entries import judge_change
from analyzer.text.demangling import demangle
from analyzer.text.errors import HardwareError

_WORSE, _BETTER, _HARDLY = 0.5, 2.0, 1.001
_MIN_BUSY_SHARE = 0.4  # at half the rate, most of the time
_FLAT = 0.0005  # of log time: less is no change
_MAX_GPUS = 4  # of a report that get curves
_MAX_KERNELS = 64  # of a report that get curves
_DRAM_KEY, _L2_KEY = "memory.bandwidth_gbps", "l2.bandwidth_gbps"
_L2_PORT_KEY = "memory.l2_bytes_per_cycle_per_sm"  # where no rate is known
_SMS_KEY, _CLOCK_KEY = "sm.count", "clock.boost_mhz"
_ALWAYS_SHOWN = (
    _DRAM_KEY,
    _L2_KEY,
    "l2.size_bytes",
    _SMS_KEY,
    _CLOCK_KEY,
    "memory.dram_latency_cycles",
)
_SHARED_KEY = "limits.shared_bytes_per_sm"
_OCCUPANCY_KEYS = (_SHARED_KEY, "limits.registers_per_sm")
_KEYS_BY_BOUND = {DRAM_BOUND: (_DRAM_KEY,), L2_BOUND: (_L2_KEY, _L2_PORT_KEY)}


def trace_hardware_curves(
    counted: CountedLaunch,
    results: Sequence[GpuResult],
    options: Options,
    n_kernels: int,
    tell: Callable[[str], None],
) -> tuple[HardwareCurve, ...]:
    """Return the curves of a launch on each GPU that runs it, of a report on so many kernels.

    results: of the launch; the first model's on each GPU is followed. tell: is told what is done.
    """
    first = {one.gpu: one.result for one in reversed(results) if one.result is not None}
    chosen = [first[key] for key in dict.fromkeys(one.gpu for one in results) if key in first]
    found: list[HardwareCurve] = []
    for base in chosen[:_MAX_GPUS] if n_kernels <= _MAX_KERNELS else ():
        tell(f"{demangle(counted.loaded.name)} on edited figures of {base.prediction.gpu_name}")
        edited = EditedLaunch(counted, base, calibration=options.calibration)
        found += _CurveSearch(edited).trace()
    return tuple(found)


class _Point(Struct, frozen=True, eq=False):
    """What was found on an edited GPU."""

    gpu: Gpu
    found: ModelResult | Refusal


class _CurveSearch:
    """Search for the figures that the time of one launch follows; changes are of log time."""

    def __init__(self, edited: EditedLaunch) -> None:
        self.edited, self.gpu, self.noise = edited, edited.model_input.gpu, 0.0

    def trace(self) -> Iterator[HardwareCurve]:
        """Yield the curves in the order in which they are shown."""
        figures = dict(_list_figures(self.edited.model_input))
        expected = self._list_expected_keys()
        others = [key for key in figures if key not in {*expected, *_OCCUPANCY_KEYS}]
        if others:
            self.noise = abs(self._measure_change(self._ask(others, _HARDLY)))
        points = {key: self._ask_both_ways(key) for key in figures if key in expected}
        points |= {key: self._ask_occupancy(key) for key in figures if key in _OCCUPANCY_KEYS}
        points |= self._search(others)
        for key, figure in figures.items():
            yield self._make_curve(key, figure, points[key])

    def _list_expected_keys(self) -> frozenset[str]:
        """Return the figures that are likely to matter: of what is busy for much of the time."""
        prediction, rate = self.edited.base.prediction, self.edited.model_input.dominant_tensor_rate
        busy = {
            key
            for bound, keys in _KEYS_BY_BOUND.items()
            if prediction.bounds_cycles.get(bound, 0.0) >= _MIN_BUSY_SHARE * prediction.cycles
            for key in keys
        }
        tensor = set() if rate is None else {_make_tensor_key(rate)}
        return frozenset({_SMS_KEY, _CLOCK_KEY} | busy | tensor)

    def _search(self, keys: Sequence[str]) -> dict[str, tuple[_Point, _Point]]:
        """Return the points of figures, of which most are expected to have no effect."""
        if len(keys) < 2:
            return {key: self._ask_both_ways(key) for key in keys}
        change = self._measure_change(self._ask(keys, _WORSE))
        self.noise = max(self.noise, -change)
        if change <= max(self.noise, _FLAT):
            return {key: (self._repeat(key, _WORSE), self._repeat(key, _BETTER)) for key in keys}
        middle = len(keys) // 2
        return self._search(keys[:middle]) | self._search(keys[middle:])

    def _ask_both_ways(self, key: str) -> tuple[_Point, _Point]:
        """Return the points of a worse figure and of a better one, see rule 2 above."""
        worse = self._ask([key], _WORSE)
        loss = self._measure_change(worse)
        self.noise = max(self.noise, -loss)
        if loss <= max(self.noise, _FLAT):
            return worse, self._repeat(key, _BETTER)
        better = self._ask([key], _BETTER)
        self.noise = max(self.noise, self._measure_change(better))
        return worse, better

    def _ask_occupancy(self, key: str) -> tuple[_Point, _Point]:
        """Return the points of a figure that decides how many CTAs an SM holds, and nothing else."""
        points = []
        for factor in (_WORSE, _BETTER):
            gpu = _improve(self.gpu, [key], factor)
            bound = self.edited.bind(gpu)
            if isinstance(bound, Refusal):
                points.append(_Point(gpu, bound))
            elif bound.occupancy == self.edited.model_input.occupancy:
                points.append(_Point(gpu, self.edited.base))
            else:
                points.append(_Point(gpu, self.edited.predict_bound(bound)))
        return points[0], points[1]

    def _ask(self, keys: Sequence[str], factor: float) -> _Point:
        gpu = _improve(self.gpu, keys, factor)
        return _Point(gpu, self.edited.predict(gpu))

    def _repeat(self, key: str, factor: float) -> _Point:
        """Return the point of a figure without effect: the result on the GPU as it is."""
        return _Point(_improve(self.gpu, [key], factor), self.edited.base)

    def _measure_change(self, point: _Point) -> float:
        """Return the change of log time, endless where the kernel does not run."""
        if isinstance(point.found, Refusal):
            return math.inf
        return math.log(point.found.prediction.time_us / self.edited.base.prediction.time_us)

    def _make_curve(
        self, key: str, figure: HardwareParameter, points: tuple[_Point, _Point]
    ) -> HardwareCurve:
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
            effect=judge_change(ratio, math.expm1(self.noise)),
            bound=prediction.bound,
            cpi_stack={stall.value: cycles for stall, cycles in prediction.cpi_stack.items()},
        )


def _improve(gpu: Gpu, keys: Sequence[str], factor: float) -> Gpu:
    """Return the GPU with figures better by a factor, or worse by one below 1; more capacity is better."""
    return with_settings(
        gpu,
        [
            ParameterSetting(
                key,
                1 / factor if find_direction(key) is PerformanceDirection.LESS_IS_FASTER else factor,
                is_factor=True,
            )
            for key in keys
        ],
    )


def _make_tensor_key(rate: TensorRate) -> str:
    return f"tensor.{rate.value}.fma_per_cycle_per_sm"


def _list_figures(model_input: ModelInput) -> Iterator[tuple[str, HardwareParameter]]:
    """Yield the figures that the GPU has, those of tensor cores and sizes where the kernel uses them."""
    has_l2_rate = model_input.gpu.file.l2.bandwidth_gbps is not None
    keys = [_L2_PORT_KEY if key == _L2_KEY and not has_l2_rate else key for key in _ALWAYS_SHOWN]
    rate = model_input.dominant_tensor_rate
    if rate is not None:
        keys.append(_make_tensor_key(rate))
    keys += [key for key in _OCCUPANCY_KEYS if key != _SHARED_KEY or model_input.shared_bytes_per_cta]
    for key in keys:
        try:
            figure = find_hardware_parameter(model_input.gpu, key)
        except HardwareError:
            continue
        if figure.value > 0:
            yield key, figure
