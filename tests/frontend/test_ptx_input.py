"""PTX as an input: which architecture and which ptxas, lines, errors at their place, and the same report as its cubin."""

import io
import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from paths import TRACES

from analyzer.cli.app import run
from analyzer.frontend.cubin_elf import CubinElf, DamagedElfError
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.line_tables import PTX_SECTION, SOURCE_SECTION, read_line_tables
from analyzer.frontend.module_reader import read_module
from analyzer.frontend.ptx_assembler import assemble_ptx, list_assemblers
from analyzer.frontend.ptx_reader import PtxOptions
from analyzer.frontend.ptx_targets import PtxTarget, choose_target
from analyzer.ir.module import Kernel
from analyzer.text.errors import InputError, ToolError, UsageError

Capture = pytest.CaptureFixture[str]
needs_tools = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None, reason="ptxas or nvdisasm is not installed"
)
INCREMENT = """\
.version 8.0
.target sm_75
.address_size 64
.visible .entry increment(.param .u64 p, .param .u32 n)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<4>;
  .reg .pred %p;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r3, [n];
LOOP:
  ld.global.u32 %r1, [%rd1];
  add.s32 %r2, %r1, 1;
  st.global.u32 [%rd1], %r2;
  add.s32 %r3, %r3, -1;
  setp.ne.s32 %p, %r3, 0;
  @%p bra LOOP;
  ret;
}
"""


def write(folder: Path, text: str = INCREMENT) -> Path:
    path = folder / "increment.ptx"
    path.write_text(text)
    return path


def report(capture: Capture, path: str, *options: str) -> dict[str, Any]:
    assert run(["analyze", path, "--format", "json", *options]) == 0
    found: dict[str, Any] = json.loads(capture.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("target", "wanted", "chosen"),
    [
        (PtxTarget(80, ""), "sm_80", "sm_80"),
        (PtxTarget(80, ""), "sm_90", "sm_90"),
        (PtxTarget(80, ""), "sm_90a", "sm_90a"),
        (PtxTarget(80, ""), "sm_75", None),
        (PtxTarget(90, "a"), "sm_90", "sm_90a"),
        (PtxTarget(90, "a"), "sm_100", None),
        (PtxTarget(90, "a"), "sm_80", None),
        (PtxTarget(100, "a"), "sm_103", None),
        (PtxTarget(100, "f"), "sm_103", "sm_103f"),
        (PtxTarget(100, "f"), "sm_103a", "sm_103a"),
        (PtxTarget(100, "f"), "sm_120", None),
        (PtxTarget(120, "a"), "sm_120", "sm_120a"),
        (PtxTarget(120, ""), "sm_121", "sm_121"),
    ],
)
def test_what_ptx_of_a_target_is_assembled_for(target: PtxTarget, wanted: str, chosen: str | None) -> None:
    assert choose_target(target, wanted) == chosen


@needs_tools
@pytest.mark.parametrize("options", [(), ("--grid", "64", "--block", "32", "--arg", "1=10")])
def test_ptx_and_its_cubin_give_the_same_report(
    tmp_path: Path, capsys: Capture, options: tuple[str, ...]
) -> None:
    ptx, cubin = write(tmp_path), tmp_path / "increment.cubin"
    assembler = find_tool("ptxas")
    assert assembler is not None
    command = [assembler.path, "-lineinfo", "-arch=sm_90", str(ptx), "-o", str(cubin)]
    subprocess.run(command, check=True)
    wanted = ("-g", "h100", "--listing", "--loops", "--memory", *options)
    first, second = report(capsys, str(ptx), *wanted), report(capsys, str(cubin), *wanted)
    (entry,) = first.pop("inputs")
    assert entry["format"] == "PTX"
    assert entry["toolchain"].startswith("ptxas ")
    assert entry["toolchain"].endswith(" for sm_90")
    assert first["warnings"] == []
    del second["inputs"]
    for found in (first, second):
        found["kernels"][0]["input"] = ""
    assert first == second
    for path in (ptx, cubin):
        assert run(["analyze", str(path), *wanted]) == 0
    texts = capsys.readouterr().out
    assert texts.count(f"{ptx}: note: compiled by ptxas") == 1


@needs_tools
def test_lines_of_the_ptx_are_the_source(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path)
    (kernel,) = report(capsys, str(path), "-g", "a100", "--listing")["kernels"]
    assert {loop["source"] for loop in kernel["loops"]} == {f"{path}:12"}  # unrolled, and what is left over
    stores = [entry for entry in kernel["listing"] if entry["instruction"].startswith("STG")]
    assert {(entry["source"], entry["source_text"]) for entry in stores} == {
        (f"{path}:14", "st.global.u32 [%rd1], %r2;")
    }
    assert all("ptx_line" not in entry for entry in kernel["listing"])


