"""Make the pictures of the README and of the site: what commands print as SVG, and pages of HTML as PNG.

    python bench/pictures.py               # all pictures, into docs/assets/pictures
    python bench/pictures.py --only diff   # those whose names begin so

A picture of a terminal is made from the same renderers as the command's output, on a recording console
of a fixed width, so it comes out the same from the same report. A picture of a page is taken by Chromium
(playwright, of the extra `dev`), which must be installed; its bytes depend on the fonts of the machine.
"""

import argparse
import io
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from msgspec import Struct
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from analyzer.cli.app import run
from analyzer.files import write_file

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "assets" / "pictures"
MAX_BYTES = 150_000
CHROMIUM = "/usr/bin/chromium"
_WIDTH_CELLS = 112
_THEME = TerminalTheme(
    (250, 250, 250),
    (36, 41, 47),
    [
        (36, 41, 47),
        (207, 34, 46),
        (17, 99, 41),
        (149, 56, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (110, 119, 129),
    ],
)
# rich's own frame asks a server for a font.
_WEB_FONT = re.compile(r"\s*@font-face\s*\{.*?\}", re.DOTALL)


class Shot(Struct, frozen=True):
    """One picture: of what a command prints, or of the page that it writes to `page.html`."""

    name: str
    command: str
    first: str = ""  # the line that the picture begins with holds this; from the start where empty
    n_lines: int = 40
    width_pixels: int = 1200  # of a page
    height_pixels: int = 900
    is_dark: bool = False
    selector: str = ""  # of the part of a page to go to


TERMINALS = (
    Shot(
        "analyze",
        "warplens analyze traces/triton/sm_90/matmul.sass --gpu h100 --gpu h20 --launch docs/launch.json",
        n_lines=29,
    ),
    Shot(
        "annotate",
        "warplens annotate traces/cuda/sm_80/report16.sass -k matmul_tiled --gpu a100 --top 12 "
        "--grid 32,32 --block 16,16 --arg 3=512",
        n_lines=20,
    ),
    Shot(
        "diff",
        "warplens diff traces/triton/sm_80/matmul_four_stages.sass "
        "traces/triton/sm_80/matmul_two_stages.sass --gpu a100 --launch docs/start/launch.json",
    ),
)
_REPORT = (
    "warplens analyze traces/levels/sm_90/matmul.cubin --gpu h100 --grid 144 --arg m=1000 --arg n=1104 "
    "--arg k=528 --arg a_stride=528 --arg b_stride=1104 --arg c_stride=1104 --format html"
)
PAGES = (
    Shot("report", _REPORT),
    Shot("report-dark", _REPORT, is_dark=True),
)


def draw_terminal(shot: Shot) -> bytes:
    """Return what a command prints, below its own line, as SVG. Raises RuntimeError where it fails."""
    console = Console(
        width=_WIDTH_CELLS,
        record=True,
        force_terminal=True,
        color_system="truecolor",
        file=io.StringIO(),
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    print_on(console, shot.command)
    lines = console.export_text(clear=False, styles=True).rstrip().split("\n")
    start = next((place for place, line in enumerate(lines) if shot.first in line), 0)
    return frame_lines(f"$ {shot.command}", lines[start : start + shot.n_lines])


def print_on(console: Console, command: str) -> None:
    """Run a command whose report goes to a console. Raises RuntimeError where it fails."""
    with patch("analyzer.render.console.make_console", lambda **_: console):
        code = run(shlex.split(command)[1:])
    if code:
        raise RuntimeError(f"{command} ended with {code}")


def frame_lines(title: str, lines: list[str]) -> bytes:
    """Return lines of a terminal, with their ANSI styles, in a frame."""
    from rich.text import Text

    console = Console(width=_WIDTH_CELLS, record=True, file=io.StringIO(), _environ={})
    console.print(Text(title, style="bold cyan"))
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=True)
    svg = console.export_svg(title="warplens", theme=_THEME, unique_id="warplens")
    return _WEB_FONT.sub("", svg).encode()


def draw_page(shot: Shot) -> bytes:
    """Return a screenshot of the page that a command writes. Raises RuntimeError where the command fails."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_path = Path(folder) / "page.html"
        code = run([*shlex.split(shot.command)[1:], "-o", str(page_path)])
        if code:
            raise RuntimeError(f"{shot.command} ended with {code}")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": shot.width_pixels, "height": shot.height_pixels},
            color_scheme="dark" if shot.is_dark else "light",
        )
        page.goto(page_path.as_uri())
        if shot.selector:
            page.locator(shot.selector).first.scroll_into_view_if_needed()
        found = page.screenshot()
        browser.close()
    return found


def main() -> None:
    """Write the pictures; fails where one is too large to be committed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="beginning of the names of the pictures to make")
    parser.add_argument("--output", type=Path, default=FOLDER)
    wanted = parser.parse_args()
    kinds: tuple[tuple[tuple[Shot, ...], str, Callable[[Shot], bytes]], ...] = (
        (TERMINALS, "svg", draw_terminal),
        (PAGES, "png", draw_page),
    )
    wanted.output.mkdir(parents=True, exist_ok=True)
    for shots, suffix, draw in kinds:
        for shot in shots:
            if not shot.name.startswith(wanted.only):
                continue
            data = draw(shot)
            if len(data) > MAX_BYTES:
                sys.exit(f"{shot.name}: {len(data):,} bytes are too many for the repository")
            write_file(wanted.output / f"{shot.name}.{suffix}", [data])
            print(f"{shot.name}.{suffix}  {len(data):,} bytes")


if __name__ == "__main__":
    main()
