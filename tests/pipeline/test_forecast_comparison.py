"""Comparisons of layouts: each row is that layout's own forecast, the impossible have reasons, prices count."""

import pytest

from analyzer.forecast.comparison import LatencyTargets
from analyzer.forecast.request_trace import Request
from analyzer.pipeline.forecast import ForecastOptions, forecast_model
from analyzer.pipeline.forecast_comparison import ComparisonOptions, compare_layouts
from analyzer.pipeline.gpu_prices import parse_prices, read_prices
from analyzer.text.errors import HardwareError, InputError, UsageError

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
REQUESTS = (Request(1024, 32), Request(512, 16))


def list_layouts(*gpus, tp=(1, 2)):
    """Return the layouts of some GPUs."""
    return [ForecastOptions(gpu=gpu, tensor_parallel=size) for gpu in gpus for size in tp]


def compare(*gpus, tp=(1, 2), prices=None, **targets):
    """Compare GPUs on the requests."""
    options = ComparisonOptions(prices=prices or {}, targets=LatencyTargets(**targets))
    return compare_layouts(MODEL, REQUESTS, list_layouts(*gpus, tp=tp), options)


def test_rows_are_the_layouts_own_forecasts():
    report = compare("h100", "l40s", prices={"h100-sxm": 3.0, "l40s": 1.0})
    assert len(report.layouts) == 4
    for entry in report.layouts:
        alone = forecast_model(MODEL, REQUESTS, gpu=entry.gpu, tensor_parallel=entry.tensor_parallel)
        assert (entry.ttft_ms, entry.tpot_ms, entry.total_ms) == (
            alone.prefill_ms,
            alone.decode_ms,
            alone.total_ms,
        )
        cost = entry.price_per_gpu_hour * entry.gpus * entry.total_ms / 3.6e6
        assert entry.run_cost == pytest.approx(cost)
        assert entry.cost_per_million_output_tokens == pytest.approx(cost / 48 * 1e6)
    costs = [entry.run_cost for entry in report.layouts]
    assert costs == sorted(costs)
    assert [entry.is_best for entry in report.layouts] == [True, False, False, False]


def test_a_dear_gpu_is_the_best_where_only_it_meets_the_target():
    loose = compare("h100", "l40s", tp=(1,), prices={"h100-sxm": 30.0, "l40s": 1.0})
    assert next(entry for entry in loose.layouts if entry.is_best).gpu == "l40s"
    tight = compare("h100", "l40s", tp=(1,), prices={"h100-sxm": 30.0, "l40s": 1.0}, tpot_ms=12.0)
    best, other = tight.layouts
    assert (best.gpu, best.is_best, best.meets_targets) == ("h100-sxm", True, True)
    assert [text.partition(" ")[0] for text in other.missed] == ["TPOT"]


def test_without_prices_the_fewest_gpus_are_best_and_time_sorts():
    report = compare("h100", tp=(1, 2, 4))
    assert [entry.gpus for entry in report.layouts] == [4, 2, 1]
    assert next(entry for entry in report.layouts if entry.is_best).gpus == 1
    assert all(entry.is_pareto for entry in report.layouts)
    assert report.ranked_by == "total_ms"


def test_impossible_layouts_are_listed_last_with_their_reason():
    report = compare("h100", tp=(3, 1))
    assert [entry.is_possible for entry in report.layouts] == [True, False]
    assert "does not divide 32 attention heads" in report.layouts[1].reason
    with pytest.raises(UsageError, match="none of 2 layouts is possible"):
        compare("h100", tp=(3, 5))
    with pytest.raises(UsageError, match=r"^--tp 3 does not divide"):
        compare("h100", tp=(3,))


def test_a_gpu_without_a_price_is_not_among_the_cheapest():
    report = compare("h100", "l40s", tp=(1,), prices={"l40s": 1.0})
    assert report.layouts[-1].gpu == "h100-sxm"
    assert "H100" in report.warnings[0]
    assert not report.layouts[-1].is_pareto


def test_wrong_gpus_and_targets_are_errors():
    with pytest.raises(HardwareError):
        compare("h100", "h1000")
    with pytest.raises(UsageError, match="--max-ttft-ms -1 is no limit"):
        compare("h100", ttft_ms=-1.0)
    with pytest.raises(UsageError, match="600 layouts to compare"):
        compare_layouts(MODEL, REQUESTS, list_layouts("h100") * 300)


def test_prices_are_read_by_name(tmp_path):
    assert parse_prices(["h100=2.5", "L40S=0"]) == {"h100-sxm": 2.5, "l40s": 0.0}
    for text in ("h100", "=2", "h100=-1", "h100=nan", "h100=1e300"):
        with pytest.raises(UsageError, match="no price"):
            parse_prices([text])
    table = tmp_path / "prices.csv"
    table.write_text("gpu,price_per_hour\nh100,2.5\nof-tomorrow,9\n")
    assert read_prices(table) == {"h100-sxm": 2.5}
    table.write_text("gpu,price_per_hour\nh100,cheap\n")
    with pytest.raises(InputError, match="'cheap' is no price") as caught:
        read_prices(table)
    assert caught.value.diagnostic.location.line == 2
