"""Measure the share of branches of production kernels that the launch decides, without memory contents.

    python bench/production.py CUBIN... > docs/production.md

Each entry of bench/production.toml whose `cubin` glob fits one of the given paths is executed with its
launch. A conditional branch counts where a warp reached it; it is settled when all its executions were
decided by launch, arguments and constants. No contents of memory are supplied.
"""

import argparse
import signal
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from markdown import render_table

import analyzer
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, NullPointer, Pointer
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import OpKind
from analyzer.ir.operand import Predicate
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.report.analyze_schema import KernelReport
from analyzer.text.errors import WarplensError

LAUNCHES = Path(__file__).with_suffix(".toml")
_NAMED_ARGUMENTS: dict[str, ArgumentValue] = {"ptr": Pointer(), "null": NullPointer()}
TIMEOUT_SECONDS = 60
_BRANCH_KINDS = (OpKind.BRANCH, OpKind.BRANCH_INDIRECT, OpKind.EXIT, OpKind.RETURN, OpKind.CALL)


@dataclass(frozen=True, slots=True)
class EntryResult:
    """The result of executing one entry of the list."""

    title: str
    arch: str
    n_reached: int = 0  # conditional branches that a warp executed
    n_undecided: int = 0  # those of them whose condition was not always known
    provenance: str = ""  # of the counts; "" where there are none
    note: str = ""  # origins of undecided branches, or why there are no counts
    seconds: float = 0.0


def run_entry(entry: dict[str, Any], path: Path) -> EntryResult:
    """Execute one kernel; a refusal or a time-out is a result, too."""
    title = entry["title"]
    try:
        program = analyzer.load(str(path))
        loaded = program[entry["kernel"]]
        start = time.perf_counter()
        signal.alarm(TIMEOUT_SECONDS)
        options = analyzer.Options(kernels=(loaded.name,), launch=make_launch(entry))
        report = analyzer.analyze(program, options=options).kernels[0]
    except WarplensError as error:
        return EntryResult(title, "", note=f"refused: {error}")
    except TimeoutError:
        return EntryResult(title, loaded.kernel.arch, note=f"not finished after {TIMEOUT_SECONDS} s")
    except KeyError:
        return EntryResult(title, "", note=f"no kernel of this name in {path.name}")
    finally:
        signal.alarm(0)
    seconds = time.perf_counter() - start
    reached = find_reached_branches(loaded, report)
    unknown = report.counts.unknown_branches
    undecided = reached & {branch.address for branch in unknown}
    notes = [f"not given: {entry['unknown']}"] if "unknown" in entry else []
    notes += dict.fromkeys(branch.origin for branch in unknown[:3])
    return EntryResult(
        title,
        report.architecture,
        len(reached),
        len(undecided),
        report.counts.provenance,
        "; ".join(notes),
        seconds,
    )


def raise_timeout(*_: object) -> None:
    raise TimeoutError


def make_launch(entry: dict[str, Any]) -> Launch:
    arguments = [
        Argument(which, _NAMED_ARGUMENTS[value] if isinstance(value, str) else value)
        for which, value in entry.get("arguments", {}).items()
    ]
    cluster = entry.get("cluster")
    return Launch(
        grid=Dim3(*entry["grid"]),
        block=Dim3(*entry["block"]),
        cluster=Dim3(*cluster) if cluster else None,
        dynamic_shared_bytes=entry.get("shared"),
        arguments=tuple(arguments),
    )


def find_reached_branches(loaded: LoadedKernel, report: KernelReport) -> set[int]:
    """Return the addresses of conditional branches that a warp executed."""
    ran = [(block.start, block.end) for block in report.counts.blocks if block.executed_warps]
    return {
        instruction.address
        for instruction in loaded.instructions
        if is_conditional(instruction.form) and any(start <= instruction.address < end for start, end in ran)
    }


def is_conditional(form: InstructionForm) -> bool:
    """Return whether a branch is guarded, has a predicate operand, or is indirect."""
    if form.opcode.kind not in _BRANCH_KINDS or form.is_never_executed:
        return False
    has_condition = any(isinstance(operand, Predicate) for operand in form.operands)
    return not form.is_unconditional or has_condition or form.opcode.kind is OpKind.BRANCH_INDIRECT


_PAGE = """# Production kernels without help

Kernels of vLLM, sgl-kernel and bitsandbytes as their wheels ship them, launched as those libraries
launch them (bench/production.toml says how, and with what versions). The wheels are not in this
repository; `cuobjdump -xelf all LIBRARY.so` takes the cubins out of them, and `python
bench/production.py CUBIN...` prints this page.

A branch counts where a warp reaches it and it has a condition. It is settled where launch, arguments and
constants decide each of its executions; nothing is said of what memory holds, so that what depends on
data (the slow path of a division, how many tokens an expert has, a compare-and-swap that is tried again)
is not. `counts`: exact where all are settled, else assumed, and the report names the branches and what
would settle them (docs/execution.md).
"""


_COLUMNS = ("kernel", "architecture", "branches reached", "settled", "share", "counts", "depends on")


def _format_cells(one: EntryResult) -> tuple[str, ...]:
    decided = one.n_reached - one.n_undecided
    share = f"{decided / one.n_reached:.0%}" if one.n_reached else "-"
    return (
        *(one.title, str(one.arch), str(one.n_reached), str(decided), share),
        *(one.provenance or "-", one.note),
    )


def render_lines(outcomes: Sequence[EntryResult]) -> Iterator[str]:
    yield _PAGE
    yield render_table(_COLUMNS, map(_format_cells, outcomes))
    reached = sum(one.n_reached for one in outcomes)
    decided = reached - sum(one.n_undecided for one in outcomes)
    exact = sum(one.provenance == "exact" for one in outcomes)
    yield (
        f"{decided} of {reached} branches settled ({decided / max(1, reached):.1%}); "
        f"counts are exact for {exact} of {len(outcomes)} kernels."
    )


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cubin", nargs="+", type=Path)
    paths = parser.parse_args().cubin
    signal.signal(signal.SIGALRM, raise_timeout)
    outcomes = []
    for entry in tomllib.loads(LAUNCHES.read_text(encoding="utf-8"))["kernel"]:
        found = next((path for path in paths if fnmatch(str(path), entry["cubin"])), None)
        if found is None:
            print(f"{entry['title']}: no path fits {entry['cubin']}", file=sys.stderr)
            continue
        outcomes.append(run_entry(entry, found))
        print(f"{entry['title']}: {outcomes[-1].seconds:.1f} s", file=sys.stderr)
    print("\n".join(render_lines(outcomes)))


if __name__ == "__main__":
    main()
