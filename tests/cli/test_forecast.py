"""`forecast` from the command line: report, text, faults, determinism."""

import json
import subprocess
import sys

import pytest
from forecast_models import DENSE
from paths import ROOT

import analyzer
from analyzer.cli.app import run

_MODEL, _TRACE = str(ROOT / "docs" / "llama-3.1-8b.json"), str(ROOT / "docs" / "requests.csv")
_EQUAL = ["--batch", "2", "--input-tokens", "100", "--output-tokens", "5"]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["forecast", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def _forecast(capsys, *arguments):
    code, out, err = _run(capsys, *arguments, "--format", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_report_adds_up(capsys):
    report = _forecast(capsys, "--config", _MODEL, "--requests", _TRACE, "--gpu", "h100", "--tp", "2")
    assert report["schema"] == "warplens/forecast/1"
    assert (report["model"], report["gpu"], report["tensor_parallel"]) == ("llama-3.1-8b", "h100-sxm", 2)
    steps = report["steps"]
    assert len(steps) == 128  # the longest request
    assert [step["phase"] for step in steps] == ["prefill"] + ["decode"] * 127
    assert report["total_ms"] == pytest.approx(sum(step["time_ms"] for step in steps))
    assert report["prefill_ms"] == pytest.approx(steps[0]["time_ms"])
    decodes = sorted(step["time_ms"] for step in steps[1:])
    assert report["decode_ms"] == pytest.approx(decodes[63])
    for name in ("prefill_ms", "decode_ms", "total_ms"):
        assert 0 < report[f"{name}_low"] < report[name] < report[f"{name}_high"]
    operators = report["operators"].values()
    assert sum(entry["total_ms"] for entry in operators) == pytest.approx(report["total_ms"])
    assert sum(entry["prefill_ms"] for entry in operators) == pytest.approx(report["prefill_ms"])
    assert sum(entry["decode_ms"] for entry in operators) == pytest.approx(report["decode_ms"])
    assert sum(entry["share"] for entry in operators) == pytest.approx(1)
    assert report["output_tokens_per_s"] == pytest.approx(640 / report["total_ms"] * 1e3)
    assert steps[1]["operators"]["gemm"][0] == {
        "name": "qkv_proj",
        "type": "ColumnParallelLinear",
        "M": 8,
        "N": 3072,
        "K": 4096,
        "count": 32,
    }
    assert report["memory"]["fits"]
    assert report["memory"]["kv_bytes"] == report["memory"]["kv_bytes_per_token"] * max(
        step["kv_tokens"] for step in steps
    )
    assert report["figures"]
    assert all(figure["source"] for figure in report["figures"])


def test_a_run_without_decode_steps(capsys):
    report = _forecast(capsys, _MODEL, "--input-tokens", "100", "--output-tokens", "1", "--gpu", "h100")
    assert report["decode_ms"] is report["decode_ms_low"] is None
    assert report["total_ms"] == report["prefill_ms"]
    code, out, _ = _run(capsys, _MODEL, "--input-tokens", "100", "--output-tokens", "1", "--gpu", "h100")
    assert code == 0
    assert "TPOT" not in out


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (["--gpu", "h100"], ["--gpu", "l4"]),
        (["--gpu", "h100", "--tp", "4"], ["--gpu", "h100"]),
        (["--gpu", "h100", "--dtype", "fp8"], ["--gpu", "h100"]),
        (["--gpu", "h100", "--gemm-tflops", "700"], ["--gpu", "h100", "--gemm-tflops", "350"]),
    ],
)
def test_more_hardware_takes_less_time(capsys, less, more):
    sizes = ["--batch", "16", "--input-tokens", "1000", "--output-tokens", "8"]
    fast, slow = (_forecast(capsys, _MODEL, *sizes, *options) for options in (less, more))
    assert fast["prefill_ms"] < slow["prefill_ms"]
    assert fast["decode_ms"] <= slow["decode_ms"]


def test_stages_save_memory_and_not_time(capsys):
    one, two = (_forecast(capsys, _MODEL, *_EQUAL, "--gpu", "h100", "--pp", pp) for pp in ("1", "2"))
    assert two["total_ms"] > one["total_ms"]
    assert two["memory"]["weight_bytes"] < 0.6 * one["memory"]["weight_bytes"]
    assert two["operators"]["send_recv"]["total_ms"] > 0
    assert any("stages" in text for text in two["assumptions"])


def test_text_names_times_breakdown_memory_and_what_they_rest_on(capsys):
    code, out, err = _run(capsys, _MODEL, "--requests", _TRACE, "--gpu", "h100")
    assert (code, err) == (0, "")
    for text in (
        "llama-3.1-8b on 1 x H100 SXM (tp 1), sglang, bf16: 8 requests, 11,184 prompt tokens, 640 generated",
        "TTFT (prefill)",
        "TPOT (median decode step)",
        "total (128 steps)",
        "output tokens/s",
        "gate_up_proj",
        "W weights 15.0 GiB",
        "sustained rate of 16-bit products",
    ):
        assert text in out
    assert _run(capsys, _MODEL, "--requests", _TRACE, "--gpu", "h100")[1] == out


