"""Code without control words waits for its registers as the same code with them does."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from paths import TRACES

import analyzer
from analyzer.cli.app import run
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.hardware.gpu_selection import find_typical_gpus
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.registry import find_model
from analyzer.pipeline import Options
from analyzer.pipeline.gpu_binding import Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import load
from analyzer.report.analyze_schema import PredictionEntry

CHAINS = Path(__file__).parent / "01-no-control-codes" / "dependent_loads.sass"
ITERATIONS = 200
MODELS = ("sm", "steady", "warp", "amali", "gcom", "mdm")
# A kernel of each kind: its dump, and the name.
SHIPPED = (
    ("volta/sm_70/layer_norm.sass", "layer_norm"),
    ("gemm/sm_75/shared-8.sass", "gemm"),
    ("cuda/sm_75/report16.sass", "shared_transpose"),
    ("cuda/sm_80/report16.sass", "matmul_naive"),
    ("cuda/sm_80/textures.sass", "sample_bilinear"),
    ("triton/sm_80/softmax.sass", "softmax"),
    ("triton/sm_80/matmul_four_stages.sass", "matmul"),
    ("cuda/sm_86/report16.sass", "conv2d_7x7"),
    ("triton/sm_89/matmul_two_stages.sass", "matmul"),
    ("cuda/sm_90/report16.sass", "reduce_sum"),
    ("triton/sm_90/matmul_one_stage.sass", "matmul"),
    ("triton/sm_90/flash_attention_full.sass", "flash_attention"),
    ("blackwell/mainloop_64x64x64_6.sass", "mainloop"),
    ("triton/sm_100/softmax.sass", "softmax"),
    ("triton/sm_120/matmul_four_stages.sass", "matmul"),
    ("cuda/sm_120/report16.sass", "conv2d_3x3"),
)


def predict_chain(path: Path, kernel: str, model: str = "sm") -> PredictionEntry:
    arguments = tuple(map(parse_argument, ("0=ptr", f"1={ITERATIONS}")))
    launch = Launch(grid=Dim3(1), block=Dim3(32), arguments=arguments)
    options = Options(kernels=(kernel,), launch=launch, models=(model,))
    (found,) = analyzer.analyze(str(path), "a100", options=options).kernels
    return found.predictions[0]


@pytest.mark.parametrize("model", MODELS)
def test_each_load_waits_for_the_one_before(model: str) -> None:
    found = predict_chain(CHAINS, "dependent_loads", model)
    assert found.cycles > 250 * ITERATIONS  # from the L2 at best: no address is met twice
    assert found.cpi_stack["long_scoreboard"] > 0.7 * found.cycles


@pytest.mark.parametrize("model", MODELS)
def test_a_load_is_waited_for_around_the_loop(model: str) -> None:
    found = predict_chain(CHAINS, "carried_load", model)
    assert found.cycles > 303 * ITERATIONS  # from the L2
    assert found.cpi_stack["long_scoreboard"] > 0.7 * found.cycles


@pytest.mark.parametrize("model", MODELS)
def test_arithmetic_waits_for_its_operands(model: str) -> None:
    found = predict_chain(CHAINS, "dependent_adds", model)
    counter = 1 + 4 + 13 + 5  # IADD3, ISETP, the guard, the branch
    assert found.cycles > ITERATIONS * (23 + 3 * 4 + counter - 4)
    assert found.cpi_stack["wait"] > 0.3 * found.cycles
    assert found.cpi_stack["short_scoreboard"] > 0.2 * found.cycles


def test_the_report_says_that_waits_are_assumed() -> None:
    assert any("no control words" in note for note in predict_chain(CHAINS, "dependent_adds").assumptions)


def test_a_trace_alone_waits_like_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = ("--grid", "1", "--block", "32", "--arg", "0=ptr", "--arg", "1=100")
    assert run(["trace", str(CHAINS), "-k", "carried_load", *launch]) == 0
    trace = tmp_path / "carried_load.traceg"
    trace.write_text(capsys.readouterr().out)
    (found,) = analyzer.analyze(str(trace), "a100").kernels
    assert found.predictions[0].cpi_stack["long_scoreboard"] > 100 * 250


@pytest.mark.parametrize(("dump", "kernel"), SHIPPED)
def test_shipped_kernels_take_as_long_without_their_control_words(dump: str, kernel: str) -> None:
    """Without launch facts, so that both have the same assumed counts; bench/no_control.py has launches."""
    loaded = next(one for one in load(str(TRACES / dump)).kernels if one.name == kernel)
    (counted,) = KernelAnalyzer(Options()).count_launches(loaded)
    plain = replace(counted.loaded, kernel=replace(counted.loaded.kernel, control_words=None))
    (gpu,) = find_typical_gpus(loaded.kernel.arch)[:1]
    found = []
    for one in (counted, replace(counted, loaded=plain)):
        model_input = bind_to_gpu(one, gpu)
        assert not isinstance(model_input, Refusal)
        found.append(find_model("sm")(model_input).prediction)
    with_words, without = found
    assert without.cycles == pytest.approx(with_words.cycles, rel=0.1)
    shares = [{stall: cycles / one.cycles for stall, cycles in one.cpi_stack.items()} for one in found]
    moved = sum(abs(shares[0].get(stall, 0.0) - shares[1].get(stall, 0.0)) for stall in shares[0] | shares[1])
    assert moved / 2.0 < 0.2
