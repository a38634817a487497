"""Times of steps against closed forms, against each other, and against a few measured runs."""

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
    count_pairs,
    spread_interval,
    time_call,
    time_step,
)
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.names import DataType
from analyzer.operators.sustained_rates import find_peak_tflops
from analyzer.pipeline.operator_prediction import OperatorOptions, predict

_A100, _H20, _H100 = (load_gpu(name) for name in ("a100", "h20", "h100"))
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
    assert found <= time_decode(config, deployment, [*lengths, more]).total_us
    assert found <= time_decode(config, deployment, [lengths[0] + more, *lengths[1:]]).total_us


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
        2.0 * m * n * k / find_peak_tflops(load_gpu(gpu)) / 1e6, 2.0 * n * k / rates.bandwidth_gbps / 1e3
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
@pytest.mark.parametrize("dtype", [DataType.BF16, DataType.FP8_BLOCK, DataType.INT8])
def test_forecast_and_predict_say_the_same_of_experts(gpu, dtype):
    sizes = {"experts": 128, "topk": 8, "hidden": 4096, "intermediate": 768}
    for m in (1, 97, 4096):
        options = OperatorOptions(served=True)
        said = predict("moe", gpu=gpu, dtype=dtype, options=options, m=m, **sizes).predictions[0]
        found = time_call(MoeCall(m, *sizes.values(), dtype, 1), compute_rates(load_gpu(gpu)))
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
    call = AttentionCall("fa2_paged", (1,) * 8, (8000,) * 8, 32, 8, 128, 1)
    product = ProductCall("x", "Linear", 30_000, 8192, 8192, DataType.BF16, 1)
    faster = msgspec.structs.replace(rates, bandwidth_gbps=2 * rates.bandwidth_gbps)
    sustained = rates.sustained
    stronger = msgspec.structs.replace(
        rates,
        sustained=msgspec.structs.replace(sustained, tensor_tflops=2 * sustained.tensor_tflops),
    )
    assert time_call(call, faster).cache == pytest.approx(time_call(call, rates).cache / 2)
    assert sum(time_call(product, stronger)) == pytest.approx(sum(time_call(product, rates)) / 2, rel=0.02)


def test_kv_bytes_of_a_decode_are_keys_and_values_of_all_requests():
    rates = compute_rates(_A100)
    lengths = (1000, 2500, 7)
    call = AttentionCall("fa2_paged", (1, 1, 1), lengths, 32, 8, 128, 1)
    expected = sum(lengths) * 8 * 2 * 128 * 2.0 / (rates.cache_share * rates.bandwidth_gbps * 1e3)
    assert time_call(call, rates).cache == pytest.approx(expected)
    narrow = find_rates(Deployment(gpu=_A100, kv_dtype=DataType.FP8))
    assert time_call(call, narrow).cache == pytest.approx(expected / 2)
    window = msgspec.structs.replace(call, window=500)
    assert time_call(window, rates).cache == pytest.approx(expected * (500 + 500 + 7) / sum(lengths))


def test_padded_query_rows_limit_decoding_on_a_gpu_of_low_tensor_rate():
    """Five heads a KV head fill 5 of 128 rows: H20 multiplies longer than it reads, H100 does not."""
    fa3 = AttentionCall("fa3_paged", (1,) * 8, (3500,) * 8, 40, 8, 128, 1)
    fa2 = msgspec.structs.replace(fa3, implementation="fa2_paged")
    h20, h100 = compute_rates(_H20), compute_rates(_H100)
    assert time_call(fa3, h20).cache > 2.0 * time_call(fa2, h20).cache
    assert time_call(fa3, h100).cache == time_call(fa2, h100).cache
    flops = 4.0 * 128 * 8 * 128 * 8 * 3500
    expected = flops / (h20.decode_attention_share_fa3 * h20.sustained.tensor_tflops * 1e6)
    assert time_call(fa3, h20).cache == pytest.approx(expected)


def test_latent_attention_reads_one_latent_for_all_heads():
    rates = compute_rates(_H100)
    call = AttentionCall("mla", (1,) * 4, (5000,) * 4, 16, 1, 576, 1, value_dim=512)
    least = 4 * 5000 * 576 * 2.0 / rates.bandwidth_gbps / 1e3
    assert least < time_call(call, rates).cache < 3 * least


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 70))
def test_pairs_are_those_under_the_diagonal_and_in_the_window(queries, before, window):
    keys = queries + before
    expected = 0
    for query in range(queries):
        seen = before + query + 1
        expected += min(seen, window) if window else seen
    assert count_pairs(queries, keys, window) == expected


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

    weights_us = 3 * 4096 * 1536 * 2.0 / (rates.bandwidth_gbps * 1e3)
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
    steps = list(list_steps(config, deployment, [Request(500, 1001)] * 4))
    times = [time_step(step, rates).total_us for step in steps[1:]]
    assert len(times) == 1000
    assert times == sorted(times)
