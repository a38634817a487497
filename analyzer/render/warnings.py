"""Warnings of a report as text."""

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from analyzer.report.analyze_schema import WarningEntry


def print_warnings(warnings: Iterable[WarningEntry], console: Console) -> None:
    """Print each warning with its place, and how often it occurs."""
    for warning in warnings:
        line = f":{warning.line}" if warning.line else ""
        place = f"{warning.path}{line}: " if warning.path else ""
        times = f" ({warning.count:,} times)" if warning.count > 1 else ""
        console.print(Text(f"{place}warning: {warning.message}{times}", style="yellow"), soft_wrap=True)
