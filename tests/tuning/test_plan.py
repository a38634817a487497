"""Plans cover the axis of grids wave by wave, and their inputs have the grids that they stand for."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_gpu
from analyzer.text.errors import UsageError
from analyzer.tuning.kernel_space import find_kernel
from analyzer.tuning.plan import PlanOptions, list_head_grids, list_intervals, list_product_grids, make_plan

H100 = load_gpu("h100")


@given(n_sms=st.integers(1, 200), waves=st.integers(1, 12), intervals=st.integers(1, 8))
def test_sub_intervals_cover_all_waves_without_overlap(n_sms: int, waves: int, intervals: int) -> None:
    covered = []
    for wave, _, first, last in list_intervals(n_sms, waves, intervals):
        assert (wave - 1) * n_sms < first <= last <= wave * n_sms
        covered += range(first, last + 1)
    assert covered == list(range(1, waves * n_sms + 1))


@given(n_sms=st.integers(8, 170), waves=st.integers(1, 30), aspect=st.sampled_from([1.0, 1.1, 1.5, 4.0]))
def test_a_grid_is_the_largest_nearly_square_one(n_sms: int, waves: int, aspect: float) -> None:
    grids = {(g.wave, g.interval): g for g in list_product_grids(n_sms, waves, 4, aspect)}
    for wave, interval, first, last in list_intervals(n_sms, waves, 4):
        square = [
            m * n
            for m in range(1, int(last**0.5) + 1)
            for n in range(max(m, -(-first // m)), min(last // m, int(aspect * m + 1e-9)) + 1)
        ]
        grid = grids[wave, interval]
        assert first <= grid.blocks <= last
        assert grid.rows <= grid.columns
        if square:
            assert grid.blocks == max(square)


@given(n_sms=st.integers(8, 170), waves=st.integers(1, 20), heads=st.integers(1, 64))
def test_a_grid_of_attention_is_the_largest_multiple_of_the_heads(n_sms: int, waves: int, heads: int) -> None:
    grids = {(g.wave, g.interval): g.blocks for g in list_head_grids(n_sms, waves, 3, heads)}
    for wave, interval, first, last in list_intervals(n_sms, waves, 3):
        multiples = [g for g in range(first, last + 1) if g % heads == 0]
        assert grids.get((wave, interval)) == (multiples[-1] if multiples else None)


def test_inputs_of_a_product_fill_the_tiles_of_their_grid() -> None:
    kernel = find_kernel("gemm")
    plan = make_plan(kernel, H100, PlanOptions(waves=3, intervals=2, anchors=(1000.0, 4096.0)))
    grid, loops = plan.samples.map_inputs()
    assert (-(-grid // 132) == plan.waves).all()
    tiles = plan.samples.macros
    assert not (plan.samples.shapes % tiles).any()
    assert set((loops * tiles[:, 2]).tolist()) == {1024, 4096}  # 1000 is rounded up to whole tiles
    assert np.isnan(plan.samples.time_us).all()


def test_equation_7_counts_what_is_planned_before_configurations_are_left_out() -> None:
    kernel = find_kernel("flash_attention")
    plan = make_plan(kernel, H100, PlanOptions(waves=2, intervals=3, heads=(16, 32)))
    assert plan.n_profile == plan.n_grids * 5 * prod(map(len, kernel.macro_values + kernel.micro_values))
    n_left_out = sum(plan.obstacles.values())
    assert len(plan.samples) == plan.n_grids * 5 * (plan.n_configs - n_left_out)
    assert n_left_out > 0


def test_keys_of_attention_are_multiples_of_its_queries() -> None:
    plan = make_plan(find_kernel("flash_attention"), H100, PlanOptions(waves=4, heads=(16,)))
    queries, keys = plan.samples.shapes[:, 2:].T
    tile = plan.samples.macros[:, 1]
    assert (keys >= queries).all()
    assert (keys < 3 * queries + tile).all()
    assert (keys[4::5] >= 3 * queries[4::5]).all()


@pytest.mark.parametrize(
    "options",
    [
        PlanOptions(waves=0),
        PlanOptions(intervals=100),
        PlanOptions(max_aspect=0.5),
        PlanOptions(anchors=(-1.0,)),
        PlanOptions(heads=(0,)),
        PlanOptions(values={"TILE": (1,)}),
        PlanOptions(waves=1000, intervals=64),
        PlanOptions(values={"num_warps": (64,)}),
    ],
)
def test_options_that_make_no_plan_are_an_error(options: PlanOptions) -> None:
    kernel = find_kernel("flash_attention" if options.heads == (0,) else "gemm")
    with pytest.raises(UsageError):
        make_plan(kernel, H100, options)
