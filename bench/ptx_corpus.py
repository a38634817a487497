"""Compile every CUDA source of the repository to PTX, for each architecture, with and without source lines.

    python bench/ptx_corpus.py /tmp/corpus45/nvcc [--seconds 240]

A source that is tuned by defines is compiled with those of the first of its measured variants. What an
architecture does not have (wgmma below sm_90a) is refused by nvcc; `refused.txt` lists these. Files that are
there are kept.
"""

import argparse
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from blackwell import make_ldgsts_rows, make_main_loop_rows, make_mma_rows, make_tma_rows
from gemm import DEVICES, select_configurations
from kernels.compiling import CompileUnit, make_unit
from kernels.recipes import load_rows, make_recipes

ROOT = Path(__file__).resolve().parents[1]
ARCHS = ("75", "80", "86", "89", "90a", "100a", "120a")
_SECONDS_PER_FILE = 60


def find_sources() -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield each CUDA source with the options that it needs beside the architecture."""
    units = _find_units()
    listed = subprocess.run(
        ["git", "ls-files", "*.cu"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.split():
        source = ROOT / name
        unit = units.get(source)
        defines = tuple(f"-D{define}" for define in unit.defines) if unit else ()
        yield source, ("-std=c++17", f"-I{source.parent}", *defines)


def _find_units() -> dict[Path, CompileUnit]:
    """Return the first measured variant of each source."""
    units: dict[Path, CompileUnit] = {}
    for row, recipe in make_recipes(load_rows()):
        unit = make_unit(row, recipe)
        units.setdefault(unit.source, unit)
    makers = (make_mma_rows, make_ldgsts_rows, make_tma_rows, make_main_loop_rows)
    benchmarks = (row.unit for rows in makers for row in rows())
    products = (one.make_unit("sm_75") for device in DEVICES for one in select_configurations(device))
    for unit in (*benchmarks, *products):
        units.setdefault(unit.source, unit)
    return units


def compile_to_ptx(source: Path, options: tuple[str, ...], arch: str, target: Path) -> str:
    """Write the PTX of a source; return nvcc's first error, "" if there is none."""
    command = ["nvcc", "-ptx", "-w", f"-arch=sm_{arch}", *options, str(source), "-o", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_PER_FILE)
    except subprocess.TimeoutExpired:
        return f"more than {_SECONDS_PER_FILE} s"
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    return errors[0] if errors else done.stderr[-200:]


def main() -> None:
    """Compile what is missing; print how many files there are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=240.0, help="stop after this time")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    refused = []
    for source, options in find_sources():
        for arch in ARCHS:
            if time.monotonic() < end:
                refused += _compile_both(source, options, arch, arguments.folder / f"sm_{arch}")
    (arguments.folder / "refused.txt").write_text("".join(f"{line}\n" for line in refused))
    n_files = sum(1 for _ in arguments.folder.rglob("*.ptx"))
    print(f"{n_files} files of PTX, {len(refused)} refused by nvcc")


def _compile_both(source: Path, options: tuple[str, ...], arch: str, folder: Path) -> list[str]:
    """Compile without and with source lines; return why nvcc refuses, nothing if it does not."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "_".join(source.relative_to(ROOT).with_suffix("").parts)
    for suffix, more in ((".ptx", ()), (".lineinfo.ptx", ("-lineinfo",))):
        target = folder / f"{name}{suffix}"
        if target.exists():
            continue
        error = compile_to_ptx(source, (*options, *more), arch, target)
        if error:
            return [f"sm_{arch} {source.relative_to(ROOT)}: {error}"]
    return []


if __name__ == "__main__":
    main()
