"""Inputs as a user gives them: told apart by content, joined with what lies beside them."""

import io
import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from paths import TRACES, format_trace_name, list_nvdisasm_texts, list_sass_dumps

from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.input_format import InputFormat, detect_format
from analyzer.frontend.module_reader import read_module
from analyzer.ir.module import KernelResources, Module, SourceFormat
from analyzer.text.errors import InputError

DUMP = TRACES / "triton" / "sm_90" / "matmul.sass"
CUBINS = sorted((TRACES / "cubin").glob("*.cubin"))
PTX = b"//\n// Generated\n.version 8.7\n.target sm_90a\n.address_size 64\n"
needs_tools = pytest.mark.skipif(
    find_tool("cuobjdump") is None or find_tool("nvdisasm") is None,
    reason="cuobjdump and nvdisasm are not installed here",
)


class _Stdin:
    """Standard input that holds the given bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def _resources(path: Path, **options: str) -> KernelResources:
    (kernel,) = read_module(str(path), **options).kernels
    return kernel.resources


def _texts(module: Module) -> list[tuple[str, list[int]]]:
    return [(kernel.name, kernel.addresses.tolist()) for kernel in module]


@pytest.mark.parametrize("path", [*list_sass_dumps(), *list_nvdisasm_texts()], ids=format_trace_name)
def test_dumps_are_told_by_content(path: Path) -> None:
    assert detect_format(path.read_bytes()) is InputFormat.SASS


@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.name)
def test_cubins_are_told_by_content(path: Path) -> None:
    assert detect_format(path.read_bytes()) is InputFormat.CUBIN


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        (b"", InputFormat.EMPTY),
        (b" \r\n\t\n", InputFormat.EMPTY),
        (b"\xef\xbb\xbf\n", InputFormat.EMPTY),
        (b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\0" + bytes(40), InputFormat.HOST_BINARY),
        (b"\x7fELF", InputFormat.UNKNOWN_BINARY),
        (b"\x50\xed\x55\xba\x01\0\x10\0", InputFormat.FATBIN),
        (b"!<arch>\nmember/", InputFormat.ARCHIVE),
        (PTX, InputFormat.PTX),
        (b"#loc = loc(unknown)\nmodule {\n  tt.func public @k() {\n", InputFormat.TRITON_IR),
        (b"#blocked = #ttg.blocked<{order = [0]}>\n", InputFormat.TRITON_IR),
        (b"-kernel name = vecadd\n-kernel id = 1\n", InputFormat.TRACE),
        (b"\tcode for sm_90\n", InputFormat.SASS),
        (b"        /*0000*/                   MOV R1, c[0x0][0x28] ;\n", InputFormat.LISTING),
        ("\tcode for sm_90\n".encode("utf-16"), InputFormat.UTF16),
        ("\tcode for sm_90\n".encode("utf-16-le"), InputFormat.UTF16),
        ("\tcode for sm_90\n".encode("utf-16-be"), InputFormat.UTF16),
        (bytes(64), InputFormat.UNKNOWN_BINARY),
        (b"\x1f\x8b\x08\0\0\0\0\0", InputFormat.UNKNOWN_BINARY),
        (bytes(range(256)), InputFormat.UNKNOWN_BINARY),
        (b"__global__ void k() {}\n", InputFormat.CUDA_SOURCE),
        ("größer\n".encode("latin-1"), InputFormat.UNKNOWN_TEXT),
    ],
)
def test_detect(head: bytes, wanted: InputFormat) -> None:
    assert detect_format(head) is wanted


@given(st.binary(max_size=300))
def test_detect_takes_anything(head: bytes) -> None:
    assert detect_format(head) in InputFormat


@pytest.mark.parametrize(
    ("data", "says", "hint"),
    [
        (b"", "empty", "cuobjdump -sass"),
        (PTX, "PTX without a kernel", ".entry"),
        (b"module {\n}\n", "Triton", ".cubin"),
        (b"#traces format = 5\n", "trace", "cuobjdump"),
        ("\tcode for sm_90\n".encode("utf-16"), "UTF-16", "utf8"),
        (bytes(range(256)), "neither text nor", "cubin"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(tmp_path: Path, data: bytes, says: str, hint: str) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        read_module(str(path))
    assert str(path) in str(caught.value)
    assert hint in caught.value.diagnostic.hint
    assert "\n" not in str(caught.value)


def test_other_text_gets_a_caret(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("\nthe kernel is slow\n")
    with pytest.raises(InputError) as caught:
        read_module(str(path))
    location = caught.value.diagnostic.location
    assert location is not None
    assert (location.path, location.line, location.column) == (str(path), 2, 1)


@pytest.mark.parametrize(("name", "says"), [("absent", "no such file"), ("", "folder"), ("\0", "null")])
def test_paths_that_cannot_be_opened(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_module(f"{tmp_path}/{name}" if name else str(tmp_path))
    assert caught.value.diagnostic.hint


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Stdin(DUMP.read_bytes()))
    module = read_module("-")
    assert _texts(module) == _texts(read_module(str(DUMP)))
    assert module.kernels[0].resources == KernelResources()


def test_windows_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "windows.sass"
    path.write_bytes(b"\xef\xbb\xbf" + DUMP.read_bytes().lstrip().replace(b"\n", b"\r\n"))
    assert _texts(read_module(str(path))) == _texts(read_module(str(DUMP)))


def test_usage_and_metadata_beside_a_dump() -> None:
    metadata = json.loads(DUMP.with_suffix(".json").read_text())
    assert _resources(DUMP) == KernelResources(
        registers=116,
        has_exact_registers=True,
        shared_bytes=0,  # SHARED:1024 is the system's reserve alone
        dynamic_shared_bytes=metadata["shared"],
        local_bytes=0,
        stack_bytes=0,
        block_threads=32 * metadata["num_warps"],
        has_exact_block_threads=True,
    )


def test_reserved_shared_memory_is_not_the_kernels(tmp_path: Path) -> None:
    """`shared_bank_conflict` has a tile of 32 x 32 floats; from sm_90 on the tools print 1024 bytes more."""
    for arch in ("sm_80", "sm_90", "sm_100", "sm_120"):
        module = read_module(str(TRACES / "cuda" / arch / "report16.sass"))
        kernel = next(k for k in module if k.name == "shared_bank_conflict")
        assert kernel.resources.shared_bytes == 4096, arch


def test_usage_by_name_or_by_suffix(tmp_path: Path) -> None:
    dump, usage = tmp_path / "matmul.sass", tmp_path / "other.txt"
    shutil.copy(DUMP, dump)
    assert _resources(dump) == KernelResources()
    usage.write_text(" Function matmul:\n  REG:77 SHARED:3072\n")
    wanted = KernelResources(registers=77, has_exact_registers=True, shared_bytes=2048)
    assert _resources(dump, usage_path=str(usage)) == wanted
    usage.rename(tmp_path / "matmul.res-usage")
    assert _resources(dump) == wanted


def test_usage_of_the_right_architecture(tmp_path: Path) -> None:
    dump = tmp_path / "matmul.sass"
    shutil.copy(DUMP, dump)
    lines = [
        "code for sm_80",
        " Function matmul:",
        "  REG:1",
        "arch = sm_90a",
        " Function matmul:",
        "  REG:2",
    ]
    (tmp_path / "matmul.res").write_text("\n".join(lines))
    assert _resources(dump).registers == 2


@pytest.mark.parametrize("content", [b"", b"nothing of use\n", b" Function \xff:\n  REG:1\n", None])
def test_usage_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    usage = tmp_path / "usage.txt"
    if content is not None:
        usage.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(str(usage))) as caught:
        read_module(str(DUMP), usage_path=str(usage))
    assert "-res-usage" in caught.value.diagnostic.hint


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"name": "matmul", "num_warps": "4", "shared": 1}',
        '{"name": "matmul", "num_warps": 4000, "shared": 1}',
        '{"name": "matmul", "num_warps": 4, "shared": -1}',
        '{"name": "another", "num_warps": 4, "shared": 1}',
    ],
)
def test_other_json_beside_a_dump_is_left_alone(tmp_path: Path, content: str) -> None:
    dump = tmp_path / "matmul.sass"
    shutil.copy(DUMP, dump)
    (tmp_path / "matmul.json").write_text(content)
    assert _resources(dump) == KernelResources()


@needs_tools
@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.name)
def test_a_cubin_reads_as_its_dump(path: Path) -> None:
    stem, _, number = path.stem.rpartition("_sm_")
    dump = read_module(str(TRACES / "triton" / f"sm_{number}" / f"{stem}.sass"))
    module = read_module(str(path))
    assert module.source_format is SourceFormat.NVDISASM
    assert _texts(module) == _texts(dump)
    # CUDA 12's nvdisasm leaves out the suffix of sm_90a.
    assert [kernel.arch.rstrip("af") for kernel in module] == [kernel.arch.rstrip("af") for kernel in dump]
    for ours, theirs in zip(module, dump, strict=True):
        assert ours.labels
        assert ours.source_lines
        # The dump has Triton's metadata beside it, the cubin has not; barriers stand in the cubin only.
        assert replace(ours.resources, barriers=None) == replace(theirs.resources, dynamic_shared_bytes=None)


@needs_tools
def test_a_cubin_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Stdin(CUBINS[0].read_bytes()))
    module = read_module("-")
    assert module.path == "<stdin>"
    assert _texts(module) == _texts(read_module(str(CUBINS[0])))


def test_a_damaged_cubin_is_refused_before_a_tool_starts(tmp_path: Path) -> None:
    path = tmp_path / "cut.cubin"
    path.write_bytes(CUBINS[0].read_bytes()[:3000])
    with pytest.raises(InputError, match=r"cut.cubin: the cubin is damaged"):
        read_module(str(path))
