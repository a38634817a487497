"""Serving of a whole model: against the forecast of one batch, and what options change."""

from pathlib import Path

import pytest

from analyzer.forecast.engine_limits import GivenLimits
from analyzer.forecast.request_trace import Request
from analyzer.forecast.serving_load import ArrivalProcess
from analyzer.pipeline.forecast import ForecastOptions, forecast_model
from analyzer.pipeline.serving import ServingOptions, simulate_model
from analyzer.render.registry import render_report
from analyzer.report.report_reader import read_report
from analyzer.report.serving_schema import ServingReport

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "docs" / "llama-3.1-8b.json"
TRACE = ROOT / "docs" / "arrivals.csv"
GPU = ForecastOptions(gpu="h100")


def simulate(requests: object = TRACE, deployment: ForecastOptions = GPU, **options: object) -> ServingReport:
    return simulate_model(MODEL, requests, deployment, ServingOptions(**options))


@pytest.mark.parametrize("framework", ["sglang", "vllm"])
def test_a_batch_at_once_is_the_forecast_of_the_batch(framework: str) -> None:
    deployment = ForecastOptions(gpu="h100", framework=framework)
    requests = [Request(512, 60)] * 8  # 4,096 rows: a step that is not rounded
    forecast = forecast_model(MODEL, requests, deployment)
    served = simulate(requests, deployment, rate=1.0, process=ArrivalProcess.BURST)
    assert served.latencies.ttft.mean_ms == pytest.approx(forecast.prefill_ms, rel=0.02)
    mean_decode_ms = (forecast.total_ms - forecast.prefill_ms) / 59
    assert served.latencies.tpot.p50_ms == pytest.approx(mean_decode_ms, rel=0.005)
    assert served.duration_s * 1e3 == pytest.approx(forecast.total_ms, rel=0.005)
    assert served.use.steps == len(forecast.steps)


def test_a_report_is_the_same_each_time_and_is_read_back() -> None:
    options = {"rate": 12.0, "count": 40, "seed": 3, "slo_ttft_ms": 100.0, "finds_rates": True}
    report = simulate(**options)
    text = render_report(report, "json")
    assert text == render_report(simulate(**options), "json")
    assert read_report(text.encode()) == report
    assert len(render_report(report, "csv").splitlines()) == 41


def test_a_trace_gives_arrivals_or_only_lengths() -> None:
    traced = simulate()
    assert (traced.load.arrivals, traced.load.requests, traced.load.seed) == ("trace", 60, None)
    paced = simulate(rate=3.0, process=ArrivalProcess.UNIFORM)
    assert (paced.load.arrivals, paced.load.rate_per_s, paced.load.seed) == ("uniform", 3.0, None)
    assert [each.prompt_tokens for each in paced.requests] == [each.prompt_tokens for each in traced.requests]
    drawn = simulate(rate=3.0, count=25, seed=1)
    assert (drawn.load.requests, drawn.load.seed) == (25, 1)
    assert simulate(limits=GivenLimits(max_running=4)).use.most_waiting > 0
    assert {each.prompt_tokens for each in drawn.requests} < {each.prompt_tokens for each in traced.requests}


def test_more_load_is_slower_and_rates_are_found_between() -> None:
    """Batches of two requests, so that few requests saturate the engine."""
    report = simulate(
        rate=4.0,
        count=60,
        limits=GivenLimits(max_running=2),
        slo_tpot_ms=20.0,
        slo_ttft_ms=2_000.0,
        finds_rates=True,
        sweeps=True,
    )
    assert report.objective is not None
    assert report.saturated_per_s is not None
    assert (
        0 < report.objective.goodput_99_per_s <= report.objective.goodput_90_per_s <= report.saturated_per_s
    )
    assert report.sustainable_per_s == pytest.approx(report.saturated_per_s, rel=0.1)
    rates = [entry.rate_per_s for entry in report.rates]
    assert rates == sorted(rates)
    assert report.rates[0].ttft_p90_ms < report.rates[-1].ttft_p90_ms
    assert (report.rates[0].met_share, report.rates[0].is_stable) == (1.0, True)
    assert report.use.most_running == 2


def test_slower_steps_are_never_faster_to_serve() -> None:
    report = simulate(rate=8.0, count=80, finds_rates=True, limits=GivenLimits(max_running=8))
    fast, slow = report.fast_steps, report.slow_steps
    assert fast.latencies.ttft.mean_ms < report.latencies.ttft.mean_ms < slow.latencies.ttft.mean_ms
    assert fast.latencies.tpot.p50_ms < report.latencies.tpot.p50_ms < slow.latencies.tpot.p50_ms
    assert fast.saturated_per_s > report.saturated_per_s > slow.saturated_per_s


def test_a_small_cache_preempts_and_a_trace_out_of_order_is_sorted() -> None:
    requests = [Request(600, 300, arrival_s=float(20 - index) / 100) for index in range(20)]
    report = simulate(
        requests, ForecastOptions(gpu="h100", framework="vllm"), limits=GivenLimits(kv_capacity_tokens=4_000)
    )
    assert report.use.preemptions > 0
    assert report.use.recomputed_tokens > 0
    assert report.use.most_kv_share <= 1.0
    assert [each.arrival_s for each in report.requests] == sorted(each.arrival_s for each in report.requests)
    assert any("order of arrival" in warning for warning in report.warnings)


def test_frameworks_and_gpus_have_their_own_limits() -> None:
    def find(gpu: str, framework: str) -> tuple[int, int, int]:
        engine = simulate([Request(8, 2)], ForecastOptions(gpu=gpu, framework=framework), rate=1.0).engine
        return engine.chunk_tokens, engine.max_running, engine.block_tokens

    assert find("h100", "vllm") == (8_192, 1_024, 16)
    assert find("a100", "vllm") == (2_048, 256, 16)
    assert find("h100", "sglang") == (8_192, 2_048, 1)
    assert find("l40s", "sglang") == (4_096, 2_048, 1)
    assert find("b200", "sglang") == (16_384, 2_048, 1)
