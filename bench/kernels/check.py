"""Compare the built kernels with the table: registers, shared memory, executed instructions of a CTA.

    python bench/kernels/check.py [--suite S ...] [--jobs 2] [--worst N]

A row agrees where all executed instructions, and each opcode that makes 5 % of them or more, are within
5 % of the table's, and as many CTAs fit on an SM. Writes agreement.csv. Executed counts are cached
in built/executed/ until a dump changes.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.occupancy import compute_occupancy
from analyzer.text.errors import WarplensError
from kernels.compiling import find_dump_path, is_built, make_unit
from kernels.executing import ExecutedCounts, ExecutionJob, execute_cached
from kernels.recipes import (
    HERE,
    Dim3,
    MeasuredRow,
    TableError,
    find_scaling_opcode,
    list_suites,
    load_rows,
    make_recipes,
)

AGREEMENT = HERE / "agreement.csv"
RELATIVE_TOLERANCE = 0.05
LARGE_SHARE = 0.05
_DRIVER_SHARED_BYTES = 1024
_FIRST_SM_WITH_DRIVER_BYTES = 90
_MAX_SHOWN_OPCODES = 4
_MAX_EXECUTED_CTAS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TableComparison:
    """A row's dump compared with the table; differences are relative to the table."""

    row: MeasuredRow
    found: ExecutedCounts
    scale: float  # the table's work over ours if the suite is compared by work (SCALED_BY), else 1
    instructions: float  # difference of executed instructions per CTA
    opcodes: tuple[tuple[str, float], ...]  # difference for each large opcode, largest first
    ctas_per_sm: int
    table_ctas_per_sm: int

    @property
    def has_agreement(self) -> bool:
        """True if the dump does the work of the measured code, so that the measured time applies."""
        worst = max((abs(by) for _, by in self.opcodes), default=0.0)
        counts_agree = max(abs(self.instructions), worst) <= RELATIVE_TOLERANCE
        return counts_agree and self.ctas_per_sm == self.table_ctas_per_sm


def compare_with_table(row: MeasuredRow, found: ExecutedCounts) -> TableComparison:
    """Compare executed counts with the table's row."""
    scale = _compute_scale(row, found)
    return TableComparison(
        row=row,
        found=found,
        scale=scale,
        instructions=_compute_relative_difference(
            found.warp_instructions_per_cta * scale, row.warp_instructions_per_cta
        ),
        opcodes=_compare_large_opcodes(row, found, scale),
        ctas_per_sm=_count_resident_ctas(row, found.registers, found.shared_bytes),
        table_ctas_per_sm=_count_resident_ctas(
            row, row.registers, row.static_shared_bytes - _find_driver_shared_bytes(row)
        ),
    )


def _compute_scale(row: MeasuredRow, found: ExecutedCounts) -> float:
    opcode = find_scaling_opcode(row.suite)
    ours = found.opcodes_per_cta.get(opcode or "", 0)
    return row.opcodes_per_cta.get(opcode or "", 0) / ours if ours else 1.0


def _compute_relative_difference(ours: float, theirs: float | None) -> float:
    """Return the difference relative to the table's value, 0 if it has none."""
    return ours / theirs - 1 if theirs else 0.0


def _compare_large_opcodes(
    row: MeasuredRow, found: ExecutedCounts, scale: float
) -> tuple[tuple[str, float], ...]:
    """Return opcodes with a large share in the table or in ours and their differences, largest first."""
    if row.warp_instructions_per_cta is None:
        return ()
    large_count = LARGE_SHARE * row.warp_instructions_per_cta
    ours = {name: count * scale for name, count in found.opcodes_per_cta.items()}
    differences = []
    for name in {*ours, *row.opcodes_per_cta}:
        theirs = row.opcodes_per_cta.get(name, 0.0)
        if max(theirs, ours.get(name, 0.0)) >= large_count:
            differences.append(
                (name, (ours.get(name, 0.0) - theirs) / (theirs or row.warp_instructions_per_cta))
            )
    return tuple(sorted(differences, key=lambda item: -abs(item[1])))


def _find_driver_shared_bytes(row: MeasuredRow) -> int:
    return _DRIVER_SHARED_BYTES if int(row.arch[3:].rstrip("abf")) >= _FIRST_SM_WITH_DRIVER_BYTES else 0


def _count_resident_ctas(row: MeasuredRow, registers: int, static_shared_bytes: int) -> int:
    arch = load_gpu(row.gpu_key).arch
    if arch is None:
        raise TableError(f"{row.case}: {row.gpu} has no occupancy limits")
    x, y, z = row.block
    shared = static_shared_bytes + row.dynamic_shared_bytes
    return compute_occupancy(
        arch.limits, block_threads=x * y * z, registers=registers, shared_bytes=shared
    ).ctas_per_sm


def make_jobs(rows: Sequence[MeasuredRow], suites: Sequence[str]) -> Iterator[ExecutionJob]:
    """Yield an execution job for each row whose dump is built."""
    for row, recipe in make_recipes(rows, suites):
        unit = make_unit(row, recipe)
        if is_built(unit):
            yield ExecutionJob(
                row=row, grid=find_executed_grid(row), dump=find_dump_path(unit), kernel=recipe.kernel
            )


