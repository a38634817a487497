"""Output formats by name, for every type of report: commands and library users take renderers from here.

To add a format, write a module that renders a report and add a line to `_FORMATS`. Modules are named, not
imported: a command loads the one that it uses.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from analyzer.render.text_options import TextOptions
from analyzer.text.errors import UsageError

if TYPE_CHECKING:  # the names of the formats are wanted before any report is
    from analyzer.report.report_reader import AnyReport


class Medium(StrEnum):
    """The kind of output that a renderer produces."""

    CONSOLE = "console"  # `render(report, console)` prints on a rich console, as wide as the terminal
    DOCUMENT = "document"  # `render(report)` returns a text


class ReportFormat(Struct, frozen=True):
    """A format of one type of report."""

    name: str
    medium: Medium
    module: str  # in this package
    function: str
    is_choice: bool = True  # of --format; other formats have an option or a command of their own

    def load_renderer(self) -> Callable[..., Any]:
        """Import the function that renders; its arguments depend on the medium.

        It is given the report with control characters escaped; JSON escapes them itself.
        """
        renderer: Callable[..., Any] = getattr(import_module(f"analyzer.render.{self.module}"), self.function)
        if self == _JSON:
            return renderer
        from analyzer.report.report_escaping import escape_report

        return lambda report, *arguments: renderer(escape_report(report), *arguments)


_JSON = ReportFormat("json", Medium.DOCUMENT, "json", "render_json")
# Of reports that say something at places in the code.
_FINDINGS = (
    ReportFormat("markdown", Medium.DOCUMENT, "markdown", "render_markdown"),
    ReportFormat("sarif", Medium.DOCUMENT, "sarif", "render_sarif"),
    ReportFormat("junit", Medium.DOCUMENT, "junit", "render_junit"),
    ReportFormat("github", Medium.DOCUMENT, "github", "render_github"),
)
FINDING_FORMATS = tuple(each.name for each in _FINDINGS)
# By the name that a report's schema gives its type: `analyze` of `warplens/analyze/1`.
_FORMATS: Mapping[str, tuple[ReportFormat, ...]] = {
    "analyze": (
        ReportFormat("text", Medium.CONSOLE, "terminal", "print_report"),
        _JSON,
        *_FINDINGS,
        ReportFormat("csv", Medium.DOCUMENT, "csv_tables", "render_analyze_csv"),
        ReportFormat("html", Medium.DOCUMENT, "html.analysis_page", "render_analysis_page"),
        ReportFormat("listing", Medium.CONSOLE, "terminal", "print_listings", is_choice=False),
    ),
    "whatif": (
        ReportFormat("text", Medium.CONSOLE, "whatif", "print_whatif"),
        _JSON,
        ReportFormat("html", Medium.DOCUMENT, "whatif_chart", "render_whatif_chart", is_choice=False),
    ),
    "validate": (
        ReportFormat("text", Medium.CONSOLE, "validation", "print_validation"),
        _JSON,
        ReportFormat("html", Medium.DOCUMENT, "validation_page", "render_validation_page", is_choice=False),
    ),
    "forecast": (ReportFormat("text", Medium.CONSOLE, "forecast", "print_forecast"), _JSON),
    "forecast-comparison": (
        ReportFormat("text", Medium.CONSOLE, "forecast_comparison", "print_comparison"),
        _JSON,
        ReportFormat("html", Medium.DOCUMENT, "html.forecast_comparison_page", "render_comparison_page"),
    ),
    "iteration": (ReportFormat("text", Medium.CONSOLE, "iteration", "print_iteration"), _JSON),
    "serving": (
        ReportFormat("text", Medium.CONSOLE, "serving", "print_serving"),
        _JSON,
        ReportFormat("csv", Medium.DOCUMENT, "serving", "render_serving_csv"),
        ReportFormat("html", Medium.DOCUMENT, "serving_chart", "render_serving_chart", is_choice=False),
    ),
    "serving-comparison": (
        ReportFormat("text", Medium.CONSOLE, "serving_comparison", "print_served_layouts"),
        _JSON,
    ),
    "tune-rank": (ReportFormat("text", Medium.CONSOLE, "tune", "print_ranking"), _JSON),
    "transfer": (
        ReportFormat("text", Medium.CONSOLE, "transfer", "print_transfer"),
        ReportFormat("csv", Medium.DOCUMENT, "transfer", "render_transfer_csv"),
        _JSON,
    ),
    "diff": (
        ReportFormat("text", Medium.CONSOLE, "diff", "print_diff"),
        _JSON,
        *_FINDINGS,
        ReportFormat("csv", Medium.DOCUMENT, "csv_tables", "render_diff_csv"),
        ReportFormat("html", Medium.DOCUMENT, "html.diff_page", "render_diff_page"),
    ),
    "check": (
        ReportFormat("text", Medium.CONSOLE, "check", "print_check"),
        _JSON,
        *_FINDINGS,
        ReportFormat("csv", Medium.DOCUMENT, "csv_tables", "render_check_csv"),
        ReportFormat("html", Medium.DOCUMENT, "html.check_page", "render_check_page"),
    ),
    "tasks": (ReportFormat("text", Medium.CONSOLE, "tasks", "print_tasks"), _JSON),
    "predict": (
        ReportFormat("text", Medium.CONSOLE, "predict", "print_predictions"),
        _JSON,
        ReportFormat("csv", Medium.DOCUMENT, "predict", "render_predictions_csv"),
    ),
}


def list_formats(report_name: str) -> tuple[ReportFormat, ...]:
    """Return the formats of a type of report, the default one first."""
    return _FORMATS[report_name]


def find_format(report: "AnyReport", name: str) -> ReportFormat:
    """Return a format of a report by its name. Raises UsageError."""
    formats = _FORMATS[report.schema.split("/")[1]]
    found = next((each for each in formats if each.name == name), None)
    if found is None:
        names = ", ".join(each.name for each in formats)
        raise UsageError(f"no format {name} for {report.schema}", hint=f"one of: {names}")
    return found


def render_report(report: "AnyReport", name: str = "text", options: TextOptions | None = None) -> str:
    """Return a report in a format, as it is written into a file.

    options: of the text of an analysis. Raises UsageError for a format that the report does not have.
    """
    found = find_format(report, name)
    render = found.load_renderer()
    if found.medium is Medium.DOCUMENT:
        text: str = render(report)
        return text
    from analyzer.render.console import make_console

    console = make_console(plain=True)
    with console.capture() as captured:
        render(report, console, *([] if options is None else [options]))
    return captured.get()
