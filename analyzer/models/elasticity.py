"""Elasticity of a predicted time: how many percent it changes for one percent of a hardware figure.

e = d log time / d log figure, by central difference: the model runs with the figure multiplied and divided by
a step. -1: twice the figure halves the time; 0: the time does not depend on it.

A simulation has noise: its warps come to a resource in another order where any figure moves a little, and the
time jumps. Two kinds of change can only be noise, and the largest of them is the model's resolution:

1. the time moves although figures move by a thousandth (`_measure_jitter`);
2. a better figure costs time, or a worse one saves time.

A change from a worse to a better figure has the noise of two times: an elasticity is left out unless that
change is larger than twice the resolution. A noisy model gets a larger step, so that more changes exceed it.

Most figures have no effect. Groups of them are made worse together; where that does not cost time, none of
the group does (a worse figure never saves time), else the group is halved. So n figures of which k matter
take some k log n runs in place of 2 n.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import (
    ParameterSetting,
    PerformanceDirection,
    find_direction,
    find_hardware_parameter,
    list_parameter_keys,
    with_settings,
)
from analyzer.hardware.resource_scaling import find_coupled_keys
from analyzer.models.interface import ModelInput
from analyzer.text.errors import WarplensError

# Returns the time on an edited GPU in microseconds, None where the kernel does not run there.
TimePredictor = Callable[[Gpu], float | None]

_STEP_RATIO = 1.05
_NOISY_STEP_RATIO = 1.25
_SM_COUNT_KEY, _SM_COUNT_STEP_RATIO = "sm.count", 2.0  # so large that waves of CTAs show their trend
_MIN_ELASTICITY = 0.0005
_JITTER_RATIO, _N_JITTER_GROUPS = 1.001, 4
_MIN_NOISE = 0.003  # of log time: jitter moves the time by less where it does so smoothly
# Sections of which a kernel reads the rows that its opcodes need; nothing reads peaks and links.
_PER_OPCODE_SECTIONS = frozenset({"sched", "tensor", "peak", "link"})


class Elasticities(Struct, frozen=True, kw_only=True):
    """How a time follows the figures of a GPU."""

    by_key: Mapping[str, float]  # those that the model resolves, the strongest first
    resolution: float  # relative change of time that can be noise of the model
    n_unresolved: int = 0  # figures that the time may follow, by less than the resolution


def compute_elasticities(model_input: ModelInput, predict_time_us: TimePredictor) -> Elasticities:
    """Return the elasticities that the model resolves; figures of zero have none."""
    base_us = predict_time_us(model_input.gpu)
    if base_us is None:
        return Elasticities(by_key={}, resolution=0.0)
    search = _ElasticitySearch(model_input.gpu, base_us, predict_time_us)
    keys = [
        key
        for key in list_relevant_keys(model_input)
        if find_hardware_parameter(model_input.gpu, key).value > 0
    ]
    return search.run(keys)


def measure_resolution(model_input: ModelInput, base_us: float, predict_time_us: TimePredictor) -> float:
    """Return the relative change of time that can be noise: what a thousandth of any figure changes."""
    search = _ElasticitySearch(model_input.gpu, base_us, predict_time_us)
    return math.expm1(search.measure_jitter(list_relevant_keys(model_input)))


class _ElasticitySearch:
    """Search for the figures that the time of one launch follows.

    Changes of time are differences of logarithms.
    """

    def __init__(self, gpu: Gpu, base_us: float, predict_time_us: TimePredictor) -> None:
        self.gpu, self.base_us, self.predict_time_us = gpu, base_us, predict_time_us
        self.noise, self.step = 0.0, _STEP_RATIO
        self.changes: dict[str, tuple[float, float]] = {}  # by key: (of log figure, of log time)

    def run(self, keys: Sequence[str]) -> Elasticities:
        """Return the elasticities of these figures."""
        jitter = self.measure_jitter(keys)
        if jitter > _MIN_NOISE:
            self.noise, self.step = jitter, _NOISY_STEP_RATIO
        if _SM_COUNT_KEY in keys:
            self._measure(_SM_COUNT_KEY)
        self._search([key for key in keys if key != _SM_COUNT_KEY])
        found = {key: time / figure for key, (figure, time) in self.changes.items() if figure}
        found = {key: value for key, value in found.items() if abs(value) >= _MIN_ELASTICITY}
        kept = {key: value for key, value in found.items() if abs(self.changes[key][1]) > 2 * self.noise}
        return Elasticities(
            by_key=dict(sorted(kept.items(), key=lambda item: (-abs(item[1]), item[0]))),
            resolution=math.expm1(self.noise),
            n_unresolved=len(found) - len(kept),
        )

    def measure_jitter(self, keys: Sequence[str]) -> float:
        """Return the largest change of log time where every fourth figure moves by a thousandth."""
        changes = [0.0]
        for start in range(_N_JITTER_GROUPS):
            for factor in (_JITTER_RATIO, 1 / _JITTER_RATIO):
                time_us = self.predict_time_us(_improve(self.gpu, keys[start::_N_JITTER_GROUPS], factor))
                changes += [] if time_us is None else [abs(math.log(time_us / self.base_us))]
        return max(changes)

    def _search(self, keys: Sequence[str]) -> None:
        """Measure those figures that cost time when they are worse."""
        if len(keys) > 1:
            time_us = self.predict_time_us(_improve(self.gpu, keys, 1 / self.step))
            change = math.inf if time_us is None else math.log(time_us / self.base_us)
            self.noise = max(self.noise, -change)
            if change <= max(self.noise, _MIN_ELASTICITY * math.log(self.step)):
                return
            middle = len(keys) // 2
            self._search(keys[:middle])
            self._search(keys[middle:])
        elif keys:
            self._measure(keys[0])

    def _measure(self, key: str) -> None:
        """Measure the change of time from a worse to a better figure."""
        step = _SM_COUNT_STEP_RATIO if key == _SM_COUNT_KEY else self.step
        better, worse = (_improve(self.gpu, [key], factor) for factor in (step, 1 / step))
        fast_us, slow_us = self.predict_time_us(better), self.predict_time_us(worse)
        if fast_us is None or slow_us is None:
            return
        gain, loss = math.log(self.base_us / fast_us), math.log(slow_us / self.base_us)
        self.noise = max(self.noise, -gain, -loss)
        figure = math.log(
            find_hardware_parameter(better, key).value / find_hardware_parameter(worse, key).value
        )
        self.changes[key] = (figure, -gain - loss)


def list_relevant_keys(model_input: ModelInput) -> list[str]:
    """Return the figures that can matter: rates and costs of what the kernel uses.

    Of figures that move together the first one represents all.
    """
    base, used = model_input.gpu, _find_used_rows(model_input)
    kept: list[str] = []
    coupled: set[str] = set()
    for key in list_parameter_keys(base):
        section, _, rest = key.partition(".")
        is_used = section not in _PER_OPCODE_SECTIONS or f"{section}.{rest.partition('.')[0]}" in used
        # a share of one can only fall, together with what it is a share of
        is_rate = find_direction(key) is not PerformanceDirection.CAPACITY and not (
            key.endswith("_share") and find_hardware_parameter(base, key).value >= 1
        )
        if is_used and is_rate and key not in coupled:
            kept.append(key)
            coupled.update(find_coupled_keys(key))
    return kept


def _find_used_rows(model_input: ModelInput) -> frozenset[str]:
    """Return the rows of per-opcode sections that the kernel's opcodes need."""
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


def _improve(gpu: Gpu, keys: Sequence[str], factor: float) -> Gpu:
    """Return the GPU with figures made better by a factor, or worse by one below 1.

    A figure that cannot be that large, such as a share of 1, stays as it is.
    """
    settings = [
        ParameterSetting(
            key,
            factor if find_direction(key) is PerformanceDirection.MORE_IS_FASTER else 1 / factor,
            is_factor=True,
        )
        for key in keys
        if find_hardware_parameter(gpu, key).value > 0
    ]
    try:
        return with_settings(gpu, settings)
    except WarplensError:
        if len(settings) <= 1:
            return gpu
    for key in keys:
        gpu = _improve(gpu, [key], factor)
    return gpu
