"""Compare counts of abstract execution with closed forms of the algorithms, and print docs/exactness.md.

    python bench/exactness.py > docs/exactness.md

Runs each launch of tests/execution/closed_forms.py and prints one line per kernel. Nothing is rounded: an
expected count holds when the number in the report equals it.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from markdown import render_table

import analyzer
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, Dim3, Launch, Pointer, TensorMap
from analyzer.pipeline.loaded_program import Program
from analyzer.report.analyze_schema import KernelReport
from analyzer.text.errors import WarplensError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "execution"))

from closed_forms import (  # type: ignore[import-not-found]  # noqa: E402
    CASES,
    Array,
    Case,
    Descriptor,
    ExpectedCount,
    Value,
)

HEADING = """# What is exact

Counts and addresses of abstract execution against closed forms of the algorithms, which are written down from
the sources and not read off the code. A launch is exact when the report says so and every truth holds to the
last digit; nothing is rounded. Launches whose control depends on memory are exact with the contents supplied,
and must be called not exact without. Hardware counters play no part here.

Bytes are of global memory and of the whole grid; distinct ones are counted once. A request is an execution of
a memory instruction by a warp; sectors have 32 bytes; passes are those of shared memory. The launches stand
in tests/execution/closed_forms.py, the kernels in traces/; this page is what `python bench/exactness.py`
prints.
"""
LABELS = {
    "read": "bytes loaded",
    "read_unique": "distinct bytes loaded",
    "written": "bytes stored",
    "written_unique": "distinct bytes stored",
    "started_warps": "warps",
    "started_lanes": "threads",
    "warps": "executions of {}",
    "lanes": "lanes in {}",
    "touched": "lanes of {}",
    "requests": "requests of {}",
    "sectors": "sectors of {}",
    "wavefronts": "passes of {}",
    "unknown_branches": "an unknown branch is named",
}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The counts that the report of one case gives."""

    case: Case
    provenance: str  # of the report's counts; "refused" where there is no report
    found: tuple[tuple[ExpectedCount, float | None], ...]  # with the report's value, None if it has none
    seconds: float
    reason: str = ""  # origin of the first unknown branch, or the message of the refusal

    @property
    def failures(self) -> list[str]:
        """A line for each expectation that does not hold."""
        wrong = [
            f"{truth}: {value} for {truth.value}"
            for truth, value in self.found
            if not is_satisfied(truth, value)
        ]
        if (self.provenance == "exact") != self.case.is_exact:
            wrong.insert(0, f"counts are {self.provenance}{self.reason and ': '}{self.reason}")
        if not self.case.is_exact and not self.reason:
            wrong.append("nothing is named that the counts depend on")
        return wrong


def is_satisfied(truth: ExpectedCount, value: float | None) -> bool:
    """Return whether a reported value is the expected one (at least so many, for unknown branches)."""
    if truth.measure == "unknown_branches":
        return value is not None and value >= truth.value
    return value is not None and value == int(truth.value)


def run_case(case: Case) -> CaseResult:
    """Analyze one launch; a refusal is a result, too."""
    program = load_program(case.path)
    start = time.perf_counter()
    try:
        options = analyzer.Options(kernels=(case.kernel,), launch=make_launch(case))
        kernel = analyzer.analyze(program, options=options).kernels[0]
    except WarplensError as error:
        nothing: tuple[tuple[ExpectedCount, float | None], ...] = tuple(
            (truth, None) for truth in case.truths
        )
        return CaseResult(case, "refused", nothing, time.perf_counter() - start, str(error))
    seconds = time.perf_counter() - start
    rows = [(i.address, find_opcode_family(i.opcode.name)) for i in program[case.kernel].instructions]
    found = tuple((truth, find_reported_value(truth, kernel, rows)) for truth in case.truths)
    reason = next((branch.origin for branch in kernel.counts.unknown_branches), "")
    return CaseResult(case, kernel.counts.provenance, found, seconds, reason)


@lru_cache(maxsize=16)
def load_program(path: str) -> Program:
    return analyzer.load(str(ROOT / "traces" / path))


def make_launch(case: Case) -> Launch:
    return Launch(
        grid=Dim3(*case.grid),
        block=Dim3(*case.block),
        cluster=Dim3(*case.cluster),
        dynamic_shared_bytes=case.shared or None,
        arguments=tuple(Argument(which, make_argument(value)) for which, value in case.arguments.items()),
    )


def make_argument(value: Value) -> ArgumentValue:
    if isinstance(value, Descriptor):
        return TensorMap()
    if not isinstance(value, Array):
        number: int | float = value
        return number
    if value.contents is None:
        return Pointer()
    return Buffer(np.frombuffer(value.contents.tobytes(), np.uint8), "closed_forms.npy")


