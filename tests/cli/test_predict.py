"""`predict`, `calibrate` and `learn` from the command line: answers, faults, files."""

import csv
import io
import json
import math
import subprocess
import sys

import pytest
from paths import ROOT

from analyzer.cli.app import run

_GEMM = ["predict", "gemm", "--m", "4096", "--n", "4096", "--k", "4096"]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def _read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_json_has_each_gpu_with_an_interval_around_its_time(capsys):
    code, out, err = _run(capsys, *_GEMM, "--dtype", "bf16", "--gpu", "h100,b200", "--format", "json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["schema"] == "warplens/predict/1"
    assert [entry["gpu"] for entry in report["predictions"]] == ["h100-sxm", "b200"]
    for entry in report["predictions"]:
        assert 0 < entry["time_us_low"] < entry["time_us"] < entry["time_us_high"]
        assert entry["basis"]
        assert entry["shape"] == {"m": "4096", "n": "4096", "k": "4096"}
    h100, b200 = (entry["time_us"] for entry in report["predictions"])
    assert 4096**3 * 2 / 990e6 < h100 < 4 * 4096**3 * 2 / 990e6  # the printed peak of 990 TFLOP/s
    assert b200 < h100


@pytest.mark.parametrize("served", [(), ("--served",)])
def test_without_a_backend_the_interval_spans_all_kernels(capsys, served):
    found = {}
    for backend in ("", "trtllm", "sglang", "vllm"):
        option = ("--backend", backend) if backend else ()
        arguments = (*_GEMM, "--dtype", "fp8", "--gpu", "l40s", *option, *served, "--format", "json")
        code, out, _ = _run(capsys, *arguments)
        assert code == 0
        found[backend] = json.loads(out)["predictions"][0]
    unknown = found.pop("")
    assert unknown["time_us"] == pytest.approx(found["trtllm"]["time_us"])
    assert unknown["time_us_low"] == pytest.approx(min(each["time_us_low"] for each in found.values()))
    assert unknown["time_us_high"] == pytest.approx(max(each["time_us_high"] for each in found.values()))
    assert "the backend is not known" in unknown["basis"]
    assert not any("not known" in each["basis"] for each in found.values())


def test_a_backend_of_which_no_row_taught_says_so(capsys):
    arguments = (*_GEMM, "--dtype", "int8", "--gpu", "a100", "--backend", "vllm")
    code, out, _ = _run(capsys, *arguments)
    assert code == 0
    assert "no row of vllm's kernels" in out


@pytest.mark.parametrize(
    ("backend", "gpu", "spans"),
    [
        ("vllm", "h100", True),  # its published times are the host's; SGLang runs like kernels there
        ("sglang", "l40s", False),  # DeepGEMM's kernels, which taught, need warpgroups
    ],
)
def test_kernels_that_nobody_timed_are_less_certain_than_those_that_answer_for_them(
    capsys, backend, gpu, spans
):
    found = {}
    for name in (backend, "trtllm"):
        arguments = (*_GEMM, "--dtype", "fp8_block", "--gpu", gpu, "--backend", name, "--format", "json")
        code, out, _ = _run(capsys, *arguments)
        assert code == 0
        found[name] = json.loads(out)["predictions"][0]
    asked, known = found[backend], found["trtllm"]
    assert asked["time_us"] == pytest.approx(known["time_us"], rel=0.02)  # other copies of the weights
    assert asked["time_us_high"] / asked["time_us_low"] > 1.1 * known["time_us_high"] / known["time_us_low"]
    assert asked["basis"].startswith(f"no row of {backend}'s kernels: learned on")
    assert ("the interval spans those of sglang" in asked["basis"]) == spans


@pytest.mark.parametrize("backend", [(), ("--backend", "trtllm"), ("--backend", "vllm")])
def test_where_no_kernels_that_taught_can_run_they_are_transferred(capsys, backend):
    code, out, _ = _run(capsys, *_GEMM, "--dtype", "nvfp4", "--gpu", "rtx-5090", *backend, "--format", "json")
    assert code == 0
    assert "transferred from b200, gb200" in json.loads(out)["predictions"][0]["basis"]


def test_options_of_other_operators_are_refused(capsys):
    code, _, err = _run(
        capsys, "predict", "rmsnorm", "--rows", "8", "--columns", "64", "--m", "4", "--gpu", "h100"
    )
    assert code == 2
    assert "rmsnorm takes no --m" in err
    assert "--rows, --columns" in err
    code, _, err = _run(capsys, *_GEMM, "--gpu", "h100", "--served", "--model", "roofline")
    assert code == 2
    assert "--model ours" in err


def test_a_table_keeps_its_columns_and_its_rows_in_order(capsys, tmp_path):
    table = ROOT / "docs" / "operators.csv"
    code, out, err = _run(capsys, "predict", "--table", table)
    assert (code, err) == (0, "")
    given, answered = _read_csv(table.read_text()), _read_csv(out)
    assert [{name: row[name] for name in given[0]} for row in answered] == given
    columns = out.splitlines()[0].split(",")
    assert columns[-6:] == ["time_us", "time_us_low", "time_us_high", "basis", "in_range", "reason"]
    for row in answered:
        assert not row["reason"]
        assert float(row["time_us_low"]) < float(row["time_us"]) < float(row["time_us_high"])


def test_a_row_that_cannot_be_answered_keeps_its_place_with_a_reason(capsys, tmp_path):
    table = tmp_path / "in.csv"
    table.write_text(
        "operator,gpu,m,n,k\ngemm,h100,8,8,8\ngemm,h999,8,8,8\nconv,h100,8,8,8\ngemm,h100,8,8,\n"
    )
    code, out, _ = _run(capsys, "predict", "--table", table)
    rows = _read_csv(out)
    assert code == 0
    assert [bool(row["reason"]) for row in rows] == [False, True, True, True]
    assert [bool(row["time_us"]) for row in rows] == [True, False, False, False]
    assert "h999" in rows[1]["reason"]


def test_a_measured_time_of_the_table_gives_way_to_the_predicted_one(capsys, tmp_path):
    table = tmp_path / "in.csv"
    table.write_text("operator,gpu,m,n,k,time_us\ngemm,h100,8,8,8,77\n")
    _, out, _ = _run(capsys, "predict", "--table", table)
    (row,) = _read_csv(out)
    assert row["measured_us"] == "77"
    assert 0 < float(row["time_us"]) < 77


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict"], "no operator"),
        (["predict", "gemm", "--m", "1"], "no --gpu"),
        (["predict", "gemm", "--m", "1", "--gpu", "h100"], "no n"),
        (["predict", "gemm", "--m", "0", "--n", "1", "--k", "1", "--gpu", "h100"], "m '0'"),
        (["predict", "convolve", "--gpu", "h100"], "no operator 'convolve'"),
        ([*_GEMM, "--gpu", "h1000000"], "no GPU is called"),
        ([*_GEMM, "--gpu", "h100", "--dtype", "fp1"], "no data type 'fp1'"),
        ([*_GEMM, "--gpu", "h100", "--model", "sm"], "--model sm takes compiled code"),
        ([*_GEMM, "--gpu", "h100", "--model", "oracle"], "no such model of operators"),
        (["analyze", str(ROOT / "traces/cuda/sm_80/report16.sass"), "-m", "synperf"], "takes operators"),
        ([*_GEMM, "--gpu", "h100", "--set", "sm.size=1"], "sm.size"),
        ([*_GEMM, "--gpu", "h100", "--weights", "/nowhere"], "no weights"),
        ([*_GEMM, "--gpu", "h100", "--calibration", "/nowhere"], "no calibration"),
        (["predict", "gemm", "--table", "x.csv"], "--table excludes"),
        (["predict", "--table", "/nowhere.csv"], "No such file"),
        (["calibrate", "/nowhere.csv", "--gpu", "h100"], "No such file"),
        (["learn", "/nowhere.csv", "-o", "/tmp/never"], "No such file"),
    ],
)
def test_bad_usage_is_one_message(capsys, arguments, message):
    code, out, err = _run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ") or ": error: " in err.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the table is empty"),
        (b"a,b\n1,2\n", "no column operator, gpu"),
        (b"operator;gpu\n", "no column"),
        (b"operator,gpu,gpu\n", "column gpu is there twice"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b'operator,gpu\n"gemm,h100\n', "not CSV"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "calibrate"])
