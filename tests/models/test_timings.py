"""The three times of a launch: from launch to launch, of the kernel alone, and Nsight Compute's."""

import json
from pathlib import Path

import pytest
from paths import TRACES

import analyzer
from analyzer.cli.app import run
from analyzer.hardware.gpu_database import load_gpu
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import PredictionEntry
from analyzer.text.errors import UsageError

DUMP = str(TRACES / "cuda" / "sm_80" / "report16.sass")
VECTOR_ADD = Options(kernels=("vector_add",))
BLOCK = 128


def predict(gpu: str, timing: str | None, n_ctas: int) -> PredictionEntry:
    arguments = ("ptr", "ptr", "ptr", n_ctas * BLOCK)
    launch = analyzer.Launch(grid=n_ctas, block=BLOCK, arguments=arguments, timing=timing)
    return analyzer.analyze(DUMP, gpu, launch=launch, options=VECTOR_ADD).kernels[0].predictions[0]


def test_a_tiny_launch_differs_by_what_the_launch_takes() -> None:
    costs = load_gpu("h800-sxm").file.launch
    assert costs.interval_us is not None
    interval, kernel, ncu = (predict("h800-sxm", timing, 1).time_us for timing in (None, "kernel", "ncu"))
    assert interval == pytest.approx(
        costs.interval_us.value
    )  # the kernel is over before the next one can come
    assert costs.overhead_us.value < kernel < interval < ncu
    assert ncu - kernel == pytest.approx(costs.interval_us.value - costs.overhead_us.value)


def test_a_long_launch_takes_as_long_by_each_convention() -> None:
    interval, kernel, ncu = (
        predict("h800-sxm", timing, 400_000).time_us for timing in (None, "kernel", "ncu")
    )
    assert interval == pytest.approx(kernel)
    assert ncu == pytest.approx(kernel, rel=0.01)


def test_a_kernels_own_time_is_shorter_where_only_the_period_in_a_stream_is_known() -> None:
    costs = load_gpu("a40").file.launch
    assert costs.kernel_us is not None
    apart = predict("a40", None, 400_000).time_us - predict("a40", "kernel", 400_000).time_us
    assert apart == pytest.approx(costs.overhead_us.value - costs.kernel_us.value)


def test_nsight_computes_own_figure_goes_before_the_period_in_a_stream() -> None:
    costs = load_gpu("h100").file.launch
    assert costs.ncu_us is not None
    assert costs.interval_us is not None
    apart = predict("h100", "ncu", 1).time_us - predict("h100", "kernel", 1).time_us
    assert apart == pytest.approx(costs.ncu_us.value - costs.overhead_us.value)
    assert costs.ncu_us.value < costs.interval_us.value


def test_reports_name_the_timing_where_it_is_not_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    launch = ("--grid=8", "--block=128", "--gpu", "h800-sxm", "--format", "json")
    found = {}
    for timing in ("interval", "kernel"):
        assert run(["analyze", DUMP, "-k", "vector_add", *launch, "--timing", timing]) == 0
        report = json.loads(capsys.readouterr().out)
        found[timing] = report["kernels"][0]["predictions"][0]
    assert "timing" not in found["interval"]
    assert found["kernel"]["timing"] == "kernel"
    assert any("as profilers record it" in note for note in found["kernel"]["assumptions"])


def test_rows_of_a_table_say_what_their_times_are(tmp_path: Path) -> None:
    table = tmp_path / "cases.csv"
    row = f"{DUMP},vector_add,h800-sxm,8,128,2.0"
    table.write_text(f"dump,kernel,gpu,grid,block,time_us,timing\n{row},kernel\n{row},\n")
    report = analyzer.validate(table, models=("sm",), jobs=1, cache=False)
    own, unsaid = (case.predictions[0].time_us for case in report.cases)
    assert own < unsaid == pytest.approx(2.5)


def test_an_unknown_timing_is_a_users_error() -> None:
    with pytest.raises(UsageError, match="no such timing"):
        predict("a40", "wall", 1)
