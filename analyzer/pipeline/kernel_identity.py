"""Identities of kernels: what a later check recognizes them by, whatever their file, place or name became.

A report has the launch as it was completed from metadata: a Triton kernel compiled for eight warps in place
of four has another block there. Its digest of the launch is of what was given, so that such a change counts
as one of the kernel and not of the question asked.
"""

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzer.comparison.code_identity import digest_code
from analyzer.ir.launch import Argument, Buffer, Launch
from analyzer.pipeline.kernel_analyzer import find_given_launches
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import IdentityEntry, KernelReport
from analyzer.report.kernel_analysis import KernelAnalysis

_DIGITS = 16
_TRACED = "traced"


def add_identities(
    reports: Sequence[KernelReport],
    analyses: Sequence[KernelAnalysis],
    loaded: LoadedKernel,
    options: Options,
) -> tuple[KernelReport, ...]:
    """Return the reports of one kernel, one for each of its launches, with identities."""
    code = digest_code(loaded.kernel)
    if loaded.traces:
        launches = [(_TRACED, "")] * len(reports)
    else:
        launches = [
            (digest_launch(given), describe_assumed_launch(given, analysis))
            for given, analysis in zip(find_given_launches(loaded.kernel, options), analyses, strict=True)
        ]
    return tuple(
        replace(
            report,
            identity=IdentityEntry(
                code=code,
                launch=launch,
                assumed_launch=assumed,
                hottest_source=find_hottest_source(analysis),
            ),
        )
        for report, analysis, (launch, assumed) in zip(reports, analyses, launches, strict=True)
    )


def describe_assumed_launch(given: Launch, analysis: KernelAnalysis) -> str:
    """Return grid, block and integers that neither the user nor metadata gave; "" where none were assumed.

    How many parameters took an integer is left out: one more of them changes no other.
    """
    taken, metadata = analysis.launch, analysis.kernel.resources
    if not taken.assumptions:
        return ""
    is_block_known = given.block is not None or metadata.block_threads is not None
    dims = (None if given.grid else taken.grid, None if is_block_known else taken.block)
    integers = () if given.arguments else {a.value for a in taken.arguments if isinstance(a.value, int)}
    numbers = "".join(f" n={value}" for value in sorted(integers) if value)
    return "/".join("" if dim is None else str(dim) for dim in dims) + numbers


def digest_launch(launch: Launch) -> str:
    """Return 16 hexadecimal digits of a launch; of files that arguments name the contents count."""
    facts = [
        [dim and dim.sizes for dim in (launch.grid, launch.block, launch.cluster)],
        launch.dynamic_shared_bytes,
        [[str(argument.parameter), _describe_value(argument)] for argument in launch.arguments],
        launch.clock_mhz,
        launch.l2_is_cold,
        launch.timing,
    ]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:_DIGITS]


def _describe_value(argument: Argument) -> str:
    value = argument.value
    if isinstance(value, Buffer) and value.path != "zeros":
        return hashlib.sha256(value.contents.tobytes()).hexdigest()
    return f"{type(value).__name__} {value}"


def find_hottest_source(analysis: KernelAnalysis) -> str:
    """Return the source line with most cycles of the first GPU, else the first one; "" without line info."""
    kernel, first = analysis.kernel, analysis.first_result
    if kernel.source_line_ids is None or not kernel.source_lines:
        return ""
    rows = np.flatnonzero(kernel.source_line_ids >= 0)
    ids = kernel.source_line_ids[rows]
    costs = np.zeros(len(kernel.source_lines))
    if first is not None and first.stalls is not None:
        np.add.at(costs, ids, first.stalls.cycles[rows].sum(axis=1))
    # A line that was inlined in several places has several entries.
    by_place: dict[str, float] = {}
    for line in dict.fromkeys(ids.tolist()):
        place = kernel.source_lines[line].place
        by_place[place] = by_place.get(place, 0.0) + float(costs[line])
    return max(by_place, key=lambda place: by_place[place], default="")
