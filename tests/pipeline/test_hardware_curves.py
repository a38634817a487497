"""What-if curves of a report: as `whatif` answers, refused where the kernel does not fit, none where not asked."""

import pytest
from paths import TRACES

import analyzer
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import Effect

PERSISTENT = str(TRACES / "triton/sm_90/matmul_tma_persistent.sass")
LIBRARY = str(TRACES / "cuda/sm_80/report16.sass")
LAUNCH = analyzer.Launch(grid=4096, block=256, arguments={3: 1 << 20})


def test_points_are_those_of_whatif() -> None:
    options = Options(kernels=("saxpy",), models=("steady",), hardware_curves=True)
    kernel = analyzer.analyze(LIBRARY, "a100", launch=LAUNCH, options=options).kernels[0]
    assert {curve.key for curve in kernel.hardware_curves} >= {"memory.bandwidth_gbps", "sm.count"}
    for curve in kernel.hardware_curves[:4]:
        report = analyzer.whatif(
            LIBRARY,
            "a100",
            launch=LAUNCH,
            options=Options(kernels=("saxpy",), models=("steady",)),
            sweeps=[f"{curve.key}=x0.5,x1,x2"],
            elasticity=False,
        )
        times = [point.prediction.time_us for point in report.kernels[0].points if point.prediction]
        assert [point.time_us for point in curve.points] == pytest.approx(times)
        assert [point.value for point in curve.points] == pytest.approx(
            [point.set[curve.key] for point in report.kernels[0].points]
        )


def test_a_figure_at_which_no_cta_fits_says_so() -> None:
    options = Options(models=("warp",), hardware_curves=True)
    kernel = analyzer.analyze(PERSISTENT, "h100", options=options).kernels[0]
    curve = next(one for one in kernel.hardware_curves if one.key == "limits.shared_bytes_per_sm")
    least, *_, most = curve.points
    assert least.time_us is None
    assert "shared memory" in least.refused
    assert most.time_us is not None


def test_few_kernels_ask_their_own_model() -> None:
    options = Options(kernels=("saxpy",), hardware_curves=True)
    kernel = analyzer.analyze(LIBRARY, "a100", launch=LAUNCH, options=options).kernels[0]
    assert {curve.model for curve in kernel.hardware_curves} == {kernel.predictions[0].model} == {"sm"}


def test_what_has_no_effect_says_so() -> None:
    options = Options(kernels=("saxpy",), models=("steady",), hardware_curves=True)
    curves = analyzer.analyze(LIBRARY, "a100", launch=LAUNCH, options=options).kernels[0].hardware_curves
    effects = {curve.key: [point.effect for point in curve.points] for curve in curves}
    assert effects["memory.bandwidth_gbps"] == [Effect.SLOWER, Effect.NONE, Effect.FASTER]
    assert effects["limits.registers_per_sm"] == [Effect.NONE] * 3


def test_none_unless_asked_for() -> None:
    options = Options(kernels=("saxpy",))
    assert analyzer.analyze(LIBRARY, "a100", launch=LAUNCH, options=options).kernels[0].hardware_curves == ()
