"""Reports as workflow commands of GitHub Actions, which it shows as annotations beside the code.

`::error file=k.cu,line=41,title=max-registers::message`. In the message `%`, CR and LF are escaped, in
properties also `:` and `,` (GitHub, "Workflow commands for GitHub Actions"). GitHub shows ten annotations
of each level and step, so the worst come first, and what is beyond is printed as plain lines of the log.
"""

from collections.abc import Iterator

from analyzer.render.problems import FindingsReport, Problem, list_problems, shorten_path
from analyzer.report.check_schema import Level

MAX_ANNOTATIONS = 10  # of one level, by one step
_COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}
_MAX_LOG_LINES = 1_000


def render_github(report: FindingsReport) -> str:
    """Return a command for each problem, worst first, and one for each warning of the report."""
    problems = list_problems(report)
    commands: dict[Level, list[str]] = {
        level: [_format_problem(problem) for problem in problems if problem.level is level] for level in Level
    }
    commands[Level.WARNING] += [
        format_command("warning", warning.message, shorten_path(warning.path), warning.line, warning.code)
        for warning in report.warnings
    ]
    lines = [line for level in Level for line in _limit_commands(level, commands[level])]
    left_out = [problem for level in Level for problem in _find_left_out(level, problems, commands[level])]
    lines += [_format_log_line(problem) for problem in left_out[:_MAX_LOG_LINES]]
    return "".join(f"{line}\n" for line in lines)


def _limit_commands(level: Level, commands: list[str]) -> list[str]:
    """Return as many commands as GitHub shows; the last of them says how many there are beyond."""
    if len(commands) <= MAX_ANNOTATIONS:
        return commands
    shown = commands[: MAX_ANNOTATIONS - 1]
    what = "problem" if level is Level.ERROR else level.value
    message = f"{len(commands) - len(shown):,} more of level {what}: see the log of this step, or the summary"
    return [*shown, format_command(_COMMANDS[level], message, "", None, "warplens")]


def _find_left_out(level: Level, problems: tuple[Problem, ...], commands: list[str]) -> Iterator[Problem]:
    """Yield the problems of a level that have no annotation."""
    if len(commands) > MAX_ANNOTATIONS:
        own = [problem for problem in problems if problem.level is level]
        yield from own[MAX_ANNOTATIONS - 1 :]


def _format_problem(problem: Problem) -> str:
    return format_command(
        _COMMANDS[problem.level], problem.message, problem.path, problem.line, f"warplens {problem.rule}"
    )


def format_command(command: str, message: str, path: str, line: int | None, title: str) -> str:
    """Return the command of one annotation: error, warning or notice; without a place for an empty path."""
    properties = {"file": path, "line": "" if line is None or not path else str(line), "title": title}
    given = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items() if value)
    return f"::{command} {given}::{_escape_message(message)}"


def _format_log_line(problem: Problem) -> str:
    """Return `error: k.cu:41: message`; `##[` would begin a command of the runner's older syntax anywhere."""
    text = f"{_COMMANDS[problem.level]}: {problem.path}:{problem.line}: {problem.message} [{problem.rule}]"
    return text.replace("##[", "## [")


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
