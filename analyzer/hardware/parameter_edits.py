"""Edits of a GPU's hardware parameters in memory, for `--set KEY=VALUE` and `--sweep KEY=A:B:STEP`.

A key is the dotted path of a parameter in the GPU's file or, if that lacks it, in the architecture's file:
`memory.bandwidth_gbps`, `tensor.bf16.fma_per_cycle_per_sm`, `sched.fp32.issue_cycles`. Units are in the keys.
Or it is a resource and what changes of it, by a factor: `l2.rate`, `l2.latency`, `l2.size` (see `resources`).
What measures the same thing moves together (`find_scaled_figures`), so that an edit has an effect whichever
figure a model reads.

    clock=x0.5      `clock.boost_mhz` and all sustained clocks are halved
    l1.rate=x2      the L1 hands out twice the bytes and looks up tags in half the cycles
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_paths import (
    collect_parameters,
    find_parameter,
    has_parameter_at,
    with_parameter,
)
from analyzer.hardware.resource_scaling import find_scaled_figures, normalize_resource_key
from analyzer.hardware.resources import (
    CACHED_LOAD_CLASSES,
    RESOURCES,
    find_row,
    parse_resource_key,
)
from analyzer.hardware.resources import PerformanceDirection as PerformanceDirection
from analyzer.hardware.resources import find_direction as find_figure_direction
from analyzer.hardware.schema import Arch, GpuFile, HardwareParameter
from analyzer.ir.scheduling import Basis, SchedClass, TensorRate
from analyzer.text.errors import HardwareError, UsageError

PARAMETER_ALIASES = {
    "sms": "sm.count",
    "dram": "memory.bandwidth_gbps",
    "clock": "clock.boost_mhz",
    "l2": "l2.bandwidth_gbps",
}
MAX_SWEEP_POINTS = 1000
WHAT_IF_SOURCE = "what-if"
EDITED_FILE_SOURCE = "follows an edited figure of the file"

# A number outside is a typing error, and products of such numbers would overflow floats.
_MIN_VALUE, _MAX_VALUE = 1e-12, 1e18


class ParameterSetting(Struct, frozen=True):
    """A new value of a parameter. Raises UsageError if it is not a positive finite number."""

    key: str
    value: float  # in the parameter's unit
    is_factor: bool = False  # `value` is a factor on the GPU's own value

    def __post_init__(self) -> None:
        if not _MIN_VALUE <= self.value <= _MAX_VALUE:
            raise UsageError(f"{self}: not a positive, finite number", hint=_SETTING_HINT)

    def __str__(self) -> str:
        return f"{self.key}={'x' if self.is_factor else ''}{self.value:.12g}"


class ParameterSweep(Struct, frozen=True):
    """Values, or factors, that a parameter takes one after the other."""

    key: str
    values: tuple[float, ...]
    is_factor: bool = False

    @property
    def settings(self) -> tuple[ParameterSetting, ...]:
        """The settings of all points, in order."""
        return tuple(ParameterSetting(self.key, value, self.is_factor) for value in self.values)


# ---- text --------------------------------------------------------------------------------------

_SETTING_HINT = "write KEY=VALUE or KEY=xFACTOR, such as memory.bandwidth_gbps=3000 or sms=x1.5"
_SWEEP_HINT = "write KEY=FIRST:LAST:STEP or KEY=V1,V2,..., such as clock=1200:1980:60 or dram=x0.5,x1,x2"
_STEP_TOLERANCE = 1e-6  # of a step


def resolve_alias(key: str) -> str:
    """Return the dotted key of an alias, a resource (`l1` is `l1.rate`) or its base; any other as it is."""
    return PARAMETER_ALIASES.get(key) or normalize_resource_key(key) or key


def parse_setting(text: str) -> ParameterSetting:
    """Parse `KEY=VALUE` or `KEY=xFACTOR`, aliases resolved; `with_settings` checks the key.

    Raises UsageError if the text is neither, or the number is not positive and finite.
    """
    key, values = _split_setting(text, _SETTING_HINT)
    value, is_factor = _parse_amount(values, text, _SETTING_HINT)
    return ParameterSetting(key, value, is_factor)


def parse_sweep(text: str) -> ParameterSweep:
    """Parse `KEY=FIRST:LAST:STEP`, both ends included, or `KEY=V1,V2,...`; numbers after `x` are factors.

    Raises UsageError if the text is neither, a number is not positive and finite, values and factors are
    mixed, or there are more than 1000 points.
    """
    key, values = _split_setting(text, _SWEEP_HINT)
    is_range = ":" in values
    amounts = [_parse_amount(part, text, _SWEEP_HINT) for part in values.split(":" if is_range else ",")]
    numbers, is_factor = tuple(value for value, _ in amounts), amounts[0][1]
    if any(other != is_factor for _, other in amounts) and not (is_range and is_factor):
        raise UsageError(f"{text!r} mixes values and factors", hint=_SWEEP_HINT)
    points = _expand_range(numbers, text) if is_range else numbers
    if len(points) > MAX_SWEEP_POINTS:
        raise _make_too_many_points_error(text)
    return ParameterSweep(key, points, is_factor)


def _split_setting(text: str, hint: str) -> tuple[str, str]:
    key, equals, values = (part.strip() for part in text.partition("="))
    if not (key and equals and values):
        raise UsageError(f"{text!r} does not say which figure takes which value", hint=hint)
    return resolve_alias(key), values


def _parse_amount(part: str, text: str, hint: str) -> tuple[float, bool]:
    """Return (number, is_factor)."""
    digits = part.strip()
    is_factor = digits[:1] in {"x", "X"}
    try:
        value = float(digits[1:] if is_factor else digits)
    except ValueError:
        raise UsageError(f"{digits!r} in {text!r} is not a number", hint=hint) from None
    if not _MIN_VALUE <= value <= _MAX_VALUE:
        raise UsageError(f"{digits!r} in {text!r} is not a positive, finite number", hint=hint)
    return value, is_factor


def _expand_range(numbers: tuple[float, ...], text: str) -> tuple[float, ...]:
    """Return equally spaced values from first to last, which is exact if only rounding separates them."""
    if len(numbers) != 3:
        raise UsageError(f"{text!r} is not FIRST:LAST:STEP", hint=_SWEEP_HINT)
    first, last, step = numbers
    if last < first:
        raise UsageError(f"{text!r} ends before it begins", hint="FIRST is the smaller end, STEP is positive")
    steps = (last - first) / step
    if steps >= MAX_SWEEP_POINTS:
        raise _make_too_many_points_error(text)
    count = math.floor(steps + _STEP_TOLERANCE)
    points = [first, *(float(f"{first + number * step:.15g}") for number in range(1, count + 1))]
    if count and abs(points[-1] - last) <= _STEP_TOLERANCE * step:
        points[-1] = last
    return tuple(points)


def _make_too_many_points_error(text: str) -> UsageError:
    return UsageError(f"{text!r} has more than {MAX_SWEEP_POINTS} points", hint="take a larger STEP")


# ---- what a key means --------------------------------------------------------------------------

# Counts and sizes, which stay whole numbers.
_INTEGER_PATTERNS = ("limits.*", "sm.count", "l2.slices", "*s_per_sm", "*_bytes", "*_bits")

# Working sets in sizes of a cache, which may be larger than it.
_RELATIVE_SIZES = frozenset({"l2.lost_share"})
# Figure that a model reads if another one is not known.
_FALLBACK_KEYS = {
    "clock.sustained_tensor_mhz": "clock.sustained_mhz",
    "clock.launch_tensor_mhz": "clock.sustained_tensor_mhz",
    "clock.sustained_narrow_mhz": "clock.sustained_tensor_mhz",
    "clock.sustained_float_mhz": "clock.sustained_mhz",
    "clock.sustained_mhz": "clock.boost_mhz",
    "memory.sustained_gbps": "memory.bandwidth_gbps",
    "l2.kept_share": "memory.l2_kept_share",
}
_STAND_IN_KEYS = (*_FALLBACK_KEYS, "memory.streaming_gbps")

# Parameters in the files that no model reads, because others decide: setting them would have no effect.
_OVERRIDDEN_PATTERNS = (
    (("sched.mma_*.issue_cycles",), "tensor.*.fma_per_cycle_per_sm and warp_mma_share"),
    (
        tuple(
            f"sched.{one.value}.latency_cycles" for one in (*CACHED_LOAD_CLASSES, SchedClass.GLOBAL_ATOMIC)
        ),
        "memory.l1_latency_cycles, memory.l2_latency_cycles and memory.dram_latency_cycles",
    ),
)


def find_direction(key: str) -> PerformanceDirection:
    """Return whether a larger parameter is faster, slower, or a capacity, as the table of resources says."""
    return find_figure_direction(resolve_alias(key))


def list_parameter_keys(gpu: Gpu) -> tuple[str, ...]:
    """Return the keys of the parameters that the GPU has, its file's before its architecture's, each once.

    Left out are offsets in constant banks, and parameters that have no effect because others decide, such as
    the issue cycles of matrix instructions. `with_settings` takes every key of the list, also by a factor
    unless the parameter is zero.
    """
    return tuple(key for key in collect_parameters(gpu) if not _find_overriding_keys(key))


def find_hardware_parameter(gpu: Gpu, key: str) -> HardwareParameter:
    """Return the parameter of a key or alias, or the one that models read if it is not known.

    That is the tensor rate of f16 for bf16, the boost clock for the sustained one, the latency of the
    architecture for the GPU's. Of a resource's role (`l2.rate`) it is 1, or by what an edit has scaled it.

    Raises HardwareError if the key names no parameter (the message names the nearest keys), one that has no
    effect, or one that is not known for this GPU.
    """
    key = resolve_alias(key)
    found = _find_known_parameter(gpu, key)
    if found is None:
        raise HardwareError(
            f"{key} is not known for {gpu.name}",
            hint=f"`--set {key}=VALUE` gives it one; a factor needs a figure to scale",
        )
    return found


def _find_known_parameter(gpu: Gpu, key: str) -> HardwareParameter | None:
    """Return the parameter of a full key, None if the schema allows it but the GPU has no value."""
    if decided_by := _find_overriding_keys(key):
        raise HardwareError(f"{key} has no effect of its own: {decided_by} decide", hint="set one of those")
    if parse_resource_key(key) is not None:
        return _find_relative_figure(gpu, key)
    if (known := find_parameter(gpu, key)) is not None:
        return known
    if key == "memory.streaming_gbps":
        return gpu.sustained_dram_gbps
    if key in _FALLBACK_KEYS:
        return _find_known_parameter(gpu, _FALLBACK_KEYS[key])
    path = key.split(".")
    if has_parameter_at(GpuFile, path):
        is_rate = path[0] == "tensor" and path[-1] == "fma_per_cycle_per_sm"
        return gpu.find_tensor_fma_per_cycle(TensorRate(path[1])) if is_rate else None
    if not has_parameter_at(Arch, path):
        raise _make_unknown_key_error(gpu, key)
    if gpu.arch is None:
        raise HardwareError(
            f"{gpu.name} has figures for operator models only, and {key} is an architecture's",
            hint="`warplens gpus` lists the GPUs that have an architecture",
        )
    return None


def _find_relative_figure(gpu: Gpu, key: str) -> HardwareParameter:
    """Return by what edits have scaled a role of a resource. Raises HardwareError if the GPU has none."""
    if not _list_role_keys(gpu, key):
        raise HardwareError(
            f"{gpu.name} has no figure of {key}",
            hint=f"`warplens gpus {gpu.key} --explain` shows its resources",
        )
    scaled = [one for one in gpu.scaled_figures if one.leader == key]
    value = math.prod(one.factor for one in scaled if one.key == scaled[0].key)
    row = find_row(scaled[0].key) if scaled else None
    if row is not None and row.exponent < 0:
        value = 1.0 / value
    return HardwareParameter(value=value, basis=Basis.ASSUMED, source="relative to the GPU's own")


def _list_role_keys(gpu: Gpu, key: str) -> list[str]:
    """Return the figures of a resource's role that a GPU has."""
    named = parse_resource_key(key)
    if named is None:
        return []
    resource, role = named
    known = collect_parameters(gpu)
    return [
        row.key
        for row in resource.rows
        if row.key in known and (row.exponent if role == "rate" else row.scaling == role)
    ]


