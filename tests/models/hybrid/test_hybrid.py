"""The learned correction of `sm`: exact where its weights are known, absent where nothing taught."""

import subprocess
import sys
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from paths import TRACES

import analyzer
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_edits import ParameterSetting, with_settings
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, Pointer
from analyzer.models.hybrid.features import (
    FEATURE_NAMES,
    INSTRUCTIONS_COLUMN,
    STALLS,
    Row,
    compute_features,
)
from analyzer.models.hybrid.weights import (
    HybridWeights,
    TaughtLaunches,
    load_hybrid_weights,
    save_hybrid_weights,
)
from analyzer.models.learned.correction import Correction, ResidualInterval, Situation
from analyzer.models.learned.trees import TreeEnsemble
from analyzer.models.model_result import ModelResult
from analyzer.models.predictors import sm
from analyzer.models.predictors.hybrid import append_hardware, correct_result
from analyzer.pipeline.gpu_binding import Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.options import Options

DUMP = str(TRACES / "cuda" / "sm_80" / "report16.sass")
GPU, N_NEEDED = "a100-80gb-sxm", 3
VECTOR_ADD_LOG2 = 4.3  # instructions of a warp
LOW, HIGH = log(0.9), log(1.2)


def simulate(n_ctas: int = 2000) -> ModelResult:
    values: tuple[ArgumentValue, ...] = (Pointer(), Pointer(), Pointer(), 256 * n_ctas)
    arguments = tuple(Argument(which, value) for which, value in enumerate(values))
    launch = Launch(grid=Dim3(n_ctas), block=Dim3(256), arguments=arguments)
    loaded = analyzer.load(DUMP)["vector_add"]
    (counted,) = KernelAnalyzer(Options(launch=launch)).count_launches(loaded)
    bound = bind_to_gpu(counted, load_gpu(GPU))
    assert not isinstance(bound, Refusal)
    return sm.predict(bound)


@pytest.fixture(scope="module")
def result() -> ModelResult:
    return simulate()


@dataclass(frozen=True)
class Constant:
    """What a correction without splits gives, whatever the row."""

    known: float
    unseen: float


def make_weights(
    stack: Row, gpu: str, constant: Constant, log2_instructions: float = VECTOR_ADD_LOG2
) -> HybridWeights:
    def make(value: float, *, sees_hardware: bool) -> Correction:
        trees = TreeEnsemble(
            np.zeros((1, 1), np.int16),
            np.full((1, 1), np.inf, np.float32),
            np.zeros((1, 2), np.float32),
            value,
        )
        return Correction(trees, None, 1.0, sees_hardware)

    interval = ResidualInterval((10.0,), (LOW, LOW), (HIGH, HIGH))
    return HybridWeights(
        "three launches",
        make(constant.known, sees_hardware=True),
        make(constant.unseen, sees_hardware=False),
        dict.fromkeys(Situation, interval),
        TaughtLaunches(
            np.tile(stack, (2 * N_NEEDED, 1)).astype(np.float32),
            np.full(2 * N_NEEDED, log2_instructions, np.float32),
            np.repeat(np.arange(2, dtype=np.int16), N_NEEDED),
            (gpu, "a40"),
            reach=0.1,
            n_needed=N_NEEDED,
            n_around=N_NEEDED,
        ),
    )


def get_stack(result: ModelResult) -> Row:
    return compute_features(result)[: len(STALLS)]


@pytest.mark.parametrize(("gpu", "factor"), [(GPU, 1.25), ("h20", 0.8)])
def test_the_correction_is_that_of_the_gpu_or_of_others(result: ModelResult, gpu: str, factor: float) -> None:
    found = correct_result(result, make_weights(get_stack(result), gpu, Constant(log(1.25), log(0.8))))
    before, after = result.prediction, found.prediction
    assert after.model == "hybrid"
    assert after.time_us == pytest.approx(before.time_us * factor)
    assert after.cycles == pytest.approx(before.cycles * factor)
    assert sum(after.cpi_stack.values()) == pytest.approx(after.cycles)
    assert found.stalls is not None
    assert found.stalls.total_cycles == pytest.approx(after.cycles)
    assert after.time_us_low == pytest.approx(after.time_us * exp(LOW))
    assert after.time_us_high == pytest.approx(after.time_us * exp(HIGH))
    assert ("none of them on this GPU" in after.assumptions[-1]) == (gpu != GPU)


