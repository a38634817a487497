"""Triton IR that nobody printed: what would take long, or much memory, is refused soon and with its place."""

import time

import pytest

from analyzer.frontend.triton.formatting import decode_float, encode_special_float
from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.ir.tile_operations import DenseAttribute, IntegerAttribute
from analyzer.text.errors import InputError

HEAD = "module {\n  tt.func public @f(%x: f32, %c: i1) {\n"
TAIL = "    tt.return\n  }\n}\n"
MAX_SECONDS = 5  # each takes well under one


def _wrap(line: str) -> str:
    return f"{HEAD}    {line}\n{TAIL}"


HOSTILE = {
    "open angles": (_wrap("%a = tt.splat %x : f32 -> " + "tensor<" * 50_000), "nest"),
    "open braces": (_wrap("tt.x " + "{" * 100_000), "nest"),
    "open locations": (_wrap("tt.x " + "loc(" * 50_000), "nest"),
    "lists in lists": (_wrap(f"tt.x {{a = {'[' * 5000}1{']' * 5000}}}"), "nest"),
    "groups in groups": (_wrap(f"tt.x {'(' * 5000}%x{')' * 5000}"), "nest"),
    "regions in regions": (HEAD + "scf.if %c {\n" * 10_000 + TAIL, "regions nest"),
    "operands": (_wrap("tt.x " + "%x, " * 100_000 + "%x"), "longer"),
    "values of a constant": (
        _wrap("%a = arith.constant dense<[" + "1, " * 200_000 + "1]> : tensor<xi8>"),
        "longer",
    ),
    "lines of an operation": (_wrap("tt.x %x,\n" + "%x,\n" * 20_000), "longer"),
    "open string": (_wrap('tt.print "' + "a" * 200_000), "longer"),
    "strings": (_wrap("tt.print " + '"a!"(' * 50_000), "nest"),
    "results": (
        HEAD + "".join(f"%r{i}:1024 = tt.x %x : f32\n" for i in range(400)) + TAIL,
        "values in a function",
    ),
    "results of one": (_wrap("%r:9999 = tt.x %x : f32"), "more than 1024 results"),
    "digits of a size": (_wrap(f"%a = tt.splat %x : f32 -> tensor<{'9' * 5000}xf32>"), "too many digits"),
    "digits of a number": (_wrap(f"%a = arith.constant {'9' * 5000} : i32"), "too many digits"),
    "aliases that double": (
        "#a0 = #ttg.x\n"
        + "".join(f"#a{i} = [#a{i - 1}, #a{i - 1}]\n" for i in range(1, 31))
        + _wrap("tt.x %x {a = #a30} : f32"),
        "too long",
    ),
    "shapes": (
        HEAD + "".join(f"tt.x{i} {'%x, ' * 500}%x : f32\n" for i in range(1000)) + TAIL,
        "different shapes",
    ),
    "a NUL character": (_wrap("tt.x \0"), "NUL"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_soon(name: str) -> None:
    text, message = HOSTILE[name]
    start = time.process_time()
    with pytest.raises(InputError, match=message) as caught:
        parse_triton_ir(text, "x.ttgir")
    assert time.process_time() - start < MAX_SECONDS
    assert caught.value.diagnostic.location is not None


def test_locations_that_double_read() -> None:
    aliases = "".join(f"#loc{i} = loc(callsite(#loc{i - 1} at #loc{i - 1}))\n" for i in range(1, 3000))
    text = f'#loc0 = loc("a.py":1:1)\n{aliases}' + _wrap("%a = arith.constant 1 : i32 loc(#loc5)")
    module, _ = parse_triton_ir(text, "x.ttir")
    place = module.functions[0].body.blocks[0].operations[0].source_line
    depth = 0
    while place is not None:
        assert place.file == "a.py"
        place, depth = place.inlined_at, depth + 1
    assert depth == 2**5


def test_a_blob_of_a_million_bytes_reads() -> None:
    module, _ = parse_triton_ir(
        _wrap(f'%a = arith.constant dense<"0x{"FF" * 100_000}"> : tensor<100000xi8>'), "x"
    )
    value = module.functions[0].body.blocks[0].operations[0].find_attribute("value")
    assert isinstance(value, DenseAttribute)
    assert value.values == (IntegerAttribute(-1, "i8"),) * 100_000


@pytest.mark.parametrize(
    ("bits", "name", "value"),
    [
        (0x3F800000, "f32", 1.0),
        (0x7BFF, "f16", 65504.0),
        (0x0001, "f16", 2.0**-24),
        (0x3F80, "bf16", 1.0),
        (0x7E, "f8E4M3FN", 448.0),
        (0x7B, "f8E5M2", 57344.0),
        (0x01, "f8E4M3FN", 2.0**-9),
        (0xB8, "f8E4M3FN", -1.0),
        (0x7F, "f8E4M3FNUZ", 240.0),
        (0x7, "f4E2M1FN", 6.0),
        (0x1F, "f6E2M3FN", 7.5),
    ],
)
def test_bits_of_numbers(bits: int, name: str, value: float) -> None:
    """Largest, smallest and plain numbers of each format."""
    assert decode_float(bits, name) == value


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "f8E5M2"])
def test_infinities_keep_their_bits(name: str) -> None:
    for value in (float("inf"), float("-inf")):
        assert decode_float(encode_special_float(value, name), name) == value
