"""Compare the built kernels with the table: registers, shared memory, executed instructions of a CTA.

    python bench/kernels/check.py [--suite S ...] [--jobs 2] [--worst N]

A row agrees where all executed instructions, and each opcode that makes 5 % of them or more, are within
5 % of the table's, and as many CTAs fit on an SM. Writes agreement.csv. What was executed is kept in
built/executed/ and asked again only when a dump changes.
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

from analyzer.hardware.load import load_gpu
from analyzer.hardware.occupancy import occupancy
from analyzer.text.errors import WarplensError
from kernels.compiling import dump_path, is_built, unit_of
from kernels.executing import Executed, Job, execute
from kernels.recipes import HERE, Dim3, Row, TableError, load_rows, recipes, scaled_by, suite_names

AGREEMENT = HERE / "agreement.csv"
TOLERANCE = 0.05
LARGE_SHARE = 0.05
_DRIVER_SHARED_BYTES = 1024
_DRIVER_FROM_SM = 90
_SHOWN_OPCODES = 4
_FIRST_CTAS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How a row's dump compares with the table.

    scale: the table's work over ours where a suite is compared by work done, else 1 (see `executed_grid`).
    opcodes: large ones, by relative difference, worst first.
    """

    row: Row
    found: Executed
    scale: float
    instructions: float
    opcodes: tuple[tuple[str, float], ...]
    ctas_per_sm: int
    table_ctas_per_sm: int

    @property
    def agrees(self) -> bool:
        """Whether the measured time speaks of our dump too."""
        worst = max((abs(by) for _, by in self.opcodes), default=0.0)
        counts_agree = max(abs(self.instructions), worst) <= TOLERANCE
        return counts_agree and self.ctas_per_sm == self.table_ctas_per_sm


def compare(row: Row, found: Executed) -> Agreement:
    """Set what we execute against the table's row."""
    scale = _scale(row, found)
    return Agreement(
        row=row,
        found=found,
        scale=scale,
        instructions=_difference(found.warp_instructions_per_cta * scale, row.warp_instructions_per_cta),
        opcodes=_opcodes(row, found, scale),
        ctas_per_sm=_ctas(row, found.registers, found.shared_bytes),
        table_ctas_per_sm=_ctas(row, row.registers, row.static_shared_bytes - _driver_bytes(row)),
    )


def _scale(row: Row, found: Executed) -> float:
    opcode = scaled_by(row.suite)
    ours = found.opcodes_per_cta.get(opcode or "", 0)
    return row.opcodes_per_cta.get(opcode or "", 0) / ours if ours else 1.0


def _difference(ours: float, theirs: float | None) -> float:
    """Relative to the table's; 0 where it says nothing."""
    return ours / theirs - 1 if theirs else 0.0


def _opcodes(row: Row, found: Executed, scale: float) -> tuple[tuple[str, float], ...]:
    """Opcodes large in the table or in ours, and how far apart they are; worst first."""
    if row.warp_instructions_per_cta is None:
        return ()
    least = LARGE_SHARE * row.warp_instructions_per_cta
    ours = {name: count * scale for name, count in found.opcodes_per_cta.items()}
    apart = []
    for name in {*ours, *row.opcodes_per_cta}:
        theirs = row.opcodes_per_cta.get(name, 0.0)
        if max(theirs, ours.get(name, 0.0)) >= least:
            apart.append((name, (ours.get(name, 0.0) - theirs) / (theirs or row.warp_instructions_per_cta)))
    return tuple(sorted(apart, key=lambda item: -abs(item[1])))


def _driver_bytes(row: Row) -> int:
    return _DRIVER_SHARED_BYTES if int(row.arch[3:].rstrip("abf")) >= _DRIVER_FROM_SM else 0


def _ctas(row: Row, registers: int, static_shared_bytes: int) -> int:
    arch = load_gpu(row.gpu_key).arch
    if arch is None:
        raise TableError(f"{row.case}: {row.gpu} has no occupancy limits")
    x, y, z = row.block
    shared = static_shared_bytes + row.dynamic_shared_bytes
    return occupancy(
        arch.limits, block_threads=x * y * z, registers=registers, shared_bytes=shared
    ).ctas_per_sm


def jobs(rows: Sequence[Row], suites: Sequence[str]) -> Iterator[Job]:
    """Rows whose dumps are built."""
    for row, recipe in recipes(rows, suites):
        unit = unit_of(row, recipe)
        if is_built(unit):
            yield Job(row=row, grid=executed_grid(row), dump=dump_path(unit), kernel=recipe.kernel)


def executed_grid(row: Row) -> Dim3:
    """The row's; where most CTAs are idle and work is compared by SCALED_BY, the first CTAs, which work."""
    return row.grid if scaled_by(row.suite) is None else (min(row.grid[0], _FIRST_CTAS), 1, 1)


