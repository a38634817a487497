"""Layout of kernel parameters in constant bank 0.

Sources, in this order:

1. The binary (EIATTR_KPARAM_INFO).
2. The signature in metadata, or in the mangled name of C++ where it has pointers and numbers only, laid out
   by the rules of C (natural alignment).
3. Inference. Parameters are placed one after the other. The size of each follows from the given value (a
   pointer has 8 bytes, a small number 4) and from the 64-bit values that the code reads (`constant_reads`).
   Values that contradict the code raise UsageError; the rest is noted as an assumption.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.binding.constant_reads import WORD_BYTES, ConstantReads, find_constant_reads
from analyzer.execution.binding.number_types import POINTER_BYTES, find_number_type
from analyzer.hardware.schema import Arch
from analyzer.ir.launch import ArgumentValue, TensorMap
from analyzer.ir.module import Kernel, Parameter, ParameterDeclaration
from analyzer.text.demangling import demangle, list_parameter_types
from analyzer.text.errors import UsageError

TENSOR_MAP_BYTES = 128
# Alignment of a CUtensorMap in CUDA 12 and in CUDA 13 (cuda.h).
_TENSOR_MAP_ALIGN_BYTES = (64, 128)
_MAX_PARAMETER_BYTES = 1 << 15
_MAX_SHOWN_PARAMETERS = 24
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__?restrict(?:__)?)\b ?")
_INT32_RANGE = range(-(1 << 31), 1 << 32)


class ParameterLayout(Struct, frozen=True):
    """Parameters of a kernel and their offsets."""

    parameters: tuple[Parameter, ...]  # by ordinal; offsets are relative to `base`
    base: int  # offset in constant bank 0
    assumptions: tuple[str, ...] = ()  # sentences for the report
    reads: ConstantReads | None = None  # reads of the code, where the layout was inferred from them


def find_parameter_layout(kernel: Kernel, given: Mapping[int, ArgumentValue], arch: Arch) -> ParameterLayout:
    """Find the layout from the binary, else from the signature, else by inference.

    given: values by ordinal
    """
    start = int(arch.constant_bank.arguments.value)
    base = start if kernel.parameter_base is None else kernel.parameter_base
    if kernel.parameters is not None:
        return ParameterLayout(add_named_types(kernel.name, kernel.parameters), base)
    if kernel.signature is not None:
        return _lay_out_signature(kernel, kernel.signature, base)
    declared = _declare_named_types(kernel.name)
    numbers = tuple(one for one in declared if one is not None)
    if numbers and len(numbers) == len(declared):
        return _lay_out_signature(kernel, numbers, base, "kernel's name")
    reads = find_constant_reads(kernel)
    has_maps = any(isinstance(value, TensorMap) for value in given.values())
    inferences = [
        _LayoutInference(reads, given, base, align, declared)
        for align in _TENSOR_MAP_ALIGN_BYTES[: 1 + has_maps]
    ]
    for each in inferences:
        each.infer_parameters()
    inference = max(inferences, key=_count_matched_arguments)
    _check_inference(inference)
    return ParameterLayout(tuple(inference.parameters), base, tuple(_describe_assumptions(inference)), reads)


def lay_out_parameters(types: Iterable[ParameterDeclaration], base: int) -> tuple[Parameter, ...]:
    """Lay out parameters one after the other, aligned by their offset in the bank."""
    parameters = []
    position = base
    for ordinal, kind in enumerate(types):
        position = _align_up(position, kind.alignment_bytes)
        parameters.append(
            Parameter(
                ordinal=ordinal,
                offset=position - base,
                size_bytes=kind.size_bytes,
                name=kind.name,
                is_pointer=kind.is_pointer,
                type_name=kind.type_name,
                is_hidden=kind.is_hidden,
            )
        )
        position += kind.size_bytes
    return tuple(parameters)


def add_named_types(name: str, parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Return the parameters with the types that the kernel's mangled name gives; their sizes must agree."""
    types = _list_named_types(name)
    if len(types) != len(parameters):
        return parameters
    return tuple(map(_add_type, parameters, types))


def _add_type(parameter: Parameter, type_name: str) -> Parameter:
    kind, is_pointer = find_number_type(type_name), type_name.endswith("*")
    size = POINTER_BYTES if is_pointer else parameter.size_bytes if kind is None else kind.size_bytes
    if parameter.is_hidden or size != parameter.size_bytes:
        return parameter
    if kind is None and not is_pointer:  # a struct, or an enumeration
        return parameter if parameter.type_name else replace(parameter, type_name=type_name)
    return replace(parameter, type_name=type_name, is_pointer=is_pointer)


