"""The fast choice is the brute force over the fitted model, one by one and in batch."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_machine import draw_machine
from tuning_cases import N_SMS, make_samples, map_input, rise_by_waves

from analyzer.hardware.gpu_database import load_gpu
from analyzer.text.errors import UsageError
from analyzer.tuning.chooser import Chooser
from analyzer.tuning.kernel_space import find_kernel
from analyzer.tuning.plan import PlanOptions, make_plan
from analyzer.tuning.wave_model import WaveTables, fit

RANGES = {
    "gemm": ((1, 200_000), (1, 70_000), (1, 70_000)),
    "grouped_gemm": ((1, 5000), (1, 70), (1, 8), (1, 8000), (1, 8000)),
    "flash_attention": ((1, 40), (1, 64), (1, 20_000), (1, 20_000)),
}
VALUES = {
    "BLOCK_SIZE_M": (16, 48, 128),
    "BLOCK_SIZE_N": (64, 96),
    "BLOCK_SIZE_K": (32, 64),
    "GROUP_SIZE_M": (1,),
}


@cache
def fit_machine(kernel_name: str) -> tuple[WaveTables, Chooser]:
    """Tables of a synthetic machine with the H100's SMs, three waves profiled."""
    kernel = find_kernel(kernel_name)
    held = {
        name: v
        for name, v in VALUES.items()
        if name in (*kernel.space.macro_parameters, *kernel.space.micro_parameters)
    }
    plan = make_plan(kernel, load_gpu("h100"), PlanOptions(waves=3, intervals=3, values=held, heads=(8,)))
    tables = fit(draw_machine(1).measure(plan.samples, noise=0.03, seed=1), 132)
    return tables, Chooser(tables.pack())


@pytest.mark.parametrize("kernel_name", RANGES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_choice_is_the_brute_force_over_the_model(kernel_name: str, data: st.DataObject) -> None:
    tables, chooser = fit_machine(kernel_name)
    shape = tuple(data.draw(st.integers(*bounds)) for bounds in RANGES[kernel_name])
    times, micros = [], []
    for number, macro in enumerate(tables.macros.tolist()):
        grid, loops = map_input(tables.space, shape, macro)
        row = min(-(-grid // 132), tables.max_wave + 1) - 1
        alpha, beta, gamma, delta = (float(c) for c in tables.coefficients[number, row].astype(np.float32))
        times.append((alpha * loops + beta) * grid + (gamma * loops + delta))
        anchors = tables.anchors[number, row].tolist()
        nearest = min(range(len(anchors)), key=lambda at: abs(anchors[at] - loops))
        micros.append(tables.micros[tables.micro_ids[number, row, nearest]].tolist())
    best = int(np.argmin(times))
    wanted = [*tables.macros[best].tolist(), *micros[best]]
    assert list(chooser.choose(*shape).values()) == wanted
    batch = chooser.choose_batch(np.array([shape]))
    assert chooser.list_configs(batch)[0].tolist() == wanted
    assert batch.time_us[0] == times[best]


@pytest.mark.parametrize("kernel_name", RANGES)
def test_a_batch_is_its_choices_one_by_one(kernel_name: str) -> None:
    chooser = fit_machine(kernel_name)[1]
    draw = np.random.default_rng(3)
    shapes = np.column_stack([draw.integers(low, high, 3000) for low, high in RANGES[kernel_name]])
    configs = chooser.list_configs(chooser.choose_batch(shapes)).tolist()
    assert [list(chooser.choose(*shape).values()) for shape in shapes.tolist()] == configs


def test_a_held_choice_is_the_same_within_and_beyond_its_table() -> None:
    chooser = fit_machine("gemm")[1]
    choose = chooser.fix(n=4096, k=1024, up_to=300)
    for m in (1, 16, 17, 299, 300, 301, 5000):
        assert choose(m) == chooser.choose(m, 4096, 1024)
    with pytest.raises(UsageError, match="fix takes n, k"):
        chooser.fix(n=1)


def test_ranked_configurations_begin_with_the_choice() -> None:
    chooser = fit_machine("gemm")[1]
    ranked = chooser.rank((1000, 1000, 1000))
    assert chooser.list_configs(ranked)[0].tolist() == list(chooser.choose(1000, 1000, 1000).values())
    assert (np.diff(ranked.time_us) >= 0).all()
    assert sorted(ranked.macro_ids.tolist()) == list(range(len(ranked.macro_ids)))


def test_a_loop_count_takes_the_micro_configuration_of_the_nearest_anchor() -> None:
    samples = make_samples(
        rise_by_waves,
        micros=(1, 4),
        micro_factor=lambda warps, loops: np.where((loops < 5) == (warps == 1), 1, 2),
    )
    choose = Chooser(fit(samples, N_SMS).pack()).choose
    # anchors 2, 8, 32 of 16 each: the midpoint 5 goes to the lower one
    assert [choose(16, 16, loops * 16)["warps"] for loops in (1, 5, 6, 100)] == [1, 1, 4, 4]


def test_a_choice_cannot_be_changed_by_its_user() -> None:
    config = fit_machine("gemm")[1].choose(1, 2, 3)
    with pytest.raises(TypeError):
        config["num_warps"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("kernel_name", "shape"),
    [
        ("gemm", (1, 2)),
        ("gemm", (0, 2, 3)),
        ("gemm", (1, -16, 3)),
        ("gemm", (1, 2, 0)),
        ("gemm", (1, 1 << 60, 3)),
        ("grouped_gemm", (1, 0, 2, 64, 64)),
        ("grouped_gemm", (0, 8, 2, 64, 64)),
        ("flash_attention", (1, 0, 64, 64)),
        ("flash_attention", (-1, -8, 64, 64)),
    ],
)
def test_inputs_out_of_range_are_an_error(kernel_name: str, shape: tuple[int, ...]) -> None:
    chooser = fit_machine(kernel_name)[1]
    with pytest.raises(UsageError):
        chooser.choose(*shape)
    if len(shape) > 2 and min(shape) < 1:
        with pytest.raises(UsageError):
            chooser.choose_batch(np.array([shape]))