def test_a_table_that_is_none_is_one_message(capsys, tmp_path, command, text, message):
    table = tmp_path / "bad.csv"
    table.write_bytes(text)
    arguments = ["--table", table] if command == "predict" else [table, "--gpu", "h100"]
    code, out, err = _run(capsys, command, *arguments)
    assert (code, out) == (2, "")
    assert message in err or (command == "calibrate" and "no column" in err)


def test_edited_hardware_changes_the_time(capsys):
    narrow = [
        "predict",
        "gemm",
        "--m",
        "8",
        "--n",
        "16384",
        "--k",
        "16384",
        "--gpu",
        "h100",
        "--format",
        "json",
    ]
    _, plain, _ = _run(capsys, *narrow)
    _, edited, _ = _run(capsys, *narrow, "--set", "dram=x2")
    before, after = (json.loads(text)["predictions"][0]["time_us"] for text in (plain, edited))
    assert 0.4 < after / before < 0.8


def test_a_calibration_moves_the_time_towards_what_was_measured(capsys, tmp_path):
    sizes = [(256, 4096, 4096), (1024, 8192, 2048), (4096, 4096, 4096), (64, 2048, 8192)]
    table = tmp_path / "rows.csv"
    lines = ["operator,gpu,dtype,m,n,k"] + [f"gemm,l40s,bf16,{m},{n},{k}" for m, n, k in sizes]
    table.write_text("\n".join(lines) + "\n")
    _, out, _ = _run(capsys, "predict", "--table", table)
    before = [float(row["time_us"]) for row in _read_csv(out)]
    measured = tmp_path / "measured.csv"
    rows = [f"{line},{1.3 * time}" for line, time in zip(lines[1:], before, strict=True)]
    measured.write_text("\n".join([f"{lines[0]},time_us", *rows]) + "\n")
    levels = tmp_path / "mine.toml"
    assert _run(capsys, "calibrate", measured, "--gpu", "l40s", "-o", levels)[0] == 0
    code, out, err = _run(capsys, "predict", "--table", table, "--calibration", levels)
    assert (code, err) == (0, "")
    after = _read_csv(out)
    for row, old in zip(after, before, strict=True):
        assert float(row["time_us"]) / old == pytest.approx(1.3, rel=0.03)
        assert "4 measured rows" in row["basis"]
    other = _run(capsys, *_GEMM, "--gpu", "h100", "--calibration", levels)
    assert "measured rows" not in other[1]


