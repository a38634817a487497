"""The plugin of pytest: budgets, baselines, messages, and nothing loaded where no test asks for it."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from paths import ROOT, TRACES

import analyzer
from analyzer.render.registry import render_report

pytest_plugins = ["pytester"]
SOFTMAX = TRACES / "triton" / "sm_90" / "softmax.sass"
RMSNORM = TRACES / "triton" / "sm_90" / "rmsnorm.sass"
# An installation names the plugin itself; a checkout on the path does not.
LOADED = [] if entry_points(group="pytest11", name="warplens") else ["-p", "analyzer.pytest_plugin"]


@pytest.fixture(scope="module", autouse=True)
def loaded_modules(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load what a check needs: pytester unloads again what a run of its own loads first."""
    baseline = tmp_path_factory.mktemp("loading") / "baseline.json"
    render_report(analyzer.check(str(SOFTMAX), gpu="h100", baseline=baseline, update=True), "text")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of runs in processes of their own
    shutil.copyfile(SOFTMAX, pytester.path / "kernel.sass")
    return pytester


def run(project: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    """Run one test with the fixture, whose calls are the body."""
    lines = [f"    {line}" for line in body.splitlines()]
    project.makepyfile(test_kernels="\n".join(["def test_kernel(warplens):", *lines]))
    return project.runpytest_inprocess(*LOADED, "-p", "no:randomly", *options)


def test_budgets_hold_without_a_baseline(project: pytest.Pytester) -> None:
    body = 'report = warplens.check("kernel.sass", gpu="h100", max_registers=128, min_occupancy="50%")\n'
    run(project, f"{body}assert report.totals.kernels == 1").assert_outcomes(passed=1)
    assert not list(project.path.glob("*.json"))


def test_a_broken_budget_is_told_without_a_traceback(project: pytest.Pytester) -> None:
    result = run(project, 'warplens.check("kernel.sass", gpu="h100", max_registers=8)')
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "max-registers" in text
    assert "FAIL" in text
    assert "Traceback" not in text
    assert "pytest_plugin.py" not in text


def test_baseline_is_written_compared_and_accepted(project: pytest.Pytester) -> None:
    body = 'warplens.check("kernel.sass", gpu="h100")'
    named = 'warplens.check("kernel.sass", gpu="h100", baseline="warplens-baseline.json")'
    missing = run(project, named)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*there is no baseline*", "*pytest --warplens-update*"])

    run(project, body, "--warplens-update").assert_outcomes(passed=1)
    path = project.path / "warplens-baseline.json"
    written = path.read_bytes()
    run(project, body).assert_outcomes(passed=1)
    assert path.read_bytes() == written

    baseline = json.loads(written)
    cycles = baseline["kernels"][0]["gpus"]["h100-sxm"]["metrics"]
    baseline["kernels"][0]["code"] = "0" * len(baseline["kernels"][0]["code"])
    for factor, outcome in ((0.5, "failed"), (2.0, "passed")):
        old = {**cycles, "cycles": cycles["cycles"] * factor, "time_us": cycles["time_us"] * factor}
        baseline["kernels"][0]["gpus"]["h100-sxm"]["metrics"] = old
        path.write_text(json.dumps(baseline))
        result = run(project, body)
        result.assert_outcomes(**{outcome: 1})
        result.stdout.fnmatch_lines(["*accept: pytest --warplens-update*"])
    run(project, body, "--warplens-update").assert_outcomes(passed=1)
    assert path.read_bytes() == written


def test_limits_of_the_project_hold_and_those_of_the_test_go_first(project: pytest.Pytester) -> None:
    project.makefile(".toml", warplens="[check]\nmax_registers = 8\ngpus = ['h100']\n")
    run(project, 'warplens.check("kernel.sass")').assert_outcomes(failed=1)
    run(project, 'warplens.check("kernel.sass", max_registers=100)').assert_outcomes(passed=1)
    other = 'warplens.check("kernel.sass", match="none*", max_registers=100)'
    run(project, other).assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('"kernel.sass", max_register=8', "max_register"),
        ('"kernel.sass", max_registers="many"', "must be a number"),
        ('"missing.sass", max_registers=8', "missing.sass: no such file"),
        ('"kernel.sass", gpu="h1000", max_registers=8', "h1000"),
        ('"kernel.sass", forbid=["bank-conflcts"], gpu="h100"', "did you mean"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call: str, message: str, project: pytest.Pytester) -> None:
    result = run(project, f"warplens.check({call})")
    result.assert_outcomes(failed=1)
    assert message in result.stdout.str()
    assert "exception" not in result.stdout.str()


def test_inputs_are_found_beside_the_test_and_from_the_current_folder(project: pytest.Pytester) -> None:
    folder = project.mkpydir("sub")
    shutil.copyfile(RMSNORM, folder / "rmsnorm.sass")
    (folder / "test_sub.py").write_text(
        "def test_kernels(warplens):\n"
        '    report = warplens.check(["*.sass", "kernel.sass"], gpu="h100", max_registers=255)\n'
        "    assert report.totals.kernels == 2\n"
    )
    project.runpytest_inprocess(*LOADED, "sub").assert_outcomes(passed=1)


def test_in_a_process_of_its_own_nothing_is_loaded_before_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_nothing(request):\n"
        "    assert 'analyzer.pytest_plugin' in sys.modules\n"
        "    assert not {'numpy', 'click', 'rich', 'msgspec', 'lark', 'jinja2'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *LOADED, *_BLOCKED, "test_other.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Plugins of our own test environment that load much.
_BLOCKED = ["-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:anyio", "-p", "no:playwright"]


def test_update_from_several_processes_is_refused(project: pytest.Pytester) -> None:
    project.makepyfile("def test_nothing(): pass")
    result = project.runpytest_subprocess(*LOADED, "--warplens-update", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--warplens-update writes baselines from one process: leave out -n*"])
