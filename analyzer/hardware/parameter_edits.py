"""Edits of a GPU's figures in memory, for `--set KEY=VALUE` and `--sweep KEY=A:B:STEP`.

A key is a figure's dotted path in the GPU's file or, where that has no such figure, in its architecture's:
`memory.bandwidth_gbps`, `tensor.bf16.fma_per_cycle_per_sm`, `sched.fp32.issue_cycles`. Units stand in keys.
Figures of the same thing move together (`followers`), so that an edit shows whichever of them a model reads.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.schema import Arch, GpuFile, HardwareParameter
from analyzer.ir.scheduling import Basis, TensorRate
from analyzer.text.errors import HardwareError, UsageError

PARAMETER_ALIASES = {
    "sms": "sm.count",
    "dram": "memory.bandwidth_gbps",
    "clock": "clock.boost_mhz",
    "l2": "l2.bandwidth_gbps",
}
MAX_SWEEP_POINTS = 1000
WHAT_IF_SOURCE = "what-if"

# Beyond these a number is a slip, and products leave the range of floats.
_MIN_VALUE, _MAX_VALUE = 1e-12, 1e18


class PerformanceDirection(StrEnum):
    """What more of a figure does to a kernel's time.

    CAPACITY: what fits, or the unit in which it is cut; the effect has no fixed sign.
    """

    MORE_IS_FASTER = "more is faster"
    LESS_IS_FASTER = "less is faster"
    CAPACITY = "capacity"


class ParameterSetting(Struct, frozen=True):
    """A figure's new value in its own unit or, with `is_factor`, the factor on the value that the GPU has.

    Raises UsageError where the value is not a positive finite number.
    """

    key: str
    value: float
    is_factor: bool = False

    def __post_init__(self) -> None:
        if not _MIN_VALUE <= self.value <= _MAX_VALUE:
            raise UsageError(f"{self}: not a positive, finite number", hint=_SETTING_HINT)

    def __str__(self) -> str:
        return f"{self.key}={'x' if self.is_factor else ''}{self.value:.12g}"


class ParameterSweep(Struct, frozen=True):
    """Values, or factors, that a figure takes one after the other."""

    key: str
    values: tuple[float, ...]
    is_factor: bool = False

    @property
    def settings(self) -> tuple[ParameterSetting, ...]:
        """One setting per point."""
        return tuple(ParameterSetting(self.key, value, self.is_factor) for value in self.values)


# ---- text --------------------------------------------------------------------------------------

_SETTING_HINT = "write KEY=VALUE or KEY=xFACTOR, such as memory.bandwidth_gbps=3000 or sms=x1.5"
_SWEEP_HINT = "write KEY=FIRST:LAST:STEP or KEY=V1,V2,..., such as clock=1200:1980:60 or dram=x0.5,x1,x2"
_STEP_TOLERANCE = 1e-6  # of a step


def resolve_alias(key: str) -> str:
    """The dotted key that an alias stands for; any other key as it is."""
    return PARAMETER_ALIASES.get(key, key)


def parse_setting(text: str) -> ParameterSetting:
    """`KEY=VALUE` or `KEY=xFACTOR`, aliases resolved.

    Raises UsageError where the text is neither or the number is not positive and finite. Whether the key
    names a figure is a GPU's to say (`figure`, `with_settings`).
    """
    key, values = _split_setting(text, _SETTING_HINT)
    value, is_factor = _parse_amount(values, text, _SETTING_HINT)
    return ParameterSetting(key, value, is_factor)


def parse_sweep(text: str) -> ParameterSweep:
    """`KEY=FIRST:LAST:STEP`, both ends included, or `KEY=V1,V2,...`; with `x` before the numbers, factors.

    Raises UsageError where the text is neither, a number is not positive and finite, values and factors are
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
    """A number, and whether it is a factor."""
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
    """Equally spaced values from first to last; the last is met where rounding alone parts them."""
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

# By key; the first pattern that fits decides.
_DIRECTION_PATTERNS = (
    (PerformanceDirection.CAPACITY, ("limits.*", "*_queue_cycles", "*_burst_cycles")),
    (PerformanceDirection.MORE_IS_FASTER, ("sm.count", "*_gbps", "*_mhz", "*_per_cycle*", "*_per_us")),
    (PerformanceDirection.MORE_IS_FASTER, ("*_share", "*_efficiency", "*_tflops", "*_tops")),
    (PerformanceDirection.LESS_IS_FASTER, ("*_cycles", "*_us", "launch.latency.*", "l2.store_factor")),
    (PerformanceDirection.CAPACITY, ("*",)),
)

# Counts, sizes, and what an SM has of them.
_INTEGER_PATTERNS = ("limits.*", "sm.count", "*s_per_sm", "*_bytes", "*_bits")

