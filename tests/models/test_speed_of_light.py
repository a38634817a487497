"""Achieved operations and bytes per second, their peaks, and what the last wave costs."""

import json

import pytest
from paths import TRACES

import analyzer
from analyzer import Options
from analyzer.cli.app import run
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.hardware.gpu_selection import find_gpus
from analyzer.ir.launch import Dim3, Launch
from analyzer.report.analyze_schema import PredictionEntry, SpeedOfLightEntry

REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")
LOOPS = str(TRACES.parent / "tests" / "wild" / "05-loop-rows" / "loops_90.sass")
Capture = pytest.CaptureFixture[str]


def predict(
    path: str, gpu: str, kernel: str, grid: int, block: int, *arguments: str, **facts: object
) -> PredictionEntry:
    launch = Launch(
        grid=Dim3(grid), block=Dim3(block), arguments=tuple(map(parse_argument, arguments)), **facts
    )
    return (
        analyzer.analyze(path, gpu, options=Options(kernels=(kernel,), launch=launch))
        .kernels[0]
        .predictions[0]
    )


def speed(entry: PredictionEntry) -> SpeedOfLightEntry:
    assert entry.speed_of_light is not None
    return entry.speed_of_light


def test_a_matrix_product_does_two_operations_for_each_of_its_elements(capsys: Capture) -> None:
    arguments = [f"--arg={name}=1024" for name in ("m", "n", "k", "a_stride", "b_stride", "c_stride")]
    dump = str(TRACES / "triton" / "sm_90" / "matmul.sass")
    command = ["analyze", dump, "-g", "h100", "--grid", "128", *arguments]
    assert run([*command, "--format", "json"]) == 0
    entry = json.loads(capsys.readouterr().out)["kernels"][0]["predictions"][0]
    first = entry["speed_of_light"]["compute"][0]
    assert (first["data_type"], first["unit"]) == ("FP16", "tensor")
    assert first["operations"] == 2 * 1024**3
    assert first["operations_per_second"] == pytest.approx(first["operations"] / entry["time_us"] * 1e6)
    assert first["peak_share"] == pytest.approx(first["operations_per_second"] / 989.4e12, rel=1e-3)
    assert run(command) == 0
    lines = capsys.readouterr().out.splitlines()
    line = next(line for line in lines if "-bound: " in line)
    assert lines.index(line) < next(place for place, text in enumerate(lines) if text.startswith(" GPU"))
    tera = first["operations_per_second"] / 1e12
    assert (
        f"{entry['bound']}-bound: {tera:.3g} TFLOP/s, {first['peak_share'] * 100:.0f} % of FP16 peak" in line
    )
    assert "; DRAM " in line
    assert " GB/s; L2 " in line


UNLIKE = ("h20", "gb200", "rtx-5090")  # the last one runs above its printed boost clock


def test_peaks_are_those_that_vendors_print() -> None:
    # One launch on each GPU: FP32 operations, tensor products.
    printed = 0
    gpus = [gpu for gpu in find_gpus("all") if gpu.file.peak.fp32_tflops and gpu.key not in UNLIKE]
    options = Options(kernels=("mma_chain",), models=("roofline",))
    report = analyzer.analyze(LOOPS, [gpu.key for gpu in gpus], options=options)
    entries = {entry.gpu: entry for entry in report.kernels[0].predictions}
    for gpu in gpus:
        if gpu.key not in entries:
            continue
        peaks = {(one.data_type, one.unit): one.peak_per_second for one in speed(entries[gpu.key]).compute}
        for key, figure in (
            (("FP32", "vector"), gpu.file.peak.fp32_tflops),
            (("FP16", "tensor"), gpu.file.peak.fp16_tensor_tflops),
        ):
            if figure is not None and figure.basis.value == "vendor":
                printed += 1
                assert peaks[key] == pytest.approx(figure.value * 1e12, rel=0.08), (gpu.key, key)
    assert printed >= 10


def test_no_launch_exceeds_the_peak_of_the_clock_that_it_runs_at() -> None:
    # The H20's tensor cores run faster than at the clock of the datasheet.
    names = ("m", "n", "k", "a_stride", "b_stride", "c_stride")
    arguments = tuple(parse_argument(f"{name}=2048") for name in names)
    launch = Launch(grid=Dim3(512), arguments=arguments)
    dump = str(TRACES / "triton" / "sm_90" / "matmul.sass")
    entry = analyzer.analyze(dump, "h20", options=Options(launch=launch)).kernels[0].predictions[0]
    assert entry.bound == "tensor"
    share = speed(entry).compute[0].peak_share
    assert share is not None
    assert 0.75 < share <= 1.0