def find_reported_value(
    truth: ExpectedCount, kernel: KernelReport, rows: list[tuple[int, str]]
) -> float | None:
    """Return the report's number for an expected count, None where a part of the sum is not known."""
    match truth.measure:
        case "read" | "read_unique" | "written" | "written_unique":
            traffic = kernel.traffic
            names = {"read": "read_bytes", "written": "written_bytes"}
            name = names.get(truth.measure, truth.measure + "_bytes")
            return None if traffic is None else getattr(traffic, name)
        case "warps" | "lanes":
            field = "executed_warps" if truth.measure == "warps" else "active_lanes"
            blocks = [(b.start, b.end, getattr(b, field)) for b in kernel.counts.blocks]
            addresses = [address for address, opcode in rows if opcode == truth.opcode]
            return sum_known(n for start, end, n in blocks for a in addresses if start <= a < end)
        case "started_warps":
            return kernel.counts.blocks[0].executed_warps
        case "started_lanes":
            return kernel.counts.blocks[0].active_lanes
        case "unknown_branches":
            return len(kernel.counts.unknown_branches)
        case _:
            field = "lanes" if truth.measure == "touched" else truth.measure
            entries = [m for m in kernel.memory if find_opcode_family(m.opcode) == truth.opcode]
            sides = {m.space for m in entries}
            if "global" in sides and len(sides) > 1:  # a copy from global to shared memory
                entries = [m for m in entries if m.space == "global"]
            return sum_known(getattr(m, field) for m in entries)


def find_opcode_family(opcode: str) -> str:
    """Return the name without modifiers; `REDG`, the name of `RED` from sm_90 on, gives `RED`."""
    name = opcode.split(".")[0]
    return "RED" if name == "REDG" else name


def sum_known(numbers: Iterable[float | None]) -> float | None:
    known = list(numbers)
    return None if None in known else sum(n for n in known if n is not None)


# ---- the table -----------------------------------------------------------------------------------


def make_rows(outcomes: Iterable[CaseResult]) -> Iterator[tuple[str, ...]]:
    """Yield one table row for the launches of a kernel that have the same result."""
    grouped: dict[tuple[str, str], list[CaseResult]] = defaultdict(list)
    for outcome in outcomes:
        case = outcome.case
        name = f"`{case.kernel}`" if case.suite == "cuda" else f"`{case.dump}`, Triton"
        grouped[name, format_result(outcome)].append(outcome)
    for (name, result), group in grouped.items():
        archs = ", ".join(str(arch) for arch in sorted({outcome.case.arch for outcome in group}))
        shapes = len({outcome.case.shape for outcome in group})
        truths = sum(len(outcome.case.truths) for outcome in group)
        kinds = "; ".join(format_expectations(truth for outcome in group for truth in outcome.case.truths))
        yield (name, archs, str(len(group)), str(shapes), result, str(truths), kinds)


def format_expectations(truths: Iterable[ExpectedCount]) -> Iterator[str]:
    """Yield the kinds of expected counts, once each, such as `requests of LDG, STG`."""
    opcodes: dict[str, dict[str, None]] = defaultdict(dict)
    for truth in truths:
        opcodes[truth.measure][truth.opcode] = None
    for measure, names in opcodes.items():
        yield LABELS[measure].format(", ".join(names))


def format_result(outcome: CaseResult) -> str:
    if outcome.failures:
        return f"**differs**: {'; '.join(outcome.failures)}"
    if outcome.case.is_exact:
        return "exact"
    _, _, instruction = outcome.reason.partition(" ")
    return f"not exact, and says so: depends on {find_opcode_family(instruction.split()[0])}"


def main() -> None:
    """Print the page; exit with 1 if an expectation does not hold."""
    outcomes = [run_case(case) for case in sorted(CASES, key=lambda case: case.path)]
    order = {case: place for place, case in enumerate(CASES)}
    outcomes.sort(key=lambda outcome: order[outcome.case])
    print(HEADING)
    columns = ("kernel", "sm_", "launches", "shapes", "verdict", "truths", "of what")
    print(render_table(columns, make_rows(outcomes)), end="")
    good = sum(not outcome.failures for outcome in outcomes)
    truths = sum(len(outcome.case.truths) for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    kernels = len({(outcome.case.dump, outcome.case.kernel) for outcome in outcomes})
    print(f"\n{good} of {len(outcomes)} launches of {kernels} kernels are as they must be: {truths} truths.")
    print(f"executed in {seconds:.0f} s", file=sys.stderr)
    sys.exit(good != len(outcomes))


if __name__ == "__main__":
    main()