# Places of constants are no figures of performance.
_NON_PARAMETER_FIELDS = frozenset({"constant_bank"})

# Where a figure is not known, another one stands for it.
_FALLBACK_KEYS = {
    "clock.sustained_tensor_mhz": "clock.sustained_mhz",
    "clock.sustained_narrow_mhz": "clock.sustained_tensor_mhz",
    "clock.sustained_float_mhz": "clock.sustained_mhz",
    "clock.sustained_mhz": "clock.boost_mhz",
    "memory.sustained_gbps": "memory.bandwidth_gbps",
    "memory.streaming_gbps": "memory.bandwidth_gbps",
}

# Classes whose latency follows from the level of memory that serves them.
_CACHED_LOAD_CLASSES = ("global_load", "generic_load", "async_copy")

# Figures that the files hold and other ones overrule: setting them would do nothing.
_OVERRIDDEN_PATTERNS = (
    (("sched.mma_*.issue_cycles",), "tensor.*.fma_per_cycle_per_sm and warp_mma_share"),
    (
        tuple(f"sched.{name}.latency_cycles" for name in (*_CACHED_LOAD_CLASSES, "global_atomic")),
        "memory.l1_latency_cycles, memory.l2_latency_cycles and memory.dram_latency_cycles",
    ),
)

_SUSTAINED_CLOCK_KEYS = (
    "clock.sustained_tensor_mhz",
    "clock.sustained_narrow_mhz",
    "clock.sustained_float_mhz",
)

# Figures that take the factor of another one; where two of their leaders are set, that of the later row.
_COUPLED_KEYS = {
    "clock.boost_mhz": (
        "clock.sustained_mhz",
        "clock.tensor_mhz",
        *_SUSTAINED_CLOCK_KEYS,
    ),
    "clock.sustained_mhz": _SUSTAINED_CLOCK_KEYS,
    "clock.sustained_tensor_mhz": ("clock.sustained_narrow_mhz",),
    "memory.bandwidth_gbps": ("memory.sustained_gbps", "memory.streaming_gbps"),
    # The same path twice: the whole GPU's and one SM's.
    "l2.bandwidth_gbps": ("memory.l2_bytes_per_cycle_per_sm",),
    "memory.l2_bytes_per_cycle_per_sm": ("l2.bandwidth_gbps",),
    # What the classes repeat of the memory path.
    "memory.l1_latency_cycles": tuple(
        f"sched.{name}.latency_cycles" for name in (*_CACHED_LOAD_CLASSES, "local_load")
    ),
    "memory.l2_latency_cycles": ("sched.global_atomic.latency_cycles",),
    "memory.shared_latency_cycles": (
        "sched.shared_load.latency_cycles",
        "sched.shared_matrix.latency_cycles",
    ),
    # A launch latency fitted to the GPU goes before its plain launch figures.
    "launch.overhead_us": ("launch.latency.intercept_cycles",),
    "launch.ctas_per_us": ("launch.latency.alpha", "launch.latency.beta", "launch.latency.gamma"),
}

# Costs that follow a rate take its inverse.
_INVERSELY_COUPLED_KEYS = frozenset(_COUPLED_KEYS["launch.ctas_per_us"])


def find_direction(key: str) -> PerformanceDirection:
    """Whether more of a figure is faster, slower, or a capacity, told from the unit in its key."""
    return next(
        found for found, patterns in _DIRECTION_PATTERNS if _matches_any(resolve_alias(key), patterns)
    )


def find_coupled_keys(key: str) -> tuple[str, ...]:
    """Keys of the figures that follow an edit of this one, unless the GPU lacks them or they are set too."""
    return _COUPLED_KEYS.get(resolve_alias(key), ())


def list_parameter_keys(gpu: Gpu) -> tuple[str, ...]:
    """Keys of the figures that the GPU has, its file's before its architecture's, each key once.

    Left out are places in constant banks, and figures of classes that others overrule, such as the issue
    cycles of matrix instructions. `with_settings` takes every key that stands here, by a factor too unless
    its figure is zero.
    """
    return tuple(key for key in _collect_parameters(gpu) if not _find_overriding_keys(key))


