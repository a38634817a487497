"""Reports as JSON, and the schemas that describe them."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from analyzer.report.analyze_schema import Report
from analyzer.report.validation_schema import ValidationReport
from analyzer.report.whatif_schema import WhatIfReport

_SCHEMA_BASE_URL = "https://warplens.dev/schema"


def render_json(report: Report | WhatIfReport | ValidationReport) -> str:
    """The whole report, keys in a fixed order, floats at full precision."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def make_report_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `warplens/analyze/1`."""
    return _make_schema(Report, "analyze-1")


def make_whatif_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `warplens/whatif/1`."""
    return _make_schema(WhatIfReport, "whatif-1")


def make_validate_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `warplens/validate/1`."""
    return _make_schema(ValidationReport, "validate-1")


def _make_schema(kind: type, name: str) -> dict[str, Any]:
    schema = msgspec.json.schema(kind)
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "$id": f"{_SCHEMA_BASE_URL}/{name}.json", **schema}


def format_schema(schema: dict[str, Any]) -> str:
    """A schema as it is published in `hwdb/schema`."""
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, schema in (
        ("analyze-1", make_report_schema),
        ("whatif-1", make_whatif_schema),
        ("validate-1", make_validate_schema),
    ):
        (folder / f"{name}.json").write_text(format_schema(schema()), encoding="utf-8")
