"""A small runner of composite actions of GitHub: the steps of action.yml with the variables that GitHub sets.

It knows what action.yml uses: `run` steps in bash, `if`, `env`, `working-directory`, and expressions of
inputs, outputs of steps, `||`, `==` and `!=`. An action that a step uses is replaced by given outputs.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


class ActionRun(Struct, frozen=True):
    """What a job sees of an action that ran."""

    code: int  # of the step that failed, else 0
    log: str
    outputs: Mapping[str, str]
    summary: str


def run_action(
    checkout: Path,
    workspace: Path,
    temp: Path,
    inputs: Mapping[str, str],
    *,
    used: Mapping[str, Mapping[str, str]],
    environment: Mapping[str, str],
    skipped: Sequence[str] = (),
) -> ActionRun:
    """Run the action of a checkout on a workspace. Raises ValueError for an unknown input, as GitHub warns.

    used: outputs of the actions that its steps use, by the steps' ids.
    skipped: names of steps whose work is there already.
    """
    action = yaml.safe_load((checkout / "action.yml").read_text(encoding="utf-8"))
    if unknown := set(inputs) - set(action["inputs"]):
        raise ValueError(f"no such inputs: {unknown}")
    values = {name: str(each.get("default", "")) for name, each in action["inputs"].items()} | dict(inputs)
    outputs: dict[str, Mapping[str, str]] = {}
    summary = temp / "summary.md"
    summary.write_text("")
    logs, code = [], 0
    for step in action["runs"]["steps"]:
        if step.get("name") in skipped:
            continue
        if "if" in step and _evaluate(step["if"], values, outputs) != "true":
            continue
        if "uses" in step:
            outputs[step["id"]] = used[step["id"]]
            continue
        assert step["shell"] == "bash", "a composite action must name the shell of each step"
        output_file = temp / "output.txt"
        output_file.write_text("")
        variables = {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(checkout),
            "GITHUB_WORKSPACE": str(workspace),
            "GITHUB_OUTPUT": str(output_file),
            "GITHUB_STEP_SUMMARY": str(summary),
            "RUNNER_TEMP": str(temp),
            **{name: _fill(str(value), values, outputs) for name, value in step.get("env", {}).items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=workspace / _fill(step.get("working-directory", "."), values, outputs),
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        logs.append(done.stdout)
        if "id" in step:
            lines = output_file.read_text().splitlines()
            outputs[step["id"]] = dict(line.split("=", 1) for line in lines)
        if done.returncode:
            code = done.returncode
            break
    own = {name: _fill(each["value"], values, outputs) for name, each in action["outputs"].items()}
    return ActionRun(code, "".join(logs), own, summary.read_text())


def make_environment() -> dict[str, str]:
    """Return the variables of this process that a runner has as well."""
    return {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}


def _fill(text: str, inputs: Mapping[str, str], outputs: Mapping[str, Mapping[str, str]]) -> str:
    return _EXPRESSION.sub(lambda match: _evaluate(match[1], inputs, outputs), text)


def _evaluate(text: str, inputs: Mapping[str, str], outputs: Mapping[str, Mapping[str, str]]) -> str:
    expression = match[1] if (match := _EXPRESSION.fullmatch(text)) else text
    if "||" in expression:
        parts = [_evaluate(part, inputs, outputs) for part in expression.split("||")]
        return next((part for part in parts if part not in ("", "false")), parts[-1])
    for sign in ("==", "!="):
        if sign in expression:
            left, right = (_evaluate(part, inputs, outputs) for part in expression.split(sign))
            return "true" if (left == right) == (sign == "==") else "false"
    return _find_value(expression.strip(), inputs, outputs)


def _find_value(name: str, inputs: Mapping[str, str], outputs: Mapping[str, Mapping[str, Any]]) -> str:
    if name.startswith("'"):
        return name.strip("'")
    kind, *parts = name.split(".")
    if kind == "inputs":
        return inputs[parts[0]]
    assert (kind, parts[1]) == ("steps", "outputs"), f"unknown expression {name}"
    return str(outputs.get(parts[0], {}).get(parts[2], ""))
