"""Traces: the case files of grammars/cases/trace, files as they lie about, and texts that nobody should feed.

A case is a trace between lines that start with `// CHECK` (see `filecheck --help`) or `// COM:`, which count as
blank lines; `<CUT>` ends the input in the middle of a line, `<REPEAT 900 x>` repeats the text after the number.
Leading blanks of an error's lines are printed as dots, so that a caret's column is checked.

Run this file as a program to print what a case gives: `python tests/frontend/test_trace.py CASE...`
"""

import gzip
import lzma
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import DumpInputKind, Options
from filecheck.parser import Parser
from hypothesis import given
from hypothesis import strategies as st
from paths import CASES, TRACES

from analyzer.flow.cfg import build_cfg
from analyzer.frontend.input_format import InputFormat, detect_format
from analyzer.frontend.module_reader import read_module
from analyzer.frontend.trace_files import parse_kernel_list, read_traces
from analyzer.frontend.trace_module import build_trace_module
from analyzer.frontend.trace_parser import parse_trace
from analyzer.ir.module import SourceFormat
from analyzer.ir.trace import MemoryCopy, Trace, compress_addresses, pack_lane_masks, unpack_lane_masks
from analyzer.render.traceg import render_traceg
from analyzer.text.errors import InputError, format_diagnostic

CASE_FILES = sorted((CASES / "trace").glob("*.test"))
SAMPLES = sorted((TRACES / "nvbit").glob("*.trace*"))
_DIRECTIVE = re.compile(r"^// (CHECK|COM).*$", re.M)
_CUT = re.compile(r"<CUT>.*", re.S)
_REPEAT = re.compile(r"<REPEAT (\d+) ([^>]*)>")


def case_input(text: str) -> bytes:
    """The trace that a case file stands for."""
    text = _CUT.sub("", _DIRECTIVE.sub("", text))
    return _REPEAT.sub(lambda match: match[2] * int(match[1]), text).encode()


def printed(name: str, data: bytes) -> str:
    """What is read from a trace; or the error, as the user sees it."""
    try:
        return "\n".join(_trace_lines(parse_trace(name, [data]))) + "\n"
    except InputError as error:
        lines = format_diagnostic(error.diagnostic).splitlines()
        return (
            "\n".join("." * (len(line) - len(line.lstrip(" "))) + line.lstrip(" ") for line in lines) + "\n"
        )


def _trace_lines(trace: Trace) -> Iterator[str]:
    header = trace.header
    yield f"kernel {header.name} {header.arch} grid {header.grid} block {header.block} version {header.tracer_version}"
    yield f"{header.registers} registers, {header.shared_bytes} B shared"
    kernel = build_trace_module(trace.path, [trace]).kernels[0]
    for row, instruction in enumerate(trace.instructions):
        line = f" line {instruction.source_line}" if instruction.source_line else ""
        immediate = f" immediate {instruction.immediate}" if instruction.immediate else ""
        yield f"{instruction.address:04x} {kernel.decode_form(row).text}{immediate}{line}"
    lists = dict(zip(trace.access_positions.tolist(), trace.address_rows.tolist(), strict=True))
    for place, warp in enumerate(trace.warp_ids.tolist()):
        cta, number = divmod(warp, header.warps_per_cta)
        yield f"cta {cta} warp {number}"
        for at in range(int(trace.warp_starts[place]), int(trace.warp_starts[place + 1])):
            text = f"{trace.instructions[trace.instruction_ids[at]].address:04x} {trace.masks[at]:08x}"
            yield text + (f" {_addresses(trace, lists[at], at)}" if at in lists else "")


def _addresses(trace: Trace, row: int, at: int) -> str:
    addresses, active = trace.addresses.decompress(np.array([row]), trace.masks[at : at + 1])
    listed = [f"{address:x}" for address in addresses[active].tolist()]
    return " ".join(listed if len(listed) < 6 else (*listed[:2], "..", *listed[-2:])) or "no address"


