"""CSV tables with the place of every field, so that an error can show line, column and caret."""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from analyzer.files import read_file
from analyzer.text.errors import InputError
from analyzer.text.source import Location, locate

_MAX_TABLE_BYTES = 64 << 20
_LARGEST_NUMBER = 1e15
_UTF8_BOM = b"\xef\xbb\xbf"
_CSV_FIELD = re.compile(rb'("(?:[^"]|"")*"|[^,\r\n]*)(,|\r?\n|\r|$)')


class CsvTable:
    """The records of one file: `columns` by name, `rows` of (line, fields). Empty records are left out."""

    __slots__ = ("_data", "_first_line", "columns", "name", "rows")

    def __init__(self, name: str, data: bytes, *, first_line: int = 1) -> None:
        """Read a table. Raises InputError that shows what is wrong: encoding, quotes, header.

        first_line: number of the first line of `data` in the file.
        """
        self.name, self._data, self._first_line = name, data.removeprefix(_UTF8_BOM), first_line
        records = self._read_records()
        line, header = next(records, (1, []))
        self.columns = [column.strip() for column in header]
        self._check_header(line)
        self.rows = [(line, fields) for line, fields in records if any(field.strip() for field in fields)]

    def find_column(self, name: str) -> int | None:
        """Return the position of a column, None if the table has none of that name."""
        return self.columns.index(name) if name in self.columns else None

    def check_columns(self, required: Sequence[str], hint: str) -> None:
        """Raise InputError if a column is missing."""
        missing = [name for name in required if name not in self.columns]
        if missing:
            separated = len(self.columns) == 1 and re.search(r"[;\t]", self.columns[0])
            raise InputError(
                f"no column {', '.join(missing)}",
                location=self.locate_field(1, 0),
                hint="separate columns by commas" if separated else hint,
            )

    def locate_field(self, line: int, field: int) -> Location:
        """Return the place of a field of the record that begins on a line."""
        offset = 0
        for _ in range(line - 1):
            offset = self._data.find(b"\n", offset) + 1
        start, length = offset, 1
        for _ in range(field + 1):
            match = _CSV_FIELD.match(self._data, offset)
            if match is None:
                break
            start, length = match.start(), len(match[1])
            if match[2] != b",":
                break
            offset = match.end()
        return locate(self.name, self._data, start, first_line=self._first_line, length=max(length, 1))

    def read_positive(self, row: int, column: str, unit: str) -> float:
        """Return a positive number of a row (by position). Raises InputError that shows the field."""
        line, fields = self.rows[row]
        place = self.columns.index(column)
        text = fields[place].strip() if place < len(fields) else ""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0.0 < value < _LARGEST_NUMBER:
            raise InputError(
                f"column {column}: {text!r} is no positive number",
                location=self.locate_field(line, place),
                hint=f"give {unit}, such as 12.5",
            )
        return value

    def _read_records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line on which each record begins, and its fields."""
        try:
            text = self._data.decode("utf-8")
        except UnicodeDecodeError as error:
            location = locate(self.name, self._data, error.start, first_line=self._first_line)
            raise InputError("this is not UTF-8 text", location=location, hint="save it as UTF-8") from None
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        line = 1
        try:
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
        except csv.Error as error:
            raise InputError(
                f"not CSV: {error}",
                location=self.locate_field(line, 0),
                hint='a field that holds commas or quotes stands in "...", a quote in it is doubled',
            ) from None

    def _check_header(self, line: int) -> None:
        if not any(self.columns):
            raise InputError(f"{self.name}: the table is empty", hint="its first line names the columns")
        repeated = next((name for name in self.columns if name and self.columns.count(name) > 1), None)
        if repeated is not None:
            last = len(self.columns) - 1 - self.columns[::-1].index(repeated)
            raise InputError(
                f"column {repeated} is there twice",
                location=self.locate_field(line, last),
                hint="leave one of them out",
            )


def read_csv_table(path: Path, hint: str = "name a CSV table") -> CsvTable:
    """Return the table in a file. Raises InputError, also where it cannot be read; hint: what to do then."""
    try:
        data = read_file(path, _MAX_TABLE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: {reason}", hint=hint) from None
    return CsvTable(str(path), data)
