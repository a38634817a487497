"""The report as JSON, and the schema that describes it."""

import json
from typing import Any

import msgspec

from analyzer.report.report import Report

_ID = "https://warplens.dev/schema/analyze-1.json"


def render_json(report: Report) -> str:
    """The whole report, keys in a fixed order, floats at full precision."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def report_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `warplens/analyze/1`."""
    schema = msgspec.json.schema(Report)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _ID, **schema}


def schema_text() -> str:
    """The schema as it is published in `hwdb/schema/analyze-1.json`."""
    return json.dumps(report_schema(), indent=1, sort_keys=True) + "\n"
