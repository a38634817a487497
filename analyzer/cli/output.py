"""Where a command's report goes: to the terminal, or to a file."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


def write_text(text: str, output: Path | None) -> None:
    """To the file, or to standard output for None. Raises UsageError where the file cannot be written."""
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None


def print_output(output: Path | None, show: "Callable[[Console], None]") -> None:
    """What `show` prints, to the terminal as it comes, or plain into the file. Raises as `write_text`."""
    from analyzer.render.terminal import make_console

    console = make_console(plain=output is not None)
    if output is None:
        show(console)
        return
    with console.capture() as captured:
        show(console)
    write_text(captured.get(), output)
