"""The GitHub action: what its file says, and its steps run as GitHub runs them, in a fresh clone."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from composite_actions import make_environment, run_action
from paths import ROOT, TRACES
from published_schemas import load_schema

SOFTMAX = TRACES / "triton" / "sm_90" / "softmax.sass"
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
_SHIPPED = ("analyzer", "grammars", "hwdb", "action", "action.yml", "pyproject.toml", "README.md", "LICENSE")


def test_action_is_as_github_has_it() -> None:
    jsonschema.Draft7Validator(load_schema("github-action")).validate(ACTION)


def test_no_input_becomes_text_of_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(ACTION["runs"])))
    assert used == set(ACTION["inputs"])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone of what git has of the working tree, without traces and tests."""
    found = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *_SHIPPED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no checkout of git")
    for name in filter(None, listed.stdout.split("\0")):
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, found / name)
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python whose new environments have our dependencies and pip already, so that none is downloaded."""
    wrapper = tmp_path_factory.mktemp("python") / "python"
    site = sysconfig.get_path("purelib")
    wrapper.write_text(
        "#!/bin/bash\n"
        f'"{sys.executable}" -m venv --without-pip "$3" || exit\n'
        f'for folder in "$3"/lib/python3*/site-packages; do echo "{site}" > "$folder/dependencies.pth"; done\n'
    )
    wrapper.chmod(0o755)
    return wrapper


def test_steps_in_a_fresh_clone(checkout: Path, python: Path, tmp_path: Path) -> None:
    workspace, temp = tmp_path / "workspace", tmp_path / "temp"
    workspace.mkdir()
    temp.mkdir()
    (workspace / "warplens.toml").write_text("[check]\nmax_registers = 8\n")
    # The build copies what a compiler would make, and is given text that a shell would run if it were code.
    build = f"cp '{SOFTMAX}' 'my kernel.sass'\nprintf '%s' '$(touch injected)' > note"
    done = run_action(
        checkout,
        workspace,
        temp,
        {"build": build, "files": "my *.sass\n", "gpu": "h100", "arguments": "--no-baseline"},
        used={"python": {"python-path": str(python)}},
        environment={
            **make_environment(),
            **{"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1"},
        },
    )
    assert done.code == 1, done.log
    assert done.outputs["exit-code"] == "1"
    (annotation,) = re.findall(r"^::error .*", done.log, re.M)
    assert "title=warplens max-registers" in annotation
    assert "over-budget" in done.summary
    assert json.loads(Path(done.outputs["report"]).read_text())["schema"] == "warplens/check/1"
    assert json.loads(Path(done.outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert not list(workspace.rglob("injected"))
    assert list((temp / "warplens").rglob("site-packages/analyzer/__init__.py"))


class Step:
    """The checking step, run in this process, in a workspace of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        spec = importlib.util.spec_from_file_location("run_check", ROOT / "action" / "run_check.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.main, self.folder, self.capsys = module.main, folder, capsys

    def run(self, **inputs: str) -> tuple[int, dict[str, str], str, str]:
        """Return exit code, outputs, log and summary."""
        output, summary = self.folder / "output", self.folder / "summary.md"
        output.write_text("")
        summary.write_text("")
        given = {f"WARPLENS_{name.upper()}": value for name, value in inputs.items()}
        places = {"RUNNER_TEMP": self.folder, "GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": summary}
        code = self.main({**given, **{name: str(path) for name, path in places.items()}})
        outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
        captured = self.capsys.readouterr()
        return code, outputs, captured.out + captured.err, summary.read_text()


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Step:
    shutil.copyfile(SOFTMAX, tmp_path / "kernel.sass")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "true")
    return Step(tmp_path, capsys)


GIVEN = {"files": "kernel.sass", "gpu": "h100"}


