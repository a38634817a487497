"""Progress on standard error for work of more than a second, where that is a terminal.

It is drawn by a timer signal, not by a thread: kernels of large dumps are shared among forks, and the fork of
a program with threads may deadlock. Forks inherit no timer, so only this process draws.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from analyzer.text.progress import ProgressCallback, ignore_progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_DELAY_SECONDS = 1.0
_INTERVAL_SECONDS = 0.25
_MIN_REST_SECONDS = 0.1
_MAX_TEXT_CHARS = 48


@contextmanager
def show_progress(text: str) -> Iterator[ProgressCallback]:
    """Yield a callback that shows what is done; `text`: what goes on until its first call."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield ignore_progress
        return
    bar = _DelayedBar(console, text)
    with _call_regularly(bar.draw):
        try:
            yield bar.update
        finally:
            bar.stop()


class _DelayedBar:
    """A bar that appears when the work has taken a second."""

    def __init__(self, console: "Console", text: str) -> None:
        self.console = console
        self.begin = monotonic()
        self.done, self.total, self.text = 0, 0, _clean(text)
        self.bar: tuple[Progress, TaskID] | None = None
        self.is_drawing = False
        self.drawn_at = 0.0

    def update(self, done: int, total: int, text: str) -> None:
        """Take what is done; total 0: not known."""
        self.done, self.total, self.text = done, total, _clean(text)
        self.draw()

    def draw(self) -> None:
        """Draw the bar, unless the work is young, it was just drawn, or a signal came while drawing."""
        now = monotonic()
        if self.is_drawing or now - self.begin < _DELAY_SECONDS or now - self.drawn_at < _MIN_REST_SECONDS:
            return
        self.is_drawing, self.drawn_at = True, now
        try:
            bar, task = self.bar = self.bar or self._start()
            bar.tasks[0].total = self.total or None  # `update` keeps a total where it gets none
            bar.update(task, completed=self.done, description=self.text)
            bar.refresh()
        finally:
            self.is_drawing = False

    def _start(self) -> "tuple[Progress, TaskID]":
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        bar = Progress(
            *columns,
            console=self.console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        bar.start()
        return bar, bar.add_task(self.text, total=None)

    def stop(self) -> None:
        """Remove the bar."""
        self.is_drawing = True
        if self.bar is not None:
            self.bar[0].stop()


def _clean(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= _MAX_TEXT_CHARS else f"{shown[: _MAX_TEXT_CHARS - 3]}..."


@contextmanager
def _call_regularly(function: Callable[[], None]) -> Iterator[None]:
    """Call a function four times a second, where this thread may set the timer and nobody else has."""
    may_set = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not may_set or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        function()

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, _DELAY_SECONDS, _INTERVAL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