@needs_tools
def test_lines_of_the_source_have_those_of_the_ptx_beside_them(tmp_path: Path, capsys: Capture) -> None:
    text = INCREMENT.replace("  st.global", "  .loc 1 41 0\n  st.global").replace(
        "{\n", "{\n  .loc 1 40 0\n", 1
    )
    path = write(tmp_path, text + '.file 1 "/src/increment.cu"\n')
    (kernel,) = report(capsys, str(path), "-g", "a100", "--listing")["kernels"]
    stores = [entry for entry in kernel["listing"] if entry["instruction"].startswith("STG")]
    assert {(entry["source"], entry["ptx_line"]) for entry in stores} == {("/src/increment.cu:41", 16)}
    assert run(["annotate", str(path), "-g", "a100"]) == 0
    assert "increment.cu:41 (ptx 16)" in capsys.readouterr().out


@needs_tools
def test_each_gpu_gets_code_of_its_own_architecture(tmp_path: Path, capsys: Capture) -> None:
    found = report(capsys, str(write(tmp_path)), "-g", "h100", "-g", "t4", "-g", "l40s")
    archs = [
        (kernel["architecture"], [p["gpu"] for p in kernel["predictions"]]) for kernel in found["kernels"]
    ]
    assert [arch for arch, _ in archs] == ["sm_90", "sm_75", "sm_89"]
    assert all(len(gpus) == 1 for _, gpus in archs)
    assert not any(p["transferred"] for kernel in found["kernels"] for p in kernel["predictions"])
    alone = report(capsys, str(tmp_path / "increment.ptx"), "-g", "t4")["kernels"]
    assert alone[0]["predictions"] == found["kernels"][1]["predictions"]


@needs_tools
def test_without_a_gpu_the_target_itself_is_taken(tmp_path: Path, capsys: Capture) -> None:
    path = str(write(tmp_path))
    assert report(capsys, path)["kernels"][0]["architecture"] == "sm_75"
    assert report(capsys, path, "--arch", "sm_120a")["kernels"][0]["architecture"] == "sm_120a"
    write(tmp_path, INCREMENT.replace("sm_75", "sm_50"))
    with pytest.raises(InputError, match="sm_50 and later") as caught:
        read_module(path)
    assert "--gpu" in caught.value.diagnostic.hint
    assert report(capsys, path, "-g", "t4")["kernels"][0]["architecture"] == "sm_75"


@needs_tools
def test_standard_input(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(INCREMENT.encode())))
    found = report(capsys, "-", "-g", "a100", "-O", "1")
    assert found["inputs"][0]["path"] == "<stdin>"
    assert " -O1 for sm_80" in found["inputs"][0]["toolchain"]
    assert found["kernels"][0]["loops"][0]["source"] == "<stdin>:12"