@pytest.mark.parametrize("model", ["steady", "roofline"])
@pytest.mark.parametrize(("arch", "gpu"), [("sm_90", "h100"), ("sm_80", "a100")])
def test_the_l2_that_binds_is_as_busy_as_the_speed_of_light_says(model: str, arch: str, gpu: str) -> None:
    """The peak is the rate that the model reckons with: all of the time but the launch."""
    names = ("m", "n", "k", "a_stride", "b_stride", "c_stride")
    arguments = tuple(parse_argument(f"{name}=4096") for name in names)
    launch = Launch(grid=Dim3(2048), arguments=arguments)
    dump = str(TRACES / "triton" / arch / "matmul.sass")
    halved = analyzer.whatif(
        dump, gpu, settings=["l2=x0.5"], elasticity=False, options=Options(launch=launch, models=(model,))
    )
    entry = halved.kernels[0].points[0].prediction
    assert entry is not None
    assert entry.bound == "L2"
    l2 = speed(entry).memory[1]
    assert l2.level == "L2"
    assert l2.gbps == pytest.approx(l2.peak_share * l2.peak_gbps)
    assert 0.97 < l2.peak_share <= 1.0


def test_a_copy_moves_its_bytes_through_dram() -> None:
    entry = predict(REPORT16, "a100", "strided_copy_8", 65536, 256, "2=16777216")
    level = speed(entry).memory[0]
    assert level.level == "DRAM"
    assert level.gbps == pytest.approx(level.bytes / entry.time_us / 1e3)
    assert 0.3 < level.peak_share <= 1.0


def test_registers_set_by_a_half_multiply_add_are_no_operations() -> None:
    # naive_transpose has one HFMA2.MMA of constants, and no arithmetic on floating-point numbers
    entry = predict(REPORT16, "a100", "naive_transpose", 64, 256)
    assert not [one for one in speed(entry).compute if one.operations]


def test_the_last_wave_costs_what_an_even_spread_would_save(capsys: Capture) -> None:
    places = 132  # one CTA on each SM, for its shared memory
    tails = {}
    for grid in (places, places + 1, places + 66, 2 * places, 10 * places + 1, 20 * places + 1):
        entry = predict(LOOPS, "h100", "mma_chain", grid, 32, "1=20000", dynamic_shared_bytes=200_000)
        assert entry.waves == grid / places
        tails[grid] = entry.tail_share
    assert tails[places] == tails[2 * places] == 0.0
    assert tails[places + 1] == pytest.approx((2 - 133 / 132) / 2, rel=0.05)
    assert tails[places + 66] == pytest.approx(0.5 / 2, rel=0.05)
    assert tails[10 * places + 1] == pytest.approx(1 / 11, rel=0.1)
    assert tails[20 * places + 1] is None  # at most 4.8 %: not worth another run of the model
    arguments = ["--grid", "133", "--block", "32", "--arg", "1=20000", "--dynamic-shared", "200000"]
    assert run(["analyze", LOOPS, "-k", "mma_chain", "-g", "h100", *arguments]) == 0
    assert f"1.01 (tail {tails[places + 1] * 100:.0f} %)" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["steady", "roofline", "warp"])
def test_other_models_say_what_the_last_wave_costs(model: str) -> None:
    launch = Launch(grid=Dim3(133), block=Dim3(32), dynamic_shared_bytes=200_000)
    options = Options(kernels=("mma_chain",), launch=launch, models=(model,))
    entry = analyzer.analyze(LOOPS, "h100", options=options).kernels[0].predictions[0]
    assert entry.tail_share is not None
    assert 0 < entry.tail_share < 0.5


def test_without_a_grid_no_tail_is_known_and_one_wave_is_assumed(capsys: Capture) -> None:
    report = analyzer.analyze(REPORT16, "a100", options=Options(kernels=("matmul_naive",)))
    entry = report.kernels[0].predictions[0]
    assert entry.tail_share is None
    assert speed(entry).assumes_one_wave
    assert run(["analyze", REPORT16, "-k", "matmul_naive", "-g", "a100"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "-bound: ~" in text
    assert "if one full wave of CTAs runs" in text
