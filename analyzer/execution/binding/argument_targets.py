"""Targets of arguments: the parameter that a selector names, and whether it can hold the value."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from analyzer.execution.binding.number_types import POINTER_BYTES, encode_number
from analyzer.execution.binding.parameter_layout import TENSOR_MAP_BYTES
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, FilledBuffer, NullPointer, Pointer, TensorMap
from analyzer.ir.module import Kernel, Parameter
from analyzer.text.errors import UsageError

_FIELD_PATTERN = re.compile(r"(.+)\+(0[xX][0-9a-fA-F]{1,8}|[0-9]{1,8})")
_BANK_OFFSET_PATTERN = re.compile(r"c\[(0x[0-9a-fA-F]{1,2}|[0-9])\]\[(0x[0-9a-fA-F]{1,6}|[0-9]{1,6})\]")
_ORDINAL_PATTERN = re.compile(r"[0-9]{1,6}")
_MAX_SHOWN_NAMES = 4


class ArgumentTarget(Struct, frozen=True):
    """Target of an argument: a parameter, a field inside one, or a location in a constant bank."""

    selector: str  # as the user wrote it
    name: str | None = None  # of the parameter, until `resolve_targets` looks up its ordinal
    ordinal: int | None = None
    field_offset: int | None = None  # bytes into the parameter
    bank: int = 0
    bank_offset: int | None = None
    is_position: bool = False  # the user counted, and gave no name


def parse_target(argument: Argument) -> ArgumentTarget:
    """Parse the selector of an argument: `3`, `n`, `params+16` (16 bytes into a struct), `c[0x0][0x170]`."""
    text = str(argument.parameter).strip()
    if location := _BANK_OFFSET_PATTERN.fullmatch(text):
        return ArgumentTarget(text, bank=int(location[1], 0), bank_offset=int(location[2], 0))
    head, offset = text, None
    if inside := _FIELD_PATTERN.fullmatch(text):
        head, offset = inside[1].strip(), int(inside[2], 0)
    if _ORDINAL_PATTERN.fullmatch(head):
        return ArgumentTarget(text, ordinal=int(head), field_offset=offset, is_position=True)
    return ArgumentTarget(text, name=head, field_offset=offset)


def resolve_targets(
    kernel: Kernel, arguments: Sequence[Argument]
) -> tuple[tuple[ArgumentTarget, ArgumentValue], ...]:
    """Resolve the targets of arguments to ordinals. Raises UsageError for unknown names and duplicates."""
    names = _map_names_to_ordinals(kernel)
    found: dict[tuple[object, ...], tuple[ArgumentTarget, ArgumentValue]] = {}
    for argument in arguments:
        target = parse_target(argument)
        if target.name is not None:
            ordinal = names.get(target.name)
            if ordinal is None:
                raise _make_name_error(kernel, target.name, names)
            target = ArgumentTarget(target.selector, ordinal=ordinal, field_offset=target.field_offset)
        key = (target.ordinal, target.field_offset, target.bank, target.bank_offset)
        if key in found:
            earlier = found[key][0].selector
            raise UsageError(
                f"argument {target.selector} is given twice"
                + ("" if earlier == target.selector else f", as {earlier} too"),
                hint="give each argument once",
            )
        found[key] = (target, argument.value)
    return tuple(found.values())


def check_ordinals(
    kernel: Kernel, targets: Sequence[tuple[ArgumentTarget, ArgumentValue]], parameters: Sequence[Parameter]
) -> None:
    """Raise UsageError for an argument beyond the last parameter, or at a place that may be another's."""
    count = sum(not parameter.is_hidden for parameter in parameters)
    for target, _ in targets:
        if target.ordinal is None:
            continue
        if target.ordinal >= count:
            added = len(parameters) - count
            raise UsageError(
                f"argument {target.selector}: {kernel.name} has "
                + (f"{count} parameter{'s' if count > 1 else ''}" if count else "no parameters")
                + (f"; {added} more {'are' if added > 1 else 'is'} the compiler's own" if added else ""),
                hint=f"positions count from 0 to {count - 1}" if count else "leave the argument out",
            )
        _check_position_is_clear(kernel, target, parameters[target.ordinal])


