"""Where arguments lie when the dump does not say: guesses from values and code, against the metadata."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from paths import TRACES, parse_lines, read_kernel
from paths import read_module as read_dump

from analyzer.execution.binding.constant_reads import find_constant_reads
from analyzer.execution.binding.parameter_layout import (
    ParameterLayout,
    find_parameter_layout,
    lay_out_parameters,
)
from analyzer.execution.binding.parameter_roles import find_pointer_words
from analyzer.frontend.triton_metadata import build_parameter_declarations, read_triton_metadata
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.launch import ArgumentValue, Pointer, TensorMap
from analyzer.ir.module import Kernel, ParameterDeclaration
from analyzer.text.errors import UsageError

TRITON = sorted(p for p in TRACES.glob("triton/sm_*/*.sass") if p.with_suffix(".json").is_file())
VALUES: dict[str, ArgumentValue] = {"*": Pointer(), "t": TensorMap(), "f": 1.5, "i": 3}


def laid_out(kernel: Kernel, *values: ArgumentValue | None) -> ParameterLayout:
    given = {place: value for place, value in enumerate(values) if value is not None}
    return find_parameter_layout(kernel, given, load_arch(kernel.arch))


def declared(path: Path, kernel: Kernel) -> tuple[Sequence[ParameterDeclaration], int]:
    """Return the parameters of the metadata beside a dump, and where the first one lies."""
    metadata = read_triton_metadata(path.with_suffix(".json"))
    assert metadata is not None
    types = build_parameter_declarations(metadata, kernel.arch)
    assert types is not None
    base = int(load_arch(kernel.arch).constant_bank.arguments.value)
    return types, base


def offsets(layout: ParameterLayout) -> list[tuple[int, int]]:
    return [(p.offset, p.size_bytes) for p in layout.parameters]


@pytest.mark.parametrize("path", TRITON, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_values_in_order_give_the_layout_that_the_metadata_has(path: Path) -> None:
    """The dump alone, as if Triton's file were not beside it."""
    (kernel,) = read_dump(path)
    types, base = declared(path, kernel)
    shown = [t for t in types if not t.is_hidden]
    found = laid_out(kernel, *(VALUES[t.type_name[0]] for t in shown))
    wanted = [(p.offset, p.size_bytes) for p in lay_out_parameters(shown, base)]
    # A stride of 64 bits that the code never reads cannot be told from a short one.
    read = [
        place for place, (start, _) in enumerate(wanted) if base + start in find_constant_reads(kernel).words
    ]
    if len(read) == len(wanted):
        assert offsets(found)[: len(wanted)] == wanted


def find_parameter_types(path: Path) -> list[str]:
    """Return the types of a Triton kernel's parameters, as the JSON beside its dump has them."""
    signature = json.loads(path.with_suffix(".json").read_text())["signature"]
    return [kind for kind in signature.values() if kind != "constexpr"]


# A tensor map is reached by its address, and never read.
WITHOUT_MAPS = [p for p in TRITON if not any(t.startswith("tensordesc") for t in find_parameter_types(p))]


