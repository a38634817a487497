"""Launch arguments put to the arguments of a Triton function."""

from collections.abc import Sequence

import numpy as np

from analyzer.execution.binding.argument_targets import parse_target
from analyzer.execution.binding.fill_patterns import encode_fill_pattern
from analyzer.execution.binding.number_types import convert_number
from analyzer.ir.launch import (
    Argument,
    ArgumentValue,
    Buffer,
    FilledBuffer,
    NullPointer,
    Pointer,
    TensorMap,
)
from analyzer.ir.tile_operations import DescriptorType, IrType, PointerType, TritonFunction
from analyzer.text.errors import UsageError
from analyzer.tiles.evaluator import ArgumentContents, LaunchFacts
from analyzer.tiles.values import (
    TensorDescriptor,
    TileInteger,
    TilePointer,
    TileValue,
    Unknown,
    make_flag,
    make_integer,
)
from analyzer.tiles.work import name_type

_MAX_SHOWN_NAMES = 24


def bind_launch(
    function: TritonFunction, grid: tuple[int, int, int], arguments: Sequence[Argument]
) -> LaunchFacts:
    """Return what a launch gives to a kernel. Raises UsageError for arguments that do not fit it."""
    given = resolve_arguments(function, arguments)
    values = tuple(
        _bind_value(ordinal, argument.type, _name(function, ordinal), given.get(ordinal))
        for ordinal, argument in enumerate(function.arguments)
    )
    contents = {
        ordinal: found for ordinal, value in given.items() if (found := _read_contents(value)) is not None
    }
    names = tuple(_name(function, ordinal) for ordinal in range(len(function.arguments)))
    return LaunchFacts(grid, _complete_descriptors(function, values), names, contents)


def _name(function: TritonFunction, ordinal: int) -> str:
    """Return the name of an argument; what stands behind a descriptor is `d.shape.0`, …, `d.stride.0`, …

    Triton gives extents and strides of a descriptor the name of the descriptor itself.
    """
    names = function.argument_names
    name = names[ordinal] if ordinal < len(names) else ""
    first = names.index(name) if name else ordinal
    kind = function.arguments[first].type if first < len(function.arguments) else None
    if first == ordinal or not isinstance(kind, DescriptorType):
        return name
    rank, place = len(kind.block.shape), ordinal - first - 1
    return f"{name}.shape.{place}" if place < rank else f"{name}.stride.{place - rank}"


def resolve_arguments(function: TritonFunction, arguments: Sequence[Argument]) -> dict[int, ArgumentValue]:
    """Return values by ordinal. Raises UsageError for unknown names, places too far, and repetitions."""
    found: dict[int, ArgumentValue] = {}
    for argument in arguments:
        target = parse_target(argument)
        if target.field_offset is not None or target.bank_offset is not None:
            raise UsageError(
                f"argument {target.selector}: Triton IR has no bytes of parameters",
                hint="give whole arguments, by name or place",
            )
        ordinal = target.ordinal
        if target.name is not None:
            ordinal = _find_ordinal(function, target.name)
        if ordinal is None or ordinal >= len(function.arguments):
            raise UsageError(
                f"{function.name} has no argument {target.selector!r}", hint=_list_names(function)
            )
        if ordinal in found:
            raise UsageError(f"argument {target.selector} is given twice", hint="give each argument once")
        found[ordinal] = argument.value
    return found


def _find_ordinal(function: TritonFunction, name: str) -> int | None:
    names = [_name(function, ordinal) for ordinal in range(len(function.arguments))]
    return names.index(name) if names.count(name) == 1 else None


def _list_names(function: TritonFunction) -> str:
    names = [_name(function, place) or str(place) for place in range(len(function.arguments))]
    shown = ", ".join(names[:_MAX_SHOWN_NAMES]) + (" …" if len(names) > _MAX_SHOWN_NAMES else "")
    return f"it has: {shown}; constants and arguments of 1 or None are folded into the code"


def _bind_value(ordinal: int, kind: IrType, name: str, value: ArgumentValue | None) -> TileValue:
    label = name or str(ordinal)
    match kind:
        case PointerType():
            if isinstance(value, int | float | TensorMap):
                raise UsageError(f"argument {label} is a pointer, {value} is none", hint=f"--arg {label}=ptr")
            return TilePointer(ordinal, make_integer(0), ())
        case DescriptorType():
            return _bind_descriptor(label, value)
        case _:
            return _bind_number(label, kind, value)


def _bind_number(label: str, kind: IrType, value: ArgumentValue | None) -> TileValue:
    if value is None:
        return Unknown(f"argument {label} is not given", f"--arg {label}=NUMBER gives it")
    if not isinstance(value, int | float):
        raise UsageError(f"argument {label} is a number ({name_type(kind)}), {value} is none")
    number = convert_number(value, name_type(kind), f"argument {label}")
    if isinstance(number, float):
        return TileInteger((), np.array([number], dtype=np.float64))
    if name_type(kind) == "i1":
        return make_flag(bool(number))
    return make_integer(number - (number >> 63 << 64) if number > 0 else number)  # as a signed word has it


def _bind_descriptor(label: str, value: ArgumentValue | None) -> TileValue:
    if isinstance(value, TensorMap) and value.layout is not None:
        # The layout lists the innermost axis first.
        extents = tuple(make_integer(each) for each in reversed(value.layout.extents))
        return TensorDescriptor(Unknown(), extents)
    if value is not None and not isinstance(value, TensorMap | Pointer | NullPointer):
        raise UsageError(f"argument {label} is a tensor descriptor, {value} is none")
    return Unknown(
        f"the extents of descriptor {label} are not given",
        f"--arg {label}=tensormap:TYPE:EXTENTS:BOX gives them",
    )


def _complete_descriptors(function: TritonFunction, values: tuple[TileValue, ...]) -> tuple[TileValue, ...]:
    """Return the values with the extents that a descriptor's own arguments give.

    Triton passes a descriptor made by the host with its extents and strides behind it: `d, d.shape.0, …`.
    """
    completed = list(values)
    for ordinal, argument in enumerate(function.arguments):
        if not isinstance(argument.type, DescriptorType) or not isinstance(values[ordinal], Unknown):
            continue
        rank = len(argument.type.block.shape)
        extents = values[ordinal + 1 : ordinal + 1 + rank]
        if len(extents) == rank and all(isinstance(each, TileInteger) for each in extents):
            numbers = tuple(each for each in extents if isinstance(each, TileInteger))
            completed[ordinal] = TensorDescriptor(Unknown(), numbers)
    return tuple(completed)


def _read_contents(value: ArgumentValue) -> ArgumentContents | None:
    if isinstance(value, Buffer):
        return ArgumentContents(value.contents, is_uniform=False)
    if isinstance(value, FilledBuffer):
        pattern = np.frombuffer(encode_fill_pattern(value), dtype=np.uint8)
        return ArgumentContents(pattern, is_uniform=True)
    return None
