"""Launches of many kernels from a JSON file.

`{"kernels": {"GLOB": {"grid": [..], "block": [..], "cluster": [..], "dynamic_shared_bytes": n,
"clock_mhz": n, "l2_is_cold": false, "arguments": {"WHICH": VALUE}}}}`; a list in place of one launch stands
for several.
"""

import re
from pathlib import Path

import msgspec

from analyzer.execution.argument_text import make_argument, parse_value
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, LaunchBook, Null, check_launch
from analyzer.pipeline.json_places import JsonPlaces, Span, json_places
from analyzer.pipeline.json_places import Path as Steps
from analyzer.text.errors import UsageError
from analyzer.text.source import locate

_MAX_BYTES = 64 << 20
_HINT = 'write {"kernels": {"NAME": {"grid": [132], "block": [256], "arguments": {"0": "ptr", "n": 1024}}}}'
_BYTE = re.compile(r" \(byte (\d+)\)$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_FIELD = re.compile(r"unknown field `([^`]*)`")
_UTF8_MARK = b"\xef\xbb\xbf"

Table = dict[str, object]


class LaunchEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch as written."""

    grid: int | list[int] | None = None
    block: int | list[int] | None = None
    cluster: int | list[int] | None = None
    dynamic_shared_bytes: int | None = None
    arguments: dict[str, object] = {}
    clock_mhz: float | None = None
    l2_is_cold: bool = False


def load_launch_file(path: Path) -> LaunchBook:
    """The launches in a file; `@data.npy` is looked for beside it.

    Raises UsageError that shows the place in the file.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path}: larger than {_MAX_BYTES >> 20} MB", hint=_HINT)
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {reason}", hint="--launch takes a JSON file") from None
    return _Reader(path, data).read()


class _Reader:
    """One file: decoded, checked, and each fault shown where it stands."""

    __slots__ = ("_data", "_path", "_places")

    def __init__(self, path: Path, data: bytes) -> None:
        self._path, self._data = path, data
        self._places = JsonPlaces({}, {}, None)

    def read(self) -> LaunchBook:
        content = self._decode()
        self._places = json_places(self._data)
        if (repeated := self._places.repeated) is not None:
            raise self._fault(f"{repeated[-1]!r} is given twice", self._places.key(repeated))
        if not isinstance(content, dict) or "kernels" not in content:
            raise self._fault('no "kernels" in it', self._places.value(()))
        for key in content:
            if key != "kernels":
                raise self._fault(f"unknown key {key!r}", self._places.key((key,)))
        kernels = content["kernels"]
        if not isinstance(kernels, dict):
            raise self._fault('"kernels" must be an object', self._places.value(("kernels",)))
        return LaunchBook(tuple((glob, self._launches(glob, kernels[glob])) for glob in kernels))

    def _decode(self) -> object:
        try:
            return msgspec.json.decode(self._data.removeprefix(_UTF8_MARK))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            message = str(error)
            match = _BYTE.search(message)
            mark = len(_UTF8_MARK) if self._data.startswith(_UTF8_MARK) else 0
            offset = min(
                int(match[1]) + mark if match else len(self._data), max(0, len(self._data.rstrip()) - 1)
            )
            reason = _BYTE.sub("", message).removeprefix("JSON is malformed: ").lower()
            raise self._fault(f"not JSON: {reason}", Span(offset, 1)) from None

    def _launches(self, glob: str, content: object) -> tuple[Launch, ...]:
        steps: Steps = ("kernels", glob)
        if isinstance(content, dict):
            return (self._launch(content, steps),)
        if not isinstance(content, list):
            raise self._fault("a launch must be an object, or a list of such", self._places.value(steps))
        if not content:
            raise self._fault("an empty list of launches", self._places.value(steps))
        return tuple(self._launch(item, (*steps, place)) for place, item in enumerate(content))

    def _launch(self, content: object, steps: Steps) -> Launch:
        try:
            entry = msgspec.convert(content, LaunchEntry)
        except msgspec.ValidationError as error:
            raise self._invalid(str(error), steps) from None
        launch = Launch(
            grid=self._dims(entry.grid, (*steps, "grid")),
            block=self._dims(entry.block, (*steps, "block")),
            cluster=self._dims(entry.cluster, (*steps, "cluster")),
            dynamic_shared_bytes=entry.dynamic_shared_bytes,
            arguments=tuple(
                self._argument(which, value, (*steps, "arguments", which))
                for which, value in entry.arguments.items()
            ),
            clock_mhz=entry.clock_mhz,
            l2_is_cold=entry.l2_is_cold,
        )
        for key in ("grid", "block", "cluster", "dynamic_shared_bytes", "clock_mhz"):
            self._check(Launch(**{key: getattr(launch, key)}), (*steps, key))
        self._check(launch, (*steps, "cluster"))
        return launch

    def _check(self, launch: Launch, steps: Steps) -> None:
        try:
            check_launch(launch)
        except UsageError as error:
            raise self._fault(str(error), self._places.value(steps), error.diagnostic.hint) from None

    def _dims(self, value: int | list[int] | None, steps: Steps) -> Dim3 | None:
        if value is None:
            return None
        numbers = [value] if isinstance(value, int) else value
        if not 1 <= len(numbers) <= 3:
            raise self._fault(f"{steps[-1]} must have one to three numbers", self._places.value(steps))
        return Dim3(*numbers)

    def _argument(self, which: str, value: object, steps: Steps) -> Argument:
        if not which.strip():
            raise self._fault("an argument needs a place or a name", self._places.key(steps))
        try:
            return make_argument(which.strip(), self._value(value))
        except UsageError as error:
            raise self._fault(str(error), self._places.value(steps), error.diagnostic.hint) from None

    def _value(self, value: object) -> ArgumentValue:
        match value:
            case None:
                return Null()
            case bool():
                raise UsageError("a value is a number or a text, not true or false", hint="give 1 or 0")
            case int() | float():
                return value
            case str():
                return parse_value(value, self._path.parent)
            case _:
                raise UsageError("a value is a number or a text, not an array or an object")

    def _invalid(self, message: str, steps: Steps) -> UsageError:
        """msgspec's words and path, at the place in the file."""
        words, _, where = message.partition(" - at ")
        inner: list[str | int] = []
        for match in _STEP.finditer(where):
            inner.append(match[1] if match[1] is not None else int(match[2]))
        path = (*steps, *inner)
        if field := _FIELD.search(words):
            known = ", ".join(LaunchEntry.__struct_fields__)
            span = self._places.key((*path, field[1]))
            return self._fault(f"unknown key {field[1]!r}", span, f"a launch has: {known}")
        return self._fault(words[:1].lower() + words[1:], self._places.value(path))

    def _fault(self, message: str, span: Span, hint: str = "") -> UsageError:
        location = locate(str(self._path), self._data, span.offset, length=span.length)
        return UsageError(message, location=location, hint=hint or _HINT)
