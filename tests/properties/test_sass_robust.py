"""Damaged dumps: what is read or refused, but never a crash; and cuts of the stream that change nothing."""

import time
from functools import cache
from itertools import pairwise

from hypothesis import assume, example, given
from hypothesis import strategies as st
from paths import INSTRUCTION, TRACES

from analyzer.frontend.sass_parser import parse_sass
from analyzer.ir.module import Module
from analyzer.text.errors import InputError, format_diagnostic

_SECONDS = 5.0
# Small real dumps of both tools, one per generation and layout.
SOURCES = (
    "triton/sm_100/softmax.sass",
    "triton/sm_80/softmax.sass",
    "triton/sm_90/rmsnorm.sass",
    "nvdisasm/softmax_sm_90.txt",
    "nvdisasm/softmax_sm_90.gi.txt",
    "nvdisasm/softmax_sm_120.plr.txt",
    "nvdisasm/matmul_sm_100.txt",
)
_PIECE = 12_000


@cache
def dump(name: str) -> bytes:
    """The head of a dump, up to the end of an instruction, so that one parse takes milliseconds."""
    data = (TRACES / name).read_bytes()
    if len(data) <= _PIECE:
        return data
    ends = [match.start() for match in INSTRUCTION.finditer(data[:_PIECE].decode())]
    return data[: data.rindex(b"\n", 0, ends[-1]) + 1]


dumps = st.sampled_from(SOURCES).map(dump)


def fingerprint(module: Module) -> tuple[object, ...]:
    """All that a module says, by value."""
    kernels = tuple(
        (
            kernel.name,
            kernel.arch,
            kernel.line,
            kernel.resources,
            kernel.labels,
            kernel.branch_targets,
            kernel.is_entry,
            kernel.addresses.tolist(),
            None if kernel.control_words is None else kernel.control_words.tolist(),
            [(kernel.decode_form(i), kernel.find_source_line(i)) for i in range(len(kernel))],
        )
        for kernel in module
    )
    return kernels, module.source_format, module.diagnostics