def _find_overriding_keys(key: str) -> str:
    """Return the parameters that decide in place of this one, as text; empty if it has an effect itself."""
    return next((others for patterns, others in _OVERRIDDEN_PATTERNS if _matches_any(key, patterns)), "")


def _matches_any(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _make_unknown_key_error(gpu: Gpu, key: str) -> HardwareError:
    import difflib

    keys = list_parameter_keys(gpu)
    roles = [f"{resource.name}.{role}" for resource in RESOURCES for role in resource.roles]
    near = difflib.get_close_matches(key, [*keys, *PARAMETER_ALIASES, *roles], n=4, cutoff=0.5)
    names = list(dict.fromkeys([*near, *(known for known in keys if key in known)]))[:4]
    return HardwareError(
        f"{gpu.name} has no figure {key!r}",
        hint=f"nearest: {', '.join(names) or 'none'}; `warplens gpus {gpu.key} --explain` shows all",
    )


# ---- edits -------------------------------------------------------------------------------------


class _ParameterChange(Struct, frozen=True):
    """A new value of a parameter, or the factor of a resource's role."""

    parameter: HardwareParameter | None  # None: of a role
    factor: float | None  # on the old value, None if that was not known


def with_settings(gpu: Gpu, settings: Sequence[ParameterSetting]) -> Gpu:
    """Return a copy of a GPU with some parameters changed, of basis `assumed` and source `what-if`.

    Factors are on the values of the given GPU, so the order of settings does not matter. What follows them
    (`find_scaled_figures`) scales unless it is set itself. Counts and sizes in bytes stay whole: a factor
    rounds, to 1 at least. A parameter that the GPU lacks can be set to a value, but not by a factor.

    Raises HardwareError if a key names no parameter of this GPU (see `find_hardware_parameter`), a factor
    scales one that is not known or zero, or a parameter requires others that are not known; UsageError if a
    parameter is set twice or to a value that it cannot have.
    """
    changes: dict[str, _ParameterChange] = {}
    for setting in settings:
        key = resolve_alias(setting.key)
        if key in changes:
            raise UsageError(f"{key} is set twice", hint="give each figure one value")
        changes[key] = _make_change(gpu, key, setting)
    edited = gpu
    for key, change in changes.items():
        if change.parameter is not None:
            edited = with_parameter(edited, key, change.parameter)
    factors = {key: change.factor or 0.0 for key, change in changes.items()}
    return _with_scaled_figures(gpu, edited, factors, WHAT_IF_SOURCE)


def with_inherited_figures(parent: Gpu, child: Gpu, own: Mapping[str, HardwareParameter]) -> Gpu:
    """Return a GPU whose file edits another one's, with the figures that follow from these edits.

    child: as its file says, with all else as the parent's file has it. own: the parameters that stand in its
    own file, by key.
    """
    inherited = {one.key: one for one in parent.scaled_figures if one.key not in own}
    before = collect_parameters(parent)
    for key in inherited:
        child = with_parameter(child, key, before[key])
    child = replace(child, scaled_figures=tuple(inherited.values()))
    factors = {}
    for key, figure in own.items():
        old = before.get(key) or _find_stand_in(parent, key)
        factors[key] = figure.value / old.value if old and old.value else 0.0
    return _with_scaled_figures(parent, child, factors, EDITED_FILE_SOURCE)


def _make_change(gpu: Gpu, key: str, setting: ParameterSetting) -> _ParameterChange:
    if parse_resource_key(key) is not None:
        find_hardware_parameter(gpu, key)
        if not setting.is_factor:
            raise UsageError(f"{key} takes a factor alone", hint=f"write {key}=x2 for twice as much")
        return _ParameterChange(None, setting.value)
    if setting.is_factor:
        old = find_hardware_parameter(gpu, key)
        if not old.value:
            raise HardwareError(f"{key} is 0 on {gpu.name}: a factor leaves it so", hint="set a value")
        value = _check_value(key, _round_if_integer(key, old.value * setting.value))
        return _ParameterChange(
            _make_assumed_parameter(value, f"x{setting.value:g} of {_format_parameter(old)}"),
            value / old.value,
        )
    value = _check_value(key, float(setting.value))
    known = _find_known_parameter(gpu, key)
    note = f"in place of {_format_parameter(known)}" if known else "not known before"
    return _ParameterChange(
        _make_assumed_parameter(value, note), value / known.value if known and known.value else None
    )


def _with_scaled_figures(before: Gpu, edited: Gpu, factors: Mapping[str, float], source: str) -> Gpu:
    """Return an edited GPU with the figures that follow the edits, as `find_scaled_figures` says.

    A figure that the GPU lacks, so that another one stands for it, gets a value where that does not follow.
    """
    figures = collect_parameters(before)
    keys = dict.fromkeys((*figures, *_STAND_IN_KEYS))
    scaled = list(edited.scaled_figures)
    for follower in find_scaled_figures(factors, keys):
        key = follower.key
        old = figures.get(key) or _find_stand_in(before, key)
        if old is None or not old.value:
            continue
        value = _limit_to_share(key, _round_if_integer(key, old.value * follower.factor), old.value)
        now = None if key in figures else _find_stand_in(edited, key)
        if now is not None and math.isclose(now.value, value, rel_tol=1e-9):
            continue
        note = f"x{value / old.value:g} of {_format_parameter(old)}, as {follower.leader} is set"
        new = _make_assumed_parameter(_check_value(key, value), note, source)
        edited = with_parameter(edited, key, new)
        scaled.append(replace(follower, factor=value / old.value))
    return replace(edited, scaled_figures=tuple(scaled))


def _find_stand_in(gpu: Gpu, key: str) -> HardwareParameter | None:
    """Return the parameter that models read where the GPU has none for a key; None where there is none."""
    return _find_known_parameter(gpu, key) if key in _STAND_IN_KEYS else None


def _limit_to_share(key: str, value: float, old: float) -> float:
    """Return the value of a share, 1 at most unless it was more; any other value as it is."""
    return min(value, max(1.0, old)) if key.endswith("_share") else value


def _make_assumed_parameter(value: float, note: str, source: str = WHAT_IF_SOURCE) -> HardwareParameter:
    return HardwareParameter(value=value, basis=Basis.ASSUMED, source=source, note=note)


def _format_parameter(old: HardwareParameter) -> str:
    return f"{old.value:.6g} ({old.basis.value})"


def _round_if_integer(key: str, value: float) -> float:
    """Round the value of a count or size, to 1 at least; return any other value as it is."""
    return max(1.0, float(round(value))) if _matches_any(key, _INTEGER_PATTERNS) else value


def _check_value(key: str, value: float) -> float:
    if not _MIN_VALUE <= value <= _MAX_VALUE:
        raise UsageError(
            f"{key} cannot be {value:g}", hint=f"figures lie between {_MIN_VALUE:g} and {_MAX_VALUE:g}"
        )
    if _matches_any(key, _INTEGER_PATTERNS) and not value.is_integer():
        raise UsageError(f"{key} cannot be {value:.12g}", hint="it is a whole number; a factor rounds")
    if key.endswith("_share") and value > 1 and key not in _RELATIVE_SIZES:
        raise UsageError(f"{key} cannot be {value:g}", hint="it is a share, 1 at most")
    return value


def combine_settings(
    settings: Sequence[ParameterSetting], sweeps: Sequence[ParameterSweep]
) -> tuple[tuple[ParameterSetting, ...], ...]:
    """Return the settings of each point: all of `settings`, with every combination of the sweeps' values.

    Raises UsageError where that makes too many points.
    """
    count = math.prod(len(sweep.values) for sweep in sweeps)
    if count > MAX_SWEEP_POINTS:
        raise UsageError(
            f"the sweeps make {count:,} points, at most {MAX_SWEEP_POINTS:,}", hint="take a larger STEP"
        )
    if not settings and not sweeps:
        return ()
    swept = itertools.product(*(sweep.settings for sweep in sweeps))
    return tuple((*settings, *one) for one in swept)
