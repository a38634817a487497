"""Execution of real kernels comes to the closed forms of their algorithms, to the last digit."""

import shutil
import subprocess
from pathlib import Path

import pytest
from exactness import CASES, Case, run_case
from paths import TRACES

import analyzer
from analyzer.execution.profile.provenance import Provenance
from analyzer.frontend.cuda_tools import find_tool, make_tool_environment
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.pipeline.launch_execution import execute_kernel

HAS_TOOLS = find_tool("cuobjdump") is not None and find_tool("nvdisasm") is not None
NO_TOOLS = "cuobjdump and nvdisasm are not installed here"


@pytest.mark.parametrize("case", sorted(CASES, key=lambda case: case.path), ids=str)
def test_closed_forms(case: Case) -> None:
    if case.is_binary and not HAS_TOOLS:
        pytest.skip(NO_TOOLS)
    assert run_case(case).failures == []


@pytest.mark.skipif(not HAS_TOOLS, reason=NO_TOOLS)
def test_a_role_that_is_looked_up_is_unknown_without_the_table(tmp_path: Path) -> None:
    """A dump of the cubin has neither the table nor the constant bank that chooses from it."""
    cubin = TRACES / "cubin" / "sm_100" / "matmul_specialized.cubin"
    dump = tmp_path / "matmul_specialized.sass"
    tool = find_tool("cuobjdump")
    assert tool is not None
    with dump.open("wb") as file:
        subprocess.run(
            [tool.path, "-sass", str(cubin)], env=make_tool_environment(tool), stdout=file, check=True
        )
    shutil.copy(cubin.with_suffix(".json"), tmp_path)
    (kernel,) = analyzer.load(str(dump)).kernels
    resources = kernel.kernel.resources
    assert resources.block_threads is not None
    launch = Launch(
        grid=Dim3(148),
        block=Dim3(resources.block_threads),
        dynamic_shared_bytes=resources.dynamic_shared_bytes,
        arguments=tuple(Argument(name, 256) for name in "mnk"),
    )
    found = execute_kernel(kernel, launch, step_limit=10_000)
    assert found is not None
    assert found.profile.provenance is Provenance.UNKNOWN
    assert any(
        "constant bank 2" in branch.origin and "give the cubin" in branch.origin
        for branch in found.profile.unknown_branches
    )
    shutil.copy(cubin, tmp_path)
    (kernel,) = analyzer.load(str(dump)).kernels
    found = execute_kernel(kernel, launch, step_limit=10_000)
    assert found is not None
    assert found.profile.provenance is Provenance.EXACT
