"""What holds for every model on every kernel and every GPU, edited ones included."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launched import Launched, predict, put
from paths import TRACES

from analyzer.hardware.edit import Direction, Setting, direction, figure, figure_keys, with_settings
from analyzer.models.registry import find_model, model_names
from analyzer.text.errors import HardwareError, UsageError

CUBE = tuple(f"{place}=1024" for place in range(3, 9))
TRITON, CUDA = TRACES / "triton", TRACES / "cuda"
KERNELS = (
    Launched(TRITON / "sm_80" / "matmul_large_tile.sass", "matmul", "a100", (32,), None, CUBE),
    Launched(TRITON / "sm_90" / "matmul_large_tile.sass", "matmul", "h100", (32,), None, CUBE),
    Launched(TRITON / "sm_90" / "flash_attention.sass", "flash_attention", "h200"),
    Launched(TRITON / "sm_100" / "matmul.sass", "matmul", "b200"),
    Launched(TRITON / "sm_120" / "softmax.sass", "softmax", "rtx-5090"),
    Launched(CUDA / "sm_75" / "report16.sass", "reduce_sum", "t4", (500,), (256,)),
    Launched(CUDA / "sm_80" / "report16.sass", "matmul_naive", "a100", (16, 16), (16, 16), ("3=256",)),
    Launched(
        CUDA / "sm_80" / "textures.sass", "sample_bilinear", "a100", (8, 8), (16, 16), ("2=128", "3=128")
    ),
    Launched(CUDA / "sm_90" / "report16.sass", "histogram", "h100"),
)
kernels = st.sampled_from(KERNELS)
models = st.sampled_from(model_names())
# A simulation's warps come to a resource in another order when a figure changes, for better or worse.
SIMULATED = "sm"
DISORDER = 0.15
# A loop whose last walked iteration is not yet like the one before leaves this much.
ROUNDING = 1e-3


def rates(launched: Launched) -> list[str]:
    """Figures of which more, or less, is better."""
    gpu = launched.gpu
    return [
        key
        for key in figure_keys(gpu)
        if direction(key) is not Direction.CAPACITY and figure(gpu, key).value > 0
    ]


@given(launched=kernels, model=models, data=st.data())
def test_stack_sums_to_the_cycles_on_any_hardware(
    launched: Launched, model: str, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(rates(launched)))
    factor = data.draw(st.floats(0.05, 20.0))
    try:
        gpu = with_settings(launched.gpu, (Setting(key, factor, is_factor=True),))
    except (HardwareError, UsageError):
        return  # a share above one
    verdict = find_model(model)(put(launched, gpu))
    found = verdict.prediction
    assert sum(found.cpi_stack.values()) == pytest.approx(found.cycles)
    assert all(cycles >= 0 for cycles in found.cpi_stack.values())
    assert (verdict.stalls.cycles >= 0).all()
    assert found.time_us == pytest.approx(found.cycles / found.clock_mhz)
    assert found.time_us_low <= found.time_us <= found.time_us_high


@given(launched=kernels, model=models, data=st.data())
def test_more_of_any_rate_never_costs_time(launched: Launched, model: str, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(rates(launched)))
    factor = data.draw(st.floats(1.01, 8.0))
    better = factor if direction(key) is Direction.MORE_IS_FASTER else 1 / factor
    try:
        gpu = with_settings(launched.gpu, (Setting(key, better, is_factor=True),))
    except (HardwareError, UsageError):
        return  # a share above one
    before, after = predict(put(launched), model), predict(put(launched, gpu), model)
    slack = DISORDER if model == SIMULATED else ROUNDING
    assert after.time_us <= before.time_us * (1 + slack)


@pytest.mark.parametrize("model", model_names())
@pytest.mark.parametrize("launched", KERNELS, ids=lambda one: f"{one.path.parent.name}-{one.kernel}")
def test_every_model_answers_for_every_kernel(launched: Launched, model: str) -> None:
    found = predict(put(launched), model)
    assert found.model == model
    assert found.cycles > 0


@pytest.mark.parametrize("model", model_names())
def test_loops_sum_to_no_more_than_the_kernel(model: str) -> None:
    (kernel,) = KERNELS[0].report(model).kernels
    loop, whole = kernel.loops[0], kernel.predictions[0]
    per_warp = sum(loop.cpi_stack.values()) * loop.trip_count
    assert 0 < per_warp <= whole.cycles
    assert sum(loop.bounds.values()) > 0
