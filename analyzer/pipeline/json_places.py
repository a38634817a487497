"""Where the keys and values of a JSON text stand, for carets under them."""

import json
import re

from msgspec import Struct

Path = tuple[str | int, ...]

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.S)


class Span(Struct, frozen=True):
    """Bytes of a text."""

    offset: int
    length: int


class _Level(Struct):
    """An object or array that is open: `step` leads to its next value."""

    is_object: bool
    step: str | int = 0
    has_key: bool = False


class JsonPlaces(Struct, frozen=True):
    """Spans of values and of keys by path, and the first key that an object has twice."""

    values: dict[Path, Span]
    keys: dict[Path, Span]
    repeated: Path | None

    def key(self, path: Path) -> Span:
        """The key of a value, else the value itself, else what encloses it."""
        return self.keys.get(path) or self.value(path)

    def value(self, path: Path) -> Span:
        """The value, else the nearest that encloses it."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Span(0, 1))


def json_places(data: bytes) -> JsonPlaces:
    """Places in a text that is known to be JSON."""
    values: dict[Path, Span] = {}
    keys: dict[Path, Span] = {}
    repeated: Path | None = None
    levels: list[_Level] = []
    for match in _TOKEN.finditer(data):
        token, span = match[0], Span(match.start(), len(match[0]))
        level = levels[-1] if levels else None
        path = tuple(level.step for level in levels)
        if token in (b":", b","):
            if token == b"," and level is not None:
                level.has_key = False
                level.step = (
                    level.step + 1 if isinstance(level.step, int) and not level.is_object else level.step
                )
        elif token in (b"}", b"]"):
            levels.pop()
        elif level is not None and level.is_object and not level.has_key:
            level.step, level.has_key = str(json.loads(token)), True
            path = tuple(level.step for level in levels)
            if path in keys and repeated is None:
                repeated = path
            keys[path] = span
        else:
            values[path] = span
            if token in (b"{", b"["):
                levels.append(_Level(is_object=token == b"{"))
    return JsonPlaces(values, keys, repeated)
