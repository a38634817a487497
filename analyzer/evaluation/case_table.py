"""A table of measured launches: one row of a CSV file is one kernel launched on one GPU, with its time."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from analyzer.execution.binding.argument_parser import make_argument, parse_value
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import ArgumentValue, Dim3, Launch, NullPointer, Timing, check_launch
from analyzer.text.csv_table import CsvTable, read_csv_table
from analyzer.text.errors import HardwareError, InputError, UsageError

REQUIRED_COLUMNS = ("dump", "gpu", "grid", "block", "time_us")
SPLITS = ("learn", "judge")
L2_STATES = ("warm", "cold")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}")
_DIMS_HINT = "write 32;32;1 or 32x32x1 or 128"
_ARGUMENTS_HINT = (
    'write ["ptr", "ptr", 1024] or {"n": 1024}: numbers, ptr, ptr:4096, null, tensormap, zeros, fill:7.5, '
    "@data.npy"
)

_FILE_PREFIX = "@"

ArgumentLiteral = str | int | float | None
_Value = TypeVar("_Value")


class Case(Struct, frozen=True, kw_only=True):
    """One row of a table: a measured launch."""

    table: Path
    line: int  # of the table, from 1
    name: str  # the row's own name, else its number from 1
    suite: str
    dump: Path  # from the working directory
    dump_text: str  # the path as written in the table
    kernel: str
    gpu: str  # as `load_gpu` takes it
    grid: Dim3
    block: Dim3
    cluster: Dim3 | None
    dynamic_shared_bytes: int | None
    # Position or name, and value as written. Files that values name are read when the row is executed.
    arguments: tuple[tuple[str, ArgumentLiteral], ...]
    time_us: float  # measured
    split: str
    l2: str  # state before the launch: `warm`, `cold` or empty
    clock_mhz: float | None  # SM clock while measuring, None where not known
    timing: str  # what was measured: `interval`, `kernel`, `ncu`, or empty where the table does not say
    group: str
    counted: bool
    config: str
    note: str
    problem: str = ""  # why the row cannot be analyzed, if reading it showed that already

    @property
    def folder(self) -> Path:
        """Folder that paths of arguments are relative to."""
        return self.table.parent

    @property
    def execution_key(self) -> tuple[object, ...]:
        """Facts that determine the executed instructions: rows with equal keys need one execution."""
        arguments = tuple((which, repr(value)) for which, value in self.arguments)
        return (self.grid, self.block, self.cluster, self.dynamic_shared_bytes, arguments)

    @property
    def data_files(self) -> tuple[Path, ...]:
        """Files that arguments name, without duplicates."""
        texts = (value.strip() for _, value in self.arguments if isinstance(value, str))
        return tuple(dict.fromkeys(self.folder / text[1:] for text in texts if text.startswith(_FILE_PREFIX)))


def make_launch(case: Case) -> Launch:
    """Return the launch of a row for the pipeline."""
    return Launch(
        grid=case.grid,
        block=case.block,
        cluster=case.cluster,
        dynamic_shared_bytes=case.dynamic_shared_bytes,
        arguments=tuple(
            make_argument(which, parse_argument_value(value, case.folder)) for which, value in case.arguments
        ),
        clock_mhz=case.clock_mhz,
        l2_is_cold=case.l2 == "cold",
        timing=Timing(case.timing) if case.timing else Timing.INTERVAL,
    )


def parse_argument_value(value: ArgumentLiteral, folder: Path) -> ArgumentValue:
    """Return the value that a text or number of a table means. Raises UsageError."""
    match value:
        case None:
            return NullPointer()
        case str():
            return parse_value(value, folder)
        case _:
            return value


def read_cases(path: Path) -> tuple[Case, ...]:
    """Read all rows of a table; paths in it are relative to its own folder.

    A row whose files are missing is kept with its `problem`. Raises InputError that shows any fault.
    """
    table = read_csv_table(path, "validate takes a CSV table, see docs/validate.md")
    return tuple(_CaseTable(path, table).read_cases())


class _CaseTable:
    """Reader of one table, which knows the place of each field."""

    __slots__ = ("_checked", "_path", "_table")

    def __init__(self, path: Path, table: CsvTable) -> None:
        self._path, self._table = path, table
        self._checked: set[str] = set()
        table.check_columns(REQUIRED_COLUMNS, f"it has: {', '.join(table.columns)}")

    def read_cases(self) -> Iterator[Case]:
        """Yield the rows that are not empty."""
        for number, (line, fields) in enumerate(self._table.rows, start=1):
            yield self._read_case(number, line, fields)

    def _read_case(self, number: int, line: int, fields: list[str]) -> Case:
        if len(fields) != len(self._table.columns):
            count = len(fields)
            raise InputError(
                f"{count} field{'s' if count > 1 else ''}, the header has {len(self._table.columns)}",
                location=self._table.locate_field(line, min(count, len(self._table.columns)) - 1),
                hint='a field that holds commas stands in "...", one that is empty keeps its comma',
            )
        row = _CaseRow(self, line, dict(zip(self._table.columns, map(str.strip, fields), strict=True)))
        dump_text = row.read_required("dump")
        dump = self._path.parent / dump_text
        arguments, problem = row.read_arguments()
        case = Case(
            table=self._path,
            line=line,
            name=row.read_optional("case") or str(number),
            suite=row.read_optional("suite") or dump.stem,
            dump=dump,
            dump_text=dump_text,
            kernel=row.read_optional("kernel"),
            gpu=row.read_gpu(),
            grid=row.read_dims("grid"),
            block=row.read_dims("block"),
            cluster=row.read_dims("cluster") if row.read_optional("cluster") else None,
            dynamic_shared_bytes=row.read_whole_number("dynamic_shared_bytes"),
            arguments=arguments,
            time_us=row.read_positive("time_us"),
            split=row.read_choice("split", SPLITS),
            l2=row.read_choice("l2", L2_STATES),
            clock_mhz=row.read_positive("clock_mhz") if row.read_optional("clock_mhz") else None,
            timing=row.read_choice("timing", tuple(Timing)),
            group=row.read_optional("group"),
            counted=row.read_choice("counted", ("yes", "no")) != "no",
            config=row.read_optional("config"),
            note=row.read_optional("note"),
            problem=problem if dump.is_file() else f"no dump {dump_text}",
        )
        row.check_dims(case)
        return case

    def make_error(self, line: int, column: str, message: str, hint: str) -> InputError:
        """Return an error that shows the field."""
        location = self._table.locate_field(line, self._table.columns.index(column))
        return InputError(f"column {column}: {message}", location=location, hint=hint)

    @property
    def folder(self) -> Path:
        """Folder that paths in the table are relative to."""
        return self._path.parent

    def check_value(self, value: ArgumentLiteral) -> None:
        """Check a value, each distinct one once because files are opened for it. Raises UsageError."""
        if repr(value) not in self._checked:
            parse_argument_value(value, self.folder)
            self._checked.add(repr(value))


class _CaseRow(Struct, frozen=True):
    """The fields of one row by column."""

    table: _CaseTable
    line: int
    fields: Mapping[str, str]

    def read_optional(self, column: str) -> str:
        """Return a field, empty where the table has no such column."""
        return self.fields.get(column, "")

    def read_required(self, column: str) -> str:
        """Return a field. Raises InputError if it is empty, as all methods below do for a faulty field."""
        found = self.read_optional(column)
        if not found:
            raise self._make_error(column, "is empty", "each row needs it")
        return found

    def read_gpu(self) -> str:
        """Return the name or the path of a GPU that exists."""
        name = self.read_required("gpu")
        if name.endswith(".toml"):
            name = str(self.table.folder / name)
        self._call_checked("gpu", lambda: load_gpu(name))
        return name

    def read_dims(self, column: str) -> Dim3:
        """Return dimensions written as `32;32;1`, `32x32x1` or `128`."""
        text = self.read_required(column)
        parts = [part.strip() for part in re.split(r"[;,x]", text.lower())]
        if not 1 <= len(parts) <= 3 or not all(_WHOLE_NUMBER.fullmatch(part) for part in parts):
            raise self._make_error(column, f"{text!r} is not one to three whole numbers", _DIMS_HINT)
        return Dim3(*map(int, parts))

    def read_whole_number(self, column: str) -> int | None:
        """Return an integer of at least 0, None if the field is empty."""
        text = self.read_optional(column)
        if text and not _WHOLE_NUMBER.fullmatch(text):
            raise self._make_error(column, f"{text!r} is no whole number", "give bytes, or leave it empty")
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
            raise self._make_error(column, f"{text!r} is no positive number", f"give {unit}, such as 12.5")
        return found

    def read_choice(self, column: str, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed values in lower case, or an empty text."""
        found = self.read_optional(column).lower()
        if found and found not in allowed:
            hint = f"write {' or '.join(allowed)}, or leave it empty"
            raise self._make_error(column, f"{self.read_optional(column)!r} is neither", hint)
        return found

    def read_arguments(self) -> tuple[tuple[tuple[str, ArgumentLiteral], ...], str]:
        """Return the arguments, and the reason if a file that they name is missing or faulty."""
        found, problem = [], ""
        for which, given in self._decode_arguments().items():
            value = int(given) if isinstance(given, bool) else given
            if not which.strip():
                raise self._make_error("arguments", "an argument needs a place or a name", _ARGUMENTS_HINT)
            if isinstance(value, list | dict):
                message = f"argument {which}: {_shorten(str(value))} is no value"
                raise self._make_error("arguments", message, _ARGUMENTS_HINT)
            try:
                self.table.check_value(value)
            except UsageError as error:
                if not (isinstance(value, str) and value.strip().startswith(_FILE_PREFIX)):
                    message = f"argument {which}: {error}"
                    raise self._make_error("arguments", message, error.diagnostic.hint) from None
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
            raise self._make_error(
                "arguments", f"{_shorten(text)} is not JSON: {error}", _ARGUMENTS_HINT
            ) from None
        if isinstance(content, list):
            return {str(index): value for index, value in enumerate(content)}
        if not isinstance(content, dict):
            raise self._make_error(
                "arguments", f"{_shorten(text)} is neither list nor object", _ARGUMENTS_HINT
            )
        return content

    def check_dims(self, case: Case) -> None:
        """Raise InputError for dimensions that no GPU takes or that contradict each other."""
        self._call_checked("grid", lambda: check_launch(Launch(grid=case.grid)))
        self._call_checked("block", lambda: check_launch(Launch(block=case.block)))
        if case.cluster is not None:
            self._call_checked("cluster", lambda: check_launch(Launch(grid=case.grid, cluster=case.cluster)))

    def _call_checked(self, column: str, read: Callable[[], _Value]) -> _Value:
        try:
            return read()
        except (UsageError, HardwareError) as error:
            hint = error.diagnostic.hint or "no GPU takes such a launch"
            raise self._make_error(column, str(error), hint) from None

    def _make_error(self, column: str, message: str, hint: str) -> InputError:
        return self.table.make_error(self.line, column, message, hint)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def load_case_gpu(case: Case) -> Gpu:
    """Return the GPU of a row; it exists, because reading the row found it."""
    return load_gpu(case.gpu)
