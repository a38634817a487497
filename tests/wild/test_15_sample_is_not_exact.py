"""Counts that are called exact equal those of all CTAs, executed one by one."""

from pathlib import Path

import pytest

from analyzer import analyze
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import load
from analyzer.pipeline.options import Options
from analyzer.render.count_provenance import make_counts_line

FOLDER = Path(__file__).parent / "15-sample"
GRIDS = (Dim3(300), Dim3(16, 20))
KERNELS = ("hashed", "alternating", "divided", "quotients", "odd")


def execute(arch: int, kernel: str, grid: Dim3, max_warps: int) -> ExecutionProfile:
    arguments = (parse_argument("1=7"),) if kernel == "odd" else ()
    loaded = load(str(FOLDER / f"hashed_{arch}.sass"))[kernel]
    launch = Launch(grid=grid, block=Dim3(64), arguments=arguments)
    found = execute_kernel(loaded, launch, max_warps=max_warps)
    assert found is not None
    return found.profile


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("arch", [80, 90])
def test_exact_counts_of_few_ctas_are_those_of_all(arch: int, kernel: str) -> None:
    for grid in GRIDS:
        truth = execute(arch, kernel, grid, max_warps=1 << 30)
        assert truth.n_sampled_ctas == grid.count
        sampled = execute(arch, kernel, grid, max_warps=1)
        for block, provenance in enumerate(sampled.block_provenance):
            if provenance is Provenance.EXACT:
                assert sampled.block_executions[block] == truth.block_executions[block]
                assert sampled.block_active_lanes[block] == truth.block_active_lanes[block]
        all_accesses = {(access.row, access.space): access for access in truth.accesses}
        for access in sampled.accesses:
            if access.provenance is not Provenance.EXACT:
                continue
            other = all_accesses[access.row, access.space]
            assert (access.requests, access.lanes, access.sectors) == (
                other.requests,
                other.lanes,
                other.sectors,
            )
            assert access.unique_bytes in (None, other.unique_bytes)


def test_even_kernels_are_still_proven_by_few_ctas() -> None:
    """Few CTAs that differ in a known way stay cheap: one with a loop of its own among many."""
    profile = execute(90, "odd", Dim3(3000), max_warps=1)
    assert profile.n_sampled_ctas < 100
    assert not profile.is_sample
    assert profile.provenance is Provenance.EXACT


def test_words_on_a_sample_agree() -> None:
    """A grid that is too much to execute, whose CTAs differ by a hash, rests on a sample and says so."""
    options = Options(
        kernels=("hashed",), launch=Launch(grid=Dim3(3000), block=Dim3(64)), step_limit=200, models=("warp",)
    )
    kernel = analyze(str(FOLDER / "hashed_90.sass"), "h100", options=options).kernels[0]
    assert kernel.counts.provenance == "assumed"
    assert kernel.counts.is_sample
    assert "rest on a sample of the grid" in make_counts_line(kernel).plain
    assert "the others assumed to be like them" in make_counts_line(kernel).plain
    assert all(block.provenance == "assumed" for block in kernel.counts.blocks)
    assert any("assumed to be like them" in note for note in kernel.counts.assumptions)
