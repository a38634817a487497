"""What-if on hardware: points, elasticities, and what a user may get wrong."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from paths import TRACES

import analyzer
from analyzer import whatif
from analyzer.cli.app import run
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.pipeline import Options
from analyzer.render.json import make_json_schema, render_json

GEMM = str(TRACES / "triton" / "sm_80" / "matmul_square_tile.sass")
REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")
FMA = "tensor.f16.fma_per_cycle_per_sm"
COPY = ("-k", "vector_add", "--grid=10000", "--block=256", "--arg=3=2560000")


def test_base_is_what_analyze_says() -> None:
    report = whatif(GEMM, "a100", elasticity=False, options=Options(models=("amali",)))
    (kernel,) = report.kernels
    (analyzed,) = analyzer.analyze(GEMM, "a100", options=Options(models=("amali",))).kernels
    assert kernel.base == analyzed.predictions[0]
    assert not kernel.points


def test_base_is_what_analyze_says_where_no_model_is_named() -> None:
    launch = Launch(grid=Dim3(10000), block=Dim3(256), arguments=(Argument(3, 2560000),))
    options = Options(kernels=("vector_add",), launch=launch)
    report = whatif(REPORT16, "a100", settings=["dram=x0.5"], options=options)
    (analyzed,) = analyzer.analyze(REPORT16, "a100", options=options).kernels
    assert report.model == "sm"
    before = report.kernels[0].base
    assert before == msgspec.structs.replace(analyzed.predictions[0], tail_share=None)  # measured there alone
    assert report.kernels[0].elasticity


def test_points_say_what_followed_the_figures_that_were_set() -> None:
    report = whatif(GEMM, "a100", settings=["dram=x2"], elasticity=False, options=Options(models=("steady",)))
    (point,) = report.kernels[0].points
    assert point.scaled == {
        "memory.sustained_gbps": 3788.0,
        "memory.streaming_gbps": 3472.0,
        "memory.read_gbps": 3770.0,
    }
    followed = "memory.sustained_gbps, memory.streaming_gbps, memory.read_gbps"
    assert report.notes[0] == f"{followed} scaled with memory.bandwidth_gbps"
    assert point.prediction is not None
    assert f"{followed} scaled by 2 with memory.bandwidth_gbps" in point.prediction.assumptions


def test_a_resource_is_swept_by_factors() -> None:
    """What follows is listed, also where others decide in its place."""
    report = whatif(
        GEMM, "a100", sweeps=["l2.latency=x0.5,x2"], elasticity=False, options=Options(models=("steady",))
    )
    points = report.kernels[0].points
    assert [point.set for point in points] == [{"l2.latency": 0.5}, {"l2.latency": 2.0}]
    assert set(points[0].scaled) == {"memory.l2_latency_cycles", "sched.global_atomic.latency_cycles"}
    assert report.figures["l2.latency"].value == 1.0


def test_more_sms_are_not_slower_beyond_the_tail_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 2,048 CTAs 160 SMs run four waves as 132 do, the last one with .8 CTAs an SM."""
    command = ["whatif", str(TRACES / "triton/sm_90/matmul.sass"), "--gpu", "h100", "--grid", "2048"]
    command += [part for place in range(3, 9) for part in ("--arg", f"{place}=4096")]
    command += ["--no-elasticity", "--sweep", "sms=132,160"]
    assert run([*command, "--format", "json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    same, more = (point["prediction"] for point in kernel["points"])
    assert same["time_us"] == kernel["base"]["time_us"]
    assert same["tail_share"] is None
    assert 1.05 < more["time_us"] / same["time_us"] < 1.01 + more["tail_share"]
    assert run(command) == 0
    assert f"(tail {more['tail_share'] * 100:.0f} %)" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["roofline", "steady", "gcom", "amali"])
def test_all_points_have_the_clock_of_the_base(model: str) -> None:
    """At half the tensor rate an A100's power would allow a higher clock."""
    launch = Launch(grid=Dim3(1024), arguments=tuple(Argument(place, 4096) for place in range(3, 9)))
    options = Options(models=(model,), launch=launch)

    def find_clocks(*, follow_power: bool) -> list[float]:
        report = whatif(
            GEMM,
            "a100",
            sweeps=[f"{FMA}=x0.5,x1"],
            elasticity=False,
            follow_power=follow_power,
            options=options,
        )
        assert any(("--follow-power" in note) == follow_power for note in report.notes)
        kernel = report.kernels[0]
        return [
            kernel.base.clock_mhz,
            *(point.prediction.clock_mhz for point in kernel.points if point.prediction),
        ]

    base, *held = find_clocks(follow_power=False)
    assert held == [base, base]
    base, slower, same = find_clocks(follow_power=True)
    assert slower > base == same


def test_the_command_lets_power_choose_the_clock(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["whatif", GEMM, "--gpu", "a100", "--grid", "1024", "--no-elasticity", "--model", "steady"]
    command += [part for place in range(3, 9) for part in ("--arg", f"{place}=4096")]
    assert run([*command, "--set", f"{FMA}=x0.5", "--follow-power", "--format", "json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["points"][0]["prediction"]["clock_mhz"] > kernel["base"]["clock_mhz"]
    assert kernel["points"][0]["effect"] == "slower"


def test_an_edited_clock_scales_the_clock_of_the_base() -> None:
    launch = Launch(grid=Dim3(1024), arguments=tuple(Argument(place, 4096) for place in range(3, 9)))
    options = Options(models=("steady",), launch=launch)
    report = whatif(GEMM, "a100", settings=["clock=x0.5"], elasticity=False, options=options)
    (point,) = report.kernels[0].points
    assert point.prediction is not None
    assert point.prediction.clock_mhz == pytest.approx(0.5 * report.kernels[0].base.clock_mhz)


def test_a_change_within_the_noise_of_the_model_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["whatif", GEMM, "--gpu", "a100", "--grid", "216", "--no-elasticity", "--model", "sm"]
    command += [part for place in range(3, 9) for part in ("--arg", f"{place}=256")]
    assert run([*command, "--set", "sched.int_logic.latency_cycles=x1.0001", "--format", "json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    change = kernel["points"][0]["prediction"]["time_us"] / kernel["base"]["time_us"] - 1
    assert abs(change) <= kernel["resolution"] + 1e-9
    assert kernel["points"][0]["effect"] == "none"


def test_a_point_without_effect_is_never_shown_as_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["whatif", REPORT16, *COPY, "--gpu", "a100", "--no-elasticity", "--model", "steady"]
    assert run([*command, "--sweep", "sched.special_function.issue_cycles=x1.5"]) == 0
    text = capsys.readouterr().out
    assert "no effect" in text
    assert "%" not in text.partition("as it is")[2].partition("\n\n")[0]


def test_a_point_is_what_analyze_says_on_a_file_with_the_same_figure(tmp_path: Path) -> None:
    path = tmp_path / "edited.toml"
    path.write_text(
        'schema = "warplens/gpu/1"\nname = "edited"\ninherits = "a100-80gb-sxm"\n'
        '[tensor.f16]\nfma_per_cycle_per_sm = { value = 2048, basis = "assumed", source = "test" }\n'
    )
    report = whatif(GEMM, "a100", settings=[f"{FMA}=2048"], elasticity=False)
    (point,) = report.kernels[0].points
    assert point.prediction is not None
    (analyzed,) = analyzer.analyze(GEMM, str(path)).kernels
    assert point.prediction.cycles == pytest.approx(analyzed.predictions[0].cycles)
    assert point.set == {FMA: 2048.0}


def test_sweeps_are_combined_and_settings_hold_at_every_point() -> None:
    report = whatif(
        GEMM, "a100", settings=["clock=1200"], sweeps=["sms=54,108", "dram=x0.5,x1,x2"], elasticity=False
    )
    points = report.kernels[0].points
    assert len(points) == 6
    assert {point.set["sm.count"] for point in points} == {54.0, 108.0}
    assert {point.set["clock.boost_mhz"] for point in points} == {1200.0}


def test_elasticity_of_a_bound_is_minus_one() -> None:
    report = whatif(REPORT16, "a100", options=Options(kernels=("vector_add",)))
    found = report.kernels[0].elasticity
    # without a launch vector_add is short: its overhead is a part of its time
    assert -1.0 < found["memory.bandwidth_gbps"] < -0.3
    assert list(found.values()) == sorted(found.values(), key=lambda value: -abs(value))
    assert set(found) <= set(report.figures)


def test_a_point_where_a_cta_does_not_fit_is_refused_not_fatal() -> None:
    report = whatif(GEMM, "a100", settings=["limits.shared_bytes_per_cta=1024"], elasticity=False)
    (point,) = report.kernels[0].points
    assert point.prediction is None
    assert "does not fit" in point.refused


def test_json_is_described_by_the_published_schema() -> None:
    report = whatif(GEMM, "a100", settings=["dram=x2"])
    jsonschema.validate(json.loads(render_json(report)), make_json_schema(report.schema))


def test_command_prints_points_and_what_the_time_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["whatif", REPORT16, *COPY, "--gpu", "a100", "--set", "dram=x2"]) == 0
    text = capsys.readouterr().out
    assert "as it is" in text
    assert "4078" in text
    assert "memory.bandwidth_gbps" in text


def test_command_draws_one_page_without_the_network(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="the charts extra is not installed")
    page = tmp_path / "stacks.html"
    code = run(["whatif", GEMM, "--gpu", "a100", "--sweep", f"{FMA}=512,1024,2048", "--chart", str(page)])
    assert code == 0
    text = page.read_text(encoding="utf-8")
    assert 'src="http' not in text
    assert "math_pipe_throttle" in text
    assert "2048" in text


def test_a_gpu_without_the_units_that_the_code_needs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    dump = str(TRACES / "triton" / "sm_90" / "matmul_large_tile.sass")
    assert run(["whatif", dump, "--gpu", "a100"]) == 2
    assert "which the kernel needs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "tensor.f61.fma_per_cycle_per_sm=4"), "f61"),
        (("--set", "dram"), "dram"),
        (("--set", "sms=-1"), "-1"),
        (("--set", "dram=x2", "--set", "memory.bandwidth_gbps=x3"), "memory.bandwidth_gbps"),
        (("--sweep", "sms=1:100000:1"), "1000"),
        (("--sweep", "sms=1:100:1", "--sweep", "clock=1000:2000:50"), "points"),
        (("--gpu", "all"), "one GPU"),
        (("--gpu", "h100", "--gpu", "a100"), "one --gpu"),
        (("--model", "amalli"), "did you mean amali"),
    ],
)
def test_bad_input_gets_one_clear_error(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = () if "--gpu" in arguments else ("--gpu", "a100")
    assert run(["whatif", GEMM, *gpu, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert "Traceback" not in error
