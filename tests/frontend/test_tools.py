"""The search for CUDA's tools, and what their failures turn into."""

import os
import subprocess
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest
from paths import TRACES

from analyzer.frontend import cuda_tools
from analyzer.frontend.cuda_tools import (
    find_all_tools,
    find_tool,
    find_tools,
    make_tool_environment,
    query_version,
)
from analyzer.frontend.disassembler import disassemble, read_binary_resource_usage
from analyzer.text.errors import InputError, ToolError

CUBIN = str(TRACES / "cubin" / "softmax_sm_90.cubin")
NEEDS_SHELL = pytest.mark.skipif(sys.platform == "win32", reason="stand-ins for the tools are shell scripts")
pytestmark = NEEDS_SHELL


def _tool(folder: Path, name: str, script: str) -> None:
    """A stand-in for a tool, as a shell script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_installed_tools: None) -> Path:
    """An empty folder first on PATH; only the shell is behind it, and no CUDA is configured."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join((str(folder), "/usr/bin", "/bin")))
    return folder


@pytest.fixture
def no_tools(bare: Path) -> Path:
    """The same where nothing else brings a tool."""
    if find_tool("nvdisasm") is not None or find_tool("cuobjdump") is not None:
        pytest.skip("this machine has CUDA tools outside PATH")
    return bare


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_path_comes_before_the_cuda_folders(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tool(tmp_path / "cuda" / "bin", "nvdisasm", "exit 0")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    found = find_tool("nvdisasm")
    assert found is not None
    assert (found.found_in, found.folder) == ("CUDA_HOME", str(tmp_path / "cuda" / "bin"))
    _tool(bare, "nvdisasm", "exit 0")
    found = find_tool("nvdisasm")
    assert found is not None
    assert (found.found_in, found.folder) == ("PATH", str(bare))


def test_finding_starts_no_process(bare: Path) -> None:
    _tool(bare, "cuobjdump", f"touch {bare}/was-started")
    found = find_tool("cuobjdump")
    assert found is not None
    assert found.version == ""
    assert not (bare / "was-started").exists()


def test_version_is_read_when_asked(bare: Path) -> None:
    _tool(bare, "cuobjdump", "echo 'Cuda compilation tools, release 13.1, V13.1.80'")
    _tool(bare, "nvdisasm", "exit 3")
    _tool(bare, "ptxas", "echo 'release 12.8, V12.8.93'")
    assert [(tool.name, tool.version) for tool in find_all_tools()] == [
        ("cuobjdump", "13.1.80"),
        ("nvdisasm", ""),
        ("ptxas", "12.8.93"),
    ]


def test_cuobjdump_finds_an_nvdisasm_that_lies_elsewhere(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tool(bare, "cuobjdump", "nvdisasm")
    _tool(tmp_path / "cuda" / "bin", "nvdisasm", "echo called")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "cuda"))
    dumper = find_tool("cuobjdump")
    assert dumper is not None
    done = subprocess.run([dumper.path], env=make_tool_environment(dumper), capture_output=True, check=True)
    assert done.stdout == b"called\n"


def test_a_file_that_is_a_folder_or_not_executable_is_no_tool(no_tools: Path) -> None:
    (no_tools / "nvdisasm").mkdir()
    (no_tools / "cuobjdump").write_text("")
    assert find_tool("nvdisasm") is None
    assert find_tool("cuobjdump") is None


def test_a_missing_tool_says_how_to_get_it(no_tools: Path) -> None:
    with pytest.raises(ToolError, match="nvdisasm is not found") as caught:
        disassemble(CUBIN)
    assert "pip install nvidia-cuda-cuobjdump" in caught.value.diagnostic.hint
    with pytest.raises(ToolError, match="cuobjdump is not found"):
        read_binary_resource_usage(CUBIN)


@pytest.mark.usefixtures("bare")
def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        disassemble(str(tmp_path / "absent.cubin"))


def test_lines_come_with_labels_when_nvdisasm_can(bare: Path) -> None:
    _tool(bare, "nvdisasm", 'echo "$1 $2 $3"')
    assert b"".join(disassemble(CUBIN)) == b"-c -hex -gi\n"


def test_falls_back_when_nvdisasm_fails_or_prints_nothing(bare: Path) -> None:
    _tool(bare, "nvdisasm", '[ "$3" = -gi ] && { echo "nvdisasm fatal : no lines" >&2; exit 1; }; echo "$*"')
    assert b"".join(disassemble(CUBIN)) == f"-c -hex {CUBIN}\n".encode()
    _tool(bare, "nvdisasm", "exit 0")
    _tool(bare, "cuobjdump", 'echo "$1"')
    assert b"".join(disassemble(CUBIN)) == b"-sass\n"