def outcome(chunks: list[bytes]) -> tuple[object, ...]:
    """What parsing gives, or the error as the user sees it. Anything but InputError is a failure."""
    began = time.perf_counter()
    try:
        result = fingerprint(parse_sass("dump.sass", chunks))
    except InputError as error:
        result = (format_diagnostic(error.diagnostic),)
    assert time.perf_counter() - began < _SECONDS
    return result


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A dump after one to four faults of the kinds that copying, truncation and bad disks make."""
    data = draw(dumps)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["flip", "delete", "truncate", "swap", "double", "insert", "character"]))
        at = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(1, 200))
        if kind == "flip" and data:
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        elif kind == "character" and data:
            mark = draw(st.sampled_from(b";/*@[]{}|.,+-~!`()#\"' \t\r\n0xRUP"))
            data = data[:at] + bytes([mark]) + data[at + 1 :]
        elif kind == "delete":
            data = data[:at] + data[at + length :]
        elif kind == "truncate":
            data = data[:at]
        elif kind == "double":
            data = data[: at + length] + data[at:]
        elif kind == "insert":
            data = data[:at] + draw(st.binary(min_size=1, max_size=40)) + data[at:]
        else:
            lines = data.split(b"\n")
            i, j = at % len(lines), length % len(lines)
            lines[i], lines[j] = lines[j], lines[i]
            data = b"\n".join(lines)
    return data


@given(damaged())
def test_damage_is_read_or_refused(data: bytes) -> None:
    outcome([data])


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    outcome([data])


_OPERANDS = st.text(st.sampled_from("RURPZTc[]0x19+-.~|!,{}`()gdesc@SB_ "), max_size=40)


@given(st.lists(_OPERANDS, min_size=1, max_size=8), st.booleans())
def test_any_operands_are_read_or_refused(texts: list[str], with_encoding: bool) -> None:
    """With an encoding, odd operands are kept as text; without, they are an error."""
    lines = ["\tcode for sm_90", "\t\tFunction : kernel"]
    for row, text in enumerate(texts):
        lines.append(f"        /*{16 * row:04x}*/                   IADD3 {text} ;")
        if with_encoding:
            lines[-1] += "        /* 0x0000000000000000 */"
            lines.append("                                        /* 0x000fe20000000000 */")
    result = outcome(["\n".join([*lines, ""]).encode()])
    if with_encoding:
        assert len(result) == 3, result


@given(damaged())
def test_every_error_has_a_place_or_names_the_file(data: bytes) -> None:
    error = refusal(data)
    if error is None:
        return
    location = error.diagnostic.location
    if location is None:
        assert "dump.sass" in str(error)
    else:
        lines = data.split(b"\n")
        assert 1 <= location.line <= len(lines)
        assert location.text == lines[location.line - 1].rstrip(b"\r").decode("utf-8", "replace")
        assert 1 <= location.column <= len(location.text) + 1
    assert error.diagnostic.hint


def refusal(data: bytes) -> InputError | None:
    try:
        parse_sass("dump.sass", [data])
    except InputError as error:
        return error
    return None


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({min(place, len(data)) for place in places}), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(dumps, st.lists(st.integers(0, _PIECE), max_size=12))
def test_chunks_may_end_anywhere(data: bytes, places: list[int]) -> None:
    assert outcome(cut(data, places)) == outcome([data])


@given(dumps, st.integers(1, 400))
@example(dump("triton/sm_80/softmax.sass"), 1)
def test_chunks_of_any_size(data: bytes, size: int) -> None:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert outcome(pieces) == outcome([data])


@given(damaged(), st.lists(st.integers(0, _PIECE), max_size=6))
def test_chunks_make_no_fault_and_hide_none(data: bytes, places: list[int]) -> None:
    """Of two faults either may be told first, as a chunk is checked for its encoding as a whole."""
    whole, pieces = outcome([data]), outcome(cut(data, places))
    assert pieces == whole or len(pieces) == len(whole) == 1


@given(dumps)
def test_windows_line_ends_change_nothing(data: bytes) -> None:
    assert outcome([data.replace(b"\n", b"\r\n")])[0] == outcome([data])[0]


def n_unknown(module: Module) -> int:
    return sum(not kernel.find_opcode(i).is_known for kernel in module for i in range(len(kernel)))


@given(
    dumps, st.integers(0, 10_000), st.sampled_from(["ZZADD R1, R2", "@P0 QQLD.64 R4, [R2.64+0x8]", "WHAT"])
)
def test_an_unknown_opcode_lowers_coverage_by_one(data: bytes, which: int, text: str) -> None:
    """One instruction's text is exchanged; its address and encoding stay."""
    before = parse_sass("dump.sass", [data])
    matches = list(INSTRUCTION.finditer(data.decode()))
    assume(matches)
    match = matches[which % len(matches)]
    line = match[0]
    start = line.index("*/") + 2
    changed = f"{line[:start]}    {text} ;"
    after = parse_sass("dump.sass", [data.decode().replace(line, changed, 1).encode()])
    assert n_unknown(before) == 0
    assert n_unknown(after) == 1
    assert [len(kernel) for kernel in after] == [len(kernel) for kernel in before]
    warnings = [d for d in after.diagnostics if d.code == "unknown-opcode"]
    assert len(warnings) == 1


def test_many_strange_lines_cost_no_more_than_their_number() -> None:
    """Only the first of them is looked up; 200,000 took minutes when each was."""
    text = b"\tcode for sm_80\n\t\tFunction : k\n" + b"what is this line\n" * 200_000
    text += b"        /*0000*/                   EXIT ;\n"
    (diagnostic,) = parse_sass("odd.sass", [text]).diagnostics
    assert diagnostic.count == 200_000
    assert diagnostic.location is not None
    assert diagnostic.location.line == 3
