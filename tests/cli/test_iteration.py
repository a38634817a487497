"""`iteration` from the command line: report, text, faults, determinism."""

import json

import jsonschema
import pytest
from paths import ROOT

from analyzer.cli.app import run
from analyzer.render.json import make_json_schema

_MODEL, _EXPORTED = str(ROOT / "docs" / "gpt2-large.json"), str(ROOT / "docs" / "transformer.pt2")
_SIZES = ["--batch", "4", "--seq", "256", "--gpu", "v100-pcie"]


def _run(capsys, *arguments):
    code = run(["iteration", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def _report(capsys, *arguments):
    code, out, err = _run(capsys, *arguments, "--format", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_report_adds_up_and_follows_its_schema(capsys):
    report = _report(capsys, _MODEL, *_SIZES, "--training")
    jsonschema.validate(report, make_json_schema("warplens/iteration/1"))
    phases = sum(report[name] for name in ("forward_ms", "backward_ms", "optimizer_ms"))
    assert report["total_ms"] == pytest.approx(phases)
    assert report["total_ms_low"] < report["total_ms"] < report["total_ms_high"]
    assert report["parameters"] == 774_030_080
    assert sum(entry["share"] for entry in report["operators"].values()) == pytest.approx(1.0)
    assert report["tokens_per_s"] == pytest.approx(4 * 256 / report["total_ms"] * 1e3)
    assert report == _report(capsys, "--config", _MODEL, *_SIZES, "--training")


def test_training_takes_about_three_times_inference(capsys):
    inference = _report(capsys, _MODEL, *_SIZES)
    training = _report(capsys, _MODEL, *_SIZES, "--training", "--no-optimizer")
    assert 2.5 < training["total_ms"] / inference["total_ms"] < 3.6
    assert training["flops"] == pytest.approx(3 * inference["flops"], rel=1e-6)


@pytest.mark.parametrize("model", ["neusight", "roofline"])
def test_other_models_of_operators_answer(capsys, model):
    report = _report(capsys, _MODEL, *_SIZES, "--model", model)
    assert report["operator_model"] == model
    assert 0.3 < report["total_ms"] / _report(capsys, _MODEL, *_SIZES)["total_ms"] < 3.0


def test_an_exported_program_answers_in_any_data_type(capsys):
    times = {}
    for dtype in ("fp32", "fp16", "bf16"):
        report = _report(capsys, "--exported", _EXPORTED, "--gpu", "h100", "--dtype", dtype)
        times[dtype] = report["forward_ms"]
        assert report["sequence"] is None
    assert times["fp16"] == pytest.approx(times["bf16"], rel=0.2)
    assert all(time > 0 for time in times.values())


def test_text_names_phases_operators_and_memory(capsys):
    code, out, _ = _run(capsys, _MODEL, *_SIZES, "--training", "--dp", "4")
    assert code == 0
    for text in ("774.0M", "dp 4", "backward", "batched product", "memory of one GPU", "buckets of 25 MB"):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ([_MODEL, "--gpu", "h100"], "no --seq", "--seq"),
        ([_MODEL, "--gpu", "h100", "--seq", "4096"], "1,024 positions", "1024"),
        ([_MODEL, *_SIZES, "--tp", "3"], "--tp 3", "2, 4"),
        ([_MODEL, *_SIZES, "--training", "--dp", "3"], "--batch 4", "--batch"),
        ([_MODEL, *_SIZES, "--dp", "2"], "without --training", "replica"),
        ([_MODEL, *_SIZES, "--pp", "5"], "36 layers", "2, 3, 4"),
        ([_MODEL, *_SIZES, "--batch", "0"], "--batch 0", ""),
        ([_MODEL, *_SIZES, "--dtype", "fp9"], "fp9", "fp32"),
        (["--gpu", "h100", "--seq", "4"], "no model", "config.json"),
        ([_MODEL, "--exported", _EXPORTED, "--gpu", "h100"], "several models", ""),
        (["--exported", _EXPORTED, "--gpu", "h100", "--tp", "2"], "not divided", "--dp"),
        (["--exported", _MODEL, "--gpu", "h100"], "no archive", "torch.export.save"),
        (["none.json", *_SIZES], "none.json", "config.json"),
    ],
)
def test_faults_are_one_message_that_says_what_works(capsys, arguments, message, hint):
    code, out, err = _run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert hint in err
    assert "Traceback" not in err


def test_a_fault_in_a_configuration_has_its_place(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{\n  "model_type": "gpt2",\n  "n_embd": "wide"\n}\n')
    code, _, err = _run(capsys, path, *_SIZES)
    assert code == 2
    assert "config.json:3" in err
    assert "^" in err
    path.write_text('{"model_type": ')
    assert "not JSON" in _run(capsys, path, *_SIZES)[2]
