"""Requests that a forecast serves: from a CSV table, or as many equal ones as the user says.

Columns: `num_prefill_tokens`, and `output_tokens` (tokens that the run generates for the request) or, where
that is missing, `num_decode_tokens`; optional `arrival_s` or `arrived_at`, seconds from the start of the run.
Others are ignored. These are the columns of PipeWeave's and Vidur's traces.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from analyzer.text.csv_table import CsvTable, read_csv_table
from analyzer.text.errors import InputError, UsageError

MAX_REQUESTS = 100_000
MAX_TOKENS = 10_000_000  # of one request
_PREFILL_COLUMN = "num_prefill_tokens"
_OUTPUT_COLUMNS = ("output_tokens", "num_decode_tokens")
_ARRIVAL_COLUMNS = ("arrival_s", "arrived_at")
_MAX_ARRIVAL_S = 1e9
_TABLE_HINT = (
    "a trace has columns num_prefill_tokens and output_tokens; in place of a table: --batch, --input-tokens, "
    "--output-tokens"
)


class Request(Struct, frozen=True):
    """One request: a prompt and the number of tokens generated for it."""

    prefill_tokens: int
    output_tokens: int  # the first of them by the prefill
    arrival_s: float = 0.0


class RequestTrace(Struct, frozen=True):
    """Requests in the order of their rows."""

    requests: tuple[Request, ...]
    has_arrivals: bool = False
    output_column: str = _OUTPUT_COLUMNS[0]


def make_equal_requests(batch: int, input_tokens: int, output_tokens: int) -> RequestTrace:
    """Return a trace of equal requests. Raises UsageError for a number out of range."""
    for name, value, most in (
        ("--batch", batch, MAX_REQUESTS),
        ("--input-tokens", input_tokens, MAX_TOKENS),
        ("--output-tokens", output_tokens, MAX_TOKENS),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"{name} {value} is out of range", hint=f"give a number from 1 to {most:,}")
    return RequestTrace((Request(input_tokens, output_tokens),) * batch)


def take_requests(requests: str | Path | Sequence[Request] | RequestTrace) -> RequestTrace:
    """Return the trace in a file, of requests, or as it is.

    Raises InputError as `read_request_trace`, UsageError for no requests.
    """
    if isinstance(requests, RequestTrace):
        return requests
    if isinstance(requests, str | Path):
        return read_request_trace(Path(requests))
    if not requests:
        raise UsageError("no requests", hint="give at least one")
    return RequestTrace(tuple(requests), has_arrivals=any(request.arrival_s for request in requests))


def read_request_trace(path: Path) -> RequestTrace:
    """Return the requests of a CSV table. Raises InputError with line and caret of the first fault."""
    table = read_csv_table(path, _TABLE_HINT)
    output_column = next((name for name in _OUTPUT_COLUMNS if name in table.columns), _OUTPUT_COLUMNS[0])
    table.check_columns((_PREFILL_COLUMN, output_column), _TABLE_HINT)
    arrival_column = next((name for name in _ARRIVAL_COLUMNS if name in table.columns), None)
    if not table.rows:
        raise InputError(f"{path}: no requests in it", hint="give at least one row below the header")
    if len(table.rows) > MAX_REQUESTS:
        raise InputError(
            f"{path}: {len(table.rows):,} requests", hint=f"give at most {MAX_REQUESTS:,} at a time"
        )
    requests = tuple(
        Request(
            _read_tokens(table, row, _PREFILL_COLUMN),
            _read_tokens(table, row, output_column),
            0.0 if arrival_column is None else _read_arrival_s(table, row, arrival_column),
        )
        for row in range(len(table.rows))
    )
    return RequestTrace(requests, has_arrivals=arrival_column is not None, output_column=output_column)


def _read_tokens(table: CsvTable, row: int, column: str) -> int:
    text = _read_text(table, row, column)
    if text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= MAX_TOKENS:
        return int(text)
    raise _make_error(
        table,
        row,
        column,
        f"{text!r} is no number of tokens",
        f"give a whole number from 1 to {MAX_TOKENS:,}",
    )


def _read_arrival_s(table: CsvTable, row: int, column: str) -> float:
    text = _read_text(table, row, column)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if 0.0 <= value <= _MAX_ARRIVAL_S:
        return value
    raise _make_error(table, row, column, f"{text!r} is no time", "give seconds from the start, 0 or more")


def _read_text(table: CsvTable, row: int, column: str) -> str:
    _, fields = table.rows[row]
    place = table.columns.index(column)
    return fields[place].strip() if place < len(fields) else ""


def _make_error(table: CsvTable, row: int, column: str, message: str, hint: str) -> InputError:
    line, _ = table.rows[row]
    shown = message if len(message) <= 80 else message[:77] + "..."
    location = table.locate_field(line, table.columns.index(column))
    return InputError(f"column {column}: {shown}", location=location, hint=hint)
