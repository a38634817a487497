"""Reports as JSON, and the schemas that describe them."""

import json
import sys
from collections.abc import Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from analyzer.files import write_file
from analyzer.report.baseline_schema import BASELINE_SCHEMA, Baseline
from analyzer.report.report_escaping import escape_report
from analyzer.report.report_reader import REPORT_TYPES, AnyReport
from analyzer.text.escaping import format_json

# What schemas are published of: reports, and the file that `check` keeps.
PUBLISHED_TYPES: Mapping[str, type[msgspec.Struct]] = {**REPORT_TYPES, BASELINE_SCHEMA: Baseline}
_SCHEMA_BASE_URL = "https://warplens.dev/schema"


def render_json(report: AnyReport) -> str:
    """Return the whole report: keys in a fixed order, floats at full precision.

    Control characters, also C1 and bidirectional ones, are escaped as JSON has it.
    """
    try:
        return format_json(report, indent=1)
    except UnicodeEncodeError:  # bytes of file names that are no UTF-8, which JSON cannot hold
        return format_json(escape_report(report), indent=1)


def make_json_schema(schema: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a report or a baseline by its `schema`: `warplens/analyze/1`."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    url = f"{_SCHEMA_BASE_URL}/{make_schema_file_name(schema)}"
    return {"$schema": draft, "$id": url, **_unindent(msgspec.json.schema(PUBLISHED_TYPES[schema]))}


def _unindent(part: Any) -> Any:
    """Return a part of a schema without the indentation of docstrings, which msgspec keeps before 0.23."""
    if isinstance(part, dict):
        return {
            key: cleandoc(value) if key == "description" and isinstance(value, str) else _unindent(value)
            for key, value in part.items()
        }
    return [_unindent(value) for value in part] if isinstance(part, list) else part


def make_schema_file_name(schema: str) -> str:
    """Return the file in `hwdb/schema`: `analyze-1.json` for `warplens/analyze/1`."""
    return "-".join(schema.split("/")[1:]) + ".json"


def format_schema(schema: dict[str, Any]) -> str:
    """Return the text of a schema as it is published in `hwdb/schema`."""
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for schema in PUBLISHED_TYPES:
        write_file(folder / make_schema_file_name(schema), [format_schema(make_json_schema(schema)).encode()])
