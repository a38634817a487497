"""Reads the signature of a kernel from Triton's intermediate code, and the names of what was folded into it.

Triton's cache keeps `NAME.ttir` beside `NAME.cubin`. Its function has the parameters of the compiled kernel
but for the pointers that Triton adds at the end:

    #loc = loc("/home/me/add.py":5:1)
    tt.func public @add(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32 ...

Arguments that were constant when it was compiled are gone: `tl.constexpr`, integers of 1, None. Their names
stand in the Python source, which the location names; it is parsed, never run. Before Triton 3.5 the
parameters are called `%arg0` and have no names here either.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from analyzer.files import read_file
from analyzer.ir.module import FoldedArgument

RangeEnds = dict[tuple[int, int], int]

_FIRST_IR_SUFFIX = ".source"  # of the code as it was before any pass
_MAX_BYTES = 8 << 20
_MAX_SOURCE_BYTES = 4 << 20
_FUNCTION = re.compile(r"^\s*tt\.func\s+public\s+@(?:\"([^\"\n]+)\"|([\w$.]+))\(", re.M)
_PARAMETER = re.compile(r"%(?P<name>[\w$.-]+):\s*(?P<type>[^\s<{(]+(?:<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)?)")
_NAMED_LOCATION = re.compile(r"loc\(\"([^\"\n]+)\"\(")
_LOCATION = re.compile(r"loc\(\"([^\"\n]+)\":(\d{1,9}):(\d{1,9})\)")
_LOCATION_LINE = re.compile(rf"^(#\w+) = {_LOCATION.pattern}", re.M)
_NAMED_LOCATION_LINE = re.compile(r"^(#\w+) = loc\(\"[^\"\n]+\"\((#\w+)\)\)", re.M)
_RANGE = re.compile(r"tt\.make_range \{end = (\d{1,18}) : i32[^}\n]*\}([^\n]*)")
_LOCATION_ALIAS = re.compile(r"loc\((#\w+)\)|loc\(\"[^\"\n]+\"\((#\w+)\)\)")
_DIVISIBILITY = re.compile(r"tt\.divisibility\s*=\s*(\d{1,6})")
_NUMBERED_NAME = re.compile(r"arg\d+|\d+")
_POINTER = re.compile(r"!tt\.ptr<(.+?)(?:,\s*\d+)?>")
_TENSOR_DESCRIPTOR = "!tt.tensordesc<"
_TYPE_NAMES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}


class IrParameter(Struct, frozen=True):
    """A parameter of the compiled kernel."""

    name: str  # "" if the code has none
    type_name: str  # as in a signature: `*fp16`, `i32`, `tensormap`
    divisibility: int = 1  # of which the value is a multiple, in bytes for a pointer


class IrSignature(Struct, frozen=True):
    """What the intermediate code of a kernel tells about its arguments."""

    name: str
    parameters: tuple[IrParameter, ...]
    folded: tuple[FoldedArgument, ...] = ()  # empty if nothing says


class _SourceArgument(Struct, frozen=True):
    """An argument of the Python function."""

    name: str
    value: str  # it has if it was folded into the code, "" if not known


def read_ir_signature(path: Path) -> IrSignature | None:
    """Read the signature of the kernel in a `.ttir` or `.ttgir` file; None if it is something else.

    Source that is no longer where it was is looked for beside the file.
    """
    text = _read_text(path)
    first = _read_text(path.with_suffix(_FIRST_IR_SUFFIX))
    return parse_ir_signature(text, path.parent, _find_range_ends(first, _find_places(first)))


def _read_text(path: Path) -> str:
    """Return the text of a file, empty if it cannot be read."""
    try:
        return read_file(path, _MAX_BYTES).decode("utf-8", "replace") if path.is_file() else ""
    except OSError:
        return ""


def parse_ir_signature(
    text: str, folder: Path | None = None, range_ends: RangeEnds | None = None
) -> IrSignature | None:
    """Parse the signature of the public function; None if there is none.

    folder: where else Python source may lie.
    range_ends: the ends of ranges that the code had before it was optimized, by line and column of the source
    """
    match = _FUNCTION.search(text)
    if match is None:
        return None
    found = [_parse_parameter(part) for part in _split_parameters(text, match.end())]
    if any(parameter is None for parameter in found):
        return None
    parameters = tuple(parameter for parameter in found if parameter is not None)
    name, places = match[1] or match[2], _find_places(text)
    end = text.find("\n", match.end())
    start = _find_place(text[match.end() : end if end >= 0 else len(text)], places)
    function = None if start is None else _find_function(start, name, folder)
    if function is None:
        return IrSignature(name, parameters)
    source = _list_source_arguments(function, _find_range_ends(text, places) | (range_ends or {}))
    if not any(parameter.name for parameter in parameters):
        parameters = _name_in_order(parameters, function)
    return IrSignature(name, parameters, _find_folded(parameters, source))


def _split_parameters(text: str, start: int) -> Iterator[str]:
    """Yield the parameters in the parentheses that open before `start`."""
    depth, begin, is_quoted = 0, start, False
    for at in range(start, len(text)):
        letter = text[at]
        if letter == '"':
            is_quoted = not is_quoted
        if is_quoted:
            continue
        if letter == ")" and not depth:
            if text[begin:at].strip():
                yield text[begin:at]
            return
        if letter == "," and not depth:
            yield text[begin:at]
            begin = at + 1
        depth += (letter in "(<{[") - (letter in ")>}]" and text[at - 1] != "-")


def _parse_parameter(text: str) -> IrParameter | None:
    match = _PARAMETER.match(text.strip())
    if match is None:
        return None
    named, divisor = _NAMED_LOCATION.search(text), _DIVISIBILITY.search(text)
    name = named[1] if named else match["name"]
    return IrParameter(
        name="" if named is None and _NUMBERED_NAME.fullmatch(name) else name,
        type_name="tensormap" if "tt.nv_tma_desc" in text else _convert_type(match["type"]),
        divisibility=int(divisor[1]) if divisor else 1,
    )


def _convert_type(text: str) -> str:
    """Return the type as a signature has it: `*fp16` for `!tt.ptr<f16>`; an unknown one as it is."""
    if text.startswith(_TENSOR_DESCRIPTOR):
        return "tensormap"
    if pointer := _POINTER.fullmatch(text):
        return f"*{_convert_type(pointer[1])}"
    return _TYPE_NAMES.get(text, text)


class _Place(Struct, frozen=True):
    """A place in Python source."""

    file: str
    line: int
    column: int  # from 1, before Triton 3.5 from 0


def _find_places(text: str) -> dict[str, _Place]:
    """Return the places that aliases such as `#loc1` stand for."""
    places = {
        match[1]: _Place(match[2], int(match[3]), int(match[4])) for match in _LOCATION_LINE.finditer(text)
    }
    named = ((match[1], match[2]) for match in _NAMED_LOCATION_LINE.finditer(text))
    return places | {alias: places[of] for alias, of in named if of in places}


def _find_place(text: str, places: dict[str, _Place]) -> _Place | None:
    """Return the place that the first location in a text gives, None without one."""
    inline, alias = _LOCATION.search(text), _LOCATION_ALIAS.search(text)
    if inline is not None:
        return _Place(inline[1], int(inline[2]), int(inline[3]))
    return places.get(alias[1] or alias[2]) if alias else None


def _find_function(place: _Place, name: str, folder: Path | None) -> ast.FunctionDef | None:
    """Return the function `name` around a place; None if no file has it there any more.

    The file is parsed, not run.
    """
    beside = [] if folder is None else [folder / Path(place.file).name]
    for path in (Path(place.file), *beside):
        for node in _parse_source(path):
            if node.name != name:
                continue
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= place.line <= node.lineno:
                return node
    return None


def _parse_source(path: Path) -> tuple[ast.FunctionDef, ...]:
    """Return the functions of a Python file, none if it is no such file."""
    try:
        about = path.stat() if path.suffix == ".py" and path.is_file() else None
    except (OSError, ValueError):
        return ()
    return () if about is None else _parse_version(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=32)  # a cache of many kernels names few files
def _parse_version(path: Path, changed_ns: int, n_bytes: int) -> tuple[ast.FunctionDef, ...]:
    """Return the functions of a Python file as it was at some time."""
    try:
        source = read_file(path, _MAX_SOURCE_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _list_arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _list_source_arguments(function: ast.FunctionDef, range_ends: RangeEnds) -> list[_SourceArgument]:
    """Return the arguments of a function, with the values that folded ones have.

    range_ends: of each range by line and column. The B in `tl.arange(0, B)` is the end of the range there.
    """
    values: dict[str, str] = {}
    compared: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="arange"), args=[_, ast.Name(id=name) as end]):
                # Before Triton 3.5 a call has the place of its last argument, and columns count from 0.
                places = ((node.lineno, node.col_offset + 1), (end.lineno, end.col_offset))
                if found := next((range_ends[place] for place in places if place in range_ends), None):
                    values[name] = str(found)
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot()]):
                compared.add(name)
            case _:
                pass
    return [
        _SourceArgument(
            each.arg,
            values.get(each.arg, "") if _is_constexpr(each) else "None or 1" if each.arg in compared else "1",
        )
        for each in _list_arguments(function)
    ]


def _find_range_ends(text: str, places: dict[str, _Place]) -> RangeEnds:
    """Return the end of each `tt.make_range` by line and column of the source."""
    found = {}
    for match in _RANGE.finditer(text):
        place = _find_place(match[2], places)
        if place is not None:
            found[place.line, place.column] = int(match[1])
    return found


def _is_constexpr(argument: ast.arg) -> bool:
    annotation = argument.annotation
    return annotation is not None and ast.unparse(annotation).strip("'\"").split(".")[-1] == "constexpr"


def _name_in_order(parameters: tuple[IrParameter, ...], function: ast.FunctionDef) -> tuple[IrParameter, ...]:
    """Return the parameters with the names of the source, if it has as many arguments that may be one."""
    names = [each.arg for each in _list_arguments(function) if not _is_constexpr(each)]
    if len(names) != len(parameters):
        return parameters
    return tuple(
        IrParameter(name, each.type_name, each.divisibility)
        for name, each in zip(names, parameters, strict=True)
    )


def _find_folded(
    parameters: tuple[IrParameter, ...], source: list[_SourceArgument]
) -> tuple[FoldedArgument, ...]:
    """Return the arguments of the source that no parameter is left of; none if the parameters have no names.

    A tuple or a descriptor leaves parameters such as `x.0` and `x.shape.0`.
    """
    kept = {parameter.name.split(".")[0] for parameter in parameters}
    if "" in kept or not kept <= {argument.name for argument in source}:
        return ()
    folded, n_before = [], 0
    for argument in source:
        n_own = sum(parameter.name.split(".")[0] == argument.name for parameter in parameters)
        if not n_own:
            folded.append(FoldedArgument(argument.name, argument.value, n_before))
        n_before += n_own
    return tuple(folded)
