"""Edits of resources have their effect on times: what binds, and by how much."""

import pytest
from kernel_launches import KernelLaunch, make_model_input, predict_with_model
from paths import TRACES

from analyzer.hardware.parameter_edits import parse_setting, with_settings
from analyzer.models.interface import Prediction

CUBE = tuple(f"{place}=1024" for place in range(3, 9))
SIZES = tuple(f"{name}=4096" for name in ("m", "n", "k", "a_stride", "b_stride", "c_stride"))
L2_BOUND = KernelLaunch(TRACES / "triton" / "sm_90" / "matmul.sass", "matmul", "h100", (2048,), None, SIZES)
CUDA = TRACES / "cuda"
KERNELS = (
    L2_BOUND,
    KernelLaunch(CUDA / "sm_75" / "report16.sass", "vector_add", "t4", (4000,), (256,), ("3=1024000",)),
    KernelLaunch(CUDA / "sm_75" / "report16.sass", "matmul_naive", "t4", (64, 64), (16, 16), ("3=1024",)),
    KernelLaunch(CUDA / "sm_80" / "report16.sass", "histogram", "a100", (1024,), (256,), ("2=262144",)),
    KernelLaunch(TRACES / "triton" / "sm_100" / "matmul.sass", "matmul", "b200"),
)


def predict(launched: KernelLaunch, model: str, *edits: str) -> Prediction:
    gpu = with_settings(launched.gpu, [parse_setting(edit) for edit in edits])
    return predict_with_model(make_model_input(launched, gpu), model)


@pytest.mark.parametrize("model", ["steady", "roofline"])
def test_an_edit_of_the_l2_has_its_effect_where_that_binds(model: str) -> None:
    as_it_is = predict(L2_BOUND, model)
    assert as_it_is.bound == "L2"
    for half in ("l2=x0.5", "l2.rate=x0.5", "l2.units=x0.5", "l2.clock=x0.5", "l2.requests_per_us=x0.5"):
        assert predict(L2_BOUND, model, half).time_us == pytest.approx(2 * as_it_is.time_us, rel=0.03), half
    twice = predict(L2_BOUND, model, "l2=x2")
    assert twice.bound != "L2"
    assert twice.time_us < 0.75 * as_it_is.time_us
    for other in ("dram=x2", "l1=x2", "shared=x2", "tensor=x2", "l2.latency=x0.5", "copy_engine=x2"):
        assert predict(L2_BOUND, model, other).time_us == pytest.approx(as_it_is.time_us, rel=0.02), other


@pytest.mark.parametrize("model", ["steady", "roofline"])
@pytest.mark.parametrize("sms", [100, 160, 264])
def test_other_counts_of_sms_share_the_same_l2(model: str, sms: int) -> None:
    """They are in step the more, the fewer waves run, and so get up to 5 % more by requests that are joined."""
    as_it_is = predict(L2_BOUND, model)
    assert predict(L2_BOUND, model, f"sms={sms}").time_us == pytest.approx(as_it_is.time_us, rel=0.05)


@pytest.mark.parametrize("model", ["steady", "roofline"])
@pytest.mark.parametrize("launched", KERNELS, ids=lambda launched: f"{launched.gpu_name}-{launched.kernel}")
def test_more_sms_do_not_slow_a_launch_down(launched: KernelLaunch, model: str) -> None:
    times_us = [predict(launched, model, f"sms=x{factor}").time_us for factor in (1, 2, 4)]
    assert times_us[1] <= 1.01 * times_us[0]
    assert times_us[2] <= 1.01 * times_us[1]


@pytest.mark.parametrize("model", ["steady", "roofline", "gcom"])
@pytest.mark.parametrize("launched", KERNELS, ids=lambda launched: f"{launched.gpu_name}-{launched.kernel}")
def test_twice_all_rates_and_clocks_is_half_the_time(launched: KernelLaunch, model: str) -> None:
    """At a power limit that leaves the clock; cycles of latencies stay, so that their times are halved."""
    free = "power=x64"
    rates = ("clock=x2", "l2.rate=x2", "dram.rate=x2", "launch.overhead_us=x0.5", "launch.ctas_per_us=x2")
    before, after = predict(launched, model, free), predict(launched, model, free, *rates)
    assert after.bound == before.bound
    assert after.time_us == pytest.approx(before.time_us / 2, rel=0.01)
