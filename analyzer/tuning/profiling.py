"""Measuring the rows of a plan, so that a run that was interrupted goes on where it was.

The profile is the plan's table with `time_us` filled in and a column `status`. Each row is appended and
flushed as soon as it is known; whoever starts again with the same output measures only what is not yet
there, and a line that was cut off halfway is dropped. A configuration that cannot run (shared memory,
registers, threads) has no time and says why in `status`; it is an answer like any other and is not tried
again.

What runs a kernel is a `ProfilingDevice`, so that all of this is tested without a GPU.
"""

import csv
import io
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from analyzer.text.csv_table import CsvTable, read_csv_table
from analyzer.text.errors import InputError, ToolError, UsageError
from analyzer.tuning.kernel_space import KernelSpace, find_kernel
from analyzer.tuning.samples import read_samples

WARMUPS, ITERATIONS = 3, 5  # WaveTune, section 4.2
STATUS_OK = "ok"
_TIME, _STATUS = "time_us", "status"
_HINT = "`warplens tune plan` writes a plan"
_MAX_REASON_CHARACTERS = 60


class ConfigurationFailed(Exception):
    """A configuration cannot run on the device; the text says why in a few words."""


class DeviceLost(Exception):
    """The device answers no more, as after an illegal access; a new process may go on."""


class ProfilingDevice(Protocol):
    """A GPU on which kernels are timed."""

    @property
    def gpu(self) -> str:
        """Key of the GPU in the database, or its own name."""

    def measure_us(self, kernel: str, shape: Mapping[str, int], config: Mapping[str, int]) -> float:
        """Return the time of one launch. Raises ConfigurationFailed and DeviceLost."""


class ProfilingLimits(Struct, frozen=True):
    """When to stop early; None: not."""

    seconds: float | None = None
    rows: int | None = None


class ProfilingResult(Struct, frozen=True):
    """What a run did: rows of the plan by what became of them."""

    planned: int
    found: int  # were in the output before
    measured: int  # now
    failed: int  # now: configurations that cannot run

    @property
    def left(self) -> int:
        """Rows that are still to be measured."""
        return self.planned - self.found - self.measured - self.failed


class _Plan:
    """The rows of a plan and the names of what is measured in each."""

    def __init__(self, path: Path) -> None:
        read_samples(path, needs_times=False)  # raises for any field that is wrong, at its place
        self.table = read_csv_table(path, _HINT)
        self._kernel_at = self.table.columns.index("kernel")
        self._gpu_at = self.table.columns.index("gpu")
        self.columns = [name for name in self.table.columns if name not in (_TIME, _STATUS)]
        self._kept = [self.table.columns.index(name) for name in self.columns]

    def list_gpus(self) -> list[str]:
        """Return the GPUs that rows are planned for, in order."""
        return list(dict.fromkeys(fields[self._gpu_at].strip() for _, fields in self.table.rows))

    def iterate_rows(self) -> Iterator[tuple[KernelSpace, tuple[str, ...]]]:
        """Yield the kernel of each row and its fields without time and status."""
        for _, fields in self.table.rows:
            space = find_kernel(fields[self._kernel_at].strip()).space
            yield space, tuple(fields[place].strip() for place in self._kept)

    def read_numbers(self, fields: Sequence[str], names: Sequence[str]) -> dict[str, int]:
        """Return some columns of a row by name."""
        return {name: int(fields[self.columns.index(name)]) for name in names}


def measure_plan(
    plan_path: Path,
    output: Path,
    device: ProfilingDevice,
    limits: ProfilingLimits | None = None,
    report: Callable[[int, int], None] = lambda done, of: None,
    clock: Callable[[], float] = time.monotonic,
) -> ProfilingResult:
    """Measure the rows of a plan that the output does not have, and append them to it.

    report: called with rows done and planned. Raises InputError for a plan or an output that is none,
    UsageError where the plan is for another GPU or the output cannot be written, ToolError where the device
    is lost.
    """
    limits = limits or ProfilingLimits()
    plan = _Plan(plan_path)
    _check_gpu(plan, device.gpu)
    done = _read_done(output, plan)
    start, counts = clock(), [0, 0]
    rows = [(space, fields) for space, fields in plan.iterate_rows() if fields not in done]
    planned = len(plan.table.rows)
    with _Appender(output, plan.columns) as appender:
        for number, (space, fields) in enumerate(rows):
            if number == limits.rows or (limits.seconds is not None and clock() - start >= limits.seconds):
                break
            time_us, status = _measure_row(plan, space, fields, device)
            appender.append((*fields, "" if math.isnan(time_us) else f"{time_us:.6g}", status))
            counts[status != STATUS_OK] += 1
            report(planned - len(rows) + number + 1, planned)
    return ProfilingResult(planned, planned - len(rows), counts[0], counts[1])


