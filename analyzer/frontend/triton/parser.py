"""Parses Triton IR (TTIR and TTGIR) to a `TritonModule`.

    module, diagnostics = parse_triton_ir(text, "kernel.ttgir")

The text is split into lines and nested by braces (`splitter`); the grammar reads each distinct shape of an
operation once (`shapes`), and each distinct type and attribute (`attributes`); `builder` fills shapes and
derives types.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial

from analyzer.frontend.triton.aliases import AliasTable
from analyzer.frontend.triton.builder import FunctionBuilder
from analyzer.frontend.triton.dumps import choose_dump
from analyzer.frontend.triton.shapes import (
    NO_SLOT,
    HeaderArgument,
    OperationShape,
    ShapeTable,
    compile_label,
)
from analyzer.frontend.triton.splitter import RawOperation, StructureReader, split_slots
from analyzer.frontend.triton.syntax_errors import TritonSyntaxError
from analyzer.ir.tile_operations import (
    Attribute,
    DenseAttribute,
    DictionaryAttribute,
    IntegerAttribute,
    IrType,
    Region,
    StringAttribute,
    TritonFunction,
    TritonModule,
    Value,
)
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic, Location, Severity

MAX_BYTES = 16 << 20
_MAX_LINE_CHARS = 4 << 20
_FUNCTIONS = ("tt.func", "func.func")
_LAYOUT_PREFIXES = ("#ttg.", "#ttng.", "#triton_gpu.")
_NUMBERED_NAME = re.compile(r"%(?:arg)?\d+")
_HINT = "keep the file as Triton wrote it: NAME.ttir or NAME.ttgir of its cache"


def parse_triton_ir(
    text: str, path: str, kernel: str | None = None
) -> tuple[TritonModule, tuple[Diagnostic, ...]]:
    """Parse a TTIR or TTGIR file; return the module, and warnings, each with how often it occurs.

    kernel: which to look for in a file of several dumps, of which the last is read (see `dumps`).
    Raises InputError, with line, column and caret, if the text is not what Triton prints, and UsageError if
    the file has dumps of several kernels and none is named.
    """
    lines = text.split("\n")
    dump, warnings = choose_dump(lines, kernel)
    # Other lines are left blank, so that places are those of the file.
    lines = [line if dump.first <= number < dump.end else "" for number, line in enumerate(lines)]
    n_chars = sum(map(len, lines))
    if n_chars > MAX_BYTES or max(map(len, lines)) > _MAX_LINE_CHARS:
        raise InputError(f"{path}: Triton IR of more than {MAX_BYTES >> 20} MiB", hint=_HINT)
    try:
        first_nul = next((number for number, line in enumerate(lines, 1) if "\0" in line), None)
        if first_nul is not None:
            raise TritonSyntaxError("a NUL character: the file is not text", first_nul)
        module = _read_module(lines)
    except TritonSyntaxError as error:
        raise _make_error(error, lines, path) from None
    return module, (*warnings, *_warn_of_unknown(module))


def _warn_of_unknown(module: TritonModule) -> list[Diagnostic]:
    n_unknown = sum(number for _, number in module.unknown_operations)
    if not n_unknown:
        return []
    names = ", ".join(name for name, _ in module.unknown_operations[:5])
    more = ", …" if len(module.unknown_operations) > 5 else ""
    return [
        Diagnostic(
            severity=Severity.WARNING,
            code="unknown-operation",
            message=f"operations that are not known, and whose work is not counted: {names}{more}",
            count=n_unknown,
        )
    ]


def _read_module(lines: list[str]) -> TritonModule:
    structure = StructureReader()
    structure.read(lines)
    unknown: Counter[str] = Counter()
    make_builder = partial(FunctionBuilder, AliasTable(structure.aliases), ShapeTable(), unknown)
    attributes: tuple[tuple[str, Attribute], ...] = ()
    operations = structure.root.operations
    for raw in operations:
        if raw.shape[0].startswith(("module", '"builtin.module"')):
            attributes = _read_module_attributes(raw, make_builder)
            operations = [each for blocks in raw.regions for block in blocks for each in block.operations]
            break
    functions = tuple(_build_function(raw, make_builder) for raw in operations if _is_function(raw))
    if not functions:
        raise TritonSyntaxError("there is no function in this file", 1, hint=_HINT)
    n_warps = _find_integer(attributes, "ttg.num-warps")
    return TritonModule(
        level="ttgir"
        if n_warps is not None or any(prefix in line for line in lines for prefix in _LAYOUT_PREFIXES)
        else "ttir",
        target=_find_target(attributes),
        n_warps=n_warps,
        threads_per_warp=_find_integer(attributes, "ttg.threads-per-warp") or 32,
        n_ctas=_find_integer(attributes, "ttg.num-ctas") or 1,
        attributes=attributes,
        functions=functions,
        unknown_operations=tuple(sorted(unknown.items())),
    )


def _is_function(raw: RawOperation) -> bool:
    return raw.shape[0].lstrip('"').startswith(_FUNCTIONS)


def _read_module_attributes(
    raw: RawOperation, make_builder: Callable[[], FunctionBuilder]
) -> tuple[tuple[str, Attribute], ...]:
    return make_builder().build_operation(RawOperation(raw.shape, raw.line)).attributes


def _build_function(raw: RawOperation, make_builder: Callable[[], FunctionBuilder]) -> TritonFunction:
    """Build a function from its text in pretty or generic form."""
    try:
        return _read_function(raw, make_builder())
    except TritonSyntaxError as error:
        error.line = error.line or raw.line
        raise


def _read_function(raw: RawOperation, builder: FunctionBuilder) -> TritonFunction:
    aliases, slots = builder.aliases, raw.shape[2]
    shape = builder.shapes.find(raw.shape[0], raw.shape[1])
    header = builder.build_operation(RawOperation(raw.shape, raw.line))
    given = dict(header.attributes)
    name = _get_text(given, "sym_name")
    arguments, own = _declare_arguments(raw, shape, builder, slots)
    blocks = raw.regions[0] if raw.regions else []
    body = builder.build_body(blocks, arguments) if blocks else Region(())
    return TritonFunction(
        name=name if shape.is_generic else name.removeprefix("@"),
        is_public="public" in given or _get_text(given, "sym_visibility") == "public",
        arguments=body.blocks[0].arguments if body.blocks else arguments,
        argument_names=tuple(_name_argument(each, aliases, slots) for slots, each in own),
        argument_divisibility=_find_divisibility(own, given, aliases),
        result_types=_find_result_types(shape, aliases, slots, body),
        body=body,
        line=raw.line,
    )


def _declare_arguments(
    raw: RawOperation, shape: OperationShape, builder: FunctionBuilder, slots: list[str]
) -> tuple[tuple[Value, ...], list[tuple[list[str], HeaderArgument]]]:
    """Return the arguments in parentheses, and the slots of all, of those of the first block too."""
    header = shape.region_arguments[0] if shape.region_arguments else ()
    own = [(slots, each) for each in header]
    label = raw.regions[0][0].label if raw.regions and not own else None
    if label is not None:
        own = [(label[2], each) for each in compile_label(label[0], label[1]).arguments]
    values = tuple(
        builder.declare(slots[each.value], builder.aliases.read_type(slots[each.type])) for each in header
    )
    return values, own


def _name_argument(argument: HeaderArgument, aliases: AliasTable, slots: list[str]) -> str:
    """Return the name of an argument in the source: that of its location, else of its value."""
    if argument.location != NO_SLOT:
        name = aliases.read_place(slots[argument.location]).name
        if name:
            return name
    name = slots[argument.value]
    return "" if _NUMBERED_NAME.fullmatch(name) else name[1:]


def _find_divisibility(
    own: list[tuple[list[str], HeaderArgument]], given: dict[str, Attribute], aliases: AliasTable
) -> tuple[int, ...]:
    found: list[Attribute | None] = [
        None if each.attributes == NO_SLOT else aliases.read_attribute(slots[each.attributes])
        for slots, each in own
    ]
    listed = given.get("arg_attrs")
    if isinstance(listed, DenseAttribute) and len(listed.values) == len(found):
        found = list(listed.values)
    return tuple(
        (_find_integer(each.entries, "tt.divisibility") or 1) if isinstance(each, DictionaryAttribute) else 1
        for each in found
    )


def _find_result_types(
    shape: OperationShape, aliases: AliasTable, slots: list[str], body: Region
) -> tuple[IrType, ...]:
    """Return the types of the results; the generic form's are those of what it returns."""
    if not shape.is_generic:
        return tuple(aliases.read_type(slots[slot]) for slot in shape.result_types or ())
    for block in body.blocks:
        if block.operations and block.operations[-1].name == "tt.return":
            return tuple(each.type for each in block.operations[-1].operands)
    return ()


