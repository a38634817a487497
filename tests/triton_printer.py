"""Prints a `TritonModule` in MLIR's generic form, which reads to the same value but for numbers of lines.

%0 = "tt.load"(%x) <{cache = 2 : i32}> : (tensor<8x!tt.ptr<f32>>) -> tensor<8xf32> loc("add.py":12:0)
"""

from collections.abc import Iterable, Iterator

from analyzer.frontend.triton.formatting import format_dictionary, format_type, quote
from analyzer.frontend.triton.normal_form import SEGMENTS
from analyzer.frontend.triton.operation_table import RULES
from analyzer.ir.module import SourceLine
from analyzer.ir.tile_operations import (
    Attribute,
    Block,
    DenseAttribute,
    DictionaryAttribute,
    IntegerAttribute,
    IrType,
    Operation,
    Region,
    StringAttribute,
    TritonFunction,
    TritonModule,
    Value,
)


def print_triton_ir(module: TritonModule) -> str:
    """Return a module as text."""
    lines = ['"builtin.module"() ({']
    for function in module.functions:
        lines.extend(_print_function(function))
    attributes = f" {format_dictionary(module.attributes)}" if module.attributes else ""
    lines.append(f"}}){attributes} : () -> ()")
    return "\n".join(lines) + "\n"


def _print_function(function: TritonFunction) -> Iterator[str]:
    properties: list[tuple[str, Attribute]] = [("sym_name", StringAttribute(function.name))]
    if function.is_public:
        properties.append(("sym_visibility", StringAttribute("public")))
    if any(each > 1 for each in function.argument_divisibility):
        given = [
            DictionaryAttribute((("tt.divisibility", IntegerAttribute(each, "i32")),) if each > 1 else ())
            for each in function.argument_divisibility
        ]
        properties.insert(0, ("arg_attrs", DenseAttribute(tuple(given))))
    yield f'  "tt.func"() <{format_dictionary(tuple(properties))}> ({{'
    names = dict(zip((each.name for each in function.arguments), function.argument_names, strict=True))
    yield from _print_region(function.body, "  ", names)
    yield "  }) : () -> ()"


def _print_region(region: Region, indent: str, names: dict[str, str]) -> Iterator[str]:
    """Print the blocks of a region; `names` are those of arguments in the source."""
    for number, block in enumerate(region.blocks):
        if block.label or block.arguments:
            yield _print_label(block, indent, names if number == 0 else {})
        for operation in block.operations:
            yield from _print_operation(operation, indent + "  ")


def _print_label(block: Block, indent: str, names: dict[str, str]) -> str:
    arguments = []
    for each in block.arguments:
        name = names.get(each.name, "")
        location = f" loc({quote(name)})" if name else ""
        arguments.append(f"{each.name}: {format_type(each.type)}{location}")
    given = f"({', '.join(arguments)})" if arguments else ""
    return f"{indent}{block.label or '^bb0'}{given}:"


def _print_operation(operation: Operation, indent: str) -> Iterator[str]:
    operands = [each.name for each in operation.operands]
    types = [each.type for each in operation.operands]
    attributes = operation.attributes
    for each in operation.successor_operands:
        operands.extend(value.name for value in each)
        types.extend(value.type for value in each)
    if operation.successors and operation.name != "cf.br":
        sizes = [len(operation.operands), *map(len, operation.successor_operands)]
        listed = DenseAttribute(tuple(IntegerAttribute(size, "i32") for size in sizes))
        attributes = (*attributes, (SEGMENTS, listed))
    successors = f"[{', '.join(operation.successors)}]" if operation.successors else ""
    properties = f" <{format_dictionary(_number_names(operation.name, attributes))}>" if attributes else ""
    signature = f"({_join_types(types)}) -> ({_join_types(each.type for each in operation.results)})"
    tail = f"{signature}{_print_location(operation.source_line)}"
    name = f"{_print_results(operation.results)}{quote(operation.name)}"
    head = f"{name}({', '.join(operands)}){successors}{properties}"
    if not operation.regions:
        yield f"{indent}{head} : {tail}"
        return
    for number, region in enumerate(operation.regions):
        yield f"{indent}{'}, {' if number else head + ' ({'}"
        yield from _print_region(region, indent, {})
    yield f"{indent}}}) : {tail}"


def _join_types(types: Iterable[IrType]) -> str:
    return ", ".join(map(format_type, types))


def _print_results(results: tuple[Value, ...]) -> str:
    if not results:
        return ""
    names = [each.name for each in results]
    base = names[0].partition("#")[0]
    if len(names) > 1 and names == [f"{base}#{index}" for index in range(len(names))]:
        return f"{base}:{len(names)} = "
    return f"{', '.join(names)} = "


def _number_names(
    name: str, attributes: tuple[tuple[str, Attribute], ...]
) -> tuple[tuple[str, Attribute], ...]:
    """Return attributes with names of enumerations as numbers, as the generic form has them."""
    rule = RULES.get(name)
    if rule is None or not rule.enumerations:
        return attributes
    enumerations = {each.attribute: each for each in rule.enumerations}
    numbered: list[tuple[str, Attribute]] = []
    for key, value in attributes:
        known = enumerations.get(key)
        if known is not None and isinstance(value, StringAttribute) and value.text in known.names:
            numbered.append((key, IntegerAttribute(known.first + known.names.index(value.text), "i32")))
        else:
            numbered.append((key, value))
    return tuple(numbered)


def _print_location(source_line: SourceLine | None) -> str:
    return "" if source_line is None else f" loc({_print_place(source_line)})"


def _print_place(source_line: SourceLine) -> str:
    place = f"{quote(source_line.file)}:{source_line.line}:0"
    if source_line.inlined_at is None:
        return place
    return f"callsite({place} at {_print_place(source_line.inlined_at)})"
