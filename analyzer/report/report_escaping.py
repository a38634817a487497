"""Reports with control characters in their texts escaped, for every output but JSON, which has its own way.

Names and messages of a report come from inputs. They are escaped before a text is laid out, so that a line
feed in an argument's name makes no line of its own, and columns keep their widths.
"""

from typing import TypeVar

import msgspec

from analyzer.report.report_reader import AnyReport
from analyzer.text.escaping import escape_controls

_Report = TypeVar("_Report", bound=AnyReport)


def escape_report(report: _Report) -> _Report:
    """Return the report with control characters escaped in all its texts; itself where there are none."""
    if _is_plain(report):
        return report
    return msgspec.convert(_escape(msgspec.to_builtins(report)), type(report))


def _is_plain(report: AnyReport) -> bool:
    """Return whether no text can hold a control character; JSON would escape it, or it is not ASCII."""
    try:
        data = msgspec.json.encode(report)
    except UnicodeEncodeError:  # lone surrogates: bytes of file names that are no UTF-8
        return False
    return b"\\" not in data and b"\x7f" not in data and data.isascii()


def _escape(value: object) -> object:
    match value:
        case str():
            return escape_controls(value)
        case dict():
            return {_escape(key): _escape(item) for key, item in value.items()}
        case list() | tuple():
            return [_escape(item) for item in value]
        case _:
            return value
