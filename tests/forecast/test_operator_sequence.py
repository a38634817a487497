"""Operators of each step, against the lists of whole runs and against closed forms."""

import json
import lzma
import re

import pytest
from forecast_models import DEEPSEEK, DENSE, QWEN3_MOE, deploy
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.model_config import read_model_config
from analyzer.forecast.operator_calls import (
    AttentionCall,
    CollectiveCall,
    CollectiveKind,
    ElementwiseCall,
    LatentAttentionCall,
    MoeCall,
    NormCall,
    Phase,
    ProductCall,
)
from analyzer.forecast.operator_listing import HeadNorms, list_operators, list_unlisted_names
from analyzer.forecast.operator_sequence import StepMaker, list_steps, make_step
from analyzer.forecast.request_trace import Request, read_request_trace
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.names import DataType
from analyzer.text.errors import UsageError

_DATA = ROOT.parent / "shared" / "data" / "pipeweave"
_NAME = re.compile(r"([^_]+)_((?:vllm_)?[a-z]+_?\d+)_(fa\d)_tp(\d+)_pp(\d+)")
# Workloads whose files count the norms of single heads: an older collector than that of the others.
_COUNTED_HEAD_NORMS = ("arxiv_16", "splitwise_64")


def find(step, kind, name=None):
    found = [call for call in step.calls if isinstance(call, kind) and (name is None or call.name == name)]
    assert found, name
    return found[0]


@pytest.mark.skipif(not _DATA.is_dir(), reason="the runs' lists are beside the repository alone")
@pytest.mark.parametrize(
    "path",
    sorted((_DATA / "workloads").glob("*.json.xz")) if _DATA.is_dir() else [],
    ids=lambda path: path.name.removesuffix(".json.xz"),
)
def test_lists_equal_those_of_whole_runs(path):
    run = json.loads(lzma.decompress(path.read_bytes()))
    model, workload, attention, tp, pp = _NAME.match(path.name).groups()
    config = read_model_config(_DATA / "model_configs" / f"{model}.json")
    trace = _DATA / "workloads" / f"{workload}.csv"
    if trace.is_file():
        requests = read_request_trace(trace).requests
    else:
        first = run["iterations"][0]
        requests = tuple(Request(length, len(run["iterations"])) for length in first["q_lengths"])
    deployment = Deployment(
        load_gpu("h20" if attention == "fa3" else "a100"),
        tensor_parallel=int(tp),
        pipeline_parallel=int(pp),
        framework=Framework.VLLM if workload.startswith("vllm") else Framework.SGLANG,
    )
    norms = HeadNorms.AS_FULL_WIDTH if workload in _COUNTED_HEAD_NORMS else HeadNorms.LEFT_OUT
    steps = list(list_steps(config, deployment, requests))
    assert len(steps) == len(run["iterations"])
    for step, iteration in zip(steps, run["iterations"], strict=True):
        assert json.loads(json.dumps(list_operators(step, norms))) == iteration["operators"]
        assert step.phase.value == iteration["phase"]
        assert (step.tokens, step.batch) == (iteration["num_tokens"], iteration["batch_size"])
        assert step.kv_tokens == sum(iteration["kv_lengths"])


def test_a_layer_has_its_products_divided_among_the_gpus():
    step = make_step(read_model_config(DENSE), deploy(tp=4), Phase.PREFILL, [100, 20], [100, 20])
    products = {
        call.name: (call.m, call.n, call.k, call.count)
        for call in step.calls
        if isinstance(call, ProductCall)
    }
    assert products == {
        "qkv_proj": (120, (4 + 2 * 1) * 64, 1024, 10),
        "o_proj": (120, 1024, 4 * 64, 10),
        "gate_up_proj": (120, 2 * 1024, 1024, 10),
        "down_proj": (120, 1024, 1024, 10),
        "lm_head": (2, 32000, 1024, 1),
    }
    assert find(step, ProductCall, "lm_head").n_shards == 4
    reduced = find(step, CollectiveCall)
    assert [call for call in step.calls if isinstance(call, CollectiveCall) and call.is_listed] == [
        CollectiveCall(CollectiveKind.ALL_REDUCE, 120 * 1024 * 2, 4, 20)
    ]
    assert reduced.gpus == 4
    assert {"embedding", "rotary_embedding", "kv_write", "sampling", "all_gather", "all_reduce"} == set(
        list_unlisted_names(step)
    )