def count_rows(plan_path: Path, output: Path) -> ProfilingResult:
    """Return how many rows of a plan an output has, with no device; raises as `measure_plan` does."""
    plan = _Plan(plan_path)
    done = _read_done(output, plan)
    found = sum(fields in done for _, fields in plan.iterate_rows())
    return ProfilingResult(len(plan.table.rows), found, 0, 0)


def _measure_row(
    plan: _Plan, space: KernelSpace, fields: Sequence[str], device: ProfilingDevice
) -> tuple[float, str]:
    """Return time and status of a row; NaN for a configuration that cannot run."""
    shape = plan.read_numbers(fields, space.inputs)
    config = plan.read_numbers(fields, (*space.macro_parameters, *space.micro_parameters))
    try:
        time_us = device.measure_us(space.name, shape, config)
    except ConfigurationFailed as failure:
        return math.nan, _shorten(str(failure))
    except DeviceLost as failure:
        raise ToolError(
            f"the GPU answers no more: {_shorten(str(failure))}",
            hint="run the command again; it goes on after the rows that are written",
        ) from None
    return (time_us, STATUS_OK) if 0.0 < time_us < math.inf else (math.nan, "no time was measured")


def _shorten(reason: str) -> str:
    """Return a reason of one line; a status of `ok` is what no failure is called."""
    words = " ".join(reason.split())[:_MAX_REASON_CHARACTERS]
    return words if words and words != STATUS_OK else "failed"


def _check_gpu(plan: _Plan, gpu: str) -> None:
    others = [name for name in plan.list_gpus() if name != gpu]
    if others:
        raise UsageError(
            f"the plan is for {others[0]}, and this machine has {gpu}",
            hint=f"times of another GPU mislead: make a plan with `tune plan --gpu {gpu}`",
        )


def _read_done(output: Path, plan: _Plan) -> set[tuple[str, ...]]:
    """Return the rows that an output has; a last line that was cut off is removed from the file."""
    if not output.exists():
        return set()
    _drop_cut_line(output)
    if output.stat().st_size == 0:
        return set()
    table = read_csv_table(output, "name another output")
    wanted = [*plan.columns, _TIME, _STATUS]
    if table.columns != wanted:
        raise InputError(
            f"{output} is no profile of this plan: its columns differ",
            location=table.locate_field(1, 0),
            hint=f"name another output; the columns would be {', '.join(wanted)}",
        )
    return {_strip_result(table, row, len(plan.columns)) for row in range(len(table.rows))}


def _strip_result(table: CsvTable, row: int, count: int) -> tuple[str, ...]:
    """Return the fields of a row of an output without time and status."""
    line, fields = table.rows[row]
    if len(fields) != len(table.columns):
        raise InputError(
            f"{len(fields)} fields, where the header has {len(table.columns)}",
            location=table.locate_field(line, 0),
            hint="remove the line; its configuration is then measured again",
        )
    return tuple(field.strip() for field in fields[:count])


def _drop_cut_line(output: Path) -> None:
    """Cut a file after its last line feed. Raises UsageError where it cannot be written."""
    try:
        with open(output, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - (1 << 16)))
            tail = file.read()
            if tail and not tail.endswith(b"\n"):
                file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
    except (OSError, ValueError) as error:
        raise _make_write_error(output, error) from None


class _Appender:
    """Appends rows to a file, each at once."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        try:
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)
        except (OSError, ValueError) as error:
            raise _make_write_error(path, error) from None
        self._path = path
        if self._file.tell() == 0:
            self.append((*columns, _TIME, _STATUS))

    def __enter__(self) -> "_Appender":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, fields: Sequence[str]) -> None:
        """Write one row. Raises UsageError where that fails, as on a full disk."""
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerow(fields)
        try:
            self._file.write(text.getvalue().encode())
        except OSError as error:
            raise _make_write_error(self._path, error) from None


def _make_write_error(path: Path, error: Exception) -> UsageError:
    return UsageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}")
