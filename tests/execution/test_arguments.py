"""Arguments: how they are written, whom they are for, and what does not fit."""

import struct
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from paths import parse_lines

from analyzer.execution.binding.argument_parser import parse_argument, parse_value
from analyzer.execution.binding.image_builder import build_constant_image
from analyzer.execution.binding.number_types import encode_number
from analyzer.execution.profile.branch_rules import BranchTakenRule, parse_taken_rule
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, Launch, NullPointer, Pointer, TensorMap
from analyzer.ir.module import Kernel, Parameter
from analyzer.text.errors import UsageError

KERNEL = replace(
    parse_lines("EXIT"),
    parameters=(
        Parameter(ordinal=0, offset=0, size_bytes=8, name="x", is_pointer=True),
        Parameter(ordinal=1, offset=8, size_bytes=4, name="n"),
        Parameter(ordinal=2, offset=16, size_bytes=8, name="stride", is_pointer=False, type_name="i64"),
        Parameter(ordinal=3, offset=24, size_bytes=24, name="config"),
        Parameter(ordinal=4, offset=48, size_bytes=1, name="flag"),
        Parameter(ordinal=5, offset=64, size_bytes=128, name="map"),
        Parameter(ordinal=6, offset=192, size_bytes=4, name="scale", type_name="fp32"),
    ),
)
NAMELESS = replace(KERNEL, parameters=tuple(replace(p, name="") for p in KERNEL.parameters or ()))
BUFFER = Buffer(np.zeros(4, dtype=np.uint8), "x.npy")


def bind(kernel: Kernel, *arguments: tuple[int | str, ArgumentValue]) -> None:
    given = tuple(Argument(which, value) for which, value in arguments)
    build_constant_image(kernel, Launch(arguments=given), load_arch("sm_90"))


@pytest.mark.parametrize(
    ("text", "which", "value"),
    [
        ("3=1024", 3, 1024),
        ("n=0x400", "n", 0x400),
        ("n = -1", "n", -1),
        ("0=1.5", 0, 1.5),
        ("0=1e-5", 0, 1e-5),
        ("a=-.5", "a", -0.5),
        ("0=ptr", 0, Pointer()),
        ("0=ptr:4096", 0, Pointer(4096)),
        ("0=PTR: 0x10", 0, Pointer(16)),
        ("0=null", 0, NullPointer()),
        ("0=tensormap", 0, TensorMap()),
        ("0=09", 0, 9),
        ("s+16=2", "s+16", 2),
        ("c[0x0][0x170]=2", "c[0x0][0x170]", 2),
    ],
)
def test_values_are_read(text: str, which: int | str, value: ArgumentValue) -> None:
    assert parse_argument(text) == Argument(which, value)
    assert isinstance(parse_argument(text).value, type(value))


@pytest.mark.parametrize(
    "text", ["0=ptr:", "0=ptr:0", "0=ptr:-4", "0=ptr:1.5", "0=ptr:many", "0=ptr:0x2000000000"]
)
def test_a_size_is_a_number_of_bytes(text: str) -> None:
    with pytest.raises(UsageError, match="no size"):
        parse_argument(text)


@pytest.mark.parametrize(
    "text", ["", "3", "=3", "3=", "3=abc", "3=1e", "3=0x", "3=1_000", "3=--1", "3=@", "n=True"]
)
def test_what_is_no_argument_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_argument(text)
    assert str(caught.value).startswith("--arg ")
    assert caught.value.diagnostic.hint


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        np.array(7),
        np.zeros(3, dtype=[("a", "<i4"), ("b", "<f8")]),
    ],
)
def test_arrays_are_taken_as_the_bytes_of_the_file(tmp_path: Path, array: np.ndarray) -> None:  # type: ignore[type-arg]
    np.save(tmp_path / "x.npy", array)
    value = parse_value("@x.npy", tmp_path)
    assert isinstance(value, Buffer)
    assert value.contents.dtype == np.uint8
    assert value.contents.tobytes() == (tmp_path / "x.npy").read_bytes()[-array.nbytes :]
    assert str(value) == "@x.npy"


def test_files_that_hold_no_array_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "empty.npy", np.zeros((0, 3)))
    np.savez(tmp_path / "many.npy.npz", np.zeros(3))
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "nothing.npy").write_bytes(b"")
    np.save(tmp_path / "whole.npy", np.zeros(100))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:200])
    for name, says in [
        ("objects.npy", "object"),
        ("empty.npy", "empty"),
        ("many.npy.npz", r"no \.npy file"),
        ("text.npy", r"no \.npy file"),
        ("nothing.npy", r"no \.npy file"),
        ("cut.npy", "cut"),
        ("missing.npy", "No such file"),
        (".", "directory"),
    ]:
        with pytest.raises(UsageError, match=says):
            parse_value(f"@{name}", tmp_path)


