"""Comparisons of served layouts: each row is that layout's own simulation, costs follow from rate and price."""

from pathlib import Path

import pytest

from analyzer.forecast.request_trace import make_equal_requests
from analyzer.pipeline.forecast import ForecastOptions
from analyzer.pipeline.serving import ServingOptions, simulate_model
from analyzer.pipeline.serving_comparison import compare_served_layouts
from analyzer.text.errors import UsageError

MODEL = Path(__file__).resolve().parents[2] / "docs" / "llama-3.1-8b.json"
OPTIONS = ServingOptions(rate=4.0, count=60)


@pytest.fixture(scope="module")
def trace():
    return make_equal_requests(60, 700, 40)


def compare(trace, *gpus, tp=(1,), dtypes=("",), prices=None, **targets):
    """Compare GPUs on the requests."""
    layouts = [
        ForecastOptions(gpu=gpu, tensor_parallel=size, dtype=dtype)
        for gpu in gpus
        for size in tp
        for dtype in dtypes
    ]
    options = ServingOptions(rate=OPTIONS.rate, count=OPTIONS.count, **targets)
    return compare_served_layouts(MODEL, trace, layouts, options, prices=prices or {})


def test_rows_are_the_layouts_own_simulations(trace):
    report = compare(trace, "h100", "l40s", slo_ttft_ms=300.0, prices={"h100-sxm": 3.0, "l40s": 1.0})
    for entry in report.layouts:
        options = ServingOptions(rate=4.0, count=60, slo_ttft_ms=300.0, finds_rates=True)
        alone = simulate_model(MODEL, trace, ForecastOptions(gpu=entry.gpu), options)
        assert entry.rate_per_s == alone.objective.goodput_90_per_s
        assert entry.saturated_per_s == alone.saturated_per_s
        (at_rate,) = (each for each in alone.rates if each.rate_per_s == entry.rate_per_s)
        assert at_rate.met_share >= 0.9
        assert (entry.ttft_p99_ms, entry.tpot_p50_ms) == (at_rate.ttft_p99_ms, at_rate.tpot_p50_ms)
        assert entry.output_tokens_per_s == pytest.approx(40 * entry.rate_per_s)
        cost = entry.price_per_gpu_hour / 3600 / entry.output_tokens_per_s * 1e6
        assert entry.cost_per_million_output_tokens == pytest.approx(cost)
    costs = [entry.cost_per_million_output_tokens for entry in report.layouts]
    assert costs == sorted(costs)
    assert [entry.is_best for entry in report.layouts] == [True, False]


def test_without_an_objective_it_is_the_rate_that_is_sustained_and_tokens_per_gpu_decide(trace):
    report = compare(trace, "h100", "l40s", tp=(1, 2))
    rates = [entry.output_tokens_per_s_per_gpu for entry in report.layouts]
    assert rates == sorted(rates, reverse=True)
    assert report.layouts[0].is_best
    for entry in report.layouts:
        assert entry.rate_per_s <= entry.saturated_per_s
        assert entry.saturated_per_s_low < entry.saturated_per_s < entry.saturated_per_s_high
        assert entry.cost_per_million_output_tokens is None


def test_the_impossible_has_its_reason_and_an_unmet_objective_no_latencies(trace):
    report = compare(trace, "a100", "l40s", dtypes=("bf16", "fp8"), slo_tpot_ms=15.0, prices={"l40s": 1.0})
    possible = {(entry.gpu, entry.dtype): entry for entry in report.layouts if entry.is_possible}
    assert set(possible) == {("a100-80gb-sxm", "bf16"), ("l40s", "bf16"), ("l40s", "fp8")}
    assert possible["l40s", "bf16"].rate_per_s == 0.0  # 16 GB of weights at 864 GB/s
    assert possible["l40s", "bf16"].ttft_p50_ms is None
    assert possible["l40s", "fp8"].is_best
    assert "does not multiply fp8" in report.layouts[-1].reason
    assert report.warnings[0] == "no price of A100-80GB SXM: not among the cheapest"
    with pytest.raises(UsageError, match="does not divide"):
        compare(trace, "h100", tp=(3,))


def test_a_better_price_makes_another_the_best(trace):
    prices = {"h100-sxm": 1.0, "l40s": 5.0}
    assert compare(trace, "h100", "l40s", prices=prices).layouts[0].gpu == "h100-sxm"
    assert compare(trace, "h100", "l40s", prices={**prices, "l40s": 0.01}).layouts[0].gpu == "l40s"
