"""Reports as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), for code scanning and editors.

Each problem is a result at its source line, or at the kernel's line in the input. Fingerprints are stable:
they do not change with lines and figures. GitHub knows results again by `primaryLocationLineHash`, so it
holds the same value, and takes at most 25,000 results of a run.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from analyzer.render.problems import FindingsReport, Problem, list_problems
from analyzer.render.rule_texts import SITE_URL, RuleText, describe_rule
from analyzer.report.analyze_schema import WarningEntry
from analyzer.report.check_schema import CheckReport, Level
from analyzer.text.escaping import format_json

_SCHEMA_URL = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_MAX_RESULTS = 25_000
_FINGERPRINT_NAME = "warplens/v1"
_SOURCE_ROOT = "%SRCROOT%"  # by convention the root of the repository; whoever reads the file knows it


def render_sarif(report: FindingsReport) -> str:
    """Return the problems of a report as the one run of a SARIF log; warnings are its notifications."""
    problems = list_problems(report)
    shown = problems[:_MAX_RESULTS]
    rules = tuple(dict.fromkeys(problem.rule for problem in shown))
    notifications = [_make_notification(warning) for warning in report.warnings]
    if len(problems) > len(shown):
        left_out = f"{len(problems) - len(shown):,} more results were left out: --format json has all"
        notifications.append({"level": "warning", "message": {"text": left_out}})
    run = {
        "tool": {
            "driver": {
                "name": "warplens",
                "version": report.tool_version,
                "informationUri": SITE_URL,
                "rules": [_make_rule(name, describe_rule(name)) for name in rules],
            }
        },
        "automationDetails": {"id": f"{report.schema.rpartition('/')[0]}/"},
        "invocations": [_make_invocation(report, notifications)],
        "columnKind": "unicodeCodePoints",
        "results": [_make_result(problem, rules) for problem in shown],
    }
    log = {"$schema": _SCHEMA_URL, "version": "2.1.0", "runs": [run]}
    return format_json(log, indent=1)


def _make_invocation(report: FindingsReport, notifications: list[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {"executionSuccessful": True, "toolExecutionNotifications": notifications}
    if isinstance(report, CheckReport):
        made["exitCode"] = 0 if report.is_clean else 1
    return made


def _make_rule(name: str, text: RuleText) -> dict[str, Any]:
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.replace("_", "-").split("-")),
        "shortDescription": {"text": text.title},
        "fullDescription": {"text": text.explanation},
        "help": {"text": f"{text.explanation} See {text.page_url}"},
        "helpUri": text.page_url,
        "properties": {"tags": ["performance", "gpu"]},
    }


def _make_result(problem: Problem, rules: Sequence[str]) -> dict[str, Any]:
    return {
        "ruleId": problem.rule,
        "ruleIndex": rules.index(problem.rule),
        "level": problem.level.value,
        "message": {"text": _escape_links(problem.message)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _make_location(problem.path),
                    "region": {"startLine": problem.line},
                },
                "logicalLocations": [
                    {
                        "name": problem.demangled,
                        "fullyQualifiedName": problem.demangled,
                        "decoratedName": problem.kernel,
                        "kind": "function",
                    }
                ],
            }
        ],
        "partialFingerprints": {
            _FINGERPRINT_NAME: problem.fingerprint,
            "primaryLocationLineHash": f"{problem.fingerprint}:1",
        },
        "properties": {"gpu": problem.gpu, "input": problem.input},
    }


def _make_notification(warning: WarningEntry) -> dict[str, Any]:
    made: dict[str, Any] = {
        "level": Level.WARNING.value,
        "message": {"text": _escape_links(warning.message)},
        "descriptor": {"id": warning.code},
    }
    if warning.path:
        region = {} if not warning.line else {"region": {"startLine": warning.line}}
        made["locations"] = [
            {"physicalLocation": {"artifactLocation": _make_location(warning.path), **region}}
        ]
    return made


def _make_location(path: str) -> dict[str, str]:
    if path.startswith("/"):
        return {"uri": PurePosixPath(path).as_uri()}
    return {"uri": quote(path, safe="/"), "uriBaseId": _SOURCE_ROOT}


def _escape_links(text: str) -> str:
    """Return a text without links: `[text](target)` is one in a message (SARIF 2.1.0, section 3.11.6)."""
    return text.replace("](", "] (")
