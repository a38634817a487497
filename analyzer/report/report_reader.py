"""Reports read back from their JSON, so that they can be rendered again without a new analysis."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from analyzer.files import read_file
from analyzer.report.analyze_schema import ANALYZE_SCHEMA, Report
from analyzer.report.check_schema import CHECK_SCHEMA, CheckReport
from analyzer.report.diff_schema import DIFF_SCHEMA, DiffReport
from analyzer.report.forecast_comparison_schema import FORECAST_COMPARISON_SCHEMA, ForecastComparison
from analyzer.report.forecast_schema import FORECAST_SCHEMA, ForecastReport
from analyzer.report.iteration_schema import ITERATION_SCHEMA, IterationReport
from analyzer.report.predict_schema import PREDICT_SCHEMA, PredictReport
from analyzer.report.serving_comparison_schema import SERVING_COMPARISON_SCHEMA, ServingComparison
from analyzer.report.serving_schema import SERVING_SCHEMA, ServingReport
from analyzer.report.tasks_schema import TASKS_SCHEMA, TasksReport
from analyzer.report.transfer_schema import TRANSFER_SCHEMA, TransferReport
from analyzer.report.tune_schema import TUNE_RANK_SCHEMA, TuneRankReport
from analyzer.report.validation_schema import VALIDATE_SCHEMA, ValidationReport
from analyzer.report.whatif_schema import WHATIF_SCHEMA, WhatIfReport
from analyzer.text.errors import InputError
from analyzer.text.json_spans import find_json_spans, split_decode_error, split_validation_error
from analyzer.text.source import locate
from analyzer.version import __version__

AnyReport = (
    Report
    | WhatIfReport
    | ValidationReport
    | PredictReport
    | TransferReport
    | TasksReport
    | DiffReport
    | CheckReport
    | ForecastReport
    | ForecastComparison
    | IterationReport
    | ServingReport
    | ServingComparison
    | TuneRankReport
)
REPORT_TYPES: Mapping[str, type[AnyReport]] = {
    ANALYZE_SCHEMA: Report,
    WHATIF_SCHEMA: WhatIfReport,
    VALIDATE_SCHEMA: ValidationReport,
    TRANSFER_SCHEMA: TransferReport,
    PREDICT_SCHEMA: PredictReport,
    TASKS_SCHEMA: TasksReport,
    DIFF_SCHEMA: DiffReport,
    CHECK_SCHEMA: CheckReport,
    FORECAST_SCHEMA: ForecastReport,
    FORECAST_COMPARISON_SCHEMA: ForecastComparison,
    ITERATION_SCHEMA: IterationReport,
    SERVING_SCHEMA: ServingReport,
    SERVING_COMPARISON_SCHEMA: ServingComparison,
    TUNE_RANK_SCHEMA: TuneRankReport,
}
_BYTES_NAME = "report"
_MAX_BYTES = 1 << 30


class _ReportHead(msgspec.Struct, frozen=True):
    """The fields that decide how the rest is read."""

    schema: str
    tool_version: str = ""


def read_report(source: str | Path | bytes) -> AnyReport:
    """Return the report in a JSON file, or in the bytes of one; its `schema` decides the type.

    Raises InputError for a file that cannot be read, for text that is not JSON, for another schema, and, with
    the place, for a field that is missing or of another type.
    """
    name, data = (_BYTES_NAME, source) if isinstance(source, bytes) else (str(source), _read_file(source))
    try:
        head = msgspec.json.decode(data, type=_ReportHead)
    except msgspec.ValidationError:
        raise _make_schema_error(name, "it has no schema") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _make_syntax_error(name, data, str(error)) from None
    if head.schema not in REPORT_TYPES:
        raise _make_schema_error(name, f"its schema is {head.schema!r}")
    try:
        return msgspec.json.decode(data, type=REPORT_TYPES[head.schema])
    except msgspec.ValidationError as error:
        raise _make_field_error(name, data, head, str(error)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _make_syntax_error(name, data, str(error)) from None


def _read_file(path: str | Path) -> bytes:
    try:
        return read_file(path, _MAX_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _make_schema_error(name: str, reason: str) -> InputError:
    return InputError(
        f"{name}: no report of warplens: {reason}", hint=f"schema is one of: {', '.join(REPORT_TYPES)}"
    )


def _check_text(name: str, data: bytes) -> None:
    """Raise InputError at the first byte that is no UTF-8; msgspec looks only into strings that it takes."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InputError("this is not UTF-8 text", location=locate(name, data, error.start)) from None


def _make_syntax_error(name: str, data: bytes, message: str) -> InputError:
    """Return msgspec's message at the byte that it names, at the end of the data where it names none."""
    _check_text(name, data)
    reason, offset = split_decode_error(message)
    last = max(0, len(data.rstrip()) - 1)
    location = locate(name, data, last if offset is None else min(offset, last))
    return InputError(f"not JSON: {reason}", location=location, hint="the file may be cut off")


def _make_field_error(name: str, data: bytes, head: _ReportHead, message: str) -> InputError:
    _check_text(name, data)
    words, path = split_validation_error(message)
    span = find_json_spans(data).find_value(path)
    hint = f"written by warplens {head.tool_version or '?'}, read by {__version__}"
    return InputError(
        f"not as {head.schema} has it: {words[:1].lower()}{words[1:]}",
        location=locate(name, data, span.offset, length=span.length),
        hint=hint,
    )
