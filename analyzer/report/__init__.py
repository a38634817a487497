"""Reports as values that every output prints and none computes, and the reader of those in JSON.

`read_report` loads on first use (PEP 562), so that one schema can be imported without the others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzer.report.report_reader import read_report

__all__ = ["read_report"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'analyzer.report' has no attribute {name!r}")
    from analyzer.report import report_reader

    return getattr(report_reader, name)
