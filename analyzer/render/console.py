"""The console that reports are printed on: control characters escaped, plain where it is no terminal."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from analyzer.text.escaping import escape_controls

_PLAIN_WIDTH_CELLS = 120


class _Console(Console):
    """A console that escapes control characters, and passes errors of the output on to the caller."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable; rich's own control codes are no texts, and stay."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=escape_controls(segment.text, keep="\n"))

    def on_broken_pipe(self) -> None:
        """Raise what rich would end the program for (`| head`)."""
        raise BrokenPipeError


def make_console(*, plain: bool = False) -> Console:
    """Return standard output; deterministic, with a fixed width and no styles, where it is no terminal.

    Text is taken as it is: `[red]` and `:bug:` in a name are no markup.
    """
    console = _Console(soft_wrap=False, highlight=False, markup=False, emoji=False)
    if console.is_terminal and not plain:
        return console
    return _Console(
        width=_PLAIN_WIDTH_CELLS,
        highlight=False,
        markup=False,
        emoji=False,
        no_color=True,
        force_terminal=False,
    )
