"""Tables of launches to transfer, in any form that `transfer` reads: recognized by content, not by name.

- CSV with a header: one row per launch, see REQUIRED_COLUMNS;
- what Nsight Compute exports by `ncu --csv`, pages raw and details;
- traces of the PyTorch profiler (Chrome's JSON), also compressed by gzip.
"""

import os
import re
from math import inf
from pathlib import Path

from analyzer.evaluation.measured_table import (
    FILE_PREFIX,
    Arguments,
    MeasuredRow,
    MeasuredTable,
)
from analyzer.evaluation.ncu_export import read_ncu_export
from analyzer.evaluation.pytorch_trace import read_pytorch_trace
from analyzer.evaluation.transfer_rows import (
    LAUNCH_COLUMNS,
    MAX_REGISTERS,
    MAX_SHARED_BYTES,
    CodeReference,
    TableForm,
    TransferRow,
    TransferTable,
)
from analyzer.files import read_file
from analyzer.report.transfer_schema import RESULT_COLUMNS
from analyzer.text.csv_table import CsvTable
from analyzer.text.errors import InputError
from analyzer.unpacking import unpack

MAX_TRACE_BYTES = 1 << 30
_MAX_TABLE_BYTES = 256 << 20
_UTF8_BOM = b"\xef\xbb\xbf"
_NCU_HEADER = re.compile(rb'^"?ID"?,.*"?Kernel Name"?', re.M)
_MAX_AMOUNT, _MAX_TIME_US = 1e18, 1e12
_TABLE_HINT = "transfer takes a CSV table, an export of Nsight Compute or a PyTorch trace: docs/transfer.md"


def read_transfer_table(path: Path) -> TransferTable:
    """Read a file of any known form. Raises InputError that shows any fault."""
    data = _read_bytes(path)
    if data.lstrip()[:1] in (b"{", b"["):
        rows, archs = read_pytorch_trace(path, data)
        table = TransferTable(
            path=path, form=TableForm.PYTORCH, columns=LAUNCH_COLUMNS, rows=rows, archs=archs
        )
    elif header := _NCU_HEADER.search(data):
        rows, archs = read_ncu_export(path, data, header.start())
        table = TransferTable(path=path, form=TableForm.NCU, columns=LAUNCH_COLUMNS, rows=rows, archs=archs)
    else:
        table = _read_csv(path, data)
    if not table.rows:
        raise InputError(f"{path}: no launch in it", hint="one row is one launch with a measured time")
    return table


def _read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, unpacked. Raises InputError."""
    try:
        data = b"".join(unpack([read_file(path, MAX_TRACE_BYTES)], MAX_TRACE_BYTES))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: {reason}", hint=_TABLE_HINT) from None
    return data.removeprefix(_UTF8_BOM)


def _read_csv(path: Path, data: bytes) -> TransferTable:
    if len(data) > _MAX_TABLE_BYTES:
        raise InputError(f"{path}: {len(data):,} bytes are more than a table has", hint=_TABLE_HINT)
    table = MeasuredTable(path, CsvTable(str(path), data), LAUNCH_COLUMNS)
    rows = tuple(_read_row(row) for row in table.read_rows())
    # Results of an earlier run do not stand beside the new ones.
    kept = tuple(column for column in table.columns if column not in RESULT_COLUMNS)
    return TransferTable(path=path, form=TableForm.CSV, columns=kept, rows=rows)


def _read_row(row: MeasuredRow) -> TransferRow:
    grid, block = row.read_dims("grid"), row.read_dims("block")
    row.check_dims(grid, block, row.read_dims("cluster") if row.read_optional("cluster") else None)
    time_us = row.read_positive("time_us")
    if time_us > _MAX_TIME_US:
        raise row.make_error("time_us", f"{time_us:g} us are days", "give microseconds")
    registers = _read_amount(row, "registers", MAX_REGISTERS)
    shared_bytes = _read_amount(row, "shared_bytes", MAX_SHARED_BYTES)
    return TransferRow(
        line=row.line,
        fields=tuple(value for column, value in row.fields.items() if column not in RESULT_COLUMNS),
        kernel=row.read_optional("kernel"),
        grid=grid,
        block=block,
        registers=None if registers is None else int(registers),
        shared_bytes=int(shared_bytes or 0) + (row.read_whole_number("dynamic_shared_bytes") or 0),
        flops=_read_amount(row, "flops", _MAX_AMOUNT),
        moved_bytes=_read_amount(row, "bytes", _MAX_AMOUNT),
        time_us=time_us,
        code=_read_code(row),
    )


def _read_amount(row: MeasuredRow, column: str, most: float) -> float | None:
    """Return a number of 0 or more, None where the field is empty."""
    text = row.read_optional(column)
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -inf
    if not 0 <= found <= most:
        hint = f"give a number of 0 to {most:g}, or leave it empty if it is not known"
        raise row.make_error(column, f"{text!r} is no such number", hint)
    return found


def _read_code(row: MeasuredRow) -> CodeReference | None:
    text = row.read_optional("dump")
    if not text:
        return None
    arguments, problem = row.read_arguments(separator=";")
    source_dump = row.table.folder / text
    target_dump = row.table.folder / (row.read_optional("dump_to") or text)
    missing = next((path for path in (source_dump, target_dump) if not os.path.isfile(path)), None)
    return CodeReference(
        source_dump=source_dump,
        target_dump=target_dump,
        # Without their contents these are pointers like others.
        arguments=_forget_files(arguments) if problem else arguments,
        cluster=row.read_dims("cluster") if row.read_optional("cluster") else None,
        dynamic_shared_bytes=row.read_whole_number("dynamic_shared_bytes"),
        problem=problem if missing is None else f"no dump {missing}",
        is_usable=missing is None,
    )


def _forget_files(arguments: Arguments) -> Arguments:
    return tuple(
        (which, "ptr" if isinstance(value, str) and value.strip().startswith(FILE_PREFIX) else value)
        for which, value in arguments
    )
