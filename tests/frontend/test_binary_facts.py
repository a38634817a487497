"""Parameters of kernels in objects and libraries, from the cubins that cuobjdump takes out of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.frontend.arch_lookup import find_arch_entry
from analyzer.frontend.binary_metadata import BinaryMetadata, merge_metadata, read_binary_metadata
from analyzer.frontend.cubin_info import parse_cubin
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.kernel_metadata import KernelMetadata
from analyzer.frontend.module_reader import read_module

FOLDER = Path(__file__).parent / "launch_facts"
CUBIN = FOLDER / "launch_facts.sm_80.cubin"


@pytest.mark.skipif(
    shutil.which("nvcc") is None or find_tool("cuobjdump") is None or find_tool("nvdisasm") is None,
    reason="nvcc, cuobjdump or nvdisasm is not installed here",
)
@pytest.mark.parametrize("target", [["-shared", "-Xcompiler", "-fPIC"], ["-fatbin"], ["-c"]])
def test_a_library_says_as_much_as_its_cubins(tmp_path: Path, target: list[str]) -> None:
    made = tmp_path / "made.bin"
    images = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_86,code=sm_86"]
    source = str(FOLDER / "launch_facts.cu")
    subprocess.run(["nvcc", *images, *target, "-o", str(made), source], check=True, capture_output=True)
    kernels = {(kernel.arch, kernel.name): kernel for kernel in read_module(str(made)).kernels}
    stated = parse_cubin(CUBIN.read_bytes()).metadata
    assert {name for _, name in kernels} == set(stated)
    for name, facts in stated.items():
        assert kernels["sm_80", name].parameters == facts.build_parameter_list()
        assert kernels["sm_80", name].parameter_base == facts.parameter_base
    assert {arch for arch, _ in kernels} == {"sm_80", "sm_86"}
    assert all(kernel.parameters is not None for kernel in kernels.values())


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for cuobjdump is a shell script")
@pytest.mark.parametrize("works", [True, False])
def test_what_cannot_be_taken_out_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_installed_tools: None, works: bool
) -> None:
    for name in ("cuobjdump", "nvdisasm"):
        tool = tmp_path / name
        copies = f"cp '{CUBIN}' image.1.sm_90a.cubin; echo taken out" if works else "exit 3"
        tool.write_text(f"#!/bin/sh\n{copies}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path), "/usr/bin", "/bin")))
    found = read_binary_metadata(str(CUBIN))
    for name, facts in parse_cubin(CUBIN.read_bytes()).metadata.items():
        for arch in ("sm_90a", "sm_90"):
            assert find_arch_entry(found, arch, name) == (facts if works else None)
        assert find_arch_entry(found, "sm_80", name) is None
    assert not list(Path.cwd().glob("image.*"))


def test_of_kernels_that_are_there_twice_and_differ_nothing_is_said() -> None:
    short, long = KernelMetadata(), KernelMetadata()
    short.add_parameter(0, 0, 4, 0)
    long.add_parameter(0, 0, 8, 0)
    found: BinaryMetadata = {}
    for name, facts in (("same", short), ("same", short), ("other", short), ("other", long)):
        merge_metadata(found, "sm_80", name, facts)
    assert find_arch_entry(found, "sm_80", "same") == short
    assert find_arch_entry(found, "sm_80", "other") is None
