"""Places of the keys and values of a TOML text, for carets under them.

One pass over the tokens of a text that is known to be TOML: headers set the path of what follows,
`[[header]]` counts up, and brackets are only counted. In

    [[check.kernels]]
    match = "fmha*"

the key at path ("check", "kernels", 0, "match") has line 2, column 1. What stands inside an inline table has
the place of the key that the table belongs to.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from analyzer.text.source import Location

TomlPath = tuple[str | int, ...]

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|\n|[\[\]{},=]'
    r"|[^\s\[\]{},=#\"']+",
    re.S,
)
_KEY_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([\w-]+)')


class _Span(Struct, frozen=True):
    start: int
    end: int


class TomlPlaces(Struct, frozen=True):
    """Spans of keys and of values by path, in characters of the text."""

    name: str  # of the file
    text: str
    keys: dict[TomlPath, _Span]
    values: dict[TomlPath, _Span]

    def locate_key(self, path: TomlPath) -> Location:
        """Return the place of a key or a header, else of the nearest one that encloses it."""
        return self._locate(self._find(self.keys, path))

    def locate_value(self, path: TomlPath) -> Location:
        """Return the place of a value or an item of an array, else of the nearest one that encloses it."""
        exact = self.values.get(path)
        return self._locate(exact or self._find(self.values, path) or self._find(self.keys, path))

    @staticmethod
    def _find(spans: dict[TomlPath, _Span], path: TomlPath) -> _Span | None:
        while path and path not in spans:
            path = path[:-1]
        return spans.get(path)

    def _locate(self, span: _Span | None) -> Location:
        start, end = (0, 1) if span is None else (span.start, span.end)
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", start)
        line = self.text[line_start : None if line_end < 0 else line_end].rstrip("\r")
        length = max(1, min(end, line_start + len(line)) - start)
        number = self.text.count("\n", 0, line_start) + 1
        return Location(self.name, number, start - line_start + 1, line, length)


def find_toml_places(name: str, text: str) -> TomlPlaces:
    """Return the places of all keys and values of a text that is known to be TOML."""
    places = TomlPlaces(name, text, {}, {})
    tables: TomlPath = ()
    array_lengths: dict[TomlPath, int] = {}
    tokens = [
        _Span(*match.span()) for match in _TOKEN.finditer(text) if not text.startswith("#", match.start())
    ]
    at = 0
    while at < len(tokens):
        token = text[tokens[at].start : tokens[at].end]
        if token == "\n":
            at += 1
        elif token == "[":
            is_array = at + 1 < len(tokens) and text.startswith("[[", tokens[at].start)
            first = at + 1 + is_array
            last = _find_end(text, tokens, first, "]")
            span = _Span(tokens[first].start, tokens[last - 1].end)
            tables = _enter_table(_split_key(text[span.start : span.end]), is_array, array_lengths)
            places.keys.setdefault(tables, span)
            at = last + 1 + is_array
        else:
            equals = _find_end(text, tokens, at, "=")
            span = _Span(tokens[at].start, tokens[equals - 1].end)
            path = (*tables, *_split_key(text[span.start : span.end]))
            places.keys.setdefault(path, span)
            at = _read_value(places, tokens, equals + 1, path)
    return places


def _find_end(text: str, tokens: list[_Span], at: int, mark: str) -> int:
    """Return the index of the next token that is a mark, of the last token where there is none."""
    while at < len(tokens) - 1 and text[tokens[at].start : tokens[at].end] != mark:
        at += 1
    return at


def _split_key(text: str) -> tuple[str, ...]:
    return tuple(next(part for part in match.groups("") if part) for match in _iterate_parts(text))


def _iterate_parts(text: str) -> Iterator[re.Match[str]]:
    return (match for match in _KEY_PART.finditer(text) if any(match.groups("")))


def _enter_table(names: tuple[str, ...], is_array: bool, lengths: dict[TomlPath, int]) -> TomlPath:
    """Return the path of a header; `lengths`: of the arrays of tables so far, changed here."""
    path: TomlPath = ()
    for index, name in enumerate(names):
        path = (*path, name)
        if is_array and index == len(names) - 1:
            lengths[path] = lengths.get(path, 0) + 1
        if path in lengths:
            path = (*path, lengths[path] - 1)
    return path


def _read_value(places: TomlPlaces, tokens: list[_Span], at: int, path: TomlPath) -> int:
    """Note the span of a value and of the items of an array; return the index of the token behind it."""
    depth, n_items, first = 0, 0, at
    while at < len(tokens):
        span = tokens[at]
        token = places.text[span.start : span.end]
        if token == "\n" and not depth:
            break
        if token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        elif token == "," and depth == 1:
            n_items += 1
        elif depth == 1 and token != "\n" and places.text[tokens[first].start] == "[":
            places.values.setdefault((*path, n_items), span)
        at += 1
    if at > first:
        places.values.setdefault(path, _Span(tokens[first].start, tokens[at - 1].end))
    return at