@pytest.mark.parametrize("case", CASE_FILES, ids=lambda case: case.stem)
def test_case(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(case.name, case_input(case.read_text(encoding="utf-8")))
    options = Options(
        match_filename=str(case),
        dump_input=DumpInputKind.FAIL,
        comment_prefixes=["COM"],
        match_full_lines=True,
    )
    options.check_prefixes = ["CHECK"]
    result = Matcher(options, FInput(case.name, text), Parser.from_opts(options)).run()
    assert result == 0, f"{capsys.readouterr().err}\n--- the case gives:\n{text}"


def test_cases_are_many() -> None:
    """A glob that finds nothing would pass silently."""
    assert len(CASE_FILES) >= 30
    assert len(SAMPLES) >= 3


def same(a: Trace, b: Trace) -> None:
    """Two traces say the same."""
    assert (a.header, a.instructions) == (b.header, b.instructions)
    for name in ("instruction_ids", "masks", "warp_ids", "warp_starts", "access_positions"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    masks = a.masks[a.access_positions]
    first, active = a.addresses.decompress(a.address_rows, masks)
    second, _ = b.addresses.decompress(b.address_rows, masks)
    assert np.array_equal(first[active], second[active])


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.suffix == ".traceg"], ids=lambda path: path.name)
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_pieces_may_be_cut_anywhere(sample: Path, size: int) -> None:
    data = sample.read_bytes()[: 1 << 13 if size == 1 else None]
    data = data[: data.rindex(b"#END_TB") + 8]
    whole = parse_trace(sample.name, [data])
    same(whole, parse_trace(sample.name, (data[i : i + size] for i in range(0, len(data), size))))


def test_written_trace_reads_back_the_same() -> None:
    for sample in SAMPLES:
        (trace,) = read_traces(str(sample), [sample.read_bytes()])
        again = parse_trace(str(sample), [text.encode() for text in render_traceg(trace)])
        if trace.header.tracer_version == "5":
            same(trace, again)
        else:
            assert np.array_equal(trace.masks, again.masks)


def test_grouped_sample_is_written_byte_for_byte() -> None:
    sample = TRACES / "nvbit" / "vector_add.traceg"
    assert "".join(render_traceg(parse_trace("x", [sample.read_bytes()]))).encode() == sample.read_bytes()


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_packed_traces_are_read_as_they_are(pack: object, tmp_path: Path) -> None:
    assert callable(pack)
    data = (TRACES / "nvbit" / "vector_add.traceg").read_bytes()
    packed = tmp_path / "kernel-1.traceg.packed"
    packed.write_bytes(pack(data[:700]) + pack(data[700:]))
    assert detect_format(packed.read_bytes()[:1000]) is InputFormat.TRACE
    plain = parse_trace("x", [data])
    for size in (1, 5, 1 << 20):
        raw = packed.read_bytes()
        (trace,) = read_traces("x", (raw[i : i + size] for i in range(0, len(raw), size)))
        same(plain, trace)
    packed.write_bytes(pack(data)[:-20])
    with pytest.raises(InputError, match="the compressed file is damaged"):
        read_traces("x", [packed.read_bytes()])
    assert detect_format(pack(b"something else")) is InputFormat.UNKNOWN_BINARY


def test_a_trace_is_a_module_like_any_other() -> None:
    module = read_module(str(TRACES / "nvbit" / "loop.traceg"))
    assert module.source_format is SourceFormat.TRACE
    kernel = module.kernels[0]
    assert kernel.resources.has_exact_block_threads
    assert kernel.control_words is None
    cfg = build_cfg(kernel)
    assert any(target <= source for source, targets in enumerate(cfg.successors) for target in targets), (
        "no loop"
    )


