"""The step of action.yml that checks: one run of `warplens check`, shown in all the ways that GitHub has.

The action's inputs come as variables WARPLENS_*. The report is printed to the log, as annotations, and into
the summary of the run; JSON and SARIF are files that later steps find through the outputs. The exit code is
that of `warplens check`.
"""

import contextlib
import io
import os
import secrets
import shlex
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from analyzer.cli.app import run
from analyzer.cli.exit_codes import ExitCode
from analyzer.files import write_file
from analyzer.render.github import format_command
from analyzer.render.registry import render_report
from analyzer.report import read_report
from analyzer.report.report_reader import AnyReport


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Check, show the report, set the outputs; return the exit code."""
    folder = Path(environment["RUNNER_TEMP"])
    report_path = folder / "warplens-check.json"
    sarif_path = Path(environment.get("WARPLENS_SARIF", "").strip() or folder / "warplens.sarif").absolute()
    report_path.unlink(missing_ok=True)
    try:
        arguments = make_arguments(environment, report_path)
    except ValueError as error:
        print(format_command("error", f"the input `arguments`: {error}", "", None, "warplens"))
        return _finish(environment, ExitCode.FAILED, None, None)
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = run(arguments)
        except Exception:
            traceback.print_exc()
            code = ExitCode.FAILED
    _print_plainly(output.getvalue() + errors.getvalue())
    if not report_path.is_file():
        message = errors.getvalue().strip() or f"warplens check ended with {code}"
        print(format_command("error", message, "", None, "warplens"))
        return _finish(environment, code, None, None)
    report = read_report(report_path)
    _show(report, environment)
    write_file(sarif_path, [render_report(report, "sarif").encode()])
    return _finish(environment, code, report_path, sarif_path)


def make_arguments(environment: Mapping[str, str], report_path: Path) -> list[str]:
    """Return the command line of the check. Raises ValueError where `arguments` is not quoted well."""
    arguments = ["check", "--format", "json", "--output", str(report_path)]
    for name in ("config", "baseline"):
        if value := environment.get(f"WARPLENS_{name.upper()}", "").strip():
            arguments.append(f"--{name}={value}")
    arguments += [f"--gpu={line}" for line in _split_lines(environment.get("WARPLENS_GPU", ""))]
    arguments += shlex.split(environment.get("WARPLENS_ARGUMENTS", ""))
    return [*arguments, "--", *_split_lines(environment.get("WARPLENS_FILES", ""))]


def _split_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _show(report: AnyReport, environment: Mapping[str, str]) -> None:
    """Print the report and its annotations, and add it to the summary."""
    _print_plainly(render_report(report, "text"))
    if environment.get("WARPLENS_ANNOTATIONS", "true") != "false":
        print(render_report(report, "github"), end="", flush=True)
    summary = environment.get("GITHUB_STEP_SUMMARY", "")
    if summary and environment.get("WARPLENS_SUMMARY", "true") != "false":
        with open(summary, "a", encoding="utf-8") as file:
            file.write(render_report(report, "markdown"))


def _print_plainly(text: str) -> None:
    """Print what may look like a command of the runner and is none: names in it are of files and kernels.

    All goes to standard output, so that nothing is printed after the runner heeds commands again.
    """
    if text.strip():
        token = secrets.token_hex(16)
        print(f"::stop-commands::{token}\n{text.rstrip()}\n::{token}::", flush=True)


def _finish(environment: Mapping[str, str], code: int, report: Path | None, sarif: Path | None) -> int:
    """Set the outputs of the step; return the exit code."""
    values = {"exit-code": str(int(code)), "report": str(report or ""), "sarif": str(sarif or "")}
    path = environment.get("GITHUB_OUTPUT", "")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            # A line feed in a path would begin an output of its own.
            file.writelines(f"{name}={value}\n" for name, value in values.items() if "\n" not in value)
    return code


if __name__ == "__main__":
    sys.exit(main())
