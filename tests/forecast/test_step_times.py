"""Times of steps against closed forms, against each other, and against a few measured runs."""

from itertools import pairwise

import msgspec
import pytest
from forecast_models import DEEPSEEK, DENSE, QWEN3_MOE, deploy
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.model_config import read_model_config
from analyzer.forecast.operator_calls import (
    ActivationCall,
    AttentionCall,
    CollectiveCall,
    CollectiveKind,
    ElementwiseCall,
    LatentAttentionCall,
    MoeCall,
    NormCall,
    Phase,
    ProductCall,
    Step,
)
from analyzer.forecast.operator_sequence import list_steps, make_step
from analyzer.forecast.request_trace import Request
from analyzer.forecast.serving_rates import compute_rates, find_rates
from analyzer.forecast.step_times import (
    combine_widths,
    describe_call,
    spread_interval,
    time_call,
    time_step,
    time_steps,
)
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_edits import parse_setting, with_settings
from analyzer.operators.names import AttentionKind, DataType
from analyzer.operators.sustained_rates import find_peak_tflops
from analyzer.pipeline.operator_prediction import OperatorOptions, predict

_A100, _H100 = (load_gpu(name) for name in ("a100", "h100"))
QWEN_14B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "intermediate_size": 13824,
    "vocab_size": 152064,
    "torch_dtype": "bfloat16",
}
# Eight requests of zksainx/pipeweave's arxiv_8, Qwen2.5-14B on one GPU, SGLang: prefill and median decode step.
ARXIV_8 = (2648, 3740, 3697, 3776, 3519, 3681, 3316, 3589)
MEASURED_MS = {
    "a100-80gb-sxm": (3398.5, 23.57),
    "a40": (7080.8, 62.78),
    "h20": (5731.7, 18.07),
    "l20": (7617.0, 50.97),
}


def time_decode(config, deployment, lengths):
    step = make_step(config, deployment, Phase.DECODE, (1,) * len(lengths), lengths)
    return time_step(step, find_rates(deployment))


def sum_weight_bytes(step):
    return sum(
        call.count * call.n * call.k * call.dtype.weight_bytes / call.n_shards
        for call in step.calls
        if isinstance(call, ProductCall)
    )


@pytest.mark.parametrize("gpu", MEASURED_MS)
def test_measured_runs_are_met(gpu):
    deployment = Deployment(gpu=load_gpu(gpu))
    config, rates = read_model_config(QWEN_14B), find_rates(deployment)
    prefill = time_step(make_step(config, deployment, Phase.PREFILL, ARXIV_8, ARXIV_8), rates)
    decode = time_decode(config, deployment, tuple(length + 60 for length in ARXIV_8))
    measured = MEASURED_MS[gpu]
    assert prefill.total_us / 1e3 == pytest.approx(measured[0], rel=0.05)
    assert decode.total_us / 1e3 == pytest.approx(measured[1], rel=0.07)


@pytest.mark.parametrize("gpu", ["a100", "a40", "l40s", "h100", "b200", "mi300x", "rtx-4090", "t4"])
def test_a_decode_step_reads_every_weight_once(gpu):
    deployment = Deployment(gpu=load_gpu(gpu))
    config = read_model_config(QWEN_14B)
    step = make_step(config, deployment, Phase.DECODE, (1,), (100,))
    least_us = sum_weight_bytes(step) / deployment.gpu.file.memory.bandwidth_gbps.value / 1e3
    found = time_step(step, find_rates(deployment))
    assert least_us < found.total_us < 2.0 * least_us


def test_operators_sum_to_the_total():
    step = make_step(QWEN3_MOE_CONFIG, deploy(), Phase.MIXED, (300, 1, 1), (300, 2000, 90))
    found = time_step(step, find_rates(deploy()))
    assert sum(operator.us for operator in found.by_operator) == pytest.approx(found.total_us)
    names = [operator.name for operator in found.by_operator]
    assert len(names) == len(set(names))
    assert {"attention", "moe", "router", "host", "rmsnorm"} <= set(names)