def _executed(job: Job) -> Executed | str:
    try:
        return execute(job)
    except (TableError, WarplensError) as error:
        return f"{job.row.case}: {error}"


def main() -> None:
    """Execute, compare, write agreement.csv, print the table."""
    arguments = _arguments()
    console = Console()
    rows = load_rows()
    suites = arguments.suite or suite_names()
    todo = list(jobs(rows, suites))
    agreements, errors = [], []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        done = pool.map(_executed, todo, chunksize=1)
        for job, found in track(zip(todo, done, strict=True), "executing", len(todo), console=console):
            if isinstance(found, str):
                errors.append(found)
            else:
                agreements.append(compare(job.row, found))
    write_agreement(agreements, suites)
    for agreement in [found for found in agreements if not found.agrees][: arguments.worst]:
        console.print(_line(agreement), highlight=False)
    console.print(summary(rows, agreements, suites))
    for error in errors:
        console.print(f"[red]failed:[/] {error}", highlight=False)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--suite", action="append", choices=suite_names(), default=[], help="all, if not given"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--worst", type=int, default=0, help="print so many rows that do not agree")
    return parser.parse_args()


def _worst(agreement: Agreement) -> str:
    """Such as `IMAD +7.3%`, of the opcodes furthest apart."""
    shown = [f"{name} {by:+.1%}" for name, by in agreement.opcodes[:_SHOWN_OPCODES] if abs(by) > TOLERANCE]
    return " ".join(shown)


def _line(agreement: Agreement) -> str:
    row, found = agreement.row, agreement.found
    return (
        f"{row.case} {row.gpu} {dict(row.config)}\n    instructions {agreement.instructions:+.1%}"
        f" registers {row.registers} ours {found.registers}, CTAs {agreement.table_ctas_per_sm}"
        f" ours {agreement.ctas_per_sm}, shared {row.static_shared_bytes} ours {found.shared_bytes}"
        f" scale {agreement.scale:.3f} {found.provenance}  {_worst(agreement)}"
    )


def write_agreement(agreements: Sequence[Agreement], suites: Sequence[str]) -> None:
    """Write agreement.csv; lines of other suites stay."""
    kept = []
    names = suite_names()
    if AGREEMENT.exists():
        with AGREEMENT.open(newline="") as file:
            kept = [
                line
                for line in csv.DictReader(file)
                if line["suite"] in names and line["suite"] not in suites
            ]
    lines: list[Mapping[str, object]] = [*kept, *map(_cells, agreements)]
    lines.sort(key=lambda line: names.index(str(line["suite"])))
    with AGREEMENT.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


_COLUMNS = (
    *("suite", "case", "agrees", "instructions", "opcodes", "registers", "table_registers", "shared_bytes"),
    *("table_shared_bytes", "ctas_per_sm", "table_ctas_per_sm"),
)


def _cells(agreement: Agreement) -> dict[str, object]:
    row, found = agreement.row, agreement.found
    return {
        "suite": row.suite,
        "case": row.case,
        "agrees": "yes" if agreement.agrees else "no",
        "instructions": "" if row.warp_instructions_per_cta is None else f"{agreement.instructions:+.2%}",
        "opcodes": " ".join(f"{name} {by:+.1%}" for name, by in agreement.opcodes[:_SHOWN_OPCODES]),
        "registers": found.registers,
        "table_registers": row.registers,
        "shared_bytes": found.shared_bytes,
        "table_shared_bytes": row.static_shared_bytes - _driver_bytes(row),
        "ctas_per_sm": agreement.ctas_per_sm,
        "table_ctas_per_sm": agreement.table_ctas_per_sm,
    }


def summary(rows: Sequence[Row], agreements: Sequence[Agreement], suites: Sequence[str]) -> Table:
    """Rows, built, agreeing, by suite."""
    table = Table("suite", "rows", "built", "agreeing", "share")
    counts = [_counts(rows, agreements, suite) for suite in suites]
    for suite, (n_rows, n_built, n_agreeing) in zip(suites, counts, strict=True):
        table.add_row(suite, str(n_rows), str(n_built), str(n_agreeing), f"{n_agreeing / max(1, n_rows):.1%}")
    n_rows, n_built, n_agreeing = (sum(column) for column in zip(*counts, strict=True))
    table.add_row("all", str(n_rows), str(n_built), str(n_agreeing), f"{n_agreeing / max(1, n_rows):.1%}")
    return table


def _counts(rows: Sequence[Row], agreements: Sequence[Agreement], suite: str) -> tuple[int, int, int]:
    built = [found for found in agreements if found.row.suite == suite]
    return sum(row.suite == suite for row in rows), len(built), sum(found.agrees for found in built)


if __name__ == "__main__":
    try:
        main()
    except TableError as error:
        sys.exit(f"error: {error}")
