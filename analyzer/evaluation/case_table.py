"""A table of measured launches: one row of a CSV file is one kernel launched on one GPU, with its time."""

import os
from pathlib import Path

from msgspec import Struct

from analyzer.evaluation.measured_table import (
    FILE_PREFIX,
    Arguments,
    MeasuredRow,
    MeasuredTable,
    parse_argument_value,
)
from analyzer.execution.binding.argument_parser import make_argument
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Dim3, Launch, Timing
from analyzer.text.csv_table import CsvTable, read_csv_table

REQUIRED_COLUMNS = ("dump", "gpu", "grid", "block", "time_us")
SPLITS = ("learn", "judge")
L2_STATES = ("warm", "cold")
_TABLE_HINT = "validate takes a CSV table, see docs/validate.md"


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
    # Files that values name are read when the row is executed.
    arguments: Arguments
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
        return tuple(dict.fromkeys(self.folder / text[1:] for text in texts if text.startswith(FILE_PREFIX)))


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


def read_cases(path: Path) -> tuple[Case, ...]:
    """Read all rows of a table; paths in it are relative to its own folder.

    A row whose files are missing is kept with its `problem`. Raises InputError that shows any fault.
    """
    return parse_cases(path, read_case_table(path))


def read_case_table(path: Path) -> CsvTable:
    """Return the fields of a table, which may be one of kernels or of operators. Raises InputError."""
    return read_csv_table(path, _TABLE_HINT)


def parse_cases(path: Path, fields: CsvTable) -> tuple[Case, ...]:
    """Return the rows of a table of kernels that was read; see `read_cases`."""
    table = MeasuredTable(path, fields, REQUIRED_COLUMNS)
    return tuple(_read_case(number, row) for number, row in enumerate(table.read_rows(), start=1))


def _read_case(number: int, row: MeasuredRow) -> Case:
    dump_text = row.read_required("dump")
    dump = row.table.folder / dump_text
    arguments, problem = row.read_arguments()
    case = Case(
        table=row.table.path,
        line=row.line,
        name=row.read_optional("case") or str(number),
        suite=row.read_optional("suite") or dump.stem,
        dump=dump,
        dump_text=dump_text,
        kernel=row.read_optional("kernel"),
        gpu=_read_gpu(row),
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
        problem=problem if os.path.isfile(dump) else f"no dump {dump_text}",
    )
    row.check_dims(case.grid, case.block, case.cluster)
    return case


def _read_gpu(row: MeasuredRow) -> str:
    """Return the name or the path of a GPU that exists."""
    name = row.read_required("gpu")
    if name.endswith(".toml"):
        name = str(row.table.folder / name)
    row.call_checked("gpu", lambda: load_gpu(name))
    return name


def load_case_gpu(case: Case) -> Gpu:
    """Return the GPU of a row; it exists, because reading the row found it."""
    return load_gpu(case.gpu)