def test_list_of_kernels_names_traces_beside_it(tmp_path: Path) -> None:
    data = (TRACES / "nvbit" / "vector_add.traceg").read_bytes()
    (tmp_path / "kernel-1.traceg").write_bytes(data)
    (tmp_path / "kernel-2-ctx_0x5.traceg.xz").write_bytes(lzma.compress(data))
    listing = "MemcpyHtoD,0x00007f0000000000,800\nkernel-1.traceg\nkernel-2-ctx_0x5.traceg.xz\n"
    path = tmp_path / "kernelslist.g"
    path.write_text(listing)
    assert detect_format(listing.encode()) is InputFormat.TRACE
    module = read_module(str(path))
    assert [len(kernel) for kernel in module] == [16, 16]
    assert module.kernels[0].form_table is module.kernels[1].form_table
    steps = parse_kernel_list(str(path), listing.encode()).entries
    assert steps[0] == MemoryCopy(0x7F0000000000, 800)
    (tmp_path / "kernel-1.traceg").unlink()
    with pytest.raises(InputError, match=r"kernel-1.traceg: No such file"):
        read_module(str(path))


@pytest.mark.parametrize(
    "line", ["kernel-1/../../etc/passwd", "/etc/passwd", "kernel-1.traceg extra", "../kernel-1.traceg"]
)
def test_list_of_kernels_leads_nowhere_else(line: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_kernel_list("kernelslist.g", f"MemcpyHtoD,0x7f,8\n{line}\n".encode())
    assert caught.value.diagnostic.location is not None
    assert caught.value.diagnostic.location.line == 2


_ADDRESS = st.integers(0, (1 << 64) - 1)


@given(
    st.lists(
        st.tuples(st.integers(0, (1 << 32) - 1), _ADDRESS, st.integers(-1000, 1000), st.booleans()),
        min_size=1,
    )
)
def test_compressed_addresses_are_the_same_addresses(rows: list[tuple[int, int, int, bool]]) -> None:
    masks = np.array([mask for mask, *_ in rows], dtype=np.uint32)
    active = unpack_lane_masks(masks)
    assert np.array_equal(pack_lane_masks(active), masks)
    lane = np.arange(32)
    addresses = np.array(
        [
            [(base + step * int(n) * (int(n) if bent else 1)) % (1 << 64) for n in lane]
            for _, base, step, bent in rows
        ],
        dtype=np.uint64,
    )
    table = compress_addresses(addresses, active)
    order = np.arange(len(rows))[::-1]
    found, lanes = table.decompress(order, masks[order])
    assert np.array_equal(lanes, active[order])
    assert np.array_equal(found[lanes], addresses[order][lanes])


@given(st.data())
def test_a_damaged_trace_gives_an_input_error_or_a_trace(data: st.DataObject) -> None:
    text = bytearray((TRACES / "nvbit" / "loop.traceg").read_bytes()[:4000])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                text[place] = data.draw(st.integers(0, 255))
            case 1:
                del text[place : place + data.draw(st.integers(1, 60))]
            case _:
                text[place:place] = data.draw(
                    st.sampled_from([b" ", b"\n", b"R2 ", b"-", b"0x", b"9" * 30, b"\xff", b"#"])
                )
    try:
        trace = parse_trace("damaged", [bytes(text)])
    except InputError:
        return
    assert build_cfg(build_trace_module("damaged", [trace]).kernels[0]).blocks


@pytest.mark.parametrize(
    "rule",
    ["1 0x_1 4", "1 0x1_0 4", "1 -5 4", "2 0x5 1 2 3 -", "0 0x1", "1 0x1ffffffffffffffff 4", "3 0x1 4"],
)
def test_numbers_that_python_would_take_are_refused(rule: str) -> None:
    text = (
        (TRACES / "nvbit" / "vector_add.traceg").read_text().replace("8 1 0x7f0000000000 8 0", f"8 {rule}", 1)
    )
    with pytest.raises(InputError) as caught:
        parse_trace("x", [text.encode()])
    assert caught.value.diagnostic.location is not None
    assert "LDG" in caught.value.diagnostic.location.text


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(printed(Path(argument).name, case_input(Path(argument).read_text(encoding="utf-8"))), end="")
