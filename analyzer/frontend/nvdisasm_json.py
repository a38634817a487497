"""Reads the code in what `nvdisasm -json` prints: an array of facts on the cubin and of its functions.

    [{"SM": {"version": {"major": 9, "minor": 0}}, "Producer": "nvdisasm V13.0"},
     [{"function-name": "k", "start": 0, "length": 16, "sass-instructions": [
        {"predicate": "@!P0", "opcode": "BRA", "operands": "0x780"}]}]]

It holds neither control codes nor labels. A call names its callee where text has `(NAME).
"""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from analyzer.frontend.code_listing import ListedFunction, ListedInstruction, build_listing_module
from analyzer.frontend.sass_diagnostics import SassDiagnostics
from analyzer.ir.module import INSTRUCTION_BYTES, Module, SourceFormat
from analyzer.text.errors import InputError
from analyzer.text.json_spans import JsonPath, find_json_spans, split_decode_error, split_validation_error
from analyzer.text.source import Diagnostic, Location, Severity, locate

_HINT = "print it with: nvdisasm -json kernel.cubin > kernel.json, or give the cubin"
_SYMBOL = re.compile(r"(?!(?:U?[RP]|S?B)(?:\d+|[ZT])(?:\.|$))[A-Za-z_$][\w$.]*")
_NAMELESS_CONSTANT = re.compile(r"(?<=c\[),[^\]]*")  # of a relocatable object, whose text names a symbol


_VersionPart = Annotated[int, Meta(ge=0, lt=1000)]


class _Version(Struct):
    major: _VersionPart
    minor: _VersionPart


class _Processor(Struct):
    version: _Version


class _Facts(Struct):
    """The first element: of the cubin as a whole."""

    processor: _Processor | None = field(name="SM", default=None)
    producer: str = field(name="Producer", default="")


class _Instruction(Struct):
    opcode: str
    operands: str = ""
    predicate: str = ""
    attributes: dict[str, Any] = field(name="other-attributes", default_factory=dict)


class _Function(Struct):
    name: str = field(name="function-name")
    instructions: list[_Instruction] = field(name="sass-instructions")
    start: int = 0


def parse_nvdisasm_json(path: str, data: bytes) -> Module:
    """Parse the JSON of one cubin. Raises InputError, with line, column and caret, if it is damaged."""
    facts, functions = _decode(path, data)
    arch = ""
    if facts.processor is not None:
        arch = f"sm_{facts.processor.version.major}{facts.processor.version.minor}"
    listed = [
        ListedFunction(
            function.name,
            arch,
            instructions=[
                ListedInstruction(
                    text=_make_text(instruction),
                    location=Location(path, 1, 1, ""),
                    address=function.start + INSTRUCTION_BYTES * row,
                )
                for row, instruction in enumerate(function.instructions)
            ],
            labels=[(function.name, 0)],
        )
        for function in functions
    ]
    try:
        return build_listing_module(
            path,
            SourceFormat.NVDISASM_JSON,
            listed,
            SassDiagnostics(path),
            notes=_warn_of_inner_calls(functions),
            toolchain=facts.producer,
        )
    except InputError as error:
        raise _find_place(path, data, functions, error) from None


def _decode(path: str, data: bytes) -> tuple[_Facts, list[_Function]]:
    try:
        content = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        reason, offset = split_decode_error(str(error))
        where = min(len(data) - 1 if offset is None else offset, max(0, len(data.rstrip()) - 1))
        raise InputError(f"not JSON: {reason}", location=locate(path, data, where), hint=_HINT) from None
    elements = content if isinstance(content, list) else [content]
    facts = _Facts()
    functions: list[_Function] = []
    for index, element in enumerate(elements):
        try:
            if isinstance(element, list):
                functions += msgspec.convert(element, list[_Function])
            else:
                facts = msgspec.convert(element, _Facts)
        except msgspec.ValidationError as error:
            words, inner = split_validation_error(str(error))
            raise _make_error(path, data, (index, *inner), words[:1].lower() + words[1:]) from None
    return facts, functions


def _warn_of_inner_calls(functions: list[_Function]) -> tuple[Diagnostic, ...]:
    """Return the warning that callees inside of functions have no address in this format."""
    count = sum(
        each.operands.startswith("$")
        for function in functions
        for each in function.instructions
        if "subroutine-call" in each.attributes
    )
    text = "the JSON does not say where a callee begins: its code is not counted; `nvdisasm -c` does"
    return (Diagnostic(Severity.WARNING, "unknown-call-target", text, count=count),) if count else ()


def _make_text(instruction: _Instruction) -> str:
    """Return an instruction as nvdisasm prints it in text."""
    operands = _NAMELESS_CONSTANT.sub("`(?)", instruction.operands)
    if "control-flow" in instruction.attributes:
        first, comma, last = operands.rpartition(",")
        if _SYMBOL.fullmatch(last):
            operands = f"{first}{comma}`({last})"
    return f"{instruction.predicate} {instruction.opcode} {operands}".strip()


def _find_place(path: str, data: bytes, functions: list[_Function], error: InputError) -> InputError:
    """Return the error at the place of the first instruction that alone gives one."""
    for index, function in enumerate(functions):
        for row, instruction in enumerate(function.instructions):
            listed = ListedInstruction(_make_text(instruction), Location(path, 1, 1, ""))
            try:
                build_listing_module(
                    path,
                    SourceFormat.NVDISASM_JSON,
                    [ListedFunction("", instructions=[listed])],
                    SassDiagnostics(path),
                )
            except InputError:
                return _make_error(path, data, (1, index, "sass-instructions", row, "opcode"), str(error))
    return InputError(f"{path}: {error}", hint=error.diagnostic.hint)


def _make_error(path: str, data: bytes, json_path: JsonPath, message: str) -> InputError:
    span = find_json_spans(data).find_value(json_path)
    place = locate(path, data, span.offset, length=span.length)
    return InputError(message, location=place, hint=_HINT)
