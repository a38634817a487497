"""Output of a command to the terminal or to a file, and the options that choose format and file."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from analyzer.cli.exit_codes import ExitCode
from analyzer.render.registry import Medium, find_format, list_formats
from analyzer.render.text_options import TextOptions
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from analyzer.report.analyze_schema import WarningEntry
    from analyzer.report.report_reader import AnyReport

_Command = TypeVar("_Command", bound=Callable[..., object])

output_option = click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Write there, not to standard output."
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
    click.echo(f"error: the report has warnings, and --strict was given: {codes}", err=True)
    return ExitCode.FAILED


def write_text(text: str | Iterable[str], output: Path | None) -> None:
    """Write a text, or its pieces as they come, to a file, or to standard output for None.

    Raises UsageError where the file cannot be written.
    """
    pieces = (text,) if isinstance(text, str) else text
    if output is None:
        sys.stdout.writelines(pieces)
        return
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None


def _print_output(output: Path | None, show: "Callable[[Console], None]") -> None:
    """Print to the terminal as it comes, or plain into a file."""
    from analyzer.render.terminal import make_console

    console = make_console(plain=output is not None)
    if output is None:
        show(console)
        return
    with console.capture() as captured:
        show(console)
    write_text(captured.get(), output)
