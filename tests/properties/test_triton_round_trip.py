"""Any Triton module that is printed in generic form reads to itself, and damaged files read or give an error."""

import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from paths import TRACES
from triton_printer import print_triton_ir

from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.ir.module import SourceLine
from analyzer.ir.tile_operations import (
    Attribute,
    Block,
    DenseAttribute,
    DescriptorType,
    DictionaryAttribute,
    FloatAttribute,
    IntegerAttribute,
    IrType,
    Layout,
    MemoryType,
    OpaqueType,
    Operation,
    PointerType,
    Region,
    ScalarType,
    StringAttribute,
    TensorType,
    TritonFunction,
    TritonModule,
    TypeAttribute,
    Value,
)
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic

FILES = sorted((TRACES / "levels").glob("*/*.tt*ir"))
KINDS = ["blocked", "nvidia_mma", "dot_op", "slice", "linear", "swizzled_shared", "nvmma_shared"]
OPERATIONS = ["arith.addf", "tt.load", "ttg.local_alloc", "some.thing", "other.dialect.op", "tt.reduce"]

names = st.text(string.ascii_letters, min_size=1, max_size=6).map(lambda name: "x" + name)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
shapes = st.lists(st.integers(-1, 512), max_size=3).map(tuple)
scalars = st.sampled_from(["i1", "i8", "i32", "i64", "f16", "bf16", "f32", "f8E4M3FN", "index"]).map(
    ScalarType
)
pointers = st.builds(PointerType, scalars, st.sampled_from([1, 3]))
elements = scalars | pointers


@st.composite
def integers(draw: st.DrawFn) -> IntegerAttribute:
    name = draw(st.sampled_from(["", "i1", "i32", "i64", "index"]))
    return IntegerAttribute(draw(st.integers(0, 1) if name == "i1" else st.integers(-(2**63), 2**63)), name)


def floats(name: str) -> st.SearchStrategy[FloatAttribute]:
    return st.floats(allow_nan=False).map(lambda value: FloatAttribute(value, name))


@st.composite
def dense(draw: st.DrawFn) -> DenseAttribute:
    element = draw(st.sampled_from(["i1", "i32", "f32", "f16"]))
    value: st.SearchStrategy[Attribute]
    if element.startswith("f"):
        value = floats(element)
    else:
        numbers = st.integers(0, 1) if element == "i1" else st.integers(-(2**31), 2**31)
        value = numbers.map(lambda number: IntegerAttribute(number, element))
    tensor = TensorType(draw(shapes), ScalarType(element), draw(st.none() | layouts))
    return DenseAttribute(tuple(draw(st.lists(value, max_size=4))), tensor)


def entries(values: st.SearchStrategy[Attribute]) -> st.SearchStrategy[tuple[tuple[str, Attribute], ...]]:
    keys = names | texts.filter(lambda text: not text.startswith(("triton_", "operandSeg", "resultSeg")))
    return st.lists(st.tuples(keys, values), max_size=2, unique_by=lambda pair: pair[0]).map(tuple)


simple_attributes: st.SearchStrategy[Attribute] = (
    integers() | floats("f32") | floats("f64") | texts.map(StringAttribute) | scalars.map(TypeAttribute)
)
fields = st.lists(st.tuples(names, integers()), max_size=2, unique_by=lambda pair: pair[0]).map(tuple)
flat_layouts = st.builds(Layout, st.sampled_from(KINDS), fields)
layouts: st.SearchStrategy[Layout] = flat_layouts | flat_layouts.map(
    lambda layout: Layout("slice", (("dim", IntegerAttribute(1)), ("parent", layout)))
)
types: st.SearchStrategy[IrType] = (
    scalars
    | pointers
    | st.builds(TensorType, shapes, elements, st.none() | layouts)
    | st.builds(
        MemoryType,
        shapes,
        scalars,
        st.none() | layouts,
        st.sampled_from(["shared_memory", "tensor_memory"]),
        st.booleans(),
    )
    | st.builds(TensorType, shapes, scalars).map(DescriptorType)
    | st.sampled_from(["!ttg.async.token", "!llvm.ptr<3>", "!a.b<(c) -> d, [1]>"]).map(OpaqueType)
)
attributes: st.SearchStrategy[Attribute] = st.recursive(
    simple_attributes | layouts | dense() | types.map(TypeAttribute),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: DenseAttribute(tuple(values)))
        | entries(inner).map(DictionaryAttribute)
    ),
    max_leaves=4,
)
source_lines = st.recursive(
    st.builds(SourceLine, texts, st.integers(0, 10**6)),
    lambda inner: st.builds(SourceLine, texts, st.integers(0, 10**6), inner),
    max_leaves=3,
)


class Names:
    """Gives each value of a module a name of its own."""

    def __init__(self) -> None:
        self.n_given = 0

    def give(self) -> str:
        self.n_given += 1
        return f"%v{self.n_given}"


@st.composite
def operations(draw: st.DrawFn, given_names: Names, values: tuple[Value, ...], depth: int) -> Operation:
    regions = []
    if depth < 2:
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            regions.append(draw(region_of(given_names, values, depth + 1)))
    given_types = draw(st.lists(types, max_size=2))
    name = given_names.give()
    if draw(st.booleans()) and len(given_types) > 1:
        given = [f"{name}#{index}" for index in range(len(given_types))]
    else:
        given = [given_names.give() for _ in given_types]
    return Operation(
        name="some.region" if regions else draw(st.sampled_from(OPERATIONS)),
        results=tuple(map(Value, given, given_types)),
        operands=tuple(draw(st.lists(st.sampled_from(values), max_size=3))) if values else (),
        attributes=tuple(sorted(draw(entries(attributes)))),
        regions=tuple(regions),
        line=0,
        source_line=draw(st.none() | source_lines),
    )


