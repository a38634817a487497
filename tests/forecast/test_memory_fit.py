"""Memory of one GPU against parameter counts, and what is said where a run does not fit."""

import csv

import pytest
from forecast_models import DEEPSEEK, DENSE, QWEN3_MOE, deploy
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from analyzer.forecast.memory_fit import (
    check_memory,
    compute_batch_memory,
    compute_weight_bytes,
    find_gpu_bytes,
    kv_bytes_per_token,
)
from analyzer.forecast.model_config import read_model_config
from analyzer.forecast.operator_sequence import list_steps
from analyzer.forecast.request_trace import Request, read_request_trace
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.names import DataType
from analyzer.text.errors import UsageError

_DATA = ROOT.parent / "shared" / "data" / "pipeweave"
LLAMA_70B = {
    **DENSE,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


def test_weights_are_the_published_parameter_counts():
    llama = read_model_config(LLAMA_70B)
    assert compute_weight_bytes(llama, deploy()) == pytest.approx(2 * 70.55e9, rel=1e-3)
    assert compute_weight_bytes(llama, deploy(tp=4)) == pytest.approx(2 * 70.55e9 / 4, rel=1e-3)
    assert compute_weight_bytes(llama, deploy(dtype=DataType.FP8)) == pytest.approx(70.55e9 + 2.1e9, rel=2e-3)
    # 671 billion parameters in blocks of FP8; embedding and output matrix (1.85 billion) in 16 bits
    deepseek = read_model_config(DEEPSEEK)
    found = compute_weight_bytes(deepseek, deploy("h200-sxm", 8, dtype=DataType.FP8_BLOCK))
    assert found == pytest.approx((671e9 + 1.85e9) / 8, rel=0.02)


def test_kv_bytes_per_token():
    llama = read_model_config(LLAMA_70B)
    assert kv_bytes_per_token(llama, deploy()) == 80 * 2 * 8 * 128 * 2
    assert kv_bytes_per_token(llama, deploy(tp=8)) == 80 * 2 * 1 * 128 * 2
    assert kv_bytes_per_token(llama, deploy(tp=8, kv_dtype=DataType.FP8)) == 80 * 2 * 128
    assert kv_bytes_per_token(llama, deploy(tp=4, pipeline_parallel=2)) == 40 * 2 * 2 * 128 * 2
    deepseek = read_model_config(DEEPSEEK)  # the latent is whole on every GPU
    assert kv_bytes_per_token(deepseek, deploy("h200-sxm", 8)) == 61 * (512 + 64) * 2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.builds(Request, st.integers(1, 60), st.integers(1, 12)), min_size=1, max_size=8))
def test_the_largest_cache_is_that_of_the_largest_step(requests):
    config, deployment = read_model_config(DENSE), deploy()
    most = max(step.kv_tokens for step in list_steps(config, deployment, requests))
    assert compute_batch_memory(config, deployment, requests).kv_tokens == most


@pytest.mark.parametrize(
    ("deployment", "requests", "message", "remedies"),
    [
        (
            deploy("h100"),
            (Request(10, 5),),
            "my-model does not fit on 1 H100 SXM: 131.4 GiB",
            ("--tp 2", "--dtype fp8", "b200"),
        ),
        (deploy("a40", 2), (Request(10, 5),), "does not fit on 2 A40", ("--tp 4", "--dtype int8_wo")),
        (
            deploy("h100", 4),
            (Request(4000, 500),) * 100,
            "the batch does not fit",
            ("--tp 8", "--kv-dtype fp8", "requests fit"),
        ),
    ],
)
def test_a_run_that_does_not_fit_says_what_would(deployment, requests, message, remedies):
    with pytest.raises(UsageError, match=message) as raised:
        check_memory(read_model_config(LLAMA_70B), deployment, requests, "my-model")
    for remedy in remedies:
        assert remedy in raised.value.diagnostic.hint


def test_the_number_of_requests_that_is_said_to_fit_does():
    config, deployment = read_model_config(LLAMA_70B), deploy("h100", 4)
    requests = (Request(4000, 500),) * 100
    with pytest.raises(UsageError) as raised:
        check_memory(config, deployment, requests, "m")
    n_fitting = int(raised.value.diagnostic.hint.split("the first ")[1].split(" of")[0])
    assert compute_batch_memory(config, deployment, requests[:n_fitting]).fits
    assert not compute_batch_memory(config, deployment, requests[: n_fitting + 1]).fits


def test_experts_take_the_same_memory_however_they_are_divided():
    config = read_model_config(QWEN3_MOE)
    by_columns, by_expert = (
        compute_weight_bytes(config, deploy(tp=4, expert_parallel=ways)) for ways in (1, 4)
    )
    assert by_columns == by_expert


@pytest.mark.parametrize(
    ("gpu", "reported"),  # totalGlobalMem of PipeWeave's hardware.csv
    [
        ("a100", 84987740160),
        ("a40", 47622258688),
        ("h20", 101997084672),
        ("h200", 150121283584),
        ("l20", 47810936832),
        ("rtx-6000-ada", 50865307648),
        ("rtx-a6000", 51033931776),
        ("rtx-pro-6000", 101985026048),
    ],
)
def test_memory_is_what_cuda_reports(gpu, reported):
    assert find_gpu_bytes(load_gpu(gpu)) == pytest.approx(reported, rel=0.006)


@pytest.mark.skipif(not _DATA.is_dir(), reason="the runs are beside the repository alone")
def test_runs_that_were_measured_fit():
    with (_DATA / "end_to_end.csv").open(newline="") as table:
        runs = list(csv.DictReader(table))
    assert len(runs) == 16
    for run in runs:
        config = read_model_config(_DATA / "model_configs" / f"{run['model']}.json")
        requests = read_request_trace(_DATA / "workloads" / f"{run['workload']}.csv").requests
        assert check_memory(config, deploy(run["gpu"], int(run["tp"])), requests, run["model"]).fits
