"""Corners of the reader that once went wrong."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark.exceptions import UnexpectedInput
from paths import parse_lines

from analyzer.frontend.grammar import load_parser
from analyzer.frontend.instruction_decoder import FormDecoder, SassSyntaxError
from analyzer.frontend.module_reader import read_module
from analyzer.frontend.sass_parser import parse_sass
from analyzer.isa.register_operands import PREDICATE_BASE, UNIFORM_PREDICATE_BASE
from analyzer.text.errors import InputError

_HEAD = "\tcode for {arch}\n\t\tFunction : kernel\n        /*0000*/                   EXIT ;\n"


def test_same_kernel_in_two_images_stands_on_two_lines() -> None:
    """A fat binary holds each kernel once for every architecture."""
    text = _HEAD.format(arch="sm_80") + _HEAD.format(arch="sm_90")
    module = parse_sass("fat.sass", [text.encode()])
    assert [kernel.line for kernel in module] == [2, 5]


# The whole text passes the grammar, a piece of it cut at ", " does not, or its number is refused.
TORN = [
    pytest.param("DEPBAR.LE SB0, 0x0, {3, 2}", id="blank-in-a-list"),
    pytest.param("BRA `(foo, bar)", id="comma-in-a-label"),
    pytest.param("MOV R1, 32@lo(f, g)", id="comma-in-a-relocation"),
    pytest.param("LDG.E R1, [R2.64+1.5]", id="fraction-as-offset"),
    pytest.param("LDS R1, [012]", id="octal-looking-offset"),
]


@pytest.mark.parametrize("text", TORN)
def test_what_is_admitted_can_be_decoded(text: str) -> None:
    try:
        kernel = parse_lines(text)
    except InputError:
        return
    assert kernel.decode_form(0).operands


@pytest.mark.parametrize(
    "text",
    [
        "HMMA.884.F32.F32.STEP0 R4, R8, R12, R4",
        "HMMA.16816.F32.F32 R4, R8, R12, R4",
        "IMMA.16832.S8.S32 R4, R8, R12, R4",
    ],
)
def test_odd_matrix_types_are_read_or_refused(text: str) -> None:
    try:
        parse_lines(text)
    except InputError:
        return


def test_a_predicate_that_does_not_exist_is_not_another_one() -> None:
    try:
        form = parse_lines("ISETP.GE.AND P9, PT, R1, R2, PT").decode_form(0)
    except InputError:
        return
    assert all(PREDICATE_BASE <= number < UNIFORM_PREDICATE_BASE for number in form.defs)


_GUARDS = ("", "@P0 ", "@!UP3 ", "@PT ", "@R1 ", "@ P0 ")
_MNEMONICS = ("IMAD.WIDE.U32", "LDG.E.128", "MOV", "F2FP.BF16.F32.PACK_AB", "mov", "R1", "")
_PIECES = (
    "R1",
    "-R7.reuse",
    "|R3|",
    "!P0",
    "UPR",
    "0x1f",
    "-1.5e+10",
    "+INF ",
    "c[0x0][UR4+0x160]",
    "[R4.64+-0x10]",
    "desc[UR4][R2.64]",
    "gdesc[UR8]",
    "SR_TID.X",
    "B0",
    "{1,2}",
    "R2 0x0",
    "R1,R2",
    "`(.L_x_1)",
    "`(f(int, float))",
    "64@fun((x))",
    ",",
    "]",
    "",
    "R1 ]",
)


@settings(max_examples=400)
@given(st.sampled_from(_GUARDS), st.sampled_from(_MNEMONICS), st.lists(st.sampled_from(_PIECES), max_size=4))
def test_parts_are_taken_as_the_whole_is(guard: str, mnemonic: str, pieces: list[str]) -> None:
    text = f"{guard}{mnemonic} {', '.join(pieces)}".strip()
    try:
        load_parser("sass").parse(text, start="instruction")
        is_taken = True
    except UnexpectedInput:
        is_taken = False
    try:
        FormDecoder().check_syntax(text)
        assert is_taken
    except SassSyntaxError:
        assert not is_taken


def test_a_binary_of_ptx_alone_says_so(tmp_path: Path) -> None:
    path = tmp_path / "only.sass"
    path.write_text(
        "\nFatbin ptx code:\n================\narch = sm_86\ncode version = [9,0]\nhost = linux\n"
    )
    with pytest.raises(InputError, match="only PTX"):
        read_module(str(path))


def test_a_fraction_is_no_offset_after_a_count_was_one(tmp_path: Path) -> None:
    path = tmp_path / "k.sass"
    head = "\tcode for sm_80\n\t\tFunction : k\n"
    path.write_text(
        head
        + "".join(
            f"        /*{i * 16:04x}*/ MOV R1, c[0x0][{text}] ;\n" for i, text in enumerate(("8", "1e-3"))
        )
    )
    with pytest.raises(InputError):
        read_module(str(path))


@pytest.mark.parametrize("odd", ["UPZ", "PZ", "RT", "URT", "BZ", "SBT", "R12345", "P99999"])
def test_a_name_of_a_register_that_does_not_exist_is_no_number_of_one(odd: str) -> None:
    """A template of operands is built once, of whatever register comes first."""
    usual = re.sub(r"[ZT]$|\d+$", "0", odd)
    for line in (f"IADD3 R1, R2, R3, {odd}", f"IADD3 {odd}, R2, R3, PT"):
        try:
            kernel = parse_lines(line.replace(odd, usual), line)
        except InputError:
            continue
        assert odd in str(kernel.decode_form(1).text)
