"""What stands in for a figure when the suite that taught it is left out, and intervals from other suites."""

import msgspec
import pytest
from interval_learning import SuiteRow, judge_intervals, learn_residuals
from leaving_out import leave_out, list_unlisted_figures, load_taught
from paths import ROOT
from variant_predictions import Answer

from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.models.residuals import ErrorClass, LaunchTraits, find_error_class


def replaced(gpu: str, suite: str, *, keeps_inputs: bool = True) -> dict[str, float]:
    _, found = leave_out(load_gpu(gpu), suite, keeps_inputs=keeps_inputs)
    return {one.key: one.new for one in found}


def test_every_figure_that_measured_kernels_taught_names_its_suites() -> None:
    """A new one belongs into bench/splits/taught.toml."""
    assert list_unlisted_figures(ROOT / "hwdb") == []


def test_the_table_names_figures_that_exist() -> None:
    for figure in load_taught().figure:
        for file in figure.files:
            assert (ROOT / "hwdb" / f"{file}.toml").is_file()
        found = "\n".join((ROOT / "hwdb" / f"{file}.toml").read_text() for file in figure.files)
        assert all(f"{key.rsplit('.')[-1]} = " in found for key in figure.keys)


def test_a_figure_comes_from_the_nearest_architecture_that_the_suite_did_not_teach() -> None:
    """sm_80's and sm_75's factors came from report16 as well: sm_90's is the nearest other one."""
    assert replaced("rtx-4070", "kernels/report16")["memory.partial_write_factor"] == 2
    assert replaced("titan-rtx", "kernels/convolution")["memory.spill_dram_factor"] == 1.15


def test_a_figure_stays_while_another_suite_says_it_too() -> None:
    assert "sched.global_load.issue_cycles" not in replaced("rtx-a6000", "kernels/sgemm_cuda")
    assert replaced("rtx-2080-ti", "gemm/gemm")["sched.global_load.issue_cycles"] == 14
    assert not replaced("v100-pcie", "volta/Rodinia")


def test_clocks_are_inputs_unless_they_are_left_out_too() -> None:
    assert "clock.sustained_mhz" not in replaced("rtx-4070", "kernels/report16")
    bare = replaced("rtx-4070", "kernels/report16", keeps_inputs=False)
    assert bare["clock.sustained_mhz"] == load_gpu("rtx-4070").file.clock.boost_mhz.value
    assert bare["launch.interval_us"] == 2.65


def test_the_edited_gpu_has_the_replacements_and_nothing_else() -> None:
    gpu = load_gpu("rtx-2080-ti")
    edited, found = leave_out(gpu, "kernels/report16", keeps_inputs=True)
    before, after = collect_parameters(gpu), collect_parameters(edited)
    changed = {key for key in before if before[key].value != after[key].value}
    assert changed == {one.key for one in found if one.old != one.new}


def row(suite: str, gpu: str, ratio: float, **answer: object) -> SuiteRow:
    """A launch that took `ratio` times the predicted 100 us."""
    fields = {"predicted_us": 100.0, "bound": "DRAM", "stalls": {"wait": 1.0}, **answer}
    return SuiteRow(
        suite=suite, gpu=gpu, measured_us=100.0 * ratio, answer=msgspec.convert(fields, type=Answer)
    )


def test_intervals_are_quantiles_in_which_a_suite_counts_once() -> None:
    """Nine suites and GPUs from .9 to 1.3 by .05: levels .1 - .04 and .9 + .04, at the middles of ninths."""
    rows = [row(f"s/{n}", f"g{n}", 0.9 + 0.05 * n) for n in range(9)]
    found = learn_residuals(rows * 3 + rows[:1] * 500).classes[ErrorClass.MEMORY]
    assert found.low == pytest.approx(0.9 + 0.05 * (0.06 * 9 - 0.5), abs=0.005)
    assert found.high == pytest.approx(0.9 + 0.05 * (0.94 * 9 - 0.5), abs=0.005)


def test_neither_a_rows_suite_nor_its_gpu_gives_its_interval() -> None:
    rows = [row(f"s/{n}", f"g{n}", 1.0) for n in range(6)]
    rows += [row("s/far", "h", 2.0), row("s/far", "g", 2.0), row("s/near", "h", 2.0)]
    found = judge_intervals(rows)
    assert all(one.is_inside for one in found[:6])
    assert not found[6].is_inside  # s0 to s5 are all that speak of far on h
    assert found[6].high < found[8].high  # far on g speaks of near on h


def test_kernels_that_ran_on_another_gpu_give_nothing_either() -> None:
    rows = [row(f"s/{n}", f"g{n}", 1.0) for n in range(6)]
    rows += [row("h200/guest gemm", "h200-sxm", 2.0), row("gemm/gemm", "titan-rtx", 2.0)]
    assert not any(one.is_inside for one in judge_intervals(rows)[-2:])


def traits(**changes: object) -> LaunchTraits:
    fields = {"time_us": 100.0, "bound": "latency", "busy": {}, "stalls": {}, "guessed_share": 0.0}
    return msgspec.convert({**fields, **changes}, type=LaunchTraits)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"time_us": 19.0, "busy": {"tensor": 0.9}}, ErrorClass.SHORT),
        ({"busy": {"tensor": 0.4}, "bound": "DRAM"}, ErrorClass.TENSOR),
        ({"busy": {"tc": 0.4}}, ErrorClass.TENSOR),
        ({"busy": {"tensor": 0.2}, "bound": "L2"}, ErrorClass.MEMORY),
        ({"bound": "load/store path"}, ErrorClass.LOAD_STORE_PATH),
        ({"bound": "fma"}, ErrorClass.OTHER),
    ],
)
def test_classes(changes: dict[str, object], expected: ErrorClass) -> None:
    assert find_error_class(traits(**changes)) is expected


def test_an_interval_widens_with_what_was_guessed() -> None:
    table = learn_residuals([row(f"s/{n}", "a40", 1.0) for n in range(6)])
    stalls = {"wait": 1.0}
    low, high = table.find_factors(traits(stalls=stalls, guessed_share=1.0, time_us=50.0))
    assert (low, high) == pytest.approx((1 / 2.5, 2.5))
    assert table.find_factors(traits(stalls=stalls)) == pytest.approx((1.0, 1.0))
