"""Parameters of kernels in objects and libraries, from the cubins that cuobjdump takes out of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.frontend.binary_facts import BinaryFacts, add_facts, read_binary_facts
from analyzer.frontend.cubin_info import read_cubin
from analyzer.frontend.kernel_facts import KernelFacts
from analyzer.frontend.reader import read_module
from analyzer.frontend.tools import find_tool
from analyzer.frontend.variants import find_variant

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
    stated = read_cubin(CUBIN.read_bytes()).facts
    assert {name for _, name in kernels} == set(stated)
    for name, facts in stated.items():
        assert kernels["sm_80", name].parameters == facts.ordered_parameters()
        assert kernels["sm_80", name].parameter_base == facts.parameter_base
    assert {arch for arch, _ in kernels} == {"sm_80", "sm_86"}
    assert all(kernel.parameters is not None for kernel in kernels.values())


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for cuobjdump is a shell script")
@pytest.mark.parametrize("works", [True, False])
def test_what_cannot_be_taken_out_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    for name in ("cuobjdump", "nvdisasm"):
        tool = tmp_path / name
        copies = f"cp '{CUBIN}' image.1.sm_90a.cubin; echo taken out" if works else "exit 3"
        tool.write_text(f"#!/bin/sh\n{copies}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path), "/usr/bin", "/bin")))
    found = read_binary_facts(str(CUBIN))
    for name, facts in read_cubin(CUBIN.read_bytes()).facts.items():
        for arch in ("sm_90a", "sm_90"):
            assert find_variant(found, arch, name) == (facts if works else None)
        assert find_variant(found, "sm_80", name) is None
    assert not list(Path.cwd().glob("image.*"))


def test_of_kernels_that_are_there_twice_and_differ_nothing_is_said() -> None:
    short, long = KernelFacts(), KernelFacts()
    short.take_parameter(0, 0, 4, 0)
    long.take_parameter(0, 0, 8, 0)
    found: BinaryFacts = {}
    for name, facts in (("same", short), ("same", short), ("other", short), ("other", long)):
        add_facts(found, "sm_80", name, facts)
    assert find_variant(found, "sm_80", "same") == short
    assert find_variant(found, "sm_80", "other") is None
