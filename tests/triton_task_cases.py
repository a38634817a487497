"""`warplens tasks` on Triton IR for tests, as a user calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli.app import run


def divide(
    capsys: pytest.CaptureFixture[str], path: Path, grid: str, *options: str, **arguments: object
) -> Any:
    """The JSON report of the tasks of a launch."""
    values = [each for name, value in arguments.items() for each in ("--arg", f"{name}={value}")]
    assert run(["tasks", str(path), "--grid", grid, *values, *options, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def moved(report: Any) -> tuple[int, int]:
    """Bytes loaded and stored, without those that threads load again for others."""
    total = report["total"]
    return total["bytes_loaded"] - total["repeated"]["bytes_loaded"], total["bytes_stored"]
