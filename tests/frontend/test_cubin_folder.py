"""Folders of kernels: cubins read together come out as they do alone, and each kernel once with all its levels."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT, TRACES

from analyzer.cli.app import run
from analyzer.frontend.cubin_batch import MIN_FILES, read_cubins
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.disassembler import disassemble
from analyzer.frontend.input_folder import list_kernels
from analyzer.frontend.module_reader import read_module, read_modules
from analyzer.frontend.sass_parser import parse_sass
from analyzer.ir.module import Kernel, Module
from analyzer.text.errors import InputError

Capture = pytest.CaptureFixture[str]
needs_tools = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="nvdisasm is not installed here")
CACHED = ROOT / "tests" / "wild" / "09-triton-cache"
CUBINS = {
    "scale_rows": CACHED / "scale_rows.cubin",
    "softmax": TRACES / "cubin" / "softmax_sm_90.cubin",
    "matmul": TRACES / "cubin" / "matmul_one_stage_sm_90.cubin",
    "specialized": TRACES / "cubin" / "sm_100" / "matmul_specialized.cubin",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with three kernels many times, and one with a branch table."""
    found = tmp_path_factory.mktemp("cache")
    for number in range(MIN_FILES + 1):
        for name in ("scale_rows", "softmax", "matmul"):
            (found / f"{name}{number}").mkdir()
            shutil.copy(CUBINS[name], found / f"{name}{number}" / f"{name}.cubin")
    (found / "specialized").mkdir()
    shutil.copy(CUBINS["specialized"], found / "specialized" / "specialized.cubin")
    return found


def list_forms(kernel: Kernel) -> list[object]:
    return [(kernel.decode_form(row), kernel.find_source_line(row)) for row in range(len(kernel))]


@needs_tools
def test_cubins_read_together_come_out_as_alone(folder: Path) -> None:
    paths = [one.code_path for one in list_kernels(str(folder))[0]]
    read = dict(read_modules(paths, jobs=2))
    assert sorted(read) == sorted(paths)
    tables = {id(module.form_table) for module in read.values() if isinstance(module, Module)}
    assert len(tables) == 2  # the one with a branch table is read alone
    for name, path in CUBINS.items():
        number = "" if name == "specialized" else "7"
        module = read[str(folder / f"{name}{number}" / f"{name}.cubin")]
        assert isinstance(module, Module)
        (kernel,), (alone,) = module.kernels, read_module(str(path)).kernels
        assert list_forms(kernel) == list_forms(alone)
        assert kernel.control_words is not None
        assert np.array_equal(kernel.control_words, alone.control_words)
        assert (kernel.name, kernel.arch, kernel.line) == (alone.name, alone.arch, alone.line)
        assert [one.offset for one in kernel.parameters or ()] == [
            one.offset for one in alone.parameters or ()
        ]
        assert kernel.resources.registers == alone.resources.registers
        assert set(kernel.labels) <= set(alone.labels)


@needs_tools
def test_another_result_for_one_file_is_not_believed(folder: Path) -> None:
    paths = sorted(map(str, folder.glob("softmax*/softmax.cubin")))

    def read_alone(path: str) -> Module:
        chunks = (chunk.replace(b"MUFU.EX2", b"MUFU.LG2") for chunk in disassemble(path))
        return parse_sass(path, chunks)

    assert read_cubins(paths, read_alone) == {}
    assert read_cubins(paths[: MIN_FILES - 1], read_alone) == {}


def test_a_damaged_cubin_is_left_to_its_own_reader(folder: Path, tmp_path: Path) -> None:
    data = CUBINS["softmax"].read_bytes()
    paths = []
    for number in range(40):
        path = tmp_path / f"{number}.cubin"
        damaged = bytearray(data)
        damaged[number * len(data) // 40] ^= 0xFF
        path.write_bytes(damaged if number % 2 else data[: number * len(data) // 40])
        paths.append(str(path))
    called: list[str] = []

    def read_alone(path: str) -> Module:
        called.append(path)
        raise InputError("refused")

    assert read_cubins(paths, read_alone) == {}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Three kernels: with a cubin and all levels, with PTX at most, and with intermediate code alone."""
    for name, levels in (
        ("AAAA", {"cubin", "json", "ttir", "ptx", "ttgir"}),
        ("BBBB", {"ptx", "ttgir", "ttir"}),
        ("CCCC", {"ttgir", "ttir"}),
    ):
        (tmp_path / name).mkdir()
        for level in levels:
            target = tmp_path / name / f"scale_rows.{level}"
            source = CACHED / f"scale_rows.{level}"
            if source.is_file():
                shutil.copy(source, target)
            elif level == "ptx":
                text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry scale_rows()\n{\n ret;\n}\n"
                target.write_text(text)
            else:
                target.write_text("module {\n}\n")
        (tmp_path / name / "__grp__scale_rows.json").write_text("{}")
    return tmp_path


@pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None, reason="ptxas or nvdisasm is not installed"
)
def test_a_kernel_is_read_once_from_its_lowest_level(cache: Path, capsys: Capture) -> None:
    assert run(["analyze", str(cache), "-g", "h100", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(entry["format"], list(entry["levels"])) for entry in report["inputs"]] == [
        ("nvdisasm", ["cubin", "ptx", "ttgir", "ttir", "json"]),
        ("PTX", ["ptx", "ttgir", "ttir"]),
    ]
    assert report["inputs"][0]["triton"]["num_warps"] == 4
    assert len(report["inputs"][0]["triton"]["hash"]) == 64
    (warning,) = report["warnings"]
    assert (warning["code"], warning["count"]) == ("no-code", 1)
    assert "neither a cubin nor PTX" in warning["message"]
    assert run(["analyze", str(cache / "CCCC")]) == 2
    assert "warplens tasks" in capsys.readouterr().err
