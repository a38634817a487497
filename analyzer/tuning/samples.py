"""Measured configurations of one kernel on one GPU, in columns, and the CSV file that holds them.

A plan and a profile are the same table: `kernel`, `gpu`, the kernel's inputs, its macro and micro parameters,
and in a profile `time_us`. Further columns (wave, interval) are for the reader. A row without a time is a
configuration that could not run; it is counted and left out.
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.text.csv_table import CsvTable, read_csv_table
from analyzer.text.errors import InputError
from analyzer.tuning.kernel_space import Integers, KernelSpace, find_kernel

Times = NDArray[np.float64]

_HINT = "columns: kernel, gpu, the kernel's inputs and parameters, time_us; `warplens tune plan` writes them"
_MAX_VALUE = 1 << 40
_MIN_TIME_US, _MAX_TIME_US = 1e-3, 1e12


class Samples(Struct, frozen=True):
    """Rows of one kernel on one GPU."""

    space: KernelSpace
    gpu: str
    shapes: Integers  # [n, inputs]
    macros: Integers  # [n, macro parameters]
    micros: Integers  # [n, micro parameters]
    time_us: Times  # [n]; NaN in a plan

    def __len__(self) -> int:
        return len(self.shapes)

    def map_inputs(self) -> tuple[Integers, Integers]:
        """Return G and L of each row."""
        return self.space.map_inputs(self.shapes, self.macros)

    def select(self, rows: NDArray[np.bool_] | Integers) -> "Samples":
        """Return some of the rows."""
        return Samples(
            self.space,
            self.gpu,
            self.shapes[rows],
            self.macros[rows],
            self.micros[rows],
            self.time_us[rows],
        )

    def number_shapes(self) -> tuple[Integers, Integers]:
        """Return the distinct shapes [shapes, inputs], sorted, and the number of each row's."""
        return number_rows(self.shapes)


def number_rows(rows: Integers) -> tuple[Integers, Integers]:
    """Return the distinct rows of a table, sorted, and the number of each row among them."""
    distinct, numbers = np.unique(rows, axis=0, return_inverse=True)
    return distinct, numbers.reshape(-1)


def find_rows(table: Integers, wanted: Integers) -> Integers:
    """Return the place of each wanted row in a table, the last one of equals; -1 where there is none."""
    numbers: NDArray[np.int64] = number_rows(np.concatenate([table, wanted]))[1]
    place = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
    place[numbers[: len(table)]] = np.arange(len(table))
    found: Integers = place[numbers[len(table) :]]
    return found


def read_samples(path: Path, *, needs_times: bool = True) -> list[Samples]:
    """Return the rows of a file, one value per kernel and GPU, in the order of the file.

    Raises InputError for a file that cannot be read, a column that is missing, a number that is none.
    """
    table = read_csv_table(path, _HINT)
    table.check_columns(("kernel", "gpu", *(("time_us",) if needs_times else ())), _HINT)
    kernel_at, gpu_at = table.columns.index("kernel"), table.columns.index("gpu")
    parts: dict[tuple[str, str], list[int]] = {}
    for number, (line, fields) in enumerate(table.rows):
        if len(fields) != len(table.columns):
            raise InputError(
                f"{len(fields)} fields, where the header has {len(table.columns)}",
                location=table.locate_field(line, 0),
                hint=_HINT,
            )
        parts.setdefault((fields[kernel_at].strip(), fields[gpu_at].strip()), []).append(number)
    if not parts:
        raise InputError(f"{path}: there are no rows below the header", hint=_HINT)
    return [_read_part(table, kernel, gpu, rows) for (kernel, gpu), rows in parts.items()]


def _read_part(table: CsvTable, kernel: str, gpu: str, rows: Sequence[int]) -> Samples:
    """Return the rows of one kernel on one GPU."""
    space = find_kernel(kernel).space
    groups = (space.inputs, space.macro_parameters, space.micro_parameters)
    table.check_columns([name for group in groups for name in group], _HINT)
    time_us = _read_times(table, rows)
    columns = [_read_integers(table, rows, group) for group in groups]
    return Samples(space, gpu, columns[0], columns[1], columns[2], time_us)


def _read_integers(table: CsvTable, rows: Sequence[int], names: Sequence[str]) -> Integers:
    values = np.empty((len(rows), len(names)), dtype=np.int64)
    for column, name in enumerate(names):
        place = table.columns.index(name)
        for at, row in enumerate(rows):
            line, fields = table.rows[row]
            try:
                value = int(fields[place][:20])
            except ValueError:
                value = 0
            if not 0 < value < _MAX_VALUE:
                raise InputError(
                    f"column {name}: {fields[place][:40]!r} is no positive whole number",
                    location=table.locate_field(line, place),
                    hint=_HINT,
                )
            values[at, column] = value
    return values


def _read_times(table: CsvTable, rows: Sequence[int]) -> Times:
    """Return the times; NaN where the field is empty or there is no such column."""
    times = np.full(len(rows), np.nan)
    place = table.find_column("time_us")
    if place is None:
        return times
    for at, row in enumerate(rows):
        line, fields = table.rows[row]
        if not (text := fields[place].strip()):
            continue
        try:
            times[at] = float(text)
        except ValueError:
            times[at] = math.nan
        if not _MIN_TIME_US <= times[at] < _MAX_TIME_US:
            raise InputError(
                f"column time_us: {text[:40]!r} is no time that a kernel takes",
                location=table.locate_field(line, place),
                hint="microseconds, or nothing for a configuration that could not run",
            )
    return times


def format_samples(
    parts: Sequence[Samples], notes: Sequence[tuple[str, Sequence[Integers]]] = ()
) -> Iterator[str]:
    """Yield the text of a file, a piece per thousand rows.

    parts: of one kernel. notes: further columns by name, each with an array per part. Times that are unknown
    (a plan's) stay empty.
    """
    space = parts[0].space
    names = (*space.inputs, *space.macro_parameters, *space.micro_parameters)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("kernel", "gpu", *(name for name, _ in notes), *names, "time_us"))
    for number, part in enumerate(parts):
        noted = [np.asarray(columns[number])[:, None] for _, columns in notes]
        values = np.concatenate([*noted, part.shapes, part.macros, part.micros], axis=1).tolist()
        for row, time in zip(values, part.time_us.tolist(), strict=True):
            writer.writerow((space.name, part.gpu, *row, "" if math.isnan(time) else f"{time:.6g}"))
            if text.tell() > _PIECE_CHARACTERS:
                yield text.getvalue()
                text.seek(0)
                text.truncate()
    yield text.getvalue()


_PIECE_CHARACTERS = 1 << 16