def test_kv_heads_are_kept_by_several_gpus_where_there_are_fewer_of_them():
    config = read_model_config(DENSE)
    assert find(make_step(config, deploy(tp=8), Phase.DECODE, [1], [9]), AttentionCall).kv_heads == 1
    with pytest.raises(UsageError, match="--tp 3 does not divide 16 attention heads") as raised:
        make_step(config, deploy(tp=3), Phase.DECODE, [1], [9])
    assert raised.value.diagnostic.hint == "--tp can be 1, 2, 4, 8"
    with pytest.raises(UsageError, match="KV heads"):
        make_step(
            read_model_config({**DENSE, "num_attention_heads": 24, "head_dim": 64, "num_key_value_heads": 8}),
            deploy(tp=6),
            Phase.DECODE,
            [1],
            [9],
        )


def test_head_norms_are_narrow_calls_that_lists_leave_out_or_count():
    config = read_model_config({**DENSE, "architectures": ["Qwen3ForCausalLM"]})
    step = make_step(config, deploy(tp=2), Phase.DECODE, [1, 1], [5, 9])
    assert find(step, NormCall, "q_norm") == NormCall("q_norm", 2 * 8, 64, 10, adds_residual=False)
    assert find(step, NormCall, "k_norm").rows == 2 * 2
    assert list_operators(step)["rmsnorm"]["count"] == 21
    assert list_operators(step, HeadNorms.AS_FULL_WIDTH)["rmsnorm"]["count"] == 41


@pytest.mark.parametrize(
    ("gpu", "prefill", "decode"),
    [
        ("a100", "fa2_ragged", "fa2_paged"),
        ("h100", "fa3_ragged", "fa3_paged"),
        ("l40s", "fa2_ragged", "fa2_paged"),
    ],
)
def test_attention_is_what_the_gpu_runs_and_decode_is_listed_under_one_name(gpu, prefill, decode):
    config = read_model_config(DENSE)
    first = make_step(config, deploy(gpu), Phase.PREFILL, [7], [7])
    later = make_step(config, deploy(gpu), Phase.DECODE, [1], [8])
    assert find(first, AttentionCall).kind == prefill == list_operators(first)["attention"]["attention_type"]
    assert find(later, AttentionCall).kind == decode
    assert list_operators(later)["attention"]["attention_type"] == "fa2_paged"


def test_layers_with_a_window_are_a_call_of_their_own():
    config = read_model_config({**DENSE, "architectures": ["MistralForCausalLM"], "sliding_window": 4096})
    (attention,) = [
        call
        for call in make_step(config, deploy(), Phase.DECODE, [1], [9000]).calls
        if isinstance(call, AttentionCall)
    ]
    assert (attention.window, attention.count) == (4096, 10)
    gemma = read_model_config({**DENSE, "architectures": ["Gemma2ForCausalLM"], "sliding_window": 4096})
    step = make_step(gemma, deploy(), Phase.DECODE, [1], [9000])
    counts = [(call.window, call.count) for call in step.calls if isinstance(call, AttentionCall)]
    assert counts == [(0, 5), (4096, 5)]
    assert list_operators(step)["rmsnorm"]["count"] == 41
    assert list_operators(step)["attention_windowed"]["window"] == 4096