def find_executed_grid(row: MeasuredRow) -> Dim3:
    """Return the grid to execute: the row's, or its first CTAs.

    Where most CTAs are idle (suites with SCALED_BY), only the first ones work.
    """
    return (
        row.grid if find_scaling_opcode(row.suite) is None else (min(row.grid[0], _MAX_EXECUTED_CTAS), 1, 1)
    )


def _execute_job(job: ExecutionJob) -> ExecutedCounts | str:
    try:
        return execute_cached(job)
    except (TableError, WarplensError) as error:
        return f"{job.row.case}: {error}"


def main() -> None:
    """Execute, compare, write agreement.csv, print the table."""
    arguments = _parse_arguments()
    console = Console()
    rows = load_rows()
    suites = arguments.suite or list_suites()
    todo = list(make_jobs(rows, suites))
    agreements, errors = [], []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        done = pool.map(_execute_job, todo, chunksize=1)
        for job, found in track(zip(todo, done, strict=True), "executing", len(todo), console=console):
            if isinstance(found, str):
                errors.append(found)
            else:
                agreements.append(compare_with_table(job.row, found))
    write_agreement(agreements, suites)
    for agreement in [found for found in agreements if not found.has_agreement][: arguments.worst]:
        console.print(_format_line(agreement), highlight=False)
    console.print(make_summary(rows, agreements, suites))
    for error in errors:
        console.print(f"[red]failed:[/] {error}", highlight=False)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--suite", action="append", choices=list_suites(), default=[], help="all, if not given"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--worst", type=int, default=0, help="print so many rows that do not agree")
    return parser.parse_args()


def _format_worst_opcodes(agreement: TableComparison) -> str:
    """Format the largest differences, such as `IMAD +7.3%`."""
    shown = [
        f"{name} {by:+.1%}"
        for name, by in agreement.opcodes[:_MAX_SHOWN_OPCODES]
        if abs(by) > RELATIVE_TOLERANCE
    ]
    return " ".join(shown)


def _format_line(agreement: TableComparison) -> str:
    row, found = agreement.row, agreement.found
    return (
        f"{row.case} {row.gpu} {dict(row.config)}\n    instructions {agreement.instructions:+.1%}"
        f" registers {row.registers} ours {found.registers}, CTAs {agreement.table_ctas_per_sm}"
        f" ours {agreement.ctas_per_sm}, shared {row.static_shared_bytes} ours {found.shared_bytes}"
        f" scale {agreement.scale:.3f} {found.provenance}  {_format_worst_opcodes(agreement)}"
    )


def write_agreement(agreements: Sequence[TableComparison], suites: Sequence[str]) -> None:
    """Write agreement.csv; lines of other suites are kept."""
    kept = []
    names = list_suites()
    if AGREEMENT.exists():
        with AGREEMENT.open(newline="") as file:
            kept = [
                line
                for line in csv.DictReader(file)
                if line["suite"] in names and line["suite"] not in suites
            ]
    lines: list[Mapping[str, object]] = [*kept, *map(_make_cells, agreements)]
    lines.sort(key=lambda line: names.index(str(line["suite"])))
    with AGREEMENT.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


_COLUMNS = (
    *("suite", "case", "agrees", "instructions", "opcodes", "registers", "table_registers", "shared_bytes"),
    *("table_shared_bytes", "ctas_per_sm", "table_ctas_per_sm"),
)


def _make_cells(agreement: TableComparison) -> dict[str, object]:
    row, found = agreement.row, agreement.found
    return {
        "suite": row.suite,
        "case": row.case,
        "agrees": "yes" if agreement.has_agreement else "no",
        "instructions": "" if row.warp_instructions_per_cta is None else f"{agreement.instructions:+.2%}",
        "opcodes": " ".join(f"{name} {by:+.1%}" for name, by in agreement.opcodes[:_MAX_SHOWN_OPCODES]),
        "registers": found.registers,
        "table_registers": row.registers,
        "shared_bytes": found.shared_bytes,
        "table_shared_bytes": row.static_shared_bytes - _find_driver_shared_bytes(row),
        "ctas_per_sm": agreement.ctas_per_sm,
        "table_ctas_per_sm": agreement.table_ctas_per_sm,
    }


def make_summary(
    rows: Sequence[MeasuredRow], agreements: Sequence[TableComparison], suites: Sequence[str]
) -> Table:
    """Build a table of rows, built dumps and agreeing rows by suite."""
    table = Table("suite", "rows", "built", "agreeing", "share")
    counts = [_count_agreements(rows, agreements, suite) for suite in suites]
    for suite, (n_rows, n_built, n_agreeing) in zip(suites, counts, strict=True):
        table.add_row(suite, str(n_rows), str(n_built), str(n_agreeing), f"{n_agreeing / max(1, n_rows):.1%}")
    n_rows, n_built, n_agreeing = (sum(column) for column in zip(*counts, strict=True))
    table.add_row("all", str(n_rows), str(n_built), str(n_agreeing), f"{n_agreeing / max(1, n_rows):.1%}")
    return table


def _count_agreements(
    rows: Sequence[MeasuredRow], agreements: Sequence[TableComparison], suite: str
) -> tuple[int, int, int]:
    built = [found for found in agreements if found.row.suite == suite]
    return sum(row.suite == suite for row in rows), len(built), sum(found.has_agreement for found in built)


if __name__ == "__main__":
    try:
        main()
    except TableError as error:
        sys.exit(f"error: {error}")
