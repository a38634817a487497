"""Places of the keys and values of a JSON text, for carets under them.

One pass over the tokens keeps a stack of the open objects and arrays; their current keys and indices are the
path of the next value: in `{"a": [5, 7]}` the value at path ("a", 1) has offset 10 and length 1.
"""

import json
import re
from collections.abc import Mapping

from msgspec import Struct

JsonPath = tuple[str | int, ...]

_BYTE_OFFSET = re.compile(r" \(byte (\d+)\)$")
_PATH_STEP = re.compile(r"\.([\w-]+)|\[(\d+)\]")
_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.S)


class ByteSpan(Struct, frozen=True):
    """A range of bytes of a text."""

    offset: int
    length: int


class _OpenContainer(Struct):
    """An object or array that is still open."""

    is_object: bool
    key_or_index: str | int = 0  # of its next value
    has_key: bool = False  # the key of that value has been read


class JsonSpans(Struct, frozen=True):
    """Spans of values and of keys by path."""

    values: Mapping[JsonPath, ByteSpan]
    keys: Mapping[JsonPath, ByteSpan]
    repeated_key: JsonPath | None  # the first key that an object has twice

    def find_key(self, path: JsonPath) -> ByteSpan:
        """Return the span of a value's key, else of the value itself, else of what encloses it."""
        return self.keys.get(path) or self.find_value(path)

    def find_value(self, path: JsonPath) -> ByteSpan:
        """Return the span of a value, else of the nearest one that encloses it."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, ByteSpan(0, 1))


def find_json_spans(data: bytes) -> JsonSpans:
    """Return the spans of a text that is known to be JSON."""
    values: dict[JsonPath, ByteSpan] = {}
    keys: dict[JsonPath, ByteSpan] = {}
    repeated: JsonPath | None = None
    levels: list[_OpenContainer] = []
    for match in _JSON_TOKEN.finditer(data):
        token, span = match[0], ByteSpan(match.start(), len(match[0]))
        level = levels[-1] if levels else None
        path = tuple(level.key_or_index for level in levels)
        if token in (b":", b","):
            if token == b"," and level is not None:
                level.has_key = False
                level.key_or_index = (
                    level.key_or_index + 1
                    if isinstance(level.key_or_index, int) and not level.is_object
                    else level.key_or_index
                )
        elif token in (b"}", b"]"):
            levels.pop()
        elif level is not None and level.is_object and not level.has_key:
            level.key_or_index, level.has_key = str(json.loads(token)), True
            path = tuple(level.key_or_index for level in levels)
            if path in keys and repeated is None:
                repeated = path
            keys[path] = span
        else:
            values[path] = span
            if token in (b"{", b"["):
                levels.append(_OpenContainer(is_object=token == b"{"))
    return JsonSpans(values, keys, repeated)


def split_decode_error(message: str) -> tuple[str, int | None]:
    """Return the reason in a decoding error of msgspec, and the byte offset if it names one.

    >>> split_decode_error("JSON is malformed: invalid character (byte 7)")
    ('invalid character', 7)
    """
    match = _BYTE_OFFSET.search(message)
    reason = _BYTE_OFFSET.sub("", message).removeprefix("JSON is malformed: ").lower()
    return reason, int(match[1]) if match else None


def split_validation_error(message: str) -> tuple[str, JsonPath]:
    """Return a validation error of msgspec without its path, and that path.

    >>> split_validation_error("Expected `int`, got `str` - at `$.kernels[0].line`")
    ('Expected `int`, got `str`', ('kernels', 0, 'line'))
    """
    words, _, where = message.partition(" - at ")
    steps = _PATH_STEP.finditer(where)
    return words, tuple(int(step[2]) if step[1] is None else step[1] for step in steps)