@given(st.binary(max_size=80), st.integers(0, 200), st.binary(max_size=8))
def test_damaged_arrays_are_read_or_refused(tail: bytes, place: int, patch: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.npy"
        np.save(path, np.arange(10))
        data = bytearray(path.read_bytes())
        data[place : place + len(patch)] = patch
        path.write_bytes(bytes(data) + tail)
        with suppress(UsageError):
            assert isinstance(parse_value("@damaged.npy", path.parent), Buffer)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        argument = parse_argument(text)
        bind(KERNEL, (argument.parameter, argument.value))
    except UsageError as error:
        assert str(error)  # noqa: PT017


@given(
    st.sampled_from(["3", "n", "config+4", "c[0x0][0x10]", "9"]),
    st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from(["ptr", "null", "tensormap"]),
)
def test_any_value_is_taken_or_refused(which: str, value: int | float | str) -> None:
    try:
        argument = parse_argument(f"{which}={value}")
        bind(KERNEL, (argument.parameter, argument.value))
    except UsageError as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        ([(9, 1)], "argument 9: kernel has 7 parameters", "0 to 6"),
        ([("k", 1)], "kernel has no parameter 'k'", "it has: x, n, stride"),
        ([(1, 5_000_000_000)], "argument 1 (n) has 4 bytes, 5000000000 needs 8", ""),
        ([(1, -(2**31) - 1)], "argument 1 (n) has 4 bytes, -2147483649 needs 8", ""),
        ([(4, 256)], "argument 4 (flag) has 1 byte, 256 needs 2", ""),
        (
            [(2, 2**64)],
            "argument 2 (stride) is an integer of 64 bits (i64), which holds -9,223,372,036,854,775,808 to "
            "18,446,744,073,709,551,615: 18446744073709551616 is beyond",
            "",
        ),
        ([("x", 1.5)], "argument 0 (x) is a pointer, 1.5 is a float", ""),
        ([("stride", 1.5)], "argument 2 (stride) is an integer (i64), 1.5 is not", ""),
        ([("stride", Pointer())], "argument 2 (stride) is no pointer (i64), ptr is one", ""),
        ([(1, Pointer())], "argument 1 (n) has 4 bytes, a pointer has 8", ""),
        ([(1, BUFFER)], "argument 1 (n) has 4 bytes, a pointer has 8", ""),
        ([(1, NullPointer())], "argument 1 (n) has 4 bytes, a pointer has 8", ""),
        ([(3, Pointer())], "argument 3 (config) has 24 bytes, a pointer has 8", "WHICH+OFFSET"),
        ([(3, 5)], "argument 3 (config) has 24 bytes, which one number does not fill", "WHICH+OFFSET"),
        ([(4, 0.5)], "argument 4 (flag) has 1 byte, which hold no float", ""),
        ([(6, 1e300)], "argument 6 (scale) has 4 bytes, in which 1e+300 does not fit", ""),
        ([(1, TensorMap())], "argument 1 (n) has 4 bytes, a tensor map has 128", ""),
        ([(1, 1), (1, 2)], "argument 1 is given twice", "once"),
        ([(1, 1), ("n", 2)], "argument n is given twice, as 1 too", "once"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(
    arguments: list[tuple[int | str, ArgumentValue]], says: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        bind(KERNEL, *arguments)
    assert str(caught.value) == says
    assert hint in caught.value.diagnostic.hint


def test_names_need_an_input_that_has_them() -> None:
    with pytest.raises(UsageError, match="has no parameter 'n'") as caught:
        bind(NAMELESS, ("n", 1))
    assert "give positions" in caught.value.diagnostic.hint
    with pytest.raises(UsageError, match="kernel has no parameters"):
        bind(replace(KERNEL, parameters=()), (0, 1))


def test_a_whole_number_is_a_float_where_the_parameter_is_one() -> None:
    assert encode_number(2, 4, "argument 0", "fp32") == struct.pack("<f", 2.0)
    assert encode_number(2, 4, "argument 0") == struct.pack("<i", 2)
    assert encode_number(1.0, 2, "argument 0", "bf16") == b"\x80\x3f"
    assert encode_number(1.0, 2, "argument 0", "fp16") == b"\x00\x3c"
    assert encode_number(float("nan"), 2, "argument 0", "bf16")[1] & 0x7F == 0x7F


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from([1, 2, 4, 8]))
def test_integers_come_back_or_are_refused(value: int, size: int) -> None:
    fits = -(2 ** (8 * size - 1)) <= value < 2 ** (8 * size)
    try:
        data = encode_number(value, size, "argument 0")
    except UsageError:
        assert not fits
        return
    assert fits
    assert int.from_bytes(data, "little") == value % 2 ** (8 * size)


@pytest.mark.parametrize(
    ("text", "address", "share"),
    [
        ("0x370=yes", 0x370, 1.0),
        ("370=no", 0x370, 0.0),
        ("0x10=0.25", 16, 0.25),
        ("0x10=25%", 16, 0.25),
        ("0=1", 0, 1.0),
    ],
)
def test_branch_rules_are_read(text: str, address: int, share: float) -> None:
    rule = parse_taken_rule(text)
    assert rule == BranchTakenRule(address, share)
    assert parse_taken_rule(str(rule)) == rule


@pytest.mark.parametrize(
    "text", ["", "0x370", "yes", "zz=yes", "0x370=maybe", "0x370=2", "0x370=-1", "0x370=", "0x10=nan"]
)
def test_what_is_no_branch_rule_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--taken"):
        parse_taken_rule(text)


@given(st.text(max_size=30))
def test_any_text_is_a_branch_rule_or_refused(text: str) -> None:
    try:
        assert 0.0 <= parse_taken_rule(text).share <= 1.0
    except UsageError as error:
        assert error.diagnostic.hint  # noqa: PT017
