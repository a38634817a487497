"""Source lines of a PTX file: its `.file` table, and `.loc` lines with the calls that were inlined.

    .file 1 "/home/me/kernel.py"
    .loc 2 43 17, function_name $L__info_string0, inlined_at 1 98 20      as nvcc prints it
    .loc 2 43 17  // standard.py:43:17 @[ kernel.py:98:20 ]                as Triton prints it

`inlined_at` names a place only; what was inlined there is found by the last `.loc` of that place.
"""

import re

from analyzer.ir.module import SourceLine

# Numbers of file, line and column; the place of the call; a comment, which may hold the places of calls.
LOC_PATTERN = (
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+[\w$%]+(?:\s*\+\s*\w+)?\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?"
    r"([ \t]*//[^\n]*)?"
)
_FILE = re.compile(r'^[ \t]*\.file\s+(\d+)\s+"([^"\n]*)"(?:[ \t]+"([^"\n]*)")?', re.M | re.A)
_INLINED_PLACE = re.compile(r"@\[ (\S+):(\d+):\d+")
_MAX_INLINED = 32  # calls in one another
_MAX_DIGITS = 9

LocTexts = tuple[str | None, ...]


class SourceLineTable:
    """Makes the source lines of a file; equal ones are one object."""

    def __init__(self, text: str) -> None:
        """Read the file table, which compilers print after the code."""
        self._files: dict[str, str] = {}
        for match in _FILE.finditer(text):
            name = f"{match[2]}/{match[3]}" if match[3] else match[2]
            self._files[match[1]] = name
        self._files_by_name: dict[str, str | None] = {}
        for path in dict.fromkeys(self._files.values()):
            name = path.replace("\\", "/").rsplit("/", 1)[-1]
            self._files_by_name[name] = None if name in self._files_by_name else path
        self._lines: dict[LocTexts, SourceLine | None] = {}
        self._last_at_place: dict[tuple[str | None, ...], tuple[SourceLine, int]] = {}

    def resolve(self, texts: LocTexts) -> SourceLine | None:
        """Return the source line of the groups of `LOC_PATTERN`; None for line 0 or an unknown file."""
        if texts[3] is None and texts in self._lines:
            line = self._lines[texts]
        else:
            line = self._make(texts)
            self._lines[texts] = line
        if line is not None:
            self._last_at_place[texts[:3]] = line, _count_inlined(line)
        return line

    def _make(self, texts: LocTexts) -> SourceLine | None:
        file, line = self._files.get(texts[0] or ""), _parse_line(texts[1])
        if file is None or not line:
            return None
        if texts[3] is not None:
            return SourceLine(file, line, self._find_caller(texts[3:6]))
        return SourceLine(file, line, self._read_comment(texts[6] or ""))

    def _find_caller(self, place: tuple[str | None, ...]) -> SourceLine | None:
        known, depth = self._last_at_place.get(place, (None, 0))
        if known is not None and depth < _MAX_INLINED:
            return known
        file, line = self._files.get(place[0] or ""), _parse_line(place[1])
        return SourceLine(file, line) if file and line else None

    def _read_comment(self, comment: str) -> SourceLine | None:
        """Return the chain of calls in a comment of LLVM, of which it prints file names without folders."""
        caller: SourceLine | None = None
        if "@[" in comment:
            for name, line in reversed(_INLINED_PLACE.findall(comment)[:_MAX_INLINED]):
                caller = SourceLine(self._files_by_name.get(name) or name, _parse_line(line), caller)
        return caller


def _count_inlined(line: SourceLine) -> int:
    depth = 0
    caller = line.inlined_at
    while caller is not None:
        depth, caller = depth + 1, caller.inlined_at
    return depth


def _parse_line(digits: str | None) -> int:
    return int(digits) if digits and len(digits) <= _MAX_DIGITS else 0