@pytest.mark.parametrize("ways", [1, 2, 4])
def test_experts_are_divided_by_columns_or_by_expert(ways):
    config = read_model_config(QWEN3_MOE)
    step = make_step(config, deploy(tp=4, expert_parallel=ways), Phase.DECODE, [1] * 6, [50] * 6)
    mixture = find(step, MoeCall)
    assert (mixture.experts, mixture.intermediate, mixture.count) == (32 // ways, 768 // (4 // ways), 8)
    assert mixture.share_of_routed == 1 / ways
    assert find(step, ProductCall, "router").n == 32
    assert find(step, ProductCall, "gate_up_proj").count == 2  # layers 0 and 3
    assert list_operators(step)["moe"][0]["E"] == 32 // ways
    # Weights of one GPU do not depend on how the experts are divided.
    assert mixture.experts * mixture.intermediate == 32 * 768 // 4


def test_latent_attention_expands_in_prefill_and_absorbs_in_decode():
    config, deployment = read_model_config(DEEPSEEK), deploy("h200-sxm", 8, dtype=DataType.FP8_BLOCK)
    prefill = make_step(config, deployment, Phase.PREFILL, [30, 10], [30, 10])
    assert find(prefill, ProductCall, "kv_b_proj").m == 40
    expanded = find(prefill, LatentAttentionCall)
    assert (expanded.heads, expanded.nope_dim, expanded.value_dim, expanded.is_decode) == (
        16,
        128,
        128,
        False,
    )
    assert list_operators(prefill)["attention"]["hd"] == 192
    decode = make_step(config, deployment, Phase.DECODE, [1, 1], [31, 11])
    latent = find(decode, LatentAttentionCall)
    assert (latent.heads, latent.latent_dim, latent.rope_dim, latent.is_decode) == (16, 512, 64, True)
    listed = list_operators(decode)["attention"]
    assert (listed["attention_type"], listed["nkv"], listed["hd"], listed["vd"]) == ("mla", 1, 576, 512)
    names = [call.name for call in decode.calls if isinstance(call, ProductCall)]
    assert {"fused_qkv_a_proj", "q_b_proj", "q_absorb", "v_absorb"} <= set(names)
    assert "kv_b_proj" not in names
    assert find(decode, ProductCall, "fused_qkv_a_proj").n == 1536 + 512 + 64
    shared = find(decode, ProductCall, "shared_gate_up_proj")
    assert (shared.n, shared.count) == (2 * 2048 // 8, 58)
    mixed = make_step(config, deployment, Phase.MIXED, [16, 1, 1], [100, 31, 11])
    latents = [call for call in mixed.calls if isinstance(call, LatentAttentionCall)]
    assert [(call.query_lengths, call.is_decode) for call in latents] == [((16,), False), ((1, 1), True)]
    assert find(mixed, ProductCall, "kv_b_proj").m == 100
    assert find(mixed, ProductCall, "q_absorb").m == 2


def test_finished_requests_leave_the_batch():
    requests = (Request(10, 1), Request(20, 4), Request(30, 2))
    steps = list(list_steps(read_model_config(DENSE), deploy(), requests))
    assert [(step.phase.value, step.batch, step.kv_tokens) for step in steps] == [
        ("prefill", 3, 60),
        ("decode", 2, 21 + 31),
        ("decode", 1, 22),
        ("decode", 1, 23),
    ]


def test_stages_follow_each_other_with_a_transfer_between_two():
    config = read_model_config(DENSE)
    whole = make_step(config, deploy(tp=2), Phase.DECODE, [1, 1], [9, 9])
    staged = make_step(config, deploy(tp=2, pipeline_parallel=3), Phase.DECODE, [1, 1], [9, 9])
    assert [call for call in staged.calls if call not in whole.calls] == [
        CollectiveCall(CollectiveKind.SEND_RECV, 2 * 1024 * 2 * 2, 2, 2)
    ]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 3000)), min_size=1, max_size=12),
    tp=st.sampled_from([1, 2, 4, 8]),
)
def test_work_of_products_is_divided_without_loss(lengths, tp):
    queries = [new for new, _ in lengths]
    keys = [new + old for new, old in lengths]
    config = read_model_config(DENSE)

    def count_flops(step):
        return sum(
            call.m * call.n // call.n_shards * call.k * call.count
            for call in step.calls
            if isinstance(call, ProductCall) and call.name != "qkv_proj"
        )

    alone = make_step(config, deploy(), Phase.MIXED, queries, keys)
    divided = make_step(config, deploy(tp=tp), Phase.MIXED, queries, keys)
    assert count_flops(divided) * tp == count_flops(alone)
    assert divided.tokens == sum(queries)
    assert divided.kv_tokens == sum(keys)


def test_a_maker_gives_the_calls_of_equal_rows_again():
    maker = StepMaker(read_model_config(DENSE), deploy())
    first, second = (maker.make(Phase.DECODE, [1, 1], [at, at]) for at in (9, 10))
    assert first.calls[1] is second.calls[1]
    assert first.calls[0] != second.calls[0]


@pytest.mark.parametrize(
    ("changes", "deployment", "message"),
    [
        ({}, {"tp": 8, "pipeline_parallel": 2}, "16 GPUs"),
        ({}, {"tp": 0}, "--tp 0"),
        ({}, {"pipeline_parallel": 11, "gpu": "gb200"}, "more than the 10 layers"),
        ({}, {"tp": 2, "expert_parallel": 2}, "no experts"),
        (QWEN3_MOE, {"tp": 4, "expert_parallel": 3}, "--ep 3 does not divide"),
        ({"intermediate_size": 4100}, {"tp": 8}, "intermediate size 4100"),
    ],
)
def test_impossible_layouts_have_one_error(changes, deployment, message):
    with pytest.raises(UsageError, match=message) as raised:
        make_step(read_model_config({**DENSE, **changes}), deploy(**deployment), Phase.DECODE, [1], [1])
    assert raised.value.diagnostic.hint


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(DataType.INT8, 4), (DataType.FP8, 0), (DataType.FP8_BLOCK, 0), (DataType.BF16, 0)],
)
def test_int8_activations_are_quantized_before_each_product_and_those_of_fp8_within(dtype, expected):
    step = make_step(read_model_config(DENSE), deploy(dtype=dtype), Phase.DECODE, [1], [31])
    calls = [call for call in step.calls if isinstance(call, ElementwiseCall) and call.name == "quantize"]
    assert len(calls) == expected
