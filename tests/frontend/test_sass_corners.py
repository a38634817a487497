"""Corners of the reader that once went wrong."""

import pytest
from paths import parse_lines

from analyzer.frontend.sass import parse_sass
from analyzer.isa.roles import PREDICATE_BASE, UNIFORM_PREDICATE_BASE
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
    assert kernel.form(0).operands


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
        form = parse_lines("ISETP.GE.AND P9, PT, R1, R2, PT").form(0)
    except InputError:
        return
    assert all(PREDICATE_BASE <= number < UNIFORM_PREDICATE_BASE for number in form.written)
