"""Grids in which many CTAs leave at once, too large to execute: those that work stand for those that work."""

from pathlib import Path

import numpy as np
import pytest

from analyzer.ir.arrays import IntArray
from analyzer.pipeline.analysis import analyze
from analyzer.pipeline.options import Options
from analyzer.pipeline.python_launch import Launch
from analyzer.report.analyze_schema import KernelReport

KERNEL = Path(__file__).parents[2] / "traces" / "triton" / "sm_80" / "fused_moe.sass"
BLOCK_M, BLOCK_N, TOP_K, SHARED_BYTES = 32, 64, 2, 24576  # as it was compiled (fused_moe.json)
EXPERTS, TILES_PER_EXPERT, WIDTH, DEPTH = 16, 8, 512, 1024
N_TILES = EXPERTS * TILES_PER_EXPERT
FEW_STEPS = 3200  # of abstract execution: a sample of CTAs is all that they allow
TOLERANCE = 0.03


def report(tiles_m: int, used_tiles: int, places: IntArray, step_limit: int) -> KernelReport:
    """Analyze a launch over `tiles_m` blocks of rows, the first `used_tiles` of which are in the list.

    places: blocks that have an expert.
    """
    experts = np.full(tiles_m, -1, dtype=np.int32)
    experts[places] = np.repeat(np.arange(EXPERTS, dtype=np.int32), TILES_PER_EXPERT)
    slots = np.full((tiles_m, BLOCK_M), N_TILES * BLOCK_M, dtype=np.int32)
    slots[places] = np.arange(N_TILES * BLOCK_M).reshape(N_TILES, BLOCK_M)
    values = [
        "ptr", "ptr", "ptr", "ptr", slots.reshape(-1), experts, np.array([used_tiles * BLOCK_M], dtype=np.int32),
        WIDTH, DEPTH, N_TILES * BLOCK_M, DEPTH, WIDTH * DEPTH, DEPTH, WIDTH,
    ]  # fmt: skip
    launch = Launch(
        grid=tiles_m * WIDTH // BLOCK_N,
        block=128,
        arguments=dict(enumerate(values)),
        dynamic_shared_bytes=SHARED_BYTES,
        timing="kernel",
    )
    options = Options(models=("sm",), is_brief=True, step_limit=step_limit)
    return analyze(str(KERNEL), "a100-80gb-sxm", launch=launch, options=options).kernels[0]


@pytest.fixture(scope="module")
def working_alone() -> KernelReport:
    return report(N_TILES, N_TILES, np.arange(N_TILES), 100_000)


TILES_M = 4 * N_TILES
LAST = (N_TILES, np.arange(N_TILES))  # the others lie behind the list's end
BETWEEN = (TILES_M, np.sort(np.random.default_rng(7).permutation(TILES_M)[:N_TILES]))  # they have no expert


@pytest.mark.parametrize(("used_tiles", "places"), [LAST, BETWEEN], ids=["last", "between"])
def test_sampled_grid_with_idle_ctas_takes_as_long_as_the_ctas_that_work(
    working_alone: KernelReport, used_tiles: int, places: IntArray
) -> None:
    sampled = report(TILES_M, used_tiles, places, FEW_STEPS)
    assert sampled.counts.is_sample
    expected = working_alone.predictions[0].time_us
    assert sampled.predictions[0].time_us == pytest.approx(expected, rel=TOLERANCE)
    loop, alone = (
        max(one.counts.blocks, key=lambda b: b.executed_per_warp) for one in (sampled, working_alone)
    )
    assert loop.executed_warps == pytest.approx(alone.executed_warps, rel=0.001)
