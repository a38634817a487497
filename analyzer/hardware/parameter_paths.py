"""Parameters of a GPU by dotted path: found in its file or its architecture, and replaced there.

The walk follows the types of `hardware.schema`, so a new field of a file needs no code here.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec.structs import replace

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.schema import Arch, GpuFile, HardwareParameter
from analyzer.text.errors import HardwareError

# Offsets of constants have no effect on time.
_NON_PARAMETER_FIELDS = frozenset({"constant_bank"})


def collect_parameters(gpu: Gpu) -> dict[str, HardwareParameter]:
    """Return all parameters by key; those of the GPU's file override those of its architecture."""
    own = collect_struct_parameters(gpu.file)
    below = {} if gpu.arch is None else collect_struct_parameters(gpu.arch)
    return own | {key: found for key, found in below.items() if key not in own}


def find_parameter(gpu: Gpu, key: str) -> HardwareParameter | None:
    """Return one of the parameters that `collect_parameters` returns, None if the GPU lacks it."""
    path = key.split(".")
    return _find_parameter_at(gpu.file, path) or _find_parameter_at(gpu.arch, path)


def _find_parameter_at(value: Any, path: Sequence[str]) -> HardwareParameter | None:
    for name in path:
        if isinstance(value, msgspec.Struct) and name not in _NON_PARAMETER_FIELDS:
            value = getattr(value, name) if name in value.__struct_fields__ else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, HardwareParameter) else None


def collect_struct_parameters(root: msgspec.Struct) -> dict[str, HardwareParameter]:
    """Return the parameters of a file by key."""
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
    """Return the type of a field or entry of a type, `X` for `X | None`; None if there is none."""
    if get_origin(kind) is Mapping:
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
    """Return the key of a dict by its text, most often a member of an enum; None if the enum has none."""
    try:
        return key_kind(name)
    except ValueError:
        return None


def has_parameter_at(kind: Any, path: Sequence[str]) -> bool:
    """Return whether a value of type `kind` can have a parameter at a path."""
    for name in path:
        kind = _find_inner_type(kind, name)
    return kind is HardwareParameter


def _set_parameter_at(value: Any, kind: Any, path: Sequence[str], new: HardwareParameter) -> Any:
    """Return a value of type `kind` with a parameter at a path that the schema allows.

    value: the present one, None if it has to be made. Raises LookupError with the names of required fields
    that a value to be made would lack.
    """
    if not path:
        return new
    name, rest = path[0], path[1:]
    inner_kind = _find_inner_type(kind, name)
    if get_origin(kind) is Mapping:
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


def with_parameter(gpu: Gpu, key: str, new: HardwareParameter) -> Gpu:
    """Replace a parameter in the file that has it, else add it where the schema allows it."""
    path = key.split(".")
    in_file = has_parameter_at(GpuFile, path) and (
        _find_parameter_at(gpu.file, path) is not None or find_parameter(gpu, key) is None
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
