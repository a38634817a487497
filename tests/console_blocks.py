"""Sessions in documents: commands behind `$`, and below each what it prints.

    ```console
    $ warplens gpus
    ...
     h100-sxm   sm_90   H100 SXM
    ...
    ```

`...` stands for lines that are left out. Lines between two such are consecutive lines of the output; empty lines and
spaces at the ends do not count.
"""

import re
from dataclasses import dataclass
from pathlib import Path

GAP = "..."
_FENCE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PROMPT = "$ "


@dataclass(frozen=True)
class Session:
    """One command of a document."""

    path: Path
    command: str  # on one line
    prompt: str  # as it stands in the document
    printed: tuple[str, ...]  # as it stands in the document


def list_sessions(path: Path) -> list[Session]:
    """Return the commands of all console blocks of a document."""
    found = []
    for block in _FENCE.findall(path.read_text(encoding="utf-8")):
        for part in re.split(rf"^(?={re.escape(_PROMPT)})", block, flags=re.MULTILINE):
            lines = part.splitlines()
            n_lines = 1
            while n_lines < len(lines) and lines[n_lines - 1].endswith("\\"):
                n_lines += 1
            prompt = "\n".join(lines[:n_lines])
            command = " ".join(line.strip() for line in prompt.removeprefix(_PROMPT).split("\\\n"))
            if lines:
                found.append(Session(path, command, prompt, tuple(lines[n_lines:])))
    return found


def find_missing_lines(session: Session, output: str) -> list[str]:
    """Return the first lines of the document that the output does not have; empty where it has all of them."""
    printed = _clean(output.splitlines())
    start = 0
    for segment in _split_at_gaps(session.printed):
        place = _find_segment(segment, printed[start:])
        if place is None:
            return segment
        start += place + len(segment)
    return []


def bless(session: Session, output: str) -> None:
    """Rewrite a session in its document: the same lines with the figures of today, all where there is no gap.

    A command below which nothing stands is left as it is.

    Raises ValueError where a line has changed in more than its figures; then write it anew.
    """
    if not session.printed:
        return
    printed = [
        line.rstrip() for line in re.sub(r"[ ]*\n(?:[ ]*\n)+", "\n\n", output).strip("\n").splitlines()
    ]
    kept = printed
    if GAP in _clean(list(session.printed)):
        kept, start = [], 0
        for line in session.printed:
            if line.strip() == GAP:
                kept.append(GAP)
                continue
            shapes = [_blank_figures(each) for each in printed[start:]]
            if line.strip():
                start += shapes.index(_blank_figures(line)) + 1
                kept.append(printed[start - 1])
    text = session.path.read_text(encoding="utf-8")
    old = "\n".join((session.prompt, *session.printed))
    session.path.write_text(text.replace(old, "\n".join((session.prompt, *kept)), 1), encoding="utf-8")


def _clean(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip()]


def _split_at_gaps(lines: tuple[str, ...]) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    for line in _clean(list(lines)):
        if line == GAP:
            segments.append([])
        else:
            segments[-1].append(line)
    return [segment for segment in segments if segment]


def _find_segment(segment: list[str], lines: list[str]) -> int | None:
    places = range(len(lines) - len(segment) + 1)
    return next((place for place in places if lines[place : place + len(segment)] == segment), None)


def _blank_figures(line: str) -> str:
    """Return a line without its figures, bars and widths."""
    return re.sub(r"[\s█─]+", " ", re.sub(r"\d[\d,.]*", "0", line)).strip()