def _check_position_is_clear(kernel: Kernel, target: ArgumentTarget, parameter: Parameter) -> None:
    """Raise UsageError for a position behind an argument that was folded into the code.

    It would be one of the source for some people, and one of the compiled kernel for others.
    """
    before = [each.name for each in kernel.folded_arguments if each.n_before <= parameter.ordinal]
    if before and target.is_position and parameter.name:
        raise UsageError(
            f"argument {target.selector}: a position behind {', '.join(before[:_MAX_SHOWN_NAMES])}, "
            f"which {'are' if len(before) > 1 else 'is'} folded into the code of {kernel.name}",
            hint=f"give the name: if it is meant, --arg {parameter.name}=...",
        )


def collect_parameter_values(
    targets: Sequence[tuple[ArgumentTarget, ArgumentValue]],
) -> Mapping[int, ArgumentValue]:
    """Return the values that are given for whole parameters, by ordinal."""
    return {t.ordinal: value for t, value in targets if t.ordinal is not None and t.field_offset is None}


def format_parameter_label(parameter: Parameter) -> str:
    """Format a parameter for messages: `argument 3 (n)`."""
    return f"argument {parameter.ordinal}" + (f" ({parameter.name})" if parameter.name else "")


def check_value_fits(parameter: Parameter, value: ArgumentValue) -> None:
    """Raise UsageError if a parameter cannot hold the value."""
    what, size = format_parameter_label(parameter), parameter.size_bytes
    match value:
        case Pointer() | NullPointer() | Buffer() | FilledBuffer():
            if size != POINTER_BYTES:
                hint = "" if size < POINTER_BYTES else "give its fields, as in --arg WHICH+OFFSET=ptr"
                raise UsageError(
                    f"{what} has {size} byte{'s' if size > 1 else ''}, a pointer has {POINTER_BYTES}",
                    hint=hint,
                )
            if parameter.is_pointer is False:
                raise UsageError(
                    f"{what} is no pointer ({parameter.type_name or 'a number'}), {value} is one"
                )
        case TensorMap():
            if size != TENSOR_MAP_BYTES:
                raise UsageError(f"{what} has {size} bytes, a tensor map has {TENSOR_MAP_BYTES}")
        case float():
            if parameter.is_pointer:
                raise UsageError(f"{what} is a pointer, {value} is a float")
            encode_number(value, size, what, parameter.type_name)
        case int():
            encode_number(value, size, what, parameter.type_name)


def _map_names_to_ordinals(kernel: Kernel) -> dict[str, int]:
    """Return the ordinals of parameters by name, without names that occur twice."""
    if kernel.parameters is not None:
        pairs = [(p.name, p.ordinal) for p in kernel.parameters]
    else:
        pairs = [(t.name, ordinal) for ordinal, t in enumerate(kernel.signature or ())]
    names = [name for name, _ in pairs]
    return {name: ordinal for name, ordinal in pairs if name and names.count(name) == 1}


def _make_name_error(kernel: Kernel, name: str, names: Mapping[str, int]) -> UsageError:
    for folded in kernel.folded_arguments:
        if folded.name == name:
            value = f" ({folded.value})" if folded.value else ""
            return UsageError(
                f"{name} is no parameter of {kernel.name}: it is folded into the code as a constant{value}",
                hint="leave it out; for another value the kernel must be compiled again",
            )
    return UsageError(f"{kernel.name} has no parameter {name!r}", hint=_format_names_hint(kernel, names))


def _format_names_hint(kernel: Kernel, names: Mapping[str, int]) -> str:
    if names:
        shown = list(names)[:24]
        is_triton = any(parameter.is_hidden for parameter in kernel.parameters or kernel.signature or ())
        folded = "; constants and arguments of 1 or None are folded into the code" if is_triton else ""
        return f"it has: {', '.join(shown)}" + (" ..." if len(names) > len(shown) else "") + folded
    if kernel.parameters is not None and not kernel.parameters:
        return "it has none"
    return "the input gives no names: give positions, from 0"