@needs_tools
@pytest.mark.parametrize(
    ("old", "new", "place", "caret", "says"),
    [
        ("add.s32 %r2", "addd.s32 %r2", (13, 3), 4, "Not a name of any known instruction"),
        ("%rd1], %r2", "%rd1], %r9", (14, 25), 3, "Unknown symbol"),
        ("  ret;\n}", "  ret\n}", (19, 1), 1, "syntax error"),
        ("add.s32 %r2, %r1, 1", "wgmma.fence.sync.aligned", (13, 3), 11, "not supported on .target"),
    ],
)
def test_what_ptxas_refuses_is_an_error_at_its_line(
    tmp_path: Path, old: str, new: str, place: tuple[int, int], caret: int, says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_module(str(write(tmp_path, INCREMENT.replace(old, new))))
    location = caught.value.diagnostic.location
    assert location is not None
    assert (location.line, location.column, location.length) == (*place, caret)
    assert caught.value.diagnostic.hint


@needs_tools
def test_a_target_that_the_gpu_lacks_says_what_would_work(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, INCREMENT.replace("sm_75", "sm_90a"))
    assert run(["analyze", str(path), "-g", "b200"]) == 2
    message = capsys.readouterr().err
    assert f"{path}:2:9: error: PTX for sm_90a cannot be assembled for sm_100" in message
    assert "^^^^^^" in message
    assert "choose a GPU of sm_90" in message


@needs_tools
def test_a_gpu_among_others_that_the_ptx_is_not_for_is_a_warning(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, INCREMENT.replace("sm_75", "sm_90a"))
    found = report(capsys, str(path), "-g", "h100", "-g", "b200")
    assert [warning["code"] for warning in found["warnings"]] == ["unsupported-architecture"]
    assert [p["transferred"] for p in found["kernels"][0]["predictions"]] == [False, True]


def make_tool(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@needs_tools
def test_a_release_that_does_not_know_the_architecture_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    make_tool(
        old,
        "ptxas",
        "echo \"ptxas fatal   : Value 'sm_90' is not defined for option 'gpu-name'\" >&2; exit 1",
    )
    path = str(write(tmp_path))
    monkeypatch.setenv("PATH", str(old), prepend=":")
    assert report(capsys, path, "-g", "h100")["kernels"][0]["architecture"] == "sm_90"
    with pytest.raises(ToolError, match="no ptxas assembles it for sm_90") as caught:
        read_module(path, ptx=PtxOptions(gpus=("h100",), ptxas=str(old / "ptxas")))
    assert "--ptxas" in caught.value.diagnostic.hint


def test_a_ptxas_that_is_none_fails_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write(tmp_path))

    def read(script: str) -> None:
        read_module(path, ptx=PtxOptions(ptxas=make_tool(tmp_path, "broken", script)))

    with pytest.raises(UsageError, match="no program"):
        read_module(path, ptx=PtxOptions(ptxas=str(tmp_path)))
    with pytest.raises(ToolError, match="made no cubin"):
        read("exit 0")
    with pytest.raises(ToolError, match="killed"):
        read("kill -9 $$")
    with pytest.raises(InputError, match="uses too much shared data"):
        read("echo \"ptxas error   : Entry function 'k' uses too much shared data\" >&2; exit 255")
    monkeypatch.setenv("WARPLENS_TOOL_TIMEOUT", "0.3")
    with pytest.raises(ToolError, match="was stopped"):
        read("sleep 60")


CUBINS = sorted((TRACES / "cubin").glob("**/*.cubin"))


@needs_tools
@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.stem)
def test_line_tables_say_what_nvdisasm_says(path: Path) -> None:
    tables = read_line_tables(CubinElf(path.read_bytes()), SOURCE_SECTION)
    kernel: Kernel
    for kernel in read_module(str(path)):
        table = tables[kernel.name]
        rows = table.find_rows(kernel.addresses).tolist()
        for index, row in enumerate(rows):
            line = kernel.find_source_line(index)
            if line is None:
                assert row < 0 or not table.lines[row]
                continue
            assert (line.file, line.line) == (table.file_names[table.files[row]], table.lines[row])
            caller = line.inlined_at
            assert (table.callers[row] < 0) == (caller is None)
            if caller is not None:
                at = table.callers[row]
                assert (caller.file, caller.line) == (table.file_names[table.files[at]], table.lines[at])


def test_a_damaged_line_table_is_no_crash() -> None:
    data = bytearray(CUBINS[0].read_bytes())
    elf = CubinElf(bytes(data))
    section = next(one for one in elf.sections if one.name == PTX_SECTION)
    for offset in range(0, section.size, 7):
        damaged = bytearray(data)
        damaged[section.offset + offset] ^= 0xFF
        with suppress(DamagedElfError):
            read_line_tables(CubinElf(bytes(damaged)), PTX_SECTION)


@needs_tools
def test_ptx_of_a_newer_version_is_assembled_as_of_an_older_one(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "newer.ptx"
    path.write_text(re.sub(r"\.version \d+\.\d+", ".version 99.9", write(tmp_path).read_text()))
    found = report(capsys, str(path), "-g", "h100")
    assert found["kernels"][0]["has_control_codes"]
    assert "read as PTX" in found["inputs"][0]["toolchain"]


def test_without_ptxas_the_code_is_virtual_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("analyzer.frontend.ptx_assembler.find_assemblers", lambda: iter(()))
    found = report(capsys, str(write(tmp_path)), "-g", "h100")
    assert not found["kernels"][0]["has_control_codes"]
    assert "no-ptxas" in {warning["code"] for warning in found["warnings"]}


@needs_tools
@pytest.mark.parametrize(("name", "gpu"), [("sm_90/softmax", "h100"), ("sm_80/matmul", "a100")])
def test_ptx_of_triton_and_its_cubin_give_the_same_report(
    tmp_path: Path, capsys: Capture, name: str, gpu: str
) -> None:
    source = TRACES / "levels" / f"{name}.ptx"
    for suffix in (".ptx", ".json", ".ttir"):
        shutil.copy(source.with_suffix(suffix), tmp_path)
    ptx = tmp_path / source.name
    with assemble_ptx(
        str(ptx), ptx.read_bytes(), name.split("/")[0] + "a" * ("90" in name), list_assemblers(None)
    ) as made:
        shutil.copy(made.path, ptx.with_suffix(".cubin"))
    options = ("-g", gpu, "--grid", "64", "--all")
    texts = []
    for path in (ptx, ptx.with_suffix(".cubin")):
        assert run(["analyze", str(path), *options]) == 0
        texts.append(capsys.readouterr().out.splitlines())
    (note,) = [line for line in texts[0] if line not in texts[1]]
    assert note.startswith(f"{ptx}: note: compiled by ptxas ")
    assert [line for line in texts[0] if line != note] == texts[1]
    assert any("(ptx " in line for line in texts[1])
