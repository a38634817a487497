"""The hook for pre-commit, run by pre-commit itself in a repository of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from paths import ROOT, TRACES

SOFTMAX = TRACES / "triton" / "sm_90" / "softmax.sass"
CONFIG = '[tool.warplens.check]\ninputs = ["*.sass"]\ngpus = ["h100"]\n'


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A clone of what the hook installs, as a repository with one commit."""
    found = tmp_path / "warplens"
    found.mkdir()
    for name in ("analyzer", "grammars", "hwdb"):
        shutil.copytree(ROOT / name, found / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copyfile(ROOT / name, found / name)
    git(found, "init", "-q")
    git(found, "add", "-A")
    git(found, "commit", "-qm", "warplens")
    return found


def test_hook_passes_then_trips(repository: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(CONFIG)
    revision = git(repository, "rev-parse", "HEAD")
    hooks = f"repos: [{{repo: '{repository}', rev: {revision}, hooks: [id: warplens-check]}}]"
    (project / ".pre-commit-config.yaml").write_text(hooks)
    shutil.copyfile(SOFTMAX, project / "kernel.sass")
    git(project, "init", "-q")
    git(project, "add", "-A")
    environment = {
        **os.environ,
        "PRE_COMMIT_HOME": str(tmp_path / "home"),
        # Our dependencies are at hand: pre-commit's environment finds them here and downloads none.
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_INDEX": "1",
        "PIP_NO_COMPILE": "1",
        "VIRTUALENV_NO_PERIODIC_UPDATE": "1",
    }
    environment.pop("CI", None)

    def run() -> tuple[int, str]:
        command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--verbose"]
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    # The first run writes the baseline, which pre-commit takes no offence at: the file is not tracked yet.
    code, log = run()
    assert code == 0, log
    assert "Passed" in log
    assert (project / "warplens-baseline.json").is_file()
    (project / "pyproject.toml").write_text(f"{CONFIG}max_registers = 8\n")
    code, log = run()
    assert code == 1, log
    assert "max-registers" in log