QWEN3_MOE_CONFIG = read_model_config(QWEN3_MOE)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([DENSE, QWEN3_MOE, DEEPSEEK]),
    st.lists(st.integers(1, 30_000), min_size=1, max_size=40),
    st.integers(1, 30_000),
)
def test_more_requests_and_longer_ones_take_longer(model, lengths, more):
    config, deployment = read_model_config(model), deploy()
    found = time_decode(config, deployment, lengths).total_us
    least = 0.97 * found  # corrections of attention have steps
    assert least <= time_decode(config, deployment, [*lengths, more]).total_us
    assert least <= time_decode(config, deployment, [lengths[0] + more, *lengths[1:]]).total_us


def time_product(m, n, k, dtype, rates):
    return sum(time_call(ProductCall("x", "Linear", m, n, k, dtype, 1), rates))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 4096), st.integers(64, 40_000), st.integers(64, 20_000), st.sampled_from(["a100", "h100"])
)
def test_products_take_their_bytes_and_operations_and_shrink_with_shards(m, n, k, gpu):
    rates = compute_rates(load_gpu(gpu))
    whole = time_product(m, n, k, DataType.BF16, rates)
    assert time_product(m, max(n // 2, 1), k, DataType.BF16, rates) < 1.15 * whole  # trees have steps
    assert 0.9 * whole < time_product(4 * m, n, 2 * k, DataType.BF16, rates)
    least = max(
        2.0 * m * n * k / find_peak_tflops(load_gpu(gpu)) / 1e6,
        2.0 * n * k / load_gpu(gpu).file.memory.bandwidth_gbps.value / 1e3,
    )
    assert whole > least


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 4096),
    st.integers(64, 40_000),
    st.integers(64, 20_000),
    st.sampled_from(["h100", "l20"]),
    st.sampled_from([DataType.BF16, DataType.FP8]),
    st.sampled_from(Framework),
)
def test_forecast_and_predict_say_the_same_of_a_product(m, n, k, gpu, dtype, framework):
    rates = compute_rates(load_gpu(gpu), framework=framework)
    said = predict(
        "gemm",
        gpu=gpu,
        dtype=dtype,
        options=OperatorOptions(served=True),
        m=m,
        n=n,
        k=k,
        backend=framework.value,
    ).predictions[0]
    assert time_product(m, n, k, dtype, rates) == pytest.approx(
        said.time_us, rel=1e-6
    )  # networks are in FP32


@pytest.mark.parametrize("gpu", ["h100", "l20", "b200"])
@pytest.mark.parametrize("dtype", [DataType.BF16, DataType.FP8, DataType.FP8_BLOCK, DataType.INT8])
@pytest.mark.parametrize("framework", Framework)
def test_forecast_and_predict_say_the_same_of_experts(gpu, dtype, framework):
    sizes = {"experts": 128, "topk": 8, "hidden": 4096, "intermediate": 768}
    for m in (1, 97, 4096):
        options = OperatorOptions(served=True)
        found = time_call(
            MoeCall(m, *sizes.values(), dtype, 1), compute_rates(load_gpu(gpu), framework=framework)
        )
        said = predict(
            "moe", gpu=gpu, dtype=dtype, options=options, m=m, backend=framework.value, **sizes
        ).predictions[0]
        assert found.experts == pytest.approx(said.time_us, rel=1e-6)


@pytest.mark.parametrize("gpu", ["h100", "l20", "b200"])
def test_forecast_and_predict_say_the_same_of_rows(gpu):
    rates, options = compute_rates(load_gpu(gpu)), OperatorOptions(served=True)
    calls = {
        "fused_add_rmsnorm": NormCall("rmsnorm", 77, 8192, 1),
        "rmsnorm": NormCall("rmsnorm", 4096, 5120, 1, adds_residual=False),
        "silu_mul": ActivationCall(300, 27648, 1),
    }
    for operator, call in calls.items():
        said = predict(operator, gpu=gpu, options=options, rows=call.rows, columns=call.dim).predictions[0]
        assert sum(time_call(call, rates)) == pytest.approx(said.time_us, rel=1e-6)  # networks are in FP32


