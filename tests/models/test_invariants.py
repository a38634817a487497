"""What holds for every model on every kernel and every GPU, edited ones included."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_launches import KernelLaunch, make_model_input, predict_with_model
from paths import TRACES

from analyzer.hardware.parameter_edits import (
    ParameterSetting,
    PerformanceDirection,
    find_direction,
    find_hardware_parameter,
    list_parameter_keys,
    with_settings,
)
from analyzer.models.registry import find_model, list_models
from analyzer.text.errors import HardwareError, UsageError

CUBE = tuple(f"{place}=1024" for place in range(3, 9))
TRITON, CUDA = TRACES / "triton", TRACES / "cuda"
KERNELS = (
    KernelLaunch(TRITON / "sm_80" / "matmul_large_tile.sass", "matmul", "a100", (32,), None, CUBE),
    KernelLaunch(TRITON / "sm_90" / "matmul_large_tile.sass", "matmul", "h100", (32,), None, CUBE),
    KernelLaunch(TRITON / "sm_90" / "flash_attention.sass", "flash_attention", "h200"),
    KernelLaunch(TRITON / "sm_100" / "matmul.sass", "matmul", "b200"),
    KernelLaunch(TRITON / "sm_120" / "softmax.sass", "softmax", "rtx-5090"),
    KernelLaunch(CUDA / "sm_75" / "report16.sass", "reduce_sum", "t4", (500,), (256,)),
    KernelLaunch(CUDA / "sm_80" / "report16.sass", "matmul_naive", "a100", (16, 16), (16, 16), ("3=256",)),
    KernelLaunch(
        CUDA / "sm_80" / "textures.sass", "sample_bilinear", "a100", (8, 8), (16, 16), ("2=128", "3=128")
    ),
    KernelLaunch(CUDA / "sm_90" / "report16.sass", "histogram", "h100"),
)
kernels = st.sampled_from(KERNELS)
models = st.sampled_from(list_models())


def rates(launched: KernelLaunch) -> list[str]:
    """Figures of which more, or less, is better."""
    gpu = launched.gpu
    return [
        key
        for key in list_parameter_keys(gpu)
        if find_direction(key) is not PerformanceDirection.CAPACITY
        and find_hardware_parameter(gpu, key).value > 0
    ]


@given(launched=kernels, model=models, data=st.data())
def test_stack_sums_to_the_cycles_on_any_hardware(
    launched: KernelLaunch, model: str, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(rates(launched)))
    factor = data.draw(st.floats(0.05, 20.0))
    try:
        gpu = with_settings(launched.gpu, (ParameterSetting(key, factor, is_factor=True),))
    except (HardwareError, UsageError):
        return  # a share above one
    verdict = find_model(model)(make_model_input(launched, gpu))
    found = verdict.prediction
    assert sum(found.cpi_stack.values()) == pytest.approx(found.cycles)
    assert all(cycles >= 0 for cycles in found.cpi_stack.values())
    assert (verdict.stalls.cycles >= 0).all()
    assert found.time_us == pytest.approx(found.cycles / found.clock_mhz)
    assert found.time_us_low <= found.time_us <= found.time_us_high


@pytest.mark.parametrize("model", list_models())
@pytest.mark.parametrize("launched", KERNELS, ids=lambda one: f"{one.path.parent.name}-{one.kernel}")
def test_every_model_answers_for_every_kernel(launched: KernelLaunch, model: str) -> None:
    found = predict_with_model(make_model_input(launched), model)
    assert found.model == model
    assert found.cycles > 0


@pytest.mark.parametrize("model", list_models())
def test_loops_sum_to_no_more_than_the_kernel(model: str) -> None:
    (kernel,) = KERNELS[0].report(model).kernels
    loop, whole = kernel.loops[0], kernel.predictions[0]
    per_warp = sum(loop.cpi_stack.values()) * loop.trip_count
    assert 0 < per_warp <= whole.cycles
    assert sum(loop.bounds.values()) > 0