@pytest.mark.parametrize("path", WITHOUT_MAPS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_pointers_are_found_with_no_value_given(path: Path) -> None:
    (kernel,) = read_dump(path)
    types, base = declared(path, kernel)
    pairs = {
        base + p.offset for p in lay_out_parameters(types, base) if p.size_bytes == 8 and not p.is_hidden
    }
    reads = find_constant_reads(kernel)
    assert {pair for pair in reads.pairs if pair >= base} == pairs & reads.words


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_a_cuda_kernel(arch: str) -> None:
    """saxpy(float alpha, const float *x, const float *y, float *out, int n)."""
    kernel = read_kernel(f"cuda/{arch}/report16.sass", "saxpy")
    wanted = [(0, 4), (8, 8), (16, 8), (24, 8), (32, 4)]
    given = laid_out(kernel, 2.0, Pointer(), Pointer(), Pointer(), 1000)
    assert offsets(given) == wanted
    assert offsets(laid_out(kernel)) == wanted
    assert len(given.assumptions) == 1
    assert "taken as 4 8 8 8 4 bytes" in given.assumptions[0]


def test_an_integer_is_as_long_as_the_code_reads_it() -> None:
    kernel = parse_lines(
        "LDC.64 R2, c[0x0][0x218]",
        "IADD3 R4, P0, R6, R2, RZ",
        "IADD3.X R5, R7, R3, RZ, P0, !PT",
        "LDC.64 R8, c[0x0][0x220]",
        "ISETP.GE.AND P0, PT, R8, R9, PT",
        "EXIT",
    )
    assert offsets(laid_out(kernel, 1, 2, 3, 4)) == [(0, 4), (8, 8), (16, 4), (20, 4)]
    assert offsets(laid_out(kernel, 1 << 40, 2, 3, 4)) == [(0, 8), (8, 8), (16, 4), (20, 4)]


@pytest.mark.parametrize(
    ("lines", "is_pair"),
    [
        (("LDC.64 R2, c[0x0][0x210]", "LDG.E R4, desc[UR4][R2.64]"), True),
        (("ULDC.64 UR8, c[0x0][0x210]", "LDG.E R4, [UR8.64]"), True),
        (("MOV R2, c[0x0][0x210]", "MOV R3, c[0x0][0x214]", "LDG.E R4, [R2.64]"), True),
        (("LDC R2, c[0x0][0x210]", "LDC R3, c[0x0][0x214]", "MOV R5, R3", "MOV R4, R2", "STG.E [R4.64], R9"), True),
        (("IMAD.WIDE R2, R0, 0x4, c[0x0][0x210]",), True),
        (("LEA R2, P0, R0, c[0x0][0x210], 0x2", "LEA.HI.X R3, R0, c[0x0][0x214], R1, 0x2, P0"), True),
        (("ISETP.GE.U32.AND P0, PT, R2, c[0x0][0x210], PT", "ISETP.GE.AND.EX P0, PT, R3, c[0x0][0x214], PT, P0"), True),
        (("DADD R2, R4, c[0x0][0x210]",), True),
        (("LDC.64 R2, c[0x0][0x210]", "IMAD R4, R2, R3, RZ"), False),
        (("LDC.64 R2, c[0x0][0x210]", "MOV R3, 0x1", "LDG.E R4, desc[UR4][R2.64]"), False),
        (("LDC.64 R2, c[0x0][0x210]", "STG.E.64 desc[UR4][R6.64], R2"), False),
        (("IMAD R2, R0, c[0x0][0x210], R1", "IADD3 R3, R2, c[0x0][0x214], RZ"), False),
        (("LDC.64 R2, c[0x3][0x210]", "LDG.E R4, desc[UR4][R2.64]"), False),
    ],
)  # fmt: skip
def test_what_counts_as_one_long_value(lines: tuple[str, ...], is_pair: bool) -> None:
    assert (0x210 in find_constant_reads(parse_lines(*lines)).pairs) is is_pair


def test_values_against_the_code_are_pointed_out() -> None:
    kernel = parse_lines(
        "LDC.64 R2, c[0x0][0x210]",
        "LDG.E R4, desc[UR4][R2.64]",
        "LDC R5, c[0x0][0x218]",
        "LDC R6, c[0x0][0x21c]",
        "IMAD R7, R5, R6, RZ",
        "EXIT",
    )
    texts = " ".join(laid_out(kernel, 1024, Pointer()).assumptions)
    assert "argument 0 is 1024, but the code uses c[0x0][0x210] as an address" in texts
    assert "argument 1 is ptr, but the code reads no 64-bit value at c[0x0][0x218]" in texts
    with pytest.raises(UsageError, match=r"argument 0 is used as an address, 1\.5 is a float"):
        laid_out(kernel, 1.5)


def test_arguments_that_nothing_reads_are_pointed_out() -> None:
    kernel = parse_lines("LDC R5, c[0x0][0x21c]", "EXIT")
    layout = laid_out(kernel, None, 3)
    assert offsets(layout)[-1] == (12, 4)
    assert any("the code does not read arguments 0, 1" in text for text in layout.assumptions)


def test_a_map_stands_where_its_address_is_aligned() -> None:
    for arch, start in (("sm_90", 0x40), ("sm_100", 0x40), ("sm_120", 0x40)):
        base = int(load_arch(arch).constant_bank.arguments.value)
        layout = laid_out(parse_lines("EXIT", arch=arch), 1, TensorMap(), 2)
        assert [p.size_bytes for p in layout.parameters] == [4, 128, 4]
        assert (base + layout.parameters[1].offset) % 64 == 0
        assert layout.parameters[1].offset <= start
    assert laid_out(parse_lines("EXIT"), TensorMap()).parameters[0].offset == 0x30


def test_an_array_by_value_is_pointed_out() -> None:
    kernel = parse_lines("LDC R5, c[0x0][R4+0x220]", "EXIT")
    assert any("indexes the arguments from c[0x0][0x220]" in text for text in laid_out(kernel, 1).assumptions)


def test_a_dump_that_reads_nothing_has_no_parameters() -> None:
    layout = laid_out(parse_lines("EXIT"))
    assert (layout.parameters, layout.assumptions) == ((), ())


@pytest.mark.parametrize(("place", "offset"), [(0x2C0, 0x30), (0x300, 0x70)])
def test_tensor_maps_lie_where_what_follows_is_read(place: int, offset: int) -> None:
    kernel = parse_lines(f"LDC.64 R2, c[0x0][{place:#x}]", "LDG.E R4, desc[UR4][R2.64]", "EXIT")
    layout = laid_out(kernel, 7, TensorMap(), Pointer())
    assert [p.offset for p in layout.parameters] == [0, offset, place - 0x210]


@pytest.mark.parametrize(
    ("lines", "is_pointer"),
    [
        (("LDC.64 R2, c[0x0][0x210]", "LDG.E R4, desc[UR4][R2.64]"), True),
        (("ULDC.64 UR8, c[0x0][0x210]", "LEA R2, P0, R7, UR8, 0x2", "LDG.E R4, [R2.64]"), True),
        (("MOV R2, c[0x0][0x210]", "IADD3 R4, P0, R6, R2, RZ", "STG.E [R4.64+0x8], R9"), True),
        (("IMAD.WIDE R2, R0, 0x4, c[0x0][0x210]", "LDG.E R4, [R2.64]"), True),
        (("ULDC.64 UR8, c[0x0][0x210]", "ISETP.GE.U32.AND P0, PT, R7, UR8, PT"), False),
        (("LDC.64 R2, c[0x0][0x210]", "LEA R4, P0, R2, R6, 0x2", "LDG.E R4, [R4.64]"), False),
        (("LDC R3, c[0x0][0x210]", "IMAD R4, R3, R5, R6", "LDG.E R4, [R4.64]"), False),
        (("LDC.64 R2, c[0x0][0x210]", "STG.E.64 [R6.64], R2"), False),
        (("MOV R2, c[0x0][0x210]", "LDS R4, [R2]"), False),
    ],
)  # fmt: skip
def test_pointers_are_plain_addends_of_addresses(lines: tuple[str, ...], is_pointer: bool) -> None:
    assert (0x210 in find_pointer_words(parse_lines(*lines, "EXIT"))) is is_pointer


@pytest.mark.parametrize("path", TRITON, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_pointers_are_those_of_the_metadata(path: Path) -> None:
    (kernel,) = read_dump(path)
    types, base = declared(path, kernel)
    found, read = find_pointer_words(kernel), find_constant_reads(kernel).words
    for each in lay_out_parameters(types, base):
        if base + each.offset in read and each.size_bytes == 8 and not each.is_hidden:
            assert (base + each.offset in found) is bool(each.is_pointer), each
