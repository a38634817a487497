"""`warplens serving`: outputs, and one clear message for what cannot be served."""

import json
from pathlib import Path

import pytest

from analyzer.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "docs" / "llama-3.1-8b.json")
TRACE = str(ROOT / "docs" / "arrivals.csv")
EQUAL = ("--input-tokens", "64", "--output-tokens", "8", "--count", "20")


def serve(*options: str, gpu: str = "h100") -> int:
    return run(["serving", MODEL, "--gpu", gpu, *options])


def test_text_json_csv_and_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(*EQUAL, "--rate", "20", "--slo-ttft-ms", "200", "--find-rate") == 0
    text = capsys.readouterr().out
    for words in ("time to first token", "saturated throughput", "goodput", "TTFT at most 200 ms"):
        assert words in text
    chart = tmp_path / "rates.html"
    assert serve(*EQUAL, "--rate", "20", "--format", "json", "--chart", str(chart)) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "warplens/serving/1"
    assert len(report["requests"]) == 20
    assert "TTFT against rate" in chart.read_text()
    assert serve("--arrivals", TRACE, "--format", "csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == 61


def test_so_few_requests_that_no_steady_state_shows_are_not_called_sustained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--input-tokens", "2048", "--output-tokens", "512", "--rate", "1")
    assert serve(*options, "--count", "20", gpu="l4") == 0
    out = capsys.readouterr().out
    assert "the load is sustained:" not in out.replace("whether the load is sustained:", "")
    assert "too few requests to say whether the load is sustained: 1.00 requests/s arrive, 0.2" in out
    assert serve(*EQUAL[:4], "--count", "200", "--rate", "2") == 0
    assert "the load is sustained: the backlog does not grow" in capsys.readouterr().out


def test_layouts_and_prices_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    options = (*EQUAL, "--rate", "20", "--dtype", "bf16,fp8", "--price", "h100=2", "--slo-tpot-ms", "30")
    assert serve(*options, gpu="h100,a100") == 0
    out = capsys.readouterr().out
    assert "per M tokens" in out
    assert "cheapest: 1 x H100 SXM, tp 1, fp8" in out
    assert "not possible: 1 x A100-80GB SXM, tp 1, fp8: A100-80GB SXM (sm_80) does not multiply fp8" in out
    assert serve(*options[:-1], "0.1", "--format", "json") == 1
    found = capsys.readouterr()
    assert json.loads(found.out)["schema"] == "warplens/serving-comparison/1"
    assert "gate: no layout meets the objective at any rate" in found.err
    for other in (("--chart", "x.html"), ("--format", "csv")):
        assert serve(*options, *other) == 2
        assert "one layout" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (("--rate", "0"), "--rate 0 is out of range", "requests per second"),
        (("--rate", "-3"), "--rate -3 is out of range", "requests per second"),
        (("--rate", "nan"), "--rate nan is out of range", "requests per second"),
        ((), "the requests have no arrival times", "--rate"),
        (("--rate", "1", "--chunk", "0"), "--chunk 0 is out of range", "from 1"),
        (("--rate", "1", "--slo-tpot-ms", "-1"), "--slo-tpot-ms -1 is out of range", "milliseconds"),
        (("--rate", "1", "--seed", "-1"), "--seed -1 is out of range", "0 or more"),
        (("--rate", "1", "--framework", "vllm", "--chunk", "128"), "--chunk 128 is less than the 1,024", "--max-batch"),
        (("--rate", "1", "--chunk", "8", "--block", "16"), "less than a block of 16", "--block"),
        (("--rate", "1", "--kv-tokens", "64"), "can never run: it needs 73 tokens of KV cache, and 64 fit", "--kv-tokens"),
        (("--rate", "1", "--chunk", "16777216"), "can never run", "it fits with --chunk 8192"),
        (("--rate", "1", "--process", "burst", "--find-rate"), "all arrive at once", "--rate"),
        (("--rate", "1", "--tp", "3"), "--tp 3 does not divide", "--tp can be"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(
    options: tuple[str, ...], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(*EQUAL, *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert hint in error.partition("help:")[2]


def test_a_request_that_fits_no_cache_says_which_gpus_hold_it(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--input-tokens", "600000", "--output-tokens", "8", "--rate", "1")
    assert serve(*options, gpu="l40s") == 2
    error = capsys.readouterr().err
    assert "a request of 600,000 prompt and 8 output tokens can never run" in error
    assert "it fits with --tp 4" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--input-tokens", "5"), "no --output-tokens"),
        ((), "no requests"),
        (("--requests", TRACE, "--input-tokens", "5"), "--requests excludes --input-tokens"),
        (("--input-tokens", "5", "--output-tokens", "5", "--count", "0"), "--count 0"),
        (("--requests", "missing.csv"), "missing.csv"),
        (("--requests", TRACE, "--count", "61"), "--count 61, and the trace has 60 requests"),
    ],
)
def test_requests_are_given_once(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(*options) == 2
    assert message in capsys.readouterr().err


def test_a_fault_of_the_trace_is_shown_with_a_caret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,num_prefill_tokens,output_tokens\n0.0,10,5\nsoon,10,5\n")
    assert serve("--requests", str(trace)) == 2
    error = capsys.readouterr().err
    assert "'soon' is no time" in error
    assert "trace.csv:3" in error
    assert "^" in error