@pytest.mark.parametrize("gpu", ["h100", "l20", "b200", "mi300x", "t4"])
def test_forecast_and_predict_say_the_same_of_kernels_that_stream(gpu):
    rates, options = compute_rates(load_gpu(gpu)), OperatorOptions(served=True)
    for call, elements in (
        (ElementwiseCall("kv_write", 77, 8192.0, 1), 77 * 8192 / 4),  # one input and one output of 16 bits
        (ElementwiseCall("embedding", 30_000, 20480.0, 1), 30_000 * 20480 / 4),
        (NormCall("q_norm", 77 * 32, 128, 1), 77 * 32 * 128),
    ):
        said = predict("elementwise", gpu=gpu, options=options, elements=elements).predictions[0]
        assert sum(time_call(call, rates)) == pytest.approx(said.time_us)
        low, high, basis = describe_call(call, time_call(call, rates), rates)
        assert (low, high) == pytest.approx((said.time_us_low, said.time_us_high))
        assert basis == said.basis


def test_a_step_is_as_uncertain_as_kernels_that_nobody_timed():
    """SGLang's block-scaled products were timed on sm_90 and later, none of which runs before; vLLM's nowhere."""
    config = read_model_config(QWEN_14B)

    def find_width(gpu, framework, dtype):
        return time_decode(
            config, Deployment(gpu=load_gpu(gpu), framework=framework, dtype=dtype), (200,)
        ).width

    for framework in Framework:
        known = find_width("h100", framework, DataType.BF16)
        assert find_width("l40s", framework, DataType.BF16) < 1.5 * known
        assert find_width("rtx-4090", framework, DataType.FP8_BLOCK) > 1.5 * known
    assert find_width("h100", Framework.VLLM, DataType.FP8_BLOCK) > find_width(
        "h100", Framework.SGLANG, DataType.FP8_BLOCK
    )


def test_large_products_reach_the_sustained_rate_and_small_ones_do_not_hang_on_it():
    small, large = (8, 8192, 8192), (32768, 8192, 8192)
    times = {}
    for tflops in (100.0, 200.0):
        rates = find_rates(Deployment(gpu=load_gpu("a40"), gemm_tflops=tflops))
        times[tflops] = [time_product(*sizes, DataType.BF16, rates) for sizes in (small, large)]
        assert times[tflops][1] == pytest.approx(2 * 32768 * 8192**2 / tflops / 1e6)
    assert times[200.0][0] > 0.9 * times[100.0][0]


def test_tensor_parallelism_shortens_kernels_and_adds_transfers():
    config = read_model_config(DENSE)
    lengths = (2000,) * 16
    times = {tp: time_decode(config, deploy(tp=tp), lengths) for tp in (1, 2, 4)}
    transfers = {
        tp: sum(o.us for o in time.by_operator if o.name in ("all_reduce", "all_gather"))
        for tp, time in times.items()
    }
    assert transfers[1] == 0 < transfers[2]
    kernels = {tp: time.total_us - transfers[tp] for tp, time in times.items()}
    assert kernels[1] > kernels[2] > kernels[4] > kernels[1] / 4


def test_bytes_follow_the_bandwidth_and_operations_the_rate():
    rates = compute_rates(_A100)
    embedding = ElementwiseCall("embedding", 50_000, 20480.0, 1)
    product = ProductCall("x", "Linear", 30_000, 8192, 8192, DataType.BF16, 1)
    faster = compute_rates(with_settings(_A100, (parse_setting("dram=x2"),)))
    sustained = rates.sustained
    stronger = msgspec.structs.replace(
        rates,
        sustained=msgspec.structs.replace(sustained, tensor_tflops=2 * sustained.tensor_tflops),
    )
    assert time_call(embedding, faster).rows == pytest.approx(time_call(embedding, rates).rows / 2, rel=0.1)
    assert sum(time_call(product, stronger)) == pytest.approx(sum(time_call(product, rates)) / 2, rel=0.02)