def _get_text(attributes: dict[str, Attribute], name: str) -> str:
    found = attributes.get(name)
    return found.text if isinstance(found, StringAttribute) else ""


def _find_integer(attributes: tuple[tuple[str, Attribute], ...], name: str) -> int | None:
    found = next((value for key, value in attributes if key == name), None)
    return found.value if isinstance(found, IntegerAttribute) else None


def _find_target(attributes: tuple[tuple[str, Attribute], ...]) -> str:
    return _get_text(dict(attributes), "ttg.target")


def _make_error(error: TritonSyntaxError, lines: list[str], path: str) -> InputError:
    """Return the error with the place of the caret: a piece of the line, or a number of slots."""
    number = min(max(error.line, 1), len(lines))
    line = lines[number - 1]
    column, length = len(line) - len(line.lstrip()), 1
    if error.piece and error.piece in line:
        column = line.index(error.piece) + min(error.column, len(error.piece) - 1)
        length = len(error.piece) if not error.column else 1
    elif error.slots_before is not None:
        n_slots, behind = error.slots_before
        pieces = split_slots(line.strip())
        column += min(sum(map(len, pieces[: 2 * n_slots])) + behind, max(0, len(line.strip()) - 1))
    location = Location(path, number, column + 1, line, length)
    return InputError(error.message, location=location, hint=error.hint or _HINT)
