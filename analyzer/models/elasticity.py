"""Elasticity of a predicted time: how many percent it changes for one percent of a hardware figure.

e = d log time / d log figure, by central difference: the model runs with the figure multiplied and divided by
a step. -1: twice the figure halves the time; 0: the time does not depend on it.
"""

import math
from collections.abc import Callable

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_couplings import find_coupled_keys
from analyzer.hardware.parameter_edits import (
    ParameterSetting,
    PerformanceDirection,
    find_direction,
    find_hardware_parameter,
    list_parameter_keys,
    with_settings,
)
from analyzer.models.interface import ModelInput
from analyzer.text.errors import WarplensError

# Returns the time on an edited GPU in microseconds, None where the kernel does not run there.
TimePredictor = Callable[[Gpu], float | None]

_STEP_RATIO = 1.05
_SM_COUNT_STEP_RATIO = 2.0  # so large that waves of CTAs show their trend
_MIN_ELASTICITY = 0.0005
# Sections of which a kernel reads the rows that its opcodes need; nothing reads peaks and links.
_PER_OPCODE_SECTIONS = frozenset({"sched", "tensor", "peak", "link"})


def compute_elasticities(model_input: ModelInput, predict_time_us: TimePredictor) -> dict[str, float]:
    """Return the elasticities that are not zero by key, the strongest first; figures of zero have none."""
    base = model_input.gpu
    found = {
        key: _compute_elasticity(base, key, predict_time_us)
        for key in _list_relevant_keys(model_input)
        if find_hardware_parameter(base, key).value > 0
    }
    kept = {key: value for key, value in found.items() if abs(value) >= _MIN_ELASTICITY}
    return dict(sorted(kept.items(), key=lambda item: (-abs(item[1]), item[0])))


def _list_relevant_keys(model_input: ModelInput) -> list[str]:
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


def _compute_elasticity(base: Gpu, key: str, predict_time_us: TimePredictor) -> float:
    """Return d log time / d log figure; 0 where no edit changes the figure or the kernel does not run."""
    logs = []
    step = _SM_COUNT_STEP_RATIO if key == "sm.count" else _STEP_RATIO
    for factor in (step, 1 / step):
        edited = _scale_figure(base, key, factor)
        time_us = predict_time_us(edited)
        if time_us is None:
            return 0.0
        logs.append((math.log(find_hardware_parameter(edited, key).value), math.log(time_us)))
    (more, slow), (less, fast) = logs
    return (slow - fast) / (more - less) if more != less else 0.0


def _scale_figure(base: Gpu, key: str, factor: float) -> Gpu:
    """Return the GPU with one figure scaled; as it is where it cannot be that large, such as a share of 1."""
    try:
        return with_settings(base, (ParameterSetting(key, factor, is_factor=True),))
    except WarplensError:
        return base
