"""Several PTX modules in one file, as `cuobjdump -ptx` prints them."""

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli.app import run
from analyzer.frontend.ptx_pieces import split_ptx_modules

HEADER = """
Fatbin ptx code:
================
arch = sm_{arch}
code version = [8,0]
host = linux
compile_size = 64bit
compressed
ptxasOptions =

"""
MODULE = """.version 8.0
.target sm_{arch}
.address_size 64

.visible .entry zero(.param .u64 p)
{{
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  st.global.u32 [%rd1], {arch};
  ret;
}}
"""
DUMP = "".join((HEADER + MODULE).format(arch=arch) for arch in (75, 80, 90))


def read(folder: Path, capture: pytest.CaptureFixture[str], *gpus: str) -> list[dict[str, Any]]:
    path = folder / "dump.ptx"
    path.write_text(DUMP)
    options = [part for gpu in gpus for part in ("-g", gpu)]
    assert run(["analyze", str(path), "--virtual", "--format", "json", "--listing", *options]) == 0
    found: list[dict[str, Any]] = json.loads(capture.readouterr().out)["kernels"]
    return found


def test_lines_keep_their_numbers() -> None:
    modules = split_ptx_modules(DUMP.encode())
    assert len(modules) == 3
    lines = DUMP.splitlines()
    for module in modules:
        for number, line in enumerate(module.decode().splitlines()):
            assert line in ("", lines[number])


def test_a_module_alone_is_the_file_itself() -> None:
    text = MODULE.format(arch=80).encode()
    assert split_ptx_modules(text) == (text,)
    assert split_ptx_modules(b"nothing") == (b"nothing",)


@pytest.mark.parametrize(("gpu", "arch"), [("t4", 75), ("rtx-3090", 80), ("l40s", 80), ("b200", 90)])
def test_a_gpu_takes_the_newest_module_that_fits(
    gpu: str, arch: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kernel,) = read(tmp_path, capsys, gpu)
    stored = [entry["instruction"] for entry in kernel["listing"]]
    assert any(f"{arch:#x}" in text for text in stored), stored


def test_without_a_gpu_each_module_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [kernel["architecture"] for kernel in read(tmp_path, capsys)] == ["sm_75", "sm_80", "sm_90"]
