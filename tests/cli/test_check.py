"""`warplens check`: baseline, thresholds, budgets, refusals, outputs."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from paths import TRACES

import analyzer
from analyzer.cli.app import run
from analyzer.render.json import make_json_schema

REPORT16 = (TRACES / "cuda" / "sm_80" / "report16.sass").read_text(encoding="utf-8")
_HEAD, *_FUNCTIONS = re.split(r"^(?=\t\tFunction : )", REPORT16, flags=re.M)
SOURCES = {text.split("\n", 1)[0].split()[-1]: text for text in _FUNCTIONS}
BASELINE = "warplens-baseline.json"

Capture = pytest.CaptureFixture[str]
Check = Callable[..., tuple[int, str, str]]


def dump(**kernels: str) -> str:
    """Return a dump of kernels by name, each with the code of one of report16."""
    parts = (
        SOURCES[code].replace(f"Function : {code}", f"Function : {name}") for name, code in kernels.items()
    )
    return _HEAD + "".join(parts)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Check:
    """Run `check` on k.sass in a folder of its own, with a model that is quick; return code and outputs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("WARPLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")

    def run_check(*options: str) -> tuple[int, str, str]:
        code = run(["check", *(options or ("k.sass",)), "-m", "steady", "-j1"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_check


def write(text: str, name: str = "k.sass") -> None:
    Path(name).write_text(text, encoding="utf-8")


def read_kernels(text: str) -> dict[str, dict[str, object]]:
    return {kernel["name"]: kernel for kernel in json.loads(text)["kernels"]}


def test_a_day_of_a_baseline(check: Check) -> None:
    write(dump(copy="vector_add", total="reduce_sum", wide="naive_transpose"))
    code, out, _ = check()
    assert code == 0
    assert "3 new      written: warplens-baseline.json" in out
    before = Path(BASELINE).read_bytes()
    code, out, _ = check()
    assert (code, Path(BASELINE).read_bytes()) == (0, before)
    assert "3 passed" in out

    # One is slower, one faster, one gone, one new, one has another name.
    write(dump(copy="vector_add_divergent", wide="shared_transpose", sum2="reduce_sum", fresh="saxpy"))
    code, out, _ = check()
    assert code == 1
    rows = [line for line in out.splitlines() if "error: " not in line]
    lines = {name: line for line in rows for name in ("copy", "wide", "sum2", "fresh") if name in line}
    assert "FAIL > 5 %" in lines["copy"]
    assert "improved" in lines["wide"]
    assert "new" in lines["fresh"]
    assert "renamed" in lines["sum2"]
    last = out.splitlines()[-1]
    assert last == (
        "1 regression, 1 improvement, 1 new, 1 passed      accept: warplens check --update k.sass --model steady"
    )
    assert Path(BASELINE).read_bytes() == before

    code, out, _ = check("--update", "k.sass")
    assert code == 0
    assert "written: warplens-baseline.json" in out
    code, out, _ = check()
    assert (code, out.splitlines()[-1]) == (0, "4 passed")


def test_names_lines_and_order_of_functions_change_nothing(check: Check) -> None:
    write(dump(a="vector_add", b="saxpy"))
    check()
    write("\n\n" + dump(b="saxpy", a="vector_add"))
    code, out, _ = check()
    assert (code, out.splitlines()[-1]) == (0, "2 passed")


def test_json_holds_the_schema_whatever_the_processes(check: Check, tmp_path: Path) -> None:
    write(dump(a="vector_add", b="saxpy", c="reduce_sum"))
    check()
    write(dump(a="vector_add_divergent", b="saxpy", d="histogram"))
    first = check("k.sass", "--format", "json", "--no-cache")
    assert first == check("k.sass", "--format", "json", "--no-cache", "-j2")
    assert first == check("k.sass", "--format", "json", "--cache", str(tmp_path / "c"))
    assert first == check("k.sass", "--format", "json", "--cache", str(tmp_path / "c"))
    report = json.loads(first[1])
    jsonschema.validate(report, make_json_schema(report["schema"]))
    assert [kernel["outcome"] for kernel in report["kernels"]][-1] == "passed"
    prints = [violation["fingerprint"] for violation in report["violations"]]
    assert len(set(prints)) == len(prints) > 1


def test_the_python_api_gives_the_same(check: Check) -> None:
    write(dump(a="vector_add"))
    first = analyzer.check("k.sass", gpu="a100")
    assert (first.updated, first.is_clean, first.totals.added) == (True, True, 1)
    again = analyzer.check(["k.sass"], gpu=["a100"], baseline=BASELINE)
    assert (again.updated, again.totals.passed) == (False, 1)


CONFIG = """
[tool.warplens.check]
inputs = ["build/*.sass", "none/*.sass"]
gpus = ["a100", "l40s"]
model = "steady"
cycles = "900%"
global_sectors = "ignore"
[[tool.warplens.check.kernels]]
match = "tight*"
cycles = "1%"
[[tool.warplens.check.kernels]]
match = "nobody"
cycles = "1%"
"""


def test_thresholds_of_globs_and_inputs_of_the_configuration(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(CONFIG, "pyproject.toml")
    Path("build").mkdir()
    write(dump(loose="vector_add", tight="vector_add"), "build/k.sass")
    monkeypatch.chdir("build")  # the configuration is above, and paths are its own
    assert check("-j1")[0] == 0
    assert (Path("..") / BASELINE).is_file()
    write(dump(loose="vector_add_divergent", tight="vector_add_divergent"))
    code, out, _ = check("--format", "json")
    assert code == 1
    outcomes = {name: kernel["outcome"] for name, kernel in read_kernels(out).items()}
    assert outcomes == {"loose": "passed", "tight": "regressed"}
    report = json.loads(out)
    assert {(violation["rule"], violation["gpu"]) for violation in report["violations"]} == {
        ("cycles-regression", "a100-80gb-sxm"),
        ("cycles-regression", "l40s"),
    } or {violation["rule"] for violation in report["violations"]} == {"cycles-regression"}
    assert [warning["code"] for warning in report["warnings"]].count("unused-input") == 1
    assert "unused-glob" in [warning["code"] for warning in report["warnings"]]
    assert check("--strict")[0] == 2


def test_budgets_need_no_baseline(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    write(
        "[check]\nmax_registers = 8\nmin_occupancy = 0.5\nmax_time_us = 1000\nmax_shared_bytes = 4\n"
        'forbid = ["bank-conflicts"]\n',
        "warplens.toml",
    )
    write(dump(slim="vector_add_divergent", bad="shared_bank_conflict"))
    code, out, _ = check("k.sass", "--format", "json")
    assert code == 1
    rules = {(violation["kernel"], violation["rule"]) for violation in json.loads(out)["violations"]}
    assert ("bad", "shared-bank-conflict") in rules
    assert ("bad", "max-registers") in rules
    assert not Path(BASELINE).exists()
    assert json.loads(out)["totals"]["added"] == 0
    assert "budgets alone were held" in json.loads(out)["notes"][0]
    assert "max-shared-bytes is not held for" in out  # the dump does not say it
    assert check("k.sass", "--no-baseline")[0] == 1


def test_ci_without_a_baseline_warns(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    write(dump(a="vector_add"))
    monkeypatch.setenv("CI", "1")
    code, out, _ = check("k.sass", "--format", "json")
    assert code == 0
    assert [warning["code"] for warning in json.loads(out)["warnings"]] == ["no-baseline"]
    assert check()[0] == 0
    assert "no-baseline" not in check("k.sass", "--format", "json")[1]
    Path(BASELINE).unlink()
    assert check("k.sass", "--strict")[0] == 2


def test_a_launch_of_the_command_line(check: Check) -> None:
    write(dump(a="vector_add"))
    launch = ("--grid", "512", "--block", "128", "--arg", "3=65536")
    assert check("k.sass", *launch)[0] == 0
    kernel = json.loads(check("k.sass", *launch, "--format", "json")[1])["kernels"][0]
    assert (kernel["launch"]["grid"], kernel["launch"]["block"]) == ([512, 1, 1], [128, 1, 1])
    code, _, err = check("k.sass", "--grid", "256")
    assert code == 2
    assert "launch" in err


def edit_baseline(**facts: object) -> None:
    content = json.loads(Path(BASELINE).read_text())
    Path(BASELINE).write_text(json.dumps(content | facts))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"model_fingerprint": "feed"}, "another model made its times: fingerprint feed of warplens"),
        ({"model": "sm"}, "its times are of the model sm, these of steady"),
        ({"assumed_launch": False}, "it was made without assumed launches"),
        ({"gpus": [{"gpu": "a100-80gb-sxm", "figures": "0"}]}, "figures of a100-80gb-sxm were other ones"),
        ({"gpus": [{"gpu": "h100-sxm", "figures": "0"}]}, "no times of a100-80gb-sxm, only of h100-sxm"),
    ],
)
def test_a_baseline_of_something_else_is_refused(facts: dict[str, object], said: str, check: Check) -> None:
    write(dump(a="vector_add", b="saxpy"))
    check()
    edit_baseline(**facts)
    write(dump(a="vector_add", b="vector_add_divergent"))
    kept = Path(BASELINE).read_bytes()
    code, out, err = check()
    assert (code, out) == (2, "")
    assert said in err
    assert "1 of 2 kernels have the code of the baseline, so they did not change; changed: b" in err
    assert Path(BASELINE).read_bytes() == kept
    # What the compiler decides is compared, what the model decides is not.
    code, out, _ = check("--update", "k.sass", "--format", "json")
    assert code == 0
    kernels = read_kernels(out)
    assert kernels["a"]["status"] == "same"
    cycles = [metric for metric in kernels["b"]["metrics"] if metric["metric"] == "cycles"]  # type: ignore[attr-defined]
    assert [metric["baseline"] for metric in cycles] == [None]
    assert "the old baseline did not compare" in json.loads(out)["notes"][0]
    assert check()[0] == 0


def test_another_launch_or_architecture_is_refused(check: Check) -> None:
    write(dump(a="vector_add"))
    write('{"kernels": {"a": {"grid": 64, "block": 256}}}', "one.json")
    write('{"kernels": {"a": {"grid": 6400, "block": 256}}}', "two.json")
    assert check("k.sass", "--launch", "one.json")[0] == 0
    assert check("k.sass", "--launch", "one.json")[0] == 0
    code, _, err = check("k.sass", "--launch", "two.json")
    assert code == 2
    assert "kernels were launched otherwise: a" in err
    other = (TRACES / "cuda" / "sm_90" / "report16.sass").read_text(encoding="utf-8")
    head, *functions = re.split(r"^(?=\t\tFunction : )", other, flags=re.M)
    write(
        head
        + next(text.replace("vector_add", "a") for text in functions if "Function : vector_add\n" in text)
    )
    code, _, err = check("k.sass", "--launch", "one.json", "-g", "a100")
    assert code == 2
    assert "another architecture (sm_80, now sm_90): a" in err


def test_what_is_not_checked_stays(check: Check) -> None:
    write(dump(a="vector_add"), "a.sass")
    write(dump(b="saxpy"), "b.sass")
    check("a.sass", "b.sass")
    write(dump(c="saxpy"), "a.sass")
    code, out, _ = check("--update", "a.sass")
    assert code == 0
    assert "of the baseline not checked: b.sass" in out
    assert [kernel["name"] for kernel in json.loads(Path(BASELINE).read_text())["kernels"]] == ["c", "b"]
    edit_baseline(model_fingerprint="feed")
    kept = Path(BASELINE).read_bytes()
    code, _, err = check("--update", "a.sass")
    assert code == 2
    assert "it keeps kernels of inputs that are not checked here (b.sass)" in err
    assert Path(BASELINE).read_bytes() == kept
    # An input that a glob covers and that is gone takes its kernels with it.
    Path("b.sass").unlink()
    code, out, _ = check("*.sass", "--update")
    assert code == 0
    assert "1 removed" in out
    assert [kernel["name"] for kernel in json.loads(Path(BASELINE).read_text())["kernels"]] == ["c"]


def test_a_file_that_moved_takes_its_kernels_along(check: Check) -> None:
    write(dump(a="vector_add", b="saxpy"), "old.sass")
    check("old.sass")
    Path("old.sass").unlink()
    write(dump(a="vector_add_divergent", b="saxpy"), "new.sass")
    code, out, _ = check("new.sass", "--format", "json")
    assert code == 1
    assert {name: kernel["outcome"] for name, kernel in read_kernels(out).items()} == {
        "a": "regressed",
        "b": "passed",
    }
    check("new.sass", "--update")
    kernels = json.loads(Path(BASELINE).read_text())["kernels"]
    assert [(kernel["input"], kernel["name"]) for kernel in kernels] == [("new.sass", "a"), ("new.sass", "b")]


def test_a_baseline_for_each_input(check: Check) -> None:
    write(dump(a="vector_add"), "a.sass")
    write(dump(b="saxpy"), "b.sass")
    assert check("--per-input", "a.sass", "b.sass")[0] == 0
    folder = Path("warplens-baseline")
    assert sorted(path.name for path in folder.iterdir()) == ["a.sass.json", "b.sass.json"]
    assert "2 passed" in check("--per-input", "a.sass", "b.sass")[1]
    b_before = (folder / "b.sass.json").read_bytes()
    write(dump(a="vector_add_divergent"), "a.sass")
    assert check("--baseline", str(folder), "a.sass")[0] == 1
    assert check("--baseline", str(folder), "a.sass", "--update")[0] == 0
    assert (folder / "b.sass.json").read_bytes() == b_before
    Path("b.sass").unlink()
    assert check("--per-input", "*.sass", "--update")[0] == 0
    assert [path.name for path in folder.iterdir()] == ["a.sass.json"]


def test_kernels_that_come_and_go_trip_where_that_is_asked_for(check: Check) -> None:
    write(dump(a="vector_add", b="saxpy"))
    check()
    write(dump(a="vector_add", c="vector_add_divergent"))
    assert check()[0] == 0
    write('[check]\nnew_kernels = "error"\nremoved_kernels = "error"\n', "warplens.toml")
    code, out, _ = check("k.sass", "--format", "json")
    assert code == 1
    rules = {(violation["rule"], violation["kernel"]) for violation in json.loads(out)["violations"]}
    assert rules == {("new-kernel", "c"), ("removed-kernel", "b")}
    assert check("k.sass", "--update")[0] == 0


def test_hostile_names_are_shown_as_text(check: Check) -> None:
    name = "k\x1b]0;title\x07[red]\u202e"
    write(dump(a="vector_add").replace("Function : a", f"Function : {name}"))
    check()
    write(dump(a="vector_add_divergent").replace("Function : a", f"Function : {name}"))
    for options in ((), ("--format", "json")):
        code, out, err = check("k.sass", *options)
        assert code == 1
        assert not set("\x1b\x07\u202e") & set(out + err)
    assert not set("\x1b\x07\u202e") & set(Path(BASELINE).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no input to check"),
        (("gone.sass",), "gone.sass: no such file"),
        (("gone*.sass",), "no file fits gone*.sass"),
        (("k.sass", "--config", "gone.toml"), "gone.toml: No such file"),
        (("k.sass", "--launch", "gone.json"), "gone.json: No such file"),
        (("k.sass", "--no-baseline"), "neither a baseline nor budgets"),
        (("k.sass", "--no-baseline", "--update"), "--no-baseline excludes"),
        (("k.sass", "-g", "h1000"), "no GPU is called"),
        (("k.sass", "-o", "k.sass"), "would replace k.sass"),
        (("k.sass", "--baseline", "k.sass"), "would replace k.sass"),
        (("*.sass", "-o", "k.sass"), "would replace k.sass"),
        (("k.sass", "-o", "k.res"), "would replace k.res"),
        (("k.sass", "-o", BASELINE), "which this command reads or writes"),
        (("k.sass", "--baseline", "/proc/none/b.json", "--update"), "cannot write the baseline"),
        (("k.sass", "-o", "/proc/none/out.txt"), "cannot write /proc/none/out.txt"),
        (("k.sass", "--cache", "c", "--no-cache"), "exclude each other"),
    ],
)
def test_bad_usage_is_one_error(options: tuple[str, ...], said: str, check: Check, capsys: Capture) -> None:
    write(dump(a="vector_add"))
    write((TRACES / "cuda" / "sm_80" / "report16.res").read_text(encoding="utf-8"), "k.res")
    code = run(["check", *options])
    err = capsys.readouterr().err
    assert code == 2
    assert said in err
    assert err.count("error: ") == 1
    assert "Traceback" not in err
