"""Memory that holds one number everywhere: as an array of it, until the kernel stores there."""

from dataclasses import replace

import numpy as np
import pytest
from against_oracle import ARCHS, find_kernel, make_seeded_launch, run_machine

from analyzer.execution.binding.argument_parser import parse_value
from analyzer.execution.binding.fill_patterns import encode_fill_pattern
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, Dim3, FilledBuffer, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.text.errors import UsageError

WORD = 0x07070707  # its bytes are alike, so that bytes and words may be read from any place


def said(profile: ExecutionProfile) -> tuple[object, ...]:
    accesses = [(a.row, a.requests, a.lanes, a.sectors, a.provenance) for a in profile.accesses]
    return (
        profile.provenance,
        profile.block_executions.tolist(),
        profile.block_active_lanes.tolist(),
        accesses,
    )


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["collatz", "bytes", "csr"])
def test_it_is_as_an_array_of_that_number(name: str, arch: int) -> None:
    """What reads past an array of a launch that was drawn finds the number too, so arrays are made longer."""
    drawn = make_seeded_launch(name, 1)
    array = np.full(1 << 16, WORD, np.uint32)
    same = replace(drawn, values=tuple(array if isinstance(v, np.ndarray) else v for v in drawn.values))
    launch = same.to_launch()
    filled = replace_buffers(launch)
    assert any(isinstance(argument.value, FilledBuffer) for argument in filled.arguments)
    found = execute_kernel(find_kernel(arch, name), filled)
    assert found is not None
    assert said(found.profile) == said(run_machine(arch, same))


def replace_buffers(launch: Launch) -> Launch:
    arguments = tuple(
        Argument(a.parameter, a.value if isinstance(a.value, int | float | Pointer) else FilledBuffer(WORD))
        for a in launch.arguments
    )
    return Launch(grid=launch.grid, block=launch.block, dynamic_shared_bytes=0, arguments=arguments)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("number", "stores"), [(5, 256), (1, 0)])
def test_what_is_not_stored_to_stays_known(arch: int, number: int, stores: int) -> None:
    """`if (data[t] > 2)` behind a loop that stores to `data`, here of no iterations."""
    profile = in_place(arch, number, steps=0)
    assert profile.provenance is Provenance.EXACT
    assert sum(a.lanes for a in profile.accesses if a.is_store) == stores


@pytest.mark.parametrize("arch", ARCHS)
def test_what_is_stored_to_is_not_known_any_more(arch: int) -> None:
    profile = in_place(arch, 5, steps=1)
    assert profile.accesses[-1].is_store
    assert profile.accesses[-1].provenance is not Provenance.EXACT


def in_place(arch: int, number: int, steps: int) -> ExecutionProfile:
    arguments = (Argument(0, FilledBuffer(number)), Argument(1, steps))
    found = execute_kernel(
        find_kernel(arch, "in_place"), Launch(grid=Dim3(1), block=Dim3(256), arguments=arguments)
    )
    assert found is not None
    return found.profile


def test_it_is_written_with_its_number() -> None:
    assert parse_value("fill:7") == FilledBuffer(7)
    assert parse_value(" Fill:0x10") == FilledBuffer(16)
    assert str(parse_value("fill:7.5")) == "fill:7.5"


WIDTHS = [
    ("fill:i64:7", bytes([7, 0, 0, 0, 0, 0, 0, 0])),
    ("fill:i8:-1", b"\xff" * 8),
    ("fill:u16:513", bytes([1, 2] * 4)),
    ("fill:f16:1", bytes([0, 0x3C] * 4)),
    ("fill:bf16:1", bytes([0x80, 0x3F] * 4)),
    ("fill:f32:1", bytes([0, 0, 0x80, 0x3F] * 2)),
    ("fill:f64:1", bytes([0, 0, 0, 0, 0, 0, 0xF0, 0x3F])),
    ("fill:1.0", bytes([0, 0, 0x80, 0x3F] * 2)),
    ("fill:1", bytes([1, 0, 0, 0] * 2)),
]


@pytest.mark.parametrize(("text", "pattern"), WIDTHS)
def test_elements_may_have_another_width(text: str, pattern: bytes) -> None:
    filled = parse_value(text)
    assert isinstance(filled, FilledBuffer)
    assert encode_fill_pattern(filled) == pattern
    assert parse_value(str(filled)) == filled


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fill:i7:1", "no type 'i7'; one of i8, "),
        ("fill:i8:200", "i8 holds -128 to 127"),
        ("fill:u64:-1", "u64 holds 0 to "),
        ("fill:i32:2.5", "i32 is an integer"),
        ("fill:f16:1e9", "does not fit"),
        ("fill:i64:", "no number"),
    ],
)
def test_what_is_no_element_is_an_error(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_value(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["fill:", "fill:x", "fill:4294967296", "fill:-2147483649", "fill:fill:1"])
def test_what_is_no_number_of_32_bits_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="fill"):
        parse_value(text)
