"""Launches of many kernels, read from a JSON file.

`{"kernels": {"GLOB": {"grid": [..], "block": [..], "cluster": [..], "dynamic_shared_bytes": n,
"clock_mhz": n, "l2_is_cold": false, "timing": "kernel", "arguments": {"WHICH": VALUE}}}}`; several launches
of a kernel are a list. What a recorder notes beside (`"recorded": {...}`) is not read. `NAME@HASH` is the
kernel that Triton compiled under this hash, or under one that begins so.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from analyzer.execution.binding.argument_parser import make_argument, parse_value
from analyzer.files import read_file
from analyzer.ir.launch import (
    Argument,
    ArgumentValue,
    Dim3,
    Launch,
    LaunchTable,
    NullPointer,
    Timing,
    check_launch,
)
from analyzer.text.errors import UsageError
from analyzer.text.json_spans import (
    ByteSpan,
    JsonPath,
    JsonSpans,
    find_json_spans,
    split_decode_error,
    split_validation_error,
)
from analyzer.text.source import locate

_MAX_FILE_BYTES = 16 << 20
_EXAMPLE_HINT = (
    'write {"kernels": {"NAME": {"grid": [132], "block": [256], "arguments": {"0": "ptr", "n": 1024}}}}'
)
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")
_UTF8_BOM = b"\xef\xbb\xbf"


class LaunchFileEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch as written."""

    grid: int | tuple[int, ...] | None = None
    block: int | tuple[int, ...] | None = None
    cluster: int | tuple[int, ...] | None = None
    dynamic_shared_bytes: int | None = None
    arguments: Mapping[str, object] = {}
    clock_mhz: float | None = None
    l2_is_cold: bool = False
    timing: Timing = Timing.INTERVAL
    recorded: Mapping[str, object] = {}  # for people, as `watch_triton` writes it


def load_launch_file(path: Path) -> LaunchTable:
    """Read the launches of a file; `@data.npy` is relative to its folder.

    Raises UsageError with the place of any fault.
    """
    try:
        data = read_file(path, _MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {reason}", hint="--launch takes a JSON file") from None
    return _LaunchFileReader(path, data).read()


class _LaunchFileReader:
    """Reader of one file, which knows the place of each key and value."""

    __slots__ = ("_data", "_path", "_spans")

    def __init__(self, path: Path, data: bytes) -> None:
        self._path, self._data = path, data
        self._spans = JsonSpans({}, {}, None)

    def read(self) -> LaunchTable:
        content = self._decode()
        self._spans = find_json_spans(self._data)
        if (repeated := self._spans.repeated_key) is not None:
            raise self._make_error(f"{repeated[-1]!r} is given twice", self._spans.find_key(repeated))
        if not isinstance(content, dict) or "kernels" not in content:
            raise self._make_error('no "kernels" in it', self._spans.find_value(()))
        for key in content:
            if key != "kernels":
                raise self._make_error(f"unknown key {key!r}", self._spans.find_key((key,)))
        kernels = content["kernels"]
        if not isinstance(kernels, dict):
            raise self._make_error('"kernels" must be an object', self._spans.find_value(("kernels",)))
        return LaunchTable(tuple((glob, self._read_launches(glob, kernels[glob])) for glob in kernels))

    def _decode(self) -> object:
        try:
            return msgspec.json.decode(self._data.removeprefix(_UTF8_BOM))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            reason, offset = split_decode_error(str(error))
            mark = len(_UTF8_BOM) if self._data.startswith(_UTF8_BOM) else 0
            last = max(0, len(self._data.rstrip()) - 1)
            span = ByteSpan(last if offset is None else min(offset + mark, last), 1)
            raise self._make_error(f"not JSON: {reason}", span) from None

    def _read_launches(self, glob: str, content: object) -> tuple[Launch, ...]:
        json_path: JsonPath = ("kernels", glob)
        if isinstance(content, dict):
            return (self._read_launch(content, json_path),)
        if not isinstance(content, list):
            raise self._make_error(
                "a launch must be an object, or a list of such", self._spans.find_value(json_path)
            )
        if not content:
            raise self._make_error("an empty list of launches", self._spans.find_value(json_path))
        return tuple(self._read_launch(item, (*json_path, place)) for place, item in enumerate(content))

    def _read_launch(self, content: object, json_path: JsonPath) -> Launch:
        try:
            entry = msgspec.convert(content, LaunchFileEntry)
        except msgspec.ValidationError as error:
            raise self._make_validation_error(str(error), json_path) from None
        launch = Launch(
            grid=self._read_dims(entry.grid, (*json_path, "grid")),
            block=self._read_dims(entry.block, (*json_path, "block")),
            cluster=self._read_dims(entry.cluster, (*json_path, "cluster")),
            dynamic_shared_bytes=entry.dynamic_shared_bytes,
            arguments=tuple(
                self._read_argument(which, value, (*json_path, "arguments", which))
                for which, value in entry.arguments.items()
            ),
            clock_mhz=entry.clock_mhz,
            l2_is_cold=entry.l2_is_cold,
            timing=entry.timing,
        )
        for key in ("grid", "block", "cluster", "dynamic_shared_bytes", "clock_mhz"):
            self._check_launch(Launch(**{key: getattr(launch, key)}), (*json_path, key))
        self._check_launch(launch, (*json_path, "cluster"))
        return launch

    def _check_launch(self, launch: Launch, json_path: JsonPath) -> None:
        try:
            check_launch(launch)
        except UsageError as error:
            raise self._make_error(
                str(error), self._spans.find_value(json_path), error.diagnostic.hint
            ) from None

    def _read_dims(self, value: int | tuple[int, ...] | None, json_path: JsonPath) -> Dim3 | None:
        if value is None:
            return None
        numbers = (value,) if isinstance(value, int) else value
        if not 1 <= len(numbers) <= 3:
            raise self._make_error(
                f"{json_path[-1]} must have one to three numbers", self._spans.find_value(json_path)
            )
        return Dim3(*numbers)

    def _read_argument(self, which: str, value: object, json_path: JsonPath) -> Argument:
        if not which.strip():
            raise self._make_error("an argument needs a place or a name", self._spans.find_key(json_path))
        try:
            return make_argument(which.strip(), self._read_value(value))
        except UsageError as error:
            raise self._make_error(
                str(error), self._spans.find_value(json_path), error.diagnostic.hint
            ) from None

    def _read_value(self, value: object) -> ArgumentValue:
        match value:
            case None:
                return NullPointer()
            case bool():
                raise UsageError("a value is a number or a text, not true or false", hint="give 1 or 0")
            case int() | float():
                return value
            case str():
                return parse_value(value, self._path.parent)
            case _:
                raise UsageError("a value is a number or a text, not an array or an object")

    def _make_validation_error(self, message: str, json_path: JsonPath) -> UsageError:
        """Return msgspec's message as an error at the place in the file."""
        words, inner_path = split_validation_error(message)
        path = (*json_path, *inner_path)
        if field := _UNKNOWN_FIELD.search(words):
            known = ", ".join(LaunchFileEntry.__struct_fields__)
            span = self._spans.find_key((*path, field[1]))
            return self._make_error(f"unknown key {field[1]!r}", span, f"a launch has: {known}")
        return self._make_error(words[:1].lower() + words[1:], self._spans.find_value(path))

    def _make_error(self, message: str, span: ByteSpan, hint: str = "") -> UsageError:
        location = locate(str(self._path), self._data, span.offset, length=span.length)
        return UsageError(message, location=location, hint=hint or _EXAMPLE_HINT)
