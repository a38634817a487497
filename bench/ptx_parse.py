"""Compare how fast PTX is parsed with how fast ptxas compiles the same files.

    python bench/ptx_parse.py                    # the CUDA sources here, compiled by nvcc first
    python bench/ptx_parse.py DIRECTORY FILE...  # yours, with all .ptx files of a directory

Prints a table by file, and the ratio over all of them; the best of several rounds counts, on one thread.
ptxas runs at -O3 for the architecture that a file names. The row of an empty kernel is its start.
"""

import argparse
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table
from trace_speed import measure_best_seconds

from analyzer.frontend.ptx.parser import parse_ptx
from analyzer.frontend.ptx.statements import PtxModule

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "traces" / "cuda"
EMPTY = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n"


def compile_sources(folder: Path) -> list[Path]:
    """Compile the CUDA sources of the traces to PTX; what a GPU does not have is left out."""
    outputs = []
    for source in sorted(SOURCES.glob("*.cu")):
        for arch in ("sm_80", "sm_90a", "sm_100a"):
            output = folder / f"{source.stem}.{arch}.ptx"
            options = ["-O3", "-std=c++17", "-lineinfo", "-ptx", f"-arch={arch}", "-o", str(output)]
            if subprocess.run(["nvcc", *options, str(source)], capture_output=True).returncode == 0:
                outputs.append(output)
    return outputs


def run_ptxas(path: Path, target: str, output: Path) -> bool:
    """Assemble a file; return whether ptxas accepts it."""
    command = ["ptxas", f"-arch={target}", str(path), "-o", str(output)]
    return subprocess.run(command, capture_output=True).returncode == 0


def find_files(paths: list[Path]) -> list[Path]:
    """Return the files, and the PTX files of folders."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.rglob("*.ptx")) if path.is_dir() else [path]
    return found


def measure_files(files: list[Path], rounds: int, folder: Path) -> Table:
    """Return the table of all files that ptxas accepts."""
    table = Table(title="PTX: parser against ptxas")
    for name in ("", "KB", "statements", "parse ms", "KB/s", "ptxas ms", "ptxas KB/s", "parse / ptxas"):
        table.add_column(name, justify="right" if name else "left")
    sums = [0.0, 0.0, 0.0]
    for path in files:
        data = path.read_bytes()
        module, _ = parse_ptx(data, str(path))
        assemble = partial(run_ptxas, path, module.target, folder / "out.cubin")
        if not assemble():
            continue
        parse_s = measure_best_seconds(partial(parse_ptx, data, ""), rounds)
        ptxas_s = measure_best_seconds(assemble, max(1, rounds // 3))
        sums = [a + b for a, b in zip(sums, (len(data), parse_s, ptxas_s), strict=True)]
        table.add_row(path.name, *format_row(len(data), count_statements(module), parse_s, ptxas_s))
    table.add_section()
    table.add_row("all", *format_row(int(sums[0]), "", sums[1], sums[2]))
    return table


def count_statements(module: PtxModule) -> str:
    """Return the number of statements of all functions."""
    return f"{sum(len(function.statements) for function in module.functions):,}"


def format_row(n_bytes: int, statements: str, parse_s: float, ptxas_s: float) -> tuple[str, ...]:
    """Return the columns of a row after its name."""
    return (
        f"{n_bytes / 1e3:.0f}",
        statements,
        f"{parse_s * 1e3:.1f}",
        f"{n_bytes / parse_s / 1e3:,.0f}",
        f"{ptxas_s * 1e3:.1f}",
        f"{n_bytes / ptxas_s / 1e3:,.0f}",
        f"{parse_s / ptxas_s:.3f}",
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        empty = folder / "empty.ptx"
        empty.write_text(EMPTY)
        files = find_files(arguments.paths) if arguments.paths else compile_sources(folder)
        if not run_ptxas(empty, "sm_80", folder / "empty.cubin"):
            sys.exit("ptxas is not on the PATH, or does not run")
        console = Console()
        console.print(measure_files([empty, *files], arguments.rounds, folder))


if __name__ == "__main__":
    main()