def test_a_missing_baseline_is_said(step: Step) -> None:
    code, outputs, log, _ = step.run(**GIVEN)
    assert (code, outputs["exit-code"]) == (0, "0")
    assert re.search(r"^::warning .*no-baseline.*::nothing was compared", log, re.M)
    assert step.run(**GIVEN, baseline="other.json", arguments="--strict")[0] == 2


def test_the_gate_passes_what_is_unchanged_and_trips_on_the_rest(step: Step) -> None:
    assert step.run(**GIVEN, arguments="--update")[0] == 0
    code, outputs, log, summary = step.run(**GIVEN)
    assert (code, outputs["exit-code"]) == (0, "0")
    assert "::error" not in log
    assert summary.startswith("### warplens check: passed")
    assert json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"] == []

    (step.folder / "warplens.toml").write_text("[check]\nmax_registers = 8\n")
    code, outputs, log, summary = step.run(**GIVEN, sarif="out.sarif")
    assert (code, outputs["exit-code"]) == (1, "1")
    assert outputs["sarif"] == str(step.folder / "out.sarif")
    (result,) = json.loads((step.folder / "out.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "max-registers"
    assert len(re.findall(r"^::error .*title=warplens max-registers::", log, re.M)) == 1
    assert "**over-budget**" in summary
    # What the text of the report says can be no command.
    begin, end = re.search(r"^::stop-commands::(\w+)$", log, re.M), re.search(r"^::(\w+)::$", log, re.M)
    assert begin is not None
    assert end is not None
    assert begin[1] == end[1]

    code, _, log, summary = step.run(**GIVEN, annotations="false", summary="false")
    assert code == 1
    assert "::error" not in log
    assert summary == ""


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"arguments": "--config 'unclosed"}, "the input `arguments`"),
        ({"files": "none.sass"}, "none.sass"),
        ({"files": "--update"}, "--update"),
        ({"gpu": "h1000"}, "h1000"),
        ({"config": "missing.toml"}, "missing.toml"),
    ],
)
def test_wrong_inputs_fail_with_an_annotation(inputs: dict[str, str], message: str, step: Step) -> None:
    code, outputs, log, _ = step.run(**{**GIVEN, **inputs})
    assert (code, outputs["exit-code"]) == (2, "2")
    (annotation,) = re.findall(r"^::error title=warplens::.*", log, re.M)
    assert message in annotation


def list_heeded_lines(log: str) -> list[str]:
    """Return the lines that the runner reads for commands: all but those between `stop-commands` and its token."""
    heeded, token = [], ""
    for line in log.splitlines():
        if token:
            token = "" if line == f"::{token}::" else token
        elif match := re.match(r"::stop-commands::(\w+)$", line):
            token = match[1]
        else:
            heeded.append(line)
    assert not token
    return heeded


@pytest.mark.parametrize(
    "name", ["##[add-mask]a.sass", "::add-mask::a.sass", "a%0A::add-mask::b.sass", "::end::.sass"]
)
def test_no_name_is_a_command(name: str, step: Step) -> None:
    """Names of files and kernels, in reports, in notes on standard error and in errors."""
    text = Path("kernel.sass").read_text()
    Path(name).write_text(text.replace("softmax", "##[add-mask]softmax"))
    Path(f"damaged{name}").write_text(text[:900] + "\n     /*0070*/   garbage ;\n")
    runs = [
        step.run(files=name, gpu="h100", arguments="--update"),
        step.run(files=name, gpu="h100", arguments="--grid 4"),
        step.run(files=f"none{name}", gpu="h100"),
        step.run(files=f"damaged{name}", gpu="h100"),
        step.run(files=name, gpu=f"none{name}"),
    ]
    assert [code for code, *_ in runs][:1] == [0]
    assert {code for code, *_ in runs[2:]} == {2}
    for _, _, log, _ in runs:
        for line in list_heeded_lines(log):
            assert re.match(r"::(error|warning|notice) [^\n]*::|$", line), line
            assert not line.strip() or line.count("::") >= 2