@pytest.mark.parametrize("gpu", ["a100", "h20", "h100", "b200", "rtx-5090"])
@pytest.mark.parametrize("kv_dtype", [DataType.BF16, DataType.FP8])
@pytest.mark.parametrize("framework", Framework)
def test_forecast_and_predict_say_the_same_of_attention(gpu, kv_dtype, framework):
    """Of prefills and decodes, of a window, and of many steps asked for at once."""
    rates = compute_rates(load_gpu(gpu), framework=framework)
    sizes = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    calls = [
        AttentionCall(AttentionKind.FA2_PAGED, queries, keys, *sizes.values(), 1, window, kv_dtype)
        for queries, keys, window in (
            ((1, 1, 1), (1000, 2500, 7), 0),
            ((900, 3000), (900, 5000), 0),
            ((900, 3000), (900, 5000), 512),
            ((1, 1, 1), (1000, 2500, 7), 512),
            ((1, 1), (100, 90), 0),
        )
    ]
    rates.operators.prepare_attention(calls)
    for call in calls:
        found = sum(time_call(call, rates))
        said = predict(
            "attention",
            gpu=gpu,
            dtype=kv_dtype,
            options=OperatorOptions(served=True),
            q_lengths=call.query_lengths,
            kv_lengths=call.kv_lengths,
            backend=framework.value,
            **sizes,
            **({"window": call.window} if call.window else {}),
        ).predictions[0]
        assert found == pytest.approx(said.time_us, rel=1e-6)  # networks are in FP32
        low, high, basis = describe_call(call, time_call(call, rates), rates)
        assert (low, high) == pytest.approx((said.time_us_low, said.time_us_high), rel=1e-6)
        assert basis == said.basis


@pytest.mark.parametrize("lengths", [((1,) * 4, (5000,) * 4), ((700, 90), (700, 400))])
def test_forecast_and_predict_say_the_same_of_latent_attention(lengths):
    rates = compute_rates(_H100)
    call = LatentAttentionCall(*lengths, 16, 512, 64, 128, 128, 1)
    said = predict(
        "mla",
        gpu="h100",
        options=OperatorOptions(served=True),
        q_lengths=lengths[0],
        kv_lengths=lengths[1],
        heads=16,
    ).predictions[0]
    assert sum(time_call(call, rates)) == pytest.approx(said.time_us, rel=1e-6)


def test_a_decode_reads_keys_and_values_of_all_requests_or_of_the_window():
    rates = compute_rates(_A100)
    lengths = (10_000, 25_000, 70)

    def time_us(keys, **changes):
        call = AttentionCall(AttentionKind.FA2_PAGED, (1, 1, 1), keys, 32, 8, 128, 1)
        return time_call(msgspec.structs.replace(call, **changes), rates).cache

    least = sum(lengths) * 8 * 2 * 128 * 2.0 / (_A100.file.memory.bandwidth_gbps.value * 1e3)
    assert least < time_us(lengths) < 1.6 * least
    assert time_us(lengths, kv_dtype=DataType.FP8) < 0.7 * time_us(lengths)
    assert time_us(lengths, window=500) == time_us((500, 500, 70))


def test_latent_attention_reads_one_latent_for_all_heads():
    rates = compute_rates(_H100)
    call = LatentAttentionCall((1,) * 32, (5000,) * 32, 16, 512, 64, 128, 128, 1)
    least = 32 * 5000 * 576 * 2.0 / _H100.file.memory.bandwidth_gbps.value / 1e3
    assert least < time_call(call, rates).cache < 3 * least


def test_narrow_weights_stream_faster_and_multiply_faster():
    rates = compute_rates(_H100)
    for m in (8, 8192):
        wide, narrow = (time_product(m, 8192, 8192, dtype, rates) for dtype in (DataType.BF16, DataType.FP8))
        assert 0.45 < narrow / wide < 0.75
    weights_only = time_product(8192, 8192, 8192, DataType.INT4_WEIGHTS, rates)
    assert weights_only == pytest.approx(time_product(8192, 8192, 8192, DataType.BF16, rates), rel=0.05)


