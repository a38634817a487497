"""Run a bench from the command line, and publish the page that it makes."""

import sys
from collections.abc import Callable
from pathlib import Path

from kernels.recipes import TableError


def run_main(main: Callable[[], int | None]) -> None:
    """Run a bench and exit with its code; tables that are missing or wrong are told in one line."""
    try:
        sys.exit(main())
    except TableError as error:
        sys.exit(f"error: {error}")


def publish_page(page: Path, text: str) -> None:
    """Write a page and print it."""
    page.write_text(text, encoding="utf-8")
    print(text)
