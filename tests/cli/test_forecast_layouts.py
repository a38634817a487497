"""`warplens forecast` of several layouts: formats, gate, page, wrong options."""

import json
from pathlib import Path

import jsonschema
import pytest

from analyzer.cli.app import run
from analyzer.render.json import make_json_schema
from analyzer.report import read_report

ROOT = Path(__file__).resolve().parents[2]
BASE = [
    "forecast",
    str(ROOT / "docs" / "llama-3.1-8b.json"),
    *("--batch", "4", "--input-tokens", "512", "--output-tokens", "16"),
]


def test_json_is_as_its_schema_has_it(capsys):
    assert run([*BASE, "--gpu", "h100,l40s", "--tp", "1,3", "--price", "h100=2", "--format", "json"]) == 0
    text = capsys.readouterr().out
    found = json.loads(text)
    jsonschema.validate(found, make_json_schema("warplens/forecast-comparison/1"))
    assert [(entry["gpu"], entry["is_possible"]) for entry in found["layouts"]] == [
        ("h100-sxm", True),
        ("l40s", True),
        ("h100-sxm", False),
        ("l40s", False),
    ]
    assert read_report(text.encode()).layouts[0].is_best


def test_one_layout_stays_a_forecast(capsys):
    assert run([*BASE, "--gpu", "h100", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "warplens/forecast/1"


def test_targets_are_a_gate(capsys):
    assert run([*BASE, "--gpu", "h100", "--tp", "1,2", "--max-tpot-ms", "1000"]) == 0
    assert "met" in capsys.readouterr().out
    assert run([*BASE, "--gpu", "h100", "--tp", "1,2", "--max-tpot-ms", "0.01"]) == 1
    printed = capsys.readouterr()
    assert "no layout meets TPOT <= 0.01 ms" in printed.out
    assert printed.err.startswith("gate: none of 2 layouts meets the targets; h100-sxm tp 2 pp 1: TPOT")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu", "h100", "--tp", "1,x"], "--tp 1,x: no number"),
        (["--gpu", "h100", "--tp", "3,5"], "none of 2 layouts is possible"),
        (["--gpu", "h100,h1000"], "h1000"),
        (["--gpu", "h100", "--price", "h100"], "--price h100: no price"),
        (["--gpu", "h100", "--max-total-ms", "nan"], "is no limit"),
    ],
)
def test_wrong_options_are_one_error(options, message, capsys):
    assert run([*BASE, *options]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_the_page_is_written_beside_the_text(tmp_path, capsys):
    page = tmp_path / "layouts.html"
    assert run([*BASE, "--gpu", "h100", "--tp", "1,2", "--html", str(page)]) == 0
    assert "fewest GPUs" in capsys.readouterr().out
    text = page.read_text()
    assert text.count("<circle") >= 6
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