def test_experts_are_read_when_a_token_meets_them():
    rates = compute_rates(_H100)
    one = MoeCall(1, 128, 8, 4096, 1536, DataType.BF16, 1)

    def time(**changes):
        return time_call(msgspec.structs.replace(one, **changes), rates).experts

    weights_us = 3 * 4096 * 1536 * 2.0 / (_H100.file.memory.bandwidth_gbps.value * 1e3)
    assert 8 * weights_us < time() < 12 * weights_us
    assert time(tokens=4) == pytest.approx(4 * time(), rel=0.15)  # few tokens meet other experts
    assert time(tokens=2000) < 30 * time()  # many meet the same 128
    assert time(tokens=64, experts=64, share_of_routed=0.5) < time(tokens=64)


@pytest.mark.parametrize("kind", CollectiveKind)
def test_transfers_grow_with_bytes_and_cost_nothing_alone(kind):
    for gpu in (_A100, load_gpu("l40s")):
        rates = compute_rates(gpu)
        small, large = (
            sum(time_call(CollectiveCall(kind, size, 4, 1), rates)) for size in (1 << 16, 1 << 26)
        )
        assert 0 < small < large
        assert sum(time_call(CollectiveCall(kind, 1 << 20, 1, 1), rates)) == 0


def test_a_prefill_of_few_tokens_waits_for_the_launches():
    deployment = Deployment(gpu=_H100)
    config, rates = read_model_config(QWEN_14B), find_rates(deployment)
    short = time_step(make_step(config, deployment, Phase.PREFILL, (4,), (4,)), rates)
    launches = sum(call.count for call in make_step(config, deployment, Phase.PREFILL, (4,), (4,)).calls)
    assert short.total_us >= launches * rates.launch_us
    long = time_step(make_step(config, deployment, Phase.PREFILL, (9000,), (9000,)), rates)
    assert {o.name: o.us for o in long.by_operator}["host"] == pytest.approx(rates.prefill_host_us)


def test_intervals_hold_the_time_and_are_wider_where_less_is_known():
    config, lengths = read_model_config(QWEN_14B), (2000,) * 8
    widths = {}
    for name, known in (("given", 115.0), ("measured", None)):
        deployment = Deployment(gpu=load_gpu("a40"), gemm_tflops=known)
        prefill = make_step(config, deployment, Phase.PREFILL, lengths, lengths)
        found = time_step(prefill, find_rates(deployment))
        assert found.interval_us[0] < found.total_us < found.interval_us[1]
        widths[name] = found.width
    rates = compute_rates(load_gpu("a40"), uses_measured=False)
    widths["datasheet"] = time_step(prefill, rates).width
    assert widths["given"] == pytest.approx(widths["measured"], rel=0.05)
    assert widths["datasheet"] > 2 * widths["measured"]


def test_widths_of_steps_of_one_run_do_not_average_out():
    assert combine_widths([(10.0, 0.1)] * 50) == pytest.approx(0.1)
    assert combine_widths([(30.0, 0.1), (10.0, 0.3)]) == pytest.approx(0.15)
    assert combine_widths([]) == 0.0
    low, high = spread_interval(100.0, 0.1)
    assert low * high == pytest.approx(100.0**2)


def test_a_step_without_calls_is_the_host_alone():
    rates = compute_rates(_A100)
    found = time_step(Step(Phase.DECODE, 0, 0, 0, ()), rates)
    assert found.total_us == rates.decode_host_us
    nothing = msgspec.structs.replace(rates, decode_host_us=0.0)
    assert time_step(Step(Phase.DECODE, 0, 0, 0, ()), nothing).width == 0.0


def test_a_run_of_a_thousand_steps_grows_evenly():
    deployment = deploy(tp=8)
    config = read_model_config(DENSE)
    rates = find_rates(deployment)
    steps = list(list_steps(config, deployment, [Request(5000, 1001)] * 32))
    times = [time.total_us for time in time_steps(steps[1:], rates)]
    assert len(times) == 1000
    assert times[0] < times[-1]
    assert all(later > 0.95 * time for time, later in pairwise(times))  # tiles of keys have steps
