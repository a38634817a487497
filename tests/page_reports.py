"""Reports that tests of pages render: real ones, and one whose texts all try to be markup."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from paths import ROOT, TRACES

import analyzer
from analyzer.cli.launch_options import load_launch_table
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import Report

HOSTILE = (
    "</script></template></style><script>window.pwned = 1</script>"
    "<img src=x onerror='window.pwned = 2'>\"' onload=\"pwned\" {{ 7 * 7 }} &lt;b&gt; \u2028 ]]> <!--"
)


@cache
def make_matmul_report() -> Report:
    """Return the report of a matmul with a launch on two GPUs, all parts that a page shows in it."""
    options = Options(
        launch_table=load_launch_table(Path(ROOT) / "docs/launch.json"),
        listing=True,
        advice=True,
        hardware_curves=True,
        models=("steady",),
    )
    return analyzer.analyze(str(TRACES / "triton/sm_90/matmul.sass"), ["h100", "h20"], options=options)


@cache
def make_library_report() -> Report:
    """Return the report of sixteen kernels without a launch."""
    options = Options(listing=True, models=("steady",))
    return analyzer.analyze(str(TRACES / "cuda/sm_90/report16.sass"), "h100", options=options)


@cache
def make_large_report() -> Report:
    """Return a report of one kernel with 17,010 instructions: the matmul thirty times over."""
    report = make_matmul_report()
    kernel = report.kernels[0]
    step = len(kernel.listing) * 16
    listing = tuple(
        msgspec.structs.replace(
            entry,
            address=entry.address + copy * step,
            producer=None if entry.producer is None else entry.producer + copy * step,
            instruction=entry.instruction.replace("R1", f"R{copy}"),
        )
        for copy in range(30)
        for entry in kernel.listing
    )
    return msgspec.structs.replace(report, kernels=(msgspec.structs.replace(kernel, listing=listing),))


def make_hostile(report: Any, kept: frozenset[str] = frozenset()) -> Any:
    """Return a report of any kind in which all texts that come from inputs are markup.

    kept: names of further fields to leave as they are.
    """
    fixed = kept | _FIXED_FIELDS

    def spoil(value: Any, name: str) -> Any:
        match value:
            case str():
                return value if name in fixed or not value else f"{value}{HOSTILE}"
            case dict():
                return {
                    (f"{key}{HOSTILE}" if name in {"arguments", "mix"} else key): spoil(
                        item, name if name in {"arguments", "mix"} else key
                    )
                    for key, item in value.items()
                }
            case list() | tuple():
                return [spoil(item, name) for item in value]
            case _:
                return value

    return msgspec.convert(spoil(msgspec.to_builtins(report), ""), type(report))


# Fields with closed sets of values, or that link parts of a report.
_FIXED_FIELDS = frozenset(
    [
        "schema",
        "tool_version",
        "model_fingerprint",
        "format",
        "provenance",
        "addresses",
        "model",
        "gpus",
        "gpu",
        "stall",
        "key",
        "timing",
        "unit",
        "level",
        "kind",
        "verdict",
        "status",
        "side",
        "outcome",
        "rule",
        "space",
        "metric",
    ]
)