def test_a_launch_unlike_all_that_taught_keeps_the_time_of_sm(result: ModelResult) -> None:
    other = np.zeros(len(STALLS))
    other[-1] = 1.0
    found = correct_result(result, make_weights(other, GPU, Constant(log(1.25), log(0.8)))).prediction
    assert found.time_us == result.prediction.time_us
    assert found.time_us_high == result.prediction.time_us_high
    assert "uncorrected" in found.assumptions[-1]


def test_the_figures_of_an_edited_gpu_are_read() -> None:
    gpu = load_gpu(GPU)
    edited = with_settings(gpu, (ParameterSetting("memory.bandwidth_gbps", 2.0, is_factor=True),))
    row = np.zeros(3)
    assert not np.array_equal(append_hardware(row, gpu), append_hardware(row, edited))


def test_a_launch_whose_arguments_nobody_gave_is_not_corrected() -> None:
    loaded = analyzer.load(DUMP)["histogram"]
    launch = Launch(grid=Dim3(64), block=Dim3(256))
    (counted,) = KernelAnalyzer(Options(launch=launch)).count_launches(loaded)
    bound = bind_to_gpu(counted, load_gpu(GPU))
    assert not isinstance(bound, Refusal)
    guessed = sm.predict(bound)
    found = correct_result(guessed, make_weights(get_stack(guessed), GPU, Constant(log(1.25), log(0.8))))
    assert found.prediction.time_us == guessed.prediction.time_us


@given(share=st.floats(0.0, 0.5))
def test_a_launch_teaches_as_far_as_the_reach(share: float) -> None:
    """A stack that has a part of its cycles in another stall is just so far away."""
    stack, other = np.zeros(len(STALLS)), np.zeros(len(FEATURE_NAMES))
    stack[0] = 1.0
    other[0], other[1] = 1.0 - share, share
    other[INSTRUCTIONS_COLUMN] = VECTOR_ADD_LOG2
    taught = make_weights(stack, GPU, Constant(0.0, 0.0)).taught
    for gpu, situation, reach in (
        (GPU, Situation.KNOWN, taught.reach),
        ("h20", Situation.UNSEEN, taught.reach),
    ):
        if abs(share - reach) > 1e-6:
            assert taught.find_situation(other, gpu) == (situation if share < reach else None)


def test_features_are_finite_and_shares_sum_to_one(result: ModelResult) -> None:
    features = compute_features(result)
    assert features.shape == (len(FEATURE_NAMES),)
    assert np.isfinite(features).all()
    assert get_stack(result).sum() == pytest.approx(1.0)


def test_features_tell_a_footprint_that_fits_the_l2_from_one_that_does_not() -> None:
    place = FEATURE_NAMES.index("log2 footprint over L2")
    small, large = (compute_features(simulate(n_ctas))[place] for n_ctas in (4000, 16000))
    assert large - small == pytest.approx(2.0, abs=0.01)
    footprint = 4000 * 256 * 12
    assert small == pytest.approx(np.log2(footprint / load_gpu(GPU).file.l2.size_bytes.value), abs=0.01)


def test_weights_are_read_as_they_were_written(result: ModelResult, tmp_path: Path) -> None:
    weights = make_weights(get_stack(result), GPU, Constant(log(1.25), log(0.8)))
    save_hybrid_weights(weights, tmp_path / "own.safetensors")
    again = load_hybrid_weights(tmp_path / "own.safetensors")
    first, second = (correct_result(result, one).prediction for one in (weights, again))
    assert first == second


def test_the_shipped_weights_need_neither_torch_nor_scikit_learn() -> None:
    code = f"""
import sys, analyzer
options = analyzer.Options(kernels=("vector_add",), models=("hybrid",))
launch = analyzer.Launch(grid=2000, block=256, arguments=("ptr", "ptr", "ptr", 512000))
found = analyzer.analyze({DUMP!r}, {GPU!r}, launch=launch, options=options).kernels[0].predictions[0]
assert found.model == "hybrid" and found.time_us > 0
print(sorted({{"torch", "sklearn", "scipy"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_launches_of_one_other_gpu_alone_teach_nothing_about_a_third(result: ModelResult) -> None:
    taught = make_weights(get_stack(result), "l20", Constant(0.0, 0.0)).taught
    alone = replace(taught, gpu=np.zeros_like(taught.gpu))
    features = compute_features(result)
    assert [one.find_situation(features, GPU) for one in (taught, alone)] == [Situation.UNSEEN, None]
    assert alone.find_situation(features, "l20") is Situation.KNOWN
