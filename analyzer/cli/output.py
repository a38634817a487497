"""Output of a command to the terminal or to a file, and the options that choose format and file."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.path_types import OUTPUT_PATH
from analyzer.files import write_file
from analyzer.render.registry import Medium, find_format, list_formats
from analyzer.render.text_options import TextOptions
from analyzer.text.errors import UsageError
from analyzer.text.escaping import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

    from analyzer.report.analyze_schema import WarningEntry
    from analyzer.report.report_reader import AnyReport

_Command = TypeVar("_Command", bound=Callable[..., object])
_STANDARD_OUTPUT = "-"

output_option = click.option(
    "--output", "-o", type=OUTPUT_PATH, help="Write there, not to standard output (-)."
)


def output_options(report_name: str) -> Callable[[_Command], _Command]:
    """Add --format, with the formats of a type of report, and --output to a command."""
    names = [each.name for each in list_formats(report_name) if each.is_choice]
    format_option = click.option(
        "--format", "output_format", type=click.Choice(names), default=names[0], help="Output."
    )
    return lambda command: format_option(output_option(command))


def write_report(
    report: "AnyReport", format_name: str, output: Path | None, options: TextOptions | None = None
) -> None:
    """Write a report in one of its formats to a file, or to standard output for None.

    options: of the text of an analysis. Raises UsageError where the file cannot be written.
    """
    output = _find_output_file(output)
    found = find_format(report, format_name)
    render = found.load_renderer()
    if found.medium is Medium.DOCUMENT:
        write_text(render(report), output)
    else:
        arguments = () if options is None else (options,)
        _print_output(output, lambda console: render(report, console, *arguments))


def check_warnings(warnings: "Sequence[WarningEntry]", *, strict: bool) -> ExitCode:
    """Return CLEAN; for --strict and a report with warnings FAILED, with one line on standard error."""
    if not (strict and warnings):
        return ExitCode.CLEAN
    codes = ", ".join(dict.fromkeys(warning.code for warning in warnings))
    print_line(f"error: the report has warnings, and --strict was given: {codes}", to_errors=True)
    return ExitCode.FAILED


def _find_output_file(output: Path | None) -> Path | None:
    """Return the file to write, None for standard output."""
    return None if output is None or str(output) == _STANDARD_OUTPUT else output


def write_text(text: str | Iterable[str], output: Path | None) -> None:
    """Write a text, or its pieces as they come, to a file, or to standard output for None and `-`.

    Control characters in it are escaped but for line feeds and tabs: it may hold fields of an input, such as
    a table's. A file is replaced once the text is complete. Raises UsageError where it cannot be written.
    """
    pieces = (escape_controls(each, keep="\n\t") for each in ((text,) if isinstance(text, str) else text))
    output = _find_output_file(output)
    if output is None:
        sys.stdout.writelines(pieces)
        return
    try:
        write_file(output, (piece.encode("utf-8", "backslashreplace") for piece in pieces))
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write {output}: {reason}") from None


def print_line(text: str, *, to_errors: bool = False) -> None:
    """Print one line with control characters escaped."""
    click.echo(escape_controls(text), err=to_errors)


def _print_output(output: Path | None, show: "Callable[[Console], None]") -> None:
    """Print to the terminal as it comes, or plain into a file."""
    from analyzer.render.console import make_console

    console = make_console(plain=output is not None)
    if output is None:
        show(console)
        return
    with console.capture() as captured:
        show(console)
    write_text(captured.get(), output)
