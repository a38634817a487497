"""The rows of a CSV table of measured launches, and their fields: dimensions, numbers, arguments.

What the columns are is up to the reader of a table (`case_table`, `transfer_table`). Any fault is an
InputError that shows the field.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from analyzer.execution.binding.argument_parser import parse_value
from analyzer.ir.launch import ArgumentValue, Dim3, Launch, NullPointer, check_launch
from analyzer.text.csv_table import CsvTable
from analyzer.text.errors import HardwareError, InputError, UsageError

FILE_PREFIX = "@"
_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}")
_DIMS_HINT = "write 32;32;1 or 32x32x1 or 128"
_ARGUMENTS_HINT = (
    'write ["ptr", "ptr", 1024] or {"n": 1024}: numbers, ptr, ptr:4096, null, tensormap, zeros, fill:7.5, '
    "@data.npy"
)

ArgumentLiteral = str | int | float | None
Arguments = tuple[tuple[str, ArgumentLiteral], ...]  # position or name, and value as written
_Value = TypeVar("_Value")


def parse_argument_value(value: ArgumentLiteral, folder: Path) -> ArgumentValue:
    """Return the value that a text or number of a table means. Raises UsageError."""
    match value:
        case None:
            return NullPointer()
        case str():
            return parse_value(value, folder)
        case _:
            return value


class MeasuredTable:
    """Reader of one table, which knows the place of each field."""

    __slots__ = ("_checked", "_path", "_table")

    def __init__(self, path: Path, table: CsvTable, required: Sequence[str]) -> None:
        """Prepare to read. Raises InputError for a table that lacks one of the required columns."""
        self._path, self._table = path, table
        self._checked: set[str] = set()
        table.check_columns(required, f"it has: {', '.join(table.columns)}")

    @property
    def path(self) -> Path:
        """File of the table."""
        return self._path

    @property
    def folder(self) -> Path:
        """Folder that paths in the table are relative to."""
        return self._path.parent

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._table.columns

    def read_rows(self) -> Iterator["MeasuredRow"]:
        """Yield the rows that are not empty, in the order of the file."""
        for line, fields in self._table.rows:
            if len(fields) != len(self.columns):
                count = len(fields)
                raise InputError(
                    f"{count} field{'s' if count > 1 else ''}, the header has {len(self.columns)}",
                    location=self._table.locate_field(line, min(count, len(self.columns)) - 1),
                    hint='a field that holds commas stands in "...", one that is empty keeps its comma',
                )
            yield MeasuredRow(self, line, dict(zip(self.columns, map(str.strip, fields), strict=True)))

    def make_error(self, line: int, column: str, message: str, hint: str) -> InputError:
        """Return an error that shows the field."""
        location = self._table.locate_field(line, self.columns.index(column))
        return InputError(f"column {column}: {message}", location=location, hint=hint)

    def check_value(self, value: ArgumentLiteral) -> None:
        """Check a value, each distinct one once because files are opened for it. Raises UsageError."""
        if repr(value) not in self._checked:
            parse_argument_value(value, self.folder)
            self._checked.add(repr(value))


class MeasuredRow(Struct, frozen=True):
    """The fields of one row by column."""

    table: MeasuredTable
    line: int  # on which the row begins, from 1 in the text that the table was given
    fields: Mapping[str, str]

    def read_optional(self, column: str) -> str:
        """Return a field, empty where the table has no such column."""
        return self.fields.get(column, "")

    def read_required(self, column: str) -> str:
        """Return a field. Raises InputError if it is empty, as all methods below do for a faulty field."""
        found = self.read_optional(column)
        if not found:
            raise self.make_error(column, "is empty", "each row needs it")
        return found

    def read_dims(self, column: str) -> Dim3:
        """Return dimensions written as `32;32;1`, `32x32x1`, `(32, 32, 1)` or `128`."""
        text = self.read_required(column)
        parts = [part.strip() for part in re.split(r"[;,x]", text.lower().strip("()[] "))]
        if not 1 <= len(parts) <= 3 or not all(_WHOLE_NUMBER.fullmatch(part) for part in parts):
            raise self.make_error(column, f"{text!r} is not one to three whole numbers", _DIMS_HINT)
        return Dim3(*map(int, parts))

    def read_whole_number(self, column: str) -> int | None:
        """Return an integer of at least 0, None if the field is empty."""
        text = self.read_optional(column)
        if text and not _WHOLE_NUMBER.fullmatch(text):
            raise self.make_error(column, f"{text!r} is no whole number", "give bytes, or leave it empty")
        return int(text) if text else None

    def read_positive(self, column: str) -> float:
        """Return a positive number."""
        text = self.read_required(column)
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and found > 0):
            unit = "microseconds" if column == "time_us" else "MHz"
            raise self.make_error(column, f"{text!r} is no positive number", f"give {unit}, such as 12.5")
        return found

    def read_choice(self, column: str, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed values in lower case, or an empty text."""
        found = self.read_optional(column).lower()
        if found and found not in allowed:
            hint = f"write {' or '.join(allowed)}, or leave it empty"
            raise self.make_error(column, f"{self.read_optional(column)!r} is neither", hint)
        return found

    def read_arguments(self, *, separator: str = "") -> tuple[Arguments, str]:
        """Return the arguments, and the reason if a file that they name is missing or faulty.

        separator: of values by position that may stand there in place of JSON; none where empty.
        """
        found: list[tuple[str, ArgumentLiteral]] = []
        problem = ""
        text = self.read_optional("arguments")
        is_list = separator and text and text[0] not in "[{"
        given_values = _split_values(text, separator) if is_list else self._decode_arguments()
        for which, given in given_values.items():
            value = int(given) if isinstance(given, bool) else given
            if not which.strip():
                raise self.make_error("arguments", "an argument needs a place or a name", _ARGUMENTS_HINT)
            if isinstance(value, list | dict):
                message = f"argument {which}: {_shorten(str(value))} is no value"
                raise self.make_error("arguments", message, _ARGUMENTS_HINT)
            try:
                self.table.check_value(value)
            except UsageError as error:
                if not (isinstance(value, str) and value.strip().startswith(FILE_PREFIX)):
                    message = f"argument {which}: {error}"
                    raise self.make_error("arguments", message, error.diagnostic.hint) from None
                problem = problem or f"argument {which}: {error}"
            found.append((which.strip(), value))
        return tuple(found), problem

    def _decode_arguments(self) -> dict[str, Any]:
        """Return values of JSON by position or name."""
        text = self.read_optional("arguments")
        if not text:
            return {}
        try:
            content = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.make_error(
                "arguments", f"{_shorten(text)} is not JSON: {error}", _ARGUMENTS_HINT
            ) from None
        if isinstance(content, list):
            return {str(index): value for index, value in enumerate(content)}
        if not isinstance(content, dict):
            raise self.make_error(
                "arguments", f"{_shorten(text)} is neither list nor object", _ARGUMENTS_HINT
            )
        return content

    def check_dims(
        self,
        grid: Dim3,
        block: Dim3,
        cluster: Dim3 | None,
        *,
        columns: tuple[str, str] = ("grid", "block"),
    ) -> None:
        """Raise InputError for dimensions that no GPU takes or that contradict each other.

        columns: of grid and block.
        """
        self.call_checked(columns[0], lambda: check_launch(Launch(grid=grid)))
        self.call_checked(columns[1], lambda: check_launch(Launch(block=block)))
        if cluster is not None:
            self.call_checked("cluster", lambda: check_launch(Launch(grid=grid, cluster=cluster)))

    def call_checked(self, column: str, read: Callable[[], _Value]) -> _Value:
        """Return what `read` returns; a user's error of it is raised as one that shows the field."""
        try:
            return read()
        except (UsageError, HardwareError) as error:
            hint = error.diagnostic.hint or "no GPU takes such a launch"
            raise self.make_error(column, str(error), hint) from None

    def make_error(self, column: str, message: str, hint: str) -> InputError:
        """Return an error that shows a field of this row."""
        return self.table.make_error(self.line, column, message, hint)


def _split_values(text: str, separator: str) -> dict[str, Any]:
    """Return values by position: numbers as such, all else as texts."""
    return {str(index): _parse_number(part.strip()) for index, part in enumerate(text.split(separator))}


def _parse_number(text: str) -> int | float | str:
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