def _list_named_types(name: str) -> tuple[str, ...]:
    """Return the types of parameters in a mangled or demangled name, without `const` and the like."""
    types = list_parameter_types(demangle(name)) or ()
    return tuple(_QUALIFIERS.sub("", each).replace(" *", "*").strip() for each in types)


def _declare_named_types(name: str) -> tuple[ParameterDeclaration | None, ...]:
    """Return the parameters in a mangled name, None for structs and enumerations."""
    return tuple(map(_declare_named_type, _list_named_types(name)))


def _declare_named_type(type_name: str) -> ParameterDeclaration | None:
    kind, is_pointer = find_number_type(type_name), type_name.endswith("*")
    if kind is None and not is_pointer:
        return None
    size = POINTER_BYTES if kind is None else kind.size_bytes
    return ParameterDeclaration(
        name="", type_name=type_name, size_bytes=size, alignment_bytes=size, is_pointer=is_pointer
    )


def _align_up(position: int, align: int) -> int:
    return -(-position // align) * align


def _lay_out_signature(
    kernel: Kernel,
    signature: Sequence[ParameterDeclaration],
    base: int,
    source: str = "metadata's signature",
) -> ParameterLayout:
    parameters = lay_out_parameters(signature, base)
    end = base + max((p.offset + p.size_bytes for p in parameters), default=0)
    reads = find_constant_reads(kernel)
    beyond = sorted(word for word in reads.words if word >= _align_up(end, POINTER_BYTES))
    assumptions = [f"argument offsets follow from the {source}, from {_to_hex(base)}"]
    if beyond:
        assumptions.append(
            f"the code reads {_list_offsets(beyond)}, beyond the last argument of the {source}: "
            "give the cubin to be sure of the layout"
        )
    return ParameterLayout(parameters, base, tuple(assumptions), reads)


class _LayoutInference(Struct):
    """Inference of a layout from the given values and from the reads of the code."""

    reads: ConstantReads
    given: Mapping[int, ArgumentValue]
    base: int
    map_align_bytes: int
    declared: tuple[ParameterDeclaration | None, ...] = ()  # by ordinal, where the kernel's name tells
    parameters: list[Parameter] = field(default_factory=list)

    def infer_parameters(self) -> None:
        """Fill `parameters`, up to the last given value and the last word that the code reads."""
        last = max((w + WORD_BYTES for w in self.reads.words if w >= self.base), default=self.base)
        n_given = max(self.given, default=-1) + 1
        position = self.base
        while len(self.parameters) < n_given or position < last:
            if position - self.base > _MAX_PARAMETER_BYTES:
                break
            ordinal = len(self.parameters)
            value = self.given.get(ordinal)
            declared = self.declared[ordinal] if ordinal < len(self.declared) else None
            if declared is not None:
                position, size = _align_up(position, declared.alignment_bytes), declared.size_bytes
            elif value is None:
                position, size = self._place_missing_value(position)
            else:
                position, size = self._place_given_value(position, value)
            self.parameters.append(
                Parameter(
                    ordinal=ordinal,
                    offset=position - self.base,
                    size_bytes=size,
                    is_pointer=self._is_pointer(position, value) if declared is None else declared.is_pointer,
                    type_name="" if declared is None else declared.type_name,
                )
            )
            position += size

    def _is_pointer(self, position: int, value: ArgumentValue | None) -> bool | None:
        """Return True if the code uses the parameter in an address, None if it may be a pointer, else False.

        It is no pointer if no value is given and the code reads no 64-bit value there.
        """
        if position in self.reads.addresses:
            return True
        return None if value is not None or position in self.reads.pairs else False

    def _place_given_value(self, position: int, value: ArgumentValue) -> tuple[int, int]:
        """Return (position, size) of a parameter with this value.

        A number that fits has 4 bytes, unless the code reads 8.
        """
        wide = _align_up(position, POINTER_BYTES)
        is_wide = wide in self.reads.pairs and (wide == position or position not in self.reads.words)
        match value:
            case TensorMap():
                return _align_up(position, self.map_align_bytes), TENSOR_MAP_BYTES
            case int() if not is_wide and value in _INT32_RANGE:
                return position, WORD_BYTES
            case float() if not is_wide:
                return position, WORD_BYTES
            case _:
                return wide, POINTER_BYTES

    def _place_missing_value(self, position: int) -> tuple[int, int]:
        """Return (position, size) of a parameter without value: 8 bytes if 8 or none are read, else 4."""
        wide = _align_up(position, POINTER_BYTES)
        if wide != position:
            if position not in self.reads.words and wide in self.reads.pairs:
                return wide, POINTER_BYTES
            return position, WORD_BYTES
        untouched = not {position, position + WORD_BYTES} & self.reads.words
        return position, POINTER_BYTES if position in self.reads.pairs or untouched else WORD_BYTES


def _check_inference(inference: _LayoutInference) -> None:
    """Raise UsageError if a value contradicts the reads of the code, or its position cannot be inferred."""
    for parameter in inference.parameters:
        value = inference.given.get(parameter.ordinal)
        position = inference.base + parameter.offset
        words, what = inference.reads.words, f"argument {parameter.ordinal}"
        half = (
            position in words and position + WORD_BYTES not in words and position not in inference.reads.pairs
        )
        if parameter.size_bytes == POINTER_BYTES and half and value is not None and not parameter.type_name:
            needs = "a pointer has" if not isinstance(value, int | float) else f"{value} needs"
            raise UsageError(
                f"{what}: the code reads {WORD_BYTES} bytes at {_to_hex(position)}, {needs} {POINTER_BYTES}",
                hint="check the order of the arguments; they count from 0",
            )
        if isinstance(value, float) and position in inference.reads.addresses:
            raise UsageError(
                f"{what} is used as an address, {value} is a float", hint=f"write {what[9:]}=ptr"
            )
    missing = [
        p.ordinal
        for p in inference.parameters
        if p.ordinal not in inference.given and not _is_read(p, inference)
    ]
    last = max(inference.given, default=-1)
    if (
        missing
        and missing[0] < last
        and not any(_is_read(p, inference) for p in inference.parameters[missing[0] :])
    ):
        raise UsageError(
            f"argument {last}: its place is not known, for nothing is said of {_list_ordinals(missing)}, "
            "which the code does not read either",
            hint=f"the code reads arguments up to {missing[0] - 1}",
        )


def _describe_assumptions(inference: _LayoutInference) -> Iterable[str]:
    """Yield the assumptions of an inference, and where values and code disagree."""
    if not inference.parameters:
        return
    base, reads = inference.base, inference.reads
    sizes = " ".join(str(p.size_bytes) for p in inference.parameters[:_MAX_SHOWN_PARAMETERS])
    sizes += " ..." if len(inference.parameters) > _MAX_SHOWN_PARAMETERS else ""
    yield (
        f"the input does not say where its arguments lie: taken as {sizes} bytes from {_to_hex(base)}, "
        "from the values given and what the code reads; give the cubin, or the text of cuobjdump -elf "
        "as NAME.elf, to be sure"
    )
    inside = {base + p.offset: p for p in inference.parameters}
    for pair in sorted(p for p in reads.pairs if p >= base):
        if pair not in inside or inside[pair].size_bytes < POINTER_BYTES:
            yield (
                f"the code reads one 64-bit value at {_to_hex(pair)}, where the arguments given have none: "
                "check them"
            )
    for position, parameter in inside.items():
        value = inference.given.get(parameter.ordinal)
        if parameter.size_bytes == POINTER_BYTES and not isinstance(value, int | float | None):
            words = {position, position + WORD_BYTES} & reads.words
            if words and position not in reads.pairs:
                yield (
                    f"argument {parameter.ordinal} is {value}, but the code reads no 64-bit value at "
                    f"{_to_hex(position)}: check the order of the arguments"
                )
        if isinstance(value, int | float) and position in reads.addresses:
            yield (
                f"argument {parameter.ordinal} is {value}, but the code uses {_to_hex(position)} "
                "as an address: check it"
            )
    unread = [p.ordinal for p in inference.parameters if not _is_read(p, inference)]
    if unread:
        yield (
            f"the code does not read {_list_ordinals(unread)}: the sizes of these, "
            "and so the places of later ones, "
            "are guessed"
        )
    inside_struct = sorted(offset for offset in reads.indexed if offset >= base)
    if inside_struct:
        yield f"the code indexes the arguments from {_list_offsets(inside_struct)}: an array passed by value"


def _count_matched_arguments(inference: _LayoutInference) -> int:
    """Count the given arguments that the code reads at their inferred position."""
    return sum(p.ordinal in inference.given and _is_read(p, inference) for p in inference.parameters)


def _is_read(parameter: Parameter, inference: _LayoutInference) -> bool:
    first = inference.base + parameter.offset
    return any(
        word in inference.reads.words for word in range(first, first + parameter.size_bytes, WORD_BYTES)
    )


def _list_ordinals(ordinals: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ordinals[:8])) + (" ..." if len(ordinals) > 8 else "")
    return f"argument{'s' if len(ordinals) > 1 else ''} {numbers}"


def _to_hex(offset: int) -> str:
    return f"c[0x0][{offset:#x}]"


def _list_offsets(offsets: Sequence[int]) -> str:
    return ", ".join(map(_to_hex, offsets[:4])) + (" ..." if len(offsets) > 4 else "")