def test_calls_sum_to_the_operators_and_explain_shows_them(capsys):
    report = _forecast(capsys, _MODEL, "--requests", _TRACE, "--gpu", "h100", "--tp", "2")
    for phase, field in (("prefill", "prefill_ms"), ("decode", "decode_ms")):
        calls = [entry for entry in report["calls"] if entry["phase"] == phase]
        assert calls
        sums = {}
        for entry in calls:
            assert sum(entry["parts_us"].values()) == pytest.approx(entry["time_us"])
            assert entry["parts_us"][entry["bound"]] == max(entry["parts_us"].values())
            sums[entry["operator"]] = sums.get(entry["operator"], 0) + entry["total_ms"]
        found = {name: entry[field] for name, entry in report["operators"].items() if name != "host"}
        assert sums == pytest.approx(found)
    code, out, _ = _run(capsys, _MODEL, "--requests", _TRACE, "--gpu", "h100", "--explain")
    assert code == 0
    assert "m=11,184 n=28,672 k=4,096" in out
    assert "m=4 n=28,672 k=4,096" in out  # of the median step; shorter requests have left


def test_warnings_for_long_contexts_and_times_of_arrival(capsys, tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,140000,2\n1,5,2\n")
    report = _forecast(capsys, _MODEL, "--requests", trace, "--gpu", "h200")
    assert [text.split(",")[0] for text in report["warnings"]] == [
        "a request has 140",
        "times of arrival are not used: all requests start together",
    ]
    assert any("num_decode_tokens" in text for text in report["assumptions"])


def test_a_folder_is_named_for_its_configuration(capsys, tmp_path):
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(DENSE))
    assert _forecast(capsys, folder, *_EQUAL, "--gpu", "a100")["model"] == "My-Model"


def test_names_from_files_are_escaped(capsys, tmp_path):
    path = tmp_path / "a\x1b[31mb.json"
    path.write_text(json.dumps(DENSE))
    code, out, _ = _run(capsys, path, *_EQUAL, "--gpu", "a100")
    assert code == 0
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ([], "no MODEL.json", "config.json"),
        ([_MODEL, "--config", _MODEL, *_EQUAL], "name the same", "once"),
        ([_MODEL], "no requests", "--requests"),
        ([_MODEL, "--batch", "4"], "no --input-tokens, --output-tokens", "--requests"),
        ([_MODEL, "--requests", _TRACE, "--batch", "4"], "--requests excludes --batch", "table"),
        ([_MODEL, "--batch", "0", *_EQUAL[2:]], "--batch 0 is out of range", "from 1"),
        ([_MODEL, *_EQUAL, "--tp", "3"], "--tp 3 does not divide 32 attention heads", "1, 2, 4, 8"),
        ([_MODEL, *_EQUAL, "--tp", "8", "--pp", "2"], "16 GPUs", "at most 8"),
        ([_MODEL, *_EQUAL, "--dtype", "int3"], "unknown data type 'int3'", "bf16"),
        ([_MODEL, *_EQUAL, "--kv-dtype", "nvfp4"], "--kv-dtype: unknown data type", "fp8"),
        ([_MODEL, *_EQUAL, "--memory-fraction", "0"], "no share", "at most 1"),
        ([_MODEL, *_EQUAL, "--gemm-tflops", "nan"], "no rate", "TFLOP/s"),
        ([_MODEL, *_EQUAL, "--ep", "2", "--tp", "2"], "has no experts", "--ep"),
        ([_MODEL, "--input-tokens", "9", "--output-tokens", "131073"], "131,073 tokens", "steps"),
        (
            [_MODEL, "--batch", "900", "--input-tokens", "2000", "--output-tokens", "9"],
            "does not fit",
            "requests fit",
        ),
        (
            [_MODEL, "--batch", "90000", "--input-tokens", "9", "--output-tokens", "900"],
            "81,000,000 tokens",
            "fewer",
        ),
        (["/nowhere.json", *_EQUAL], "No such file", "config.json"),
        ([_TRACE, *_EQUAL], "not JSON", "config.json"),
        ([_MODEL, "--requests", _MODEL], "no column num_prefill_tokens", "output_tokens"),
        ([_MODEL, "--requests", "/nowhere.csv"], "No such file", "--batch"),
    ],
)
def test_faults_are_one_error(capsys, arguments, message, hint):
    code, out, err = _run(capsys, *arguments, "--gpu", "a100")
    assert (code, out) == (2, "")
    assert message in err
    assert hint in err.split("help:")[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("gpu", "options", "message", "hint"),
    [
        ("hx100", [], "no GPU is called 'hx100'", "h100-sxm"),
        ("v100", [], "does not multiply bf16", "--dtype fp16"),
        ("a100", ["--dtype", "fp8"], "does not multiply fp8", "int8_wo"),
        ("h100", ["--dtype", "nvfp4"], "does not multiply nvfp4", "int4_wo"),
    ],
)
def test_gpus_that_cannot(capsys, gpu, options, message, hint):
    code, _, err = _run(capsys, _MODEL, *_EQUAL, "--gpu", gpu, *options)
    assert code == 2
    assert message in err
    assert hint in err


def test_an_output_does_not_replace_an_input(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DENSE))
    code, _, err = _run(capsys, path, *_EQUAL, "--gpu", "a100", "-o", path)
    assert code == 2
    assert "would replace" in err


def test_python_gives_the_same_report(capsys):
    report = analyzer.forecast_model(_MODEL, _TRACE, gpu="h100", framework="vllm")
    printed = _forecast(capsys, _MODEL, "--requests", _TRACE, "--gpu", "h100", "--framework", "vllm")
    assert report.total_ms == printed["total_ms"]


def test_it_loads_no_kernel_analysis_and_no_learning():
    code = (
        "import sys\n"
        "from analyzer.cli.app import run\n"
        "code = run(sys.argv[1:])\n"
        "print(' '.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "forecast", _MODEL, *_EQUAL, "--gpu", "h100"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert not {"torch", "sklearn", "lark", "analyzer.pipeline.analysis", "analyzer.frontend"} & loaded
