"""How wide an interval is: as launches of its class were off on suites that taught nothing."""

import pytest
from paths import TRACES

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.interface import Stall
from analyzer.models.residuals import ErrorClass, LaunchTraits, load_residuals
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import PredictionEntry

PRODUCT = Launch(
    grid=Dim3(128, 128),
    block=Dim3(1024),
    arguments=tuple(map(parse_argument, ("0=4096", "1=4096", "2=4096", "3=0.5", "6=3.0"))),
)


def predicted(dump: str, gpu: str, launch: Launch) -> PredictionEntry:
    (kernel,) = analyzer.analyze(
        str(TRACES / dump), gpu, options=Options(launch=launch, models=("sm",))
    ).kernels
    (prediction,) = kernel.predictions
    return prediction


def stack_of(prediction: PredictionEntry) -> dict[Stall, float]:
    return {Stall(stall): cycles for stall, cycles in prediction.cpi_stack.items()}


def test_an_interval_is_that_of_the_launchs_class() -> None:
    """A product by shared memory: the load/store path binds, and rows of other suites resemble it."""
    found = predicted("measured/sm_86/sgemm_cuda-55d0f9e-k2-rtxa6000-4096.sass", "rtx-3090", PRODUCT)
    assert found.bound == "load/store path"
    expected = load_residuals().classes[ErrorClass.LOAD_STORE_PATH]
    assert load_residuals().kinds.measure_distance(stack_of(found)) < load_residuals().kinds.unlike_distance
    assert found.time_us_high / found.time_us == pytest.approx(max(1.0, expected.high))
    assert found.time_us_low / found.time_us == pytest.approx(min(1.0, expected.low))


def test_a_kernel_like_no_measured_one_has_no_narrower_interval_than_others() -> None:
    table = load_residuals()
    strange = LaunchTraits(
        time_us=100.0, bound="tex", busy={}, stalls={Stall.TEX_THROTTLE: 1.0}, guessed_share=0.0
    )
    low, high = table.find_factors(strange)
    assert table.kinds.measure_distance(strange.stalls) > table.kinds.unlike_distance
    assert low <= min(table.classes[ErrorClass.OTHER].low, table.unlike.low)
    assert high >= max(table.classes[ErrorClass.OTHER].high, table.unlike.high)


def test_classes_have_more_than_one_suite_behind_them() -> None:
    for found in (*load_residuals().classes.values(), load_residuals().unlike):
        assert found.low < 1.0 < found.high
        assert found.suites >= 4


def test_distance_is_the_share_of_cycles_that_stand_elsewhere() -> None:
    kinds = load_residuals().kinds
    kind = dict(zip(kinds.stalls, kinds.hundredths[0], strict=True))
    assert kinds.measure_distance(kind) == pytest.approx(0.0, abs=0.02)
    assert kinds.measure_distance({Stall.TEX_THROTTLE: 1.0}) == pytest.approx(1.0, abs=0.02)