def test_learned_weights_are_taken_from_their_folder(capsys, tmp_path):
    lines = ["operator,gpu,dtype,rows,columns,time_us"]
    for gpu, gbps in (("a40", 600.0), ("l40s", 700.0), ("h100", 2600.0)):
        for i in range(40):
            rows, columns = 2 ** (4 + i % 12), 1024 * (1 + i % 5)
            time_us = 2.5 + rows * columns * 8e-3 / gbps
            lines.append(f"softmax,{gpu},int8,{rows},{columns},{time_us:.4f}")
    table = tmp_path / "measured.csv"
    table.write_text("\n".join(lines) + "\n")
    folder = tmp_path / "weights"
    code, _, err = _run(capsys, "learn", table, "--quick", "-o", folder, "--data", "made here")
    assert (code, err) == (0, "")
    card = next(folder.glob("*.toml")).read_text()
    assert 'data = "made here"' in card
    assert "l40s = 40" in card
    asked = ["predict", "softmax", "--rows", "4096", "--columns", "2048", "--dtype", "int8", "--gpu", "h100"]
    _, text, _ = _run(capsys, *asked, "--weights", folder, "--format", "json")
    (entry,) = json.loads(text)["predictions"]
    assert entry["time_us"] == pytest.approx(2.5 + 4096 * 2048 * 8e-3 / 2600, rel=0.25)
    assert "40 rows of this GPU" in entry["basis"]


def test_operators_are_held_against_a_table_of_measured_ones(capsys, tmp_path):
    table = tmp_path / "measured.csv"
    table.write_text(
        "operator,gpu,dtype,m,n,k,time_us\ngemm,h100,bf16,4096,4096,4096,230\ngemm,a100,bf16,512,512,512,9\n"
    )
    code, out, _ = _run(capsys, "validate", table, "--model", "ours", "--format", "json")
    assert code == 0
    report = json.loads(out)
    overall = next(s for s in report["scores"] if s["suite"] is None and s["gpu"] is None)
    assert overall["rows"] == 2
    ratios = [case["predictions"][0]["ratio"] for case in report["cases"]]
    assert overall["bias"] == pytest.approx(math.exp(sum(map(math.log, ratios)) / 2))


def test_predicting_loads_no_learning_library():
    code = (
        "import sys; from analyzer.cli.app import run; "
        "run(['predict', '--table', 'docs/operators.csv']); "
        "print([m for m in ('torch', 'sklearn', 'scipy', 'pyarrow', 'plotly') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_rows_far_below_the_ceiling_of_their_shape_are_listed(capsys, tmp_path):
    table = tmp_path / "moe.csv"
    columns = "operator,gpu,dtype,m,experts,topk,hidden,intermediate,which"
    row = "moe,a100,bf16,4096,64,6,3072,2048,w13"
    table.write_text(f"{columns}\n{row}\n")
    _, out, _ = _run(capsys, "predict", "--table", table)
    usual_us = float(_read_csv(out)[0]["time_us"])
    table.write_text(f"{columns},time_us\n{row},{usual_us}\n{row},{5 * usual_us}\n")
    code, out, _ = _run(capsys, "validate", table, "--model", "ours", "--format", "json")
    assert code == 0
    found = json.loads(out)["underperforming"][0]  # the widest gap first
    assert found["case"] == "2"
    assert found["ceiling"] - found["efficiency"] > 0.1
    assert found["ceiling_us"] < 5 * usual_us