def find_hardware_parameter(gpu: Gpu, key: str) -> HardwareParameter:
    """The figure of a key or alias, or the one that stands for it: f16's tensor rate for bf16's, the clock
    at boost for the sustained one, the architecture's latency for the GPU's.

    Raises HardwareError where the key names no figure (the nearest are told), one that others overrule, or
    one that is not known for this GPU.
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
    """The figure of a full key, None where the schema has a place for it and the GPU no value."""
    if decided_by := _find_overriding_keys(key):
        raise HardwareError(f"{key} has no effect of its own: {decided_by} decide", hint="set one of those")
    known = _collect_parameters(gpu)
    if key in known:
        return known[key]
    if key in _FALLBACK_KEYS:
        return _find_known_parameter(gpu, _FALLBACK_KEYS[key])
    path = key.split(".")
    if _has_parameter_at(GpuFile, path):
        is_rate = path[0] == "tensor" and path[-1] == "fma_per_cycle_per_sm"
        return gpu.find_tensor_fma_per_cycle(TensorRate(path[1])) if is_rate else None
    if not _has_parameter_at(Arch, path):
        raise _make_unknown_key_error(gpu, key)
    if gpu.arch is None:
        raise HardwareError(
            f"{gpu.name} has figures for operator models only, and {key} is an architecture's",
            hint="`warplens gpus` lists the GPUs that have an architecture",
        )
    return None


def _find_overriding_keys(key: str) -> str:
    """The figures that count in place of this one, as text; empty where it counts itself."""
    return next((others for patterns, others in _OVERRIDDEN_PATTERNS if _matches_any(key, patterns)), "")


def _matches_any(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _make_unknown_key_error(gpu: Gpu, key: str) -> HardwareError:
    import difflib

    keys = list_parameter_keys(gpu)
    near = difflib.get_close_matches(key, [*keys, *PARAMETER_ALIASES], n=4, cutoff=0.5)
    names = list(dict.fromkeys([*near, *(known for known in keys if key in known)]))[:4]
    return HardwareError(
        f"{gpu.name} has no figure {key!r}",
        hint=f"nearest: {', '.join(names) or 'none'}; `warplens gpus {gpu.key} --explain` shows all",
    )


# ---- edits -------------------------------------------------------------------------------------


class _ParameterChange(Struct, frozen=True):
    """A new figure; factor: on the old one, None where that was not known."""

    parameter: HardwareParameter
    factor: float | None


def with_settings(gpu: Gpu, settings: Sequence[ParameterSetting]) -> Gpu:
    """A GPU with some figures set anew, `assumed` and from `what-if`; the given one stays as it is.

    Factors are on the given GPU's figures, so the order of settings is of no account. Figures that follow
    (`followers`) scale alike unless they are set themselves. Counts and sizes in bytes stay whole: a factor
    rounds, to 1 at least. A figure that the GPU lacks can be set to a value, but not by a factor.

    Raises HardwareError where a key names no figure of this GPU (see `figure`), a factor scales one that is
    not known or zero, or a figure comes only with others that are not known; UsageError where a figure is
    set twice or to a value that it cannot have.
    """
    changes: dict[str, _ParameterChange] = {}
    for setting in settings:
        key = resolve_alias(setting.key)
        if key in changes:
            raise UsageError(f"{key} is set twice", hint="give each figure one value")
        changes[key] = _make_change(gpu, key, setting)
    figures = _scale_coupled_parameters(gpu, changes) | {
        key: change.parameter for key, change in changes.items()
    }
    for key, new in figures.items():
        gpu = _with_parameter(gpu, key, new)
    return gpu


def _make_change(gpu: Gpu, key: str, setting: ParameterSetting) -> _ParameterChange:
    if setting.is_factor:
        old = find_hardware_parameter(gpu, key)
        if not old.value:
            raise HardwareError(f"{key} is 0 on {gpu.name}: a factor leaves it so", hint="set a value")
        value = _check_value(key, _round_if_integer(key, old.value * setting.value))
        return _ParameterChange(
            _make_assumed_parameter(value, f"x{setting.value:g} of {_format_parameter(old)}"), setting.value
        )
    value = _check_value(key, float(setting.value))
    known = _find_known_parameter(gpu, key)
    note = f"in place of {_format_parameter(known)}" if known else "not known before"
    return _ParameterChange(
        _make_assumed_parameter(value, note), value / known.value if known and known.value else None
    )


def _scale_coupled_parameters(gpu: Gpu, changes: dict[str, _ParameterChange]) -> dict[str, HardwareParameter]:
    """New figures of those that follow and are not set themselves."""
    figures, found = _collect_parameters(gpu), {}
    for leader in (one for one in _COUPLED_KEYS if one in changes):
        factor = changes[leader].factor
        if factor is None:
            continue
        for key in _COUPLED_KEYS[leader]:
            old = figures.get(key)
            if old is None or not old.value or key in changes:
                continue
            scale = 1 / factor if key in _INVERSELY_COUPLED_KEYS else factor
            note = f"x{scale:g} of {_format_parameter(old)}, as {leader} is set"
            found[key] = _make_assumed_parameter(_check_value(key, old.value * scale), note)
    return found


def _make_assumed_parameter(value: float, note: str) -> HardwareParameter:
    return HardwareParameter(value=value, basis=Basis.ASSUMED, source=WHAT_IF_SOURCE, note=note)


def _format_parameter(old: HardwareParameter) -> str:
    return f"{old.value:.6g} ({old.basis.value})"


def _round_if_integer(key: str, value: float) -> float:
    """The nearest whole number from 1 on for what is counted, else the value."""
    return max(1.0, float(round(value))) if _matches_any(key, _INTEGER_PATTERNS) else value


def _check_value(key: str, value: float) -> float:
    if not _MIN_VALUE <= value <= _MAX_VALUE:
        raise UsageError(
            f"{key} cannot be {value:g}", hint=f"figures lie between {_MIN_VALUE:g} and {_MAX_VALUE:g}"
        )
    if _matches_any(key, _INTEGER_PATTERNS) and not value.is_integer():
        raise UsageError(f"{key} cannot be {value:.12g}", hint="it is a whole number; a factor rounds")
    if key.endswith("_share") and value > 1:
        raise UsageError(f"{key} cannot be {value:g}", hint="it is a share, 1 at most")
    return value


def _with_parameter(gpu: Gpu, key: str, new: HardwareParameter) -> Gpu:
    """The figure put where the GPU has it, else where the schema has a place for it."""
    path = key.split(".")
    in_file = key in _collect_struct_parameters(gpu.file) or (
        key not in _collect_parameters(gpu) and _has_parameter_at(GpuFile, path)
    )
    try:
        if in_file:
            return replace(gpu, file=_set_parameter_at(gpu.file, GpuFile, path, new))
        return replace(gpu, arch=_set_parameter_at(gpu.arch, Arch, path, new))
    except LookupError as error:
        raise HardwareError(
            f"{key} cannot be set alone: {error.args[0]} would be missing beside it, as {gpu.name} has none",
            hint="`warplens gpus new` starts a file that can give them all",
        ) from None


# ---- the schema, walked ------------------------------------------------------------------------


def _collect_parameters(gpu: Gpu) -> dict[str, HardwareParameter]:
    """All figures by key; the file's go before its architecture's."""
    own = _collect_struct_parameters(gpu.file)
    below = {} if gpu.arch is None else _collect_struct_parameters(gpu.arch)
    return own | {key: found for key, found in below.items() if key not in own}


def _collect_struct_parameters(root: msgspec.Struct) -> dict[str, HardwareParameter]:
    return dict(_walk_parameters(root, ""))


def _walk_parameters(value: object, key: str) -> Iterator[tuple[str, HardwareParameter]]:
    match value:
        case HardwareParameter():
            yield key, value
        case msgspec.Struct():
            for name in value.__struct_fields__:
                if name not in _NON_PARAMETER_FIELDS:
                    yield from _walk_parameters(getattr(value, name), f"{key}.{name}" if key else name)
        case dict():
            for name, row in value.items():
                yield from _walk_parameters(row, f"{key}.{name}")
        case _:
            return


@cache
def _read_field_infos(kind: Any) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


def _find_inner_type(kind: Any, name: str) -> Any:
    """Type of what may stand under a name in a value of a type, `X` where it is `X | None`; else None."""
    if get_origin(kind) is dict:
        key_kind, row_kind = get_args(kind)
        return None if _parse_entry_key(key_kind, name) is None else row_kind
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    if not is_struct or name in _NON_PARAMETER_FIELDS or name not in _read_field_infos(kind):
        return None
    inner = _read_field_infos(kind)[name].type
    if get_origin(inner) in {Union, UnionType}:
        return next(one for one in get_args(inner) if one is not NoneType)
    return inner


def _parse_entry_key(key_kind: Any, name: str) -> Any:
    """A dict's key, most often of an enum, by its text; None where the enum has none."""
    try:
        return key_kind(name)
    except ValueError:
        return None


def _has_parameter_at(kind: Any, path: Sequence[str]) -> bool:
    """Whether a value of a type may have a figure at a path."""
    for name in path:
        kind = _find_inner_type(kind, name)
    return kind is HardwareParameter


def _set_parameter_at(value: Any, kind: Any, path: Sequence[str], new: HardwareParameter) -> Any:
    """A value of a type, None where it is absent, with a figure at a path that has a place.

    Raises LookupError naming what a row that would have to be made lacks.
    """
    if not path:
        return new
    name, rest = path[0], path[1:]
    inner_kind = _find_inner_type(kind, name)
    if get_origin(kind) is dict:
        key = _parse_entry_key(get_args(kind)[0], name)
        return {**value, key: _set_parameter_at(value.get(key), inner_kind, rest, new)}
    inner = _set_parameter_at(getattr(value, name, None), inner_kind, rest, new)
    if value is not None:
        return msgspec.structs.replace(value, **{name: inner})
    if lacking := [
        field.name for field in _read_field_infos(kind).values() if field.required and field.name != name
    ]:
        raise LookupError(", ".join(lacking))
    return kind(**{name: inner})


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
