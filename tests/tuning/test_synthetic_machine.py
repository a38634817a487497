"""On machines whose times are known the choice is near the oracle's, and each half of the model is not."""

import msgspec
import numpy as np
import pytest
from discrete_events import measure_step_share, simulate_gaussian_grids, simulate_grids
from synthetic_machine import draw_machine

from analyzer.hardware.gpu_database import load_gpu
from analyzer.tuning.chooser import Chooser
from analyzer.tuning.kernel_space import find_kernel
from analyzer.tuning.plan import PlanOptions, make_plan
from analyzer.tuning.wave_model import FitOptions, FitVariant, fit

KERNEL = find_kernel("flash_attention")
VALUES = {"BLOCK_M": (64, 128, 256), "BLOCK_N": (32, 64), "num_warps": (4, 8), "num_stages": (1, 2, 3)}


@pytest.mark.parametrize("seed", [0, 1])
def test_the_choice_reaches_99_percent_of_the_oracle(seed: int) -> None:
    machine = msgspec.structs.replace(draw_machine(seed), n_sms=132)
    plan = make_plan(
        KERNEL, load_gpu("h100"), PlanOptions(waves=20, intervals=3, heads=(16, 64), values=VALUES)
    )
    samples = machine.measure(plan.samples, noise=0.02, seed=seed)
    draw = np.random.default_rng(seed)
    lengths = np.exp(draw.uniform(np.log(64), np.log(16_384), 800)).astype(np.int64)
    shapes = np.column_stack([np.ones(800, np.int64), draw.choice([16, 32, 64, 128], 800), lengths, lengths])
    configs = np.unique(np.concatenate([samples.macros, samples.micros], axis=1), axis=0)

    def time(config: np.ndarray) -> np.ndarray:
        rows = np.broadcast_to(config, (len(shapes), 4))
        return machine.compute_times(KERNEL.space, shapes, rows[:, :2], rows[:, 2:])

    oracle = np.min([time(config) for config in configs], axis=0)
    share = {}
    for variant in (FitVariant.WAVETUNE, FitVariant.LINEAR, FitVariant.STEP):
        chooser = Chooser(fit(samples, 132, FitOptions(variant=variant)).pack())
        chosen = chooser.list_configs(chooser.choose_batch(shapes))
        taken = machine.compute_times(KERNEL.space, shapes, chosen[:, :2], chosen[:, 2:])
        share[variant] = float(np.exp(np.log(oracle / taken).mean()))
    assert share[FitVariant.WAVETUNE] > 0.99
    assert share[FitVariant.LINEAR] < 0.97
    assert share[FitVariant.STEP] < 0.92


def test_blocks_start_on_the_sm_that_is_free_first() -> None:
    assert simulate_grids(np.array([5.0, 1.0, 1.0, 1.0, 9.0]), 2).tolist() == [5.0, 5.0, 5.0, 5.0, 12.0]


def test_equal_blocks_are_a_staircase() -> None:
    times = simulate_gaussian_grids(132, 5, mean=50.0, deviation=0.0)
    assert times.tolist() == [50.0 * (block // 132 + 1) for block in range(660)]
    assert measure_step_share(times, 132) == pytest.approx(1.0)


def test_variance_wears_steps_down_to_a_line() -> None:
    shares = [
        measure_step_share(
            simulate_gaussian_grids(132, 20, mean=50.0, deviation=variance**0.5, repeats=8), 132
        )
        for variance in (1.0, 10.0, 50.0)
    ]
    first = [share[0] for share in shares]
    last = [share[-5:].mean() for share in shares]
    assert first == sorted(first, reverse=True)
    assert last == sorted(last, reverse=True)
    assert all(share[0] > share[-5:].mean() for share in shares)
    assert last[-1] < 0.05  # of a line 1 / 132