@st.composite
def block_of(
    draw: st.DrawFn, given_names: Names, values: tuple[Value, ...], depth: int, labels: list[str], number: int
) -> Block:
    arguments = tuple(Value(given_names.give(), each) for each in draw(st.lists(types, max_size=2)))
    seen = (*values, *arguments)
    body = []
    for _ in range(draw(st.integers(1, 2))):
        operation = draw(operations(given_names, seen, depth))
        body.append(operation)
        seen = (*seen, *operation.results)
    label = labels[number] if len(labels) > 1 else ""
    if label:
        targets = draw(st.lists(st.sampled_from(labels), min_size=1, max_size=2))
        groups = [tuple(draw(st.lists(st.sampled_from(seen), max_size=2))) if seen else () for _ in targets]
        body.append(
            Operation(
                name="cf.br" if len(targets) == 1 else "cf.cond_br",
                results=(),
                operands=(),
                attributes=(),
                regions=(),
                line=0,
                source_line=None,
                successors=tuple(targets),
                successor_operands=tuple(groups),
            )
        )
    return Block(label, arguments, tuple(body))


@st.composite
def region_of(draw: st.DrawFn, given_names: Names, values: tuple[Value, ...], depth: int) -> Region:
    labels = [f"^bb{index}" for index in range(draw(st.sampled_from([1, 1, 2])))]
    return Region(
        tuple(draw(block_of(given_names, values, depth, labels, number)) for number in range(len(labels)))
    )


@st.composite
def modules(draw: st.DrawFn) -> TritonModule:
    given_names = Names()
    block = draw(block_of(given_names, (), 0, [""], 0))
    returned = tuple(draw(st.lists(st.sampled_from(block.arguments), max_size=2))) if block.arguments else ()
    end = Operation(
        name="tt.return", results=(), operands=returned, attributes=(), regions=(), line=0, source_line=None
    )
    function = TritonFunction(
        name=draw(texts),
        is_public=draw(st.booleans()),
        arguments=block.arguments,
        argument_names=tuple(draw(texts.filter(bool)) for _ in block.arguments),
        argument_divisibility=tuple(draw(st.sampled_from([1, 8, 16])) for _ in block.arguments),
        result_types=tuple(each.type for each in returned),
        body=Region((replace(block, operations=(*block.operations, end)),)),
        line=0,
    )
    target, n_warps = draw(st.sampled_from(["", "cuda:90"])), draw(st.sampled_from([1, 4, 8]))
    known = (("ttg.num-warps", IntegerAttribute(n_warps, "i32")), ("ttg.target", StringAttribute(target)))
    return TritonModule(
        level="ttgir",
        target=target,
        n_warps=n_warps,
        threads_per_warp=32,
        n_ctas=1,
        attributes=known,
        functions=(function,),
    )


def forget_lines(module: TritonModule) -> TritonModule:
    """The module without numbers of lines, and without the count of operations that no rule knows."""
    functions = tuple(replace(each, line=0, body=_forget(each.body)) for each in module.functions)
    return replace(module, functions=functions, unknown_operations=())


def _forget(region: Region) -> Region:
    return Region(
        tuple(
            replace(
                block,
                operations=tuple(
                    replace(each, line=0, regions=tuple(map(_forget, each.regions)))
                    for each in block.operations
                ),
            )
            for block in region.blocks
        )
    )


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(modules())
def test_what_is_printed_reads_to_the_same(module: TritonModule) -> None:
    text = print_triton_ir(module)
    assert forget_lines(parse_triton_ir(text, "printed.ttgir")[0]) == module, text


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_files_in_pretty_form_read_as_in_generic_form(path: Path) -> None:
    module, diagnostics = parse_triton_ir(path.read_text(), path.name)
    again, _ = parse_triton_ir(print_triton_ir(module), "printed.ttgir")
    assert diagnostics == ()
    assert forget_lines(again) == forget_lines(module)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text: str = draw(st.sampled_from(FILES)).read_text()
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(text)))
        length = draw(st.integers(1, 80))
        lines = text.split("\n")
        line = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["cut", "copy", "odd", "drop line", "repeat line", "end"])):
            case "cut":
                text = text[:place] + text[place + length :]
            case "copy":
                text = text[:place] + text[place : place + length] + text[place:]
            case "odd":
                odd = draw(st.sampled_from([*'(){}[]<>"%#!@^:,=-*\\\n\0é/', "{}", "({", "%a:9999", "0x"]))
                text = text[:place] + odd + text[place:]
            case "drop line":
                text = "\n".join([*lines[:line], *lines[line + 1 :]])
            case "repeat line":
                text = "\n".join([*lines[:line], lines[line], *lines[line:]])
            case _:
                text = text[:place]
    return text


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(damaged())
def test_damaged_files_read_or_give_an_error_with_its_place(text: str) -> None:
    found = _read_error(text)
    assert found is None or (found.location is not None and found.hint)


def _read_error(text: str) -> Diagnostic | None:
    try:
        parse_triton_ir(text, "damaged.ttgir")
    except InputError as error:
        return error.diagnostic
    return None
