"""Errors that a user can cause; any other exception is a bug."""

from analyzer.text.escaping import escape_controls
from analyzer.text.source import Diagnostic, Location, Severity


class WarplensError(Exception):
    """Root of all errors that the command line prints as one message and an exit code."""

    code = "error"

    def __init__(self, message: str, *, location: Location | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(
            severity=Severity.ERROR, code=self.code, message=message, location=location, hint=hint
        )


class InputError(WarplensError):
    """The dump, trace or binary cannot be read as what it claims to be."""

    code = "input"


class HardwareError(WarplensError):
    """A hardware file is wrong, or no GPU has the given name."""

    code = "hardware"


class UsageError(WarplensError):
    """The options contradict each other or the input."""

    code = "usage"


class GateError(WarplensError):
    """The answer breaks a limit that the user set."""

    code = "gate"


class ToolError(WarplensError):
    """A CUDA tool is missing or failed."""

    code = "tool"


def format_diagnostic(diagnostic: Diagnostic) -> str:
    """Return a diagnostic as text: place, message, the line with its caret, and the hint.

    Control characters in any of them are escaped.
    """
    where = f"{escape_controls(str(diagnostic.location))}: " if diagnostic.location else ""
    times = f" ({diagnostic.count} times)" if diagnostic.count > 1 else ""
    parts = [f"{where}{diagnostic.severity.value}: {escape_controls(diagnostic.message)}{times}"]
    if diagnostic.location and diagnostic.location.text:
        parts.append(diagnostic.location.format_excerpt())
    if diagnostic.hint:
        parts.append(f"    help: {escape_controls(diagnostic.hint)}")
    return "\n".join(parts)