def test_a_failure_is_one_clear_error(bare: Path) -> None:
    says = "echo 'nvdisasm fatal   : CUDA architecture \"SM70\" is deprecated' >&2; exit 1"
    _tool(bare, "nvdisasm", says)
    _tool(bare, "cuobjdump", says)
    with pytest.raises(
        ToolError, match=r'softmax_sm_90.cubin: CUDA architecture "SM70" is deprecated'
    ) as caught:
        list(disassemble(CUBIN))
    assert "triton==3.4.0" in caught.value.diagnostic.hint
    assert "WARPLENS_TOOLS" in caught.value.diagnostic.hint


def _release(number: str, script: str) -> str:
    """A stand-in for a tool of a CUDA release."""
    return f'[ "$1" = --version ] && {{ echo "release {number[:4]}, V{number}"; exit 0; }}\n{script}'


def test_the_newest_disassembler_goes_first(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for number in ("12.8.55", "13.10.2", "13.5.37"):
        folders.append(tmp_path / number)
        _tool(folders[-1], "nvdisasm", _release(number, f"echo {number}"))
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (*folders, "/usr/bin", "/bin"))))
    assert [tool.version for tool in find_tools("nvdisasm")] == ["13.10.2", "13.5.37", "12.8.55"]
    assert b"".join(disassemble(CUBIN)) == b"13.10.2\n"
    monkeypatch.setenv("WARPLENS_TOOLS", str(folders[0]))
    assert b"".join(disassemble(CUBIN)) == b"12.8.55\n"


def test_an_older_release_prints_what_the_newest_has_dropped(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 13.5 does: nvdisasm refuses sm_70 at once, cuobjdump after a heading."""
    refuses = "echo 'nvdisasm fatal : CUDA architecture \"SM70\" is deprecated.' >&2; exit 255"
    _tool(bare, "nvdisasm", _release("13.5.37", refuses))
    _tool(bare, "cuobjdump", _release("13.5.37", f"echo 'code for sm_70'; {refuses}"))
    old = tmp_path / "triton" / "backends" / "nvidia" / "bin"
    _tool(old, "nvdisasm", _release("12.8.55", "echo old nvdisasm"))
    _tool(old, "cuobjdump", _release("12.8.55", "echo old cuobjdump"))
    (tmp_path / "triton" / "__init__.py").touch()
    spec = spec_from_file_location("triton", tmp_path / "triton" / "__init__.py")
    monkeypatch.setattr(cuda_tools, "find_spec", lambda name: spec if name == "triton" else None)
    assert b"".join(disassemble(CUBIN)) == b"old nvdisasm\n"
    assert b"".join(disassemble("/bin/sh", archs=("sm_70",))) == b"old cuobjdump\n"
    assert b"".join(disassemble("/bin/sh", archs=("sm_70", "sm_90"))) == 2 * b"old cuobjdump\n"


def test_a_failure_half_way_is_not_hidden(bare: Path) -> None:
    _tool(bare, "nvdisasm", "yes half | head -c 1000000; kill -9 $$")
    chunks = disassemble(CUBIN)
    assert next(chunks).startswith(b"half\n")
    with pytest.raises(ToolError, match="nvdisasm was killed"):
        list(chunks)


def test_a_reader_that_stops_leaves_no_process(bare: Path) -> None:
    _tool(bare, "nvdisasm", "echo $$; exec yes")
    chunks = disassemble(CUBIN)
    pid = int(next(chunks).partition(b"\n")[0])
    assert _is_running(pid) or sys.platform != "linux"
    chunks.close()  # type: ignore[attr-defined]
    assert not _is_running(pid)


def test_each_architecture_of_a_library_is_read_for_itself(bare: Path) -> None:
    """cuobjdump gives up a whole file at the first image that it cannot read."""
    _tool(bare, "nvdisasm", "exit 0")
    _tool(
        bare,
        "cuobjdump",
        '[ "$3" = sm_70 ] && { echo "cuobjdump fatal : sm_70 is not defined for option" >&2; exit 1; }\n'
        'echo "$3"',
    )
    refused: list[str] = []
    archs = ("sm_60", "sm_70", "sm_90a", "sm_90", "sm_100f")
    assert b"".join(disassemble("/bin/sh", archs=archs, refused=refused)) == b"sm_90\nsm_100\n"
    assert [text.partition(" ")[0] for text in refused] == ["sm_70"]
    with pytest.raises(ToolError, match="sm_70"):
        list(disassemble("/bin/sh", archs=archs))


def test_version_of_a_tool_that_does_not_start(bare: Path) -> None:
    _tool(bare, "nvdisasm", "exit 0")
    found = find_tool("nvdisasm")
    assert found is not None
    Path(found.path).unlink()
    assert query_version(found) == found
