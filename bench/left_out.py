"""Measure the default model's accuracy on architectures that no constant was calibrated on.

    python bench/left_out.py [sm_86 ...] [--jobs 2]

For each architecture with measured kernels: every figure in hwdb that was calibrated on its own GPUs (source
"measured", "mechanisms" or "gemm", and no GPU of another architecture in its note) is replaced by that of the
nearest other architecture of its family (graphics or data centre), or of the other family; then the judging
half's rows of its GPUs are predicted. Figures that a user can look up stay: datasheets, latencies of
microbenchmarks, the clock, the shortest time between launches.
Writes docs/left-out.md.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from markdown import render_table
from rich.console import Console

from analyzer.report.validation_schema import ScoreEntry, ValidationReport

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "bench" / "kernels" / "built" / "cases.csv"
PAGE = ROOT / "docs" / "left-out.md"
# GPUs of each architecture with measured kernels: as notes spell them, and as hwdb does.
GPUS = {
    "sm_75": {"RTX 2080 Ti": "rtx-2080-ti", "TITAN RTX": "titan-rtx"},
    "sm_80": {"A100": "a100-40gb-pcie"},
    "sm_86": {
        "RTX A4000": "rtx-a4000",
        "RTX A6000": "rtx-a6000",
        "RTX 3060 Laptop": "rtx-3060-laptop",
    },
    "sm_89": {"RTX 4070": "rtx-4070", "RTX 4090": "rtx-4090"},
    "sm_90": {"H100": "h100-sxm"},
    "sm_120": {"RTX 5090": "rtx-5090"},
}
_CALIBRATED_SOURCES = ("measured", "mechanisms", "gemm")
_HEAD = """# On an architecture that taught nothing

Made by `python bench/left_out.py`. Each architecture in turn: the figures that measured kernels of its own
GPUs taught are replaced by those of the nearest other one, and the judging half's rows of its GPUs are
predicted by `sm`. Datasheets, microbenchmarks, the clock and the shortest time between launches stay.
`inside`: rows whose measured time lies in the 80 % interval.
"""

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ParameterReplacement:
    """A figure of an architecture's file, and the one that replaces it."""

    file: str  # stem of the file in hwdb/arch that defines it
    section: str
    key: str
    old: float
    new: float
    source: str  # architecture that the new figure comes from; "" if no other one has a figure of its own

    @property
    def text(self) -> str:
        """A line such as `memory.l2_bytes_per_cycle_per_sm 14 -> 17 (sm_86)`."""
        if not self.source:
            return f"{self.section}.{self.key} {self.old:g} kept, since nobody else has one"
        return f"{self.section}.{self.key} {self.old:g} → {self.new:g} ({self.source})"


@dataclass(frozen=True, slots=True)
class LatencyRemoval:
    """A latency calibrated on one GPU and removed from its file, so that the architecture's applies."""

    gpu: str
    key: str

    @property
    def text(self) -> str:
        """A line such as `rtx-a4000: memory.l2_latency_cycles dropped`."""
        return f"{self.gpu}: memory.{self.key} dropped"


class ArchFiles:
    """The files of hwdb/arch, with lookup through inheritance."""

    def __init__(self) -> None:
        folder = ROOT / "hwdb" / "arch"
        self.tables: Mapping[str, Table] = {
            path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.toml")
        }

    def list_ancestors(self, arch: str) -> Iterator[str]:
        """Yield an architecture, then those that it inherits from."""
        name: str | None = arch
        while name is not None:
            yield name
            name = self.tables[name].get("inherits")

    def find(self, arch: str, section: str, key: str) -> tuple[str, Table] | None:
        """Return the file that defines a figure of an architecture, and the figure; None if none does."""
        for name in self.list_ancestors(arch):
            table: Any = self.tables[name]
            for part in section.split("."):
                table = table.get(part, {})
            if key in table:
                return name, table[key]
        return None

    def list_parameters(self, arch: str) -> Iterator[tuple[str, str]]:
        """Yield section and key of every figure of an architecture."""
        seen: dict[tuple[str, str], None] = {}
        for name in self.list_ancestors(arch):
            for section, content in self.tables[name].items():
                parts = {f"{section}.{k}": v for k, v in content.items()} if section == "sched" else {}
                for path, figures in (parts or {section: content}).items():
                    if isinstance(figures, dict):
                        seen.update({(path, k): None for k, v in figures.items() if isinstance(v, dict)})
        yield from seen


def find_replacements(files: ArchFiles, arch: str) -> list[ParameterReplacement]:
    """Return the figures calibrated on an architecture's own kernels, with those of the nearest other one."""
    found = []
    for section, key in files.list_parameters(arch):
        file, figure = files.find(arch, section, key) or ("", {})
        if figure.get("basis") != "calibrated" or figure.get("source") not in _CALIBRATED_SOURCES:
            continue
        named = _find_named_archs(figure)
        if named - {arch} or (not named and file != arch):
            continue
        donor = next(_find_donors(files, arch, section, key, file), None)
        old = figure["value"]
        new, source = (old, "") if donor is None else (donor[1]["value"], donor[0])
        if old != new or not source:
            found.append(ParameterReplacement(file, section, key, old, new, source))
    return found


def _find_donors(
    files: ArchFiles, arch: str, section: str, key: str, file: str
) -> Iterator[tuple[str, Table]]:
    """Yield other architectures, nearest first, and their figure, if it was not calibrated on this one."""
    for other in sorted(
        (one for one in GPUS if one != arch), key=lambda one: measure_arch_distance(one, arch)
    ):
        place = files.find(other, section, key)
        if place is not None and place[0] != file and _find_named_archs(place[1]) != {arch}:
            yield other, place[1]


def _find_named_archs(figure: Table) -> set[str]:
    """Return the architectures whose GPUs a figure's note names."""
    note = figure.get("note", "")
    return {arch for arch, gpus in GPUS.items() if any(gpu in note for gpu in gpus)}


def measure_arch_distance(one: str, other: str) -> tuple[bool, int]:
    """Return a sort key: whether the families (data centre, graphics) differ, then the version gap."""
    left, right = int(one[3:]), int(other[3:])
    return _is_data_center(left) != _is_data_center(right), abs(left - right)


def _is_data_center(number: int) -> bool:
    return number % 10 == 0 and number < _FIRST_MIXED_ARCH


_FIRST_MIXED_ARCH = 110  # sm_80, sm_90 and sm_100 are data-centre chips; sm_120 is not


def find_removals(arch: str) -> list[LatencyRemoval]:
    """Return the latencies that were calibrated on kernels of single GPUs of an architecture."""
    found = []
    for gpu in GPUS[arch].values():
        memory = tomllib.loads(_gpu_file(ROOT, gpu).read_text(encoding="utf-8"))["memory"]
        found += [
            LatencyRemoval(gpu, key)
            for key, figure in memory.items()
            if isinstance(figure, dict)
            and figure.get("basis") == "calibrated"
            and figure["source"] in _CALIBRATED_SOURCES
        ]
    return found


def _gpu_file(root: Path, gpu: str) -> Path:
    return root / "hwdb" / "gpu" / f"{gpu}.toml"


def write_tree(folder: Path, changes: list[ParameterReplacement | LatencyRemoval]) -> None:
    """Write a copy of the checkout in which hwdb has the changes."""
    for name in ("analyzer", "grammars", "hwdb"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for change in changes:
        if isinstance(change, LatencyRemoval):
            path = _gpu_file(folder, change.gpu)
            text = re.sub(rf"^{change.key} = .*\n", "", path.read_text(encoding="utf-8"), flags=re.M)
        else:
            path = folder / "hwdb" / "arch" / f"{change.file}.toml"
            text = _replace_value(path.read_text(encoding="utf-8"), change)
        path.write_text(text, encoding="utf-8")


def _replace_value(text: str, change: ParameterReplacement) -> str:
    start = text.index(f"\n[{change.section}]\n") + 1
    pattern = re.compile(rf"^({re.escape(change.key)} = {{ value = )[^,]+", re.M)
    return text[:start] + pattern.sub(rf"\g<1>{change.new:g}", text[start:], count=1)


def validate_arch(
    arch: str, changes: list[ParameterReplacement | LatencyRemoval], jobs: int
) -> ValidationReport:
    """Run `warplens validate` with the changes, on the judging half's rows of an architecture's GPUs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tree(folder, changes)
        gpus = [word for key in GPUS[arch].values() for word in ("--gpu", key)]
        command = ["validate", str(TABLE), "--split", "judge", "--model", "sm", *gpus]
        done = subprocess.run(
            [sys.executable, "-m", "analyzer", *command, "--jobs", str(jobs), "--format", "json"],
            env={**os.environ, "PYTHONPATH": str(folder)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        sys.exit(f"error: {' '.join(command)} gave nothing\n{done.stderr}")
    return msgspec.json.decode(done.stdout, type=ValidationReport)


def render_page(
    results: Mapping[str, tuple[list[ParameterReplacement | LatencyRemoval], ValidationReport]],
) -> str:
    """Render the page in Markdown."""
    columns = ("architecture", "suite", "GPU", "rows", "MAPE", "median", "bias", "Spearman", "inside")
    rows = [
        (arch, *_format_cells(score))
        for arch, (_, report) in results.items()
        for score in report.scores
        if score.gpu and score.suite
    ]
    lines = [_HEAD, render_table(columns, rows)]
    if missing := [arch for arch in GPUS if arch not in results]:
        names = " ".join(missing)
        lines.append(f"Not judged when this was written: `python bench/left_out.py {names}`.\n")
    lines.append("## What was replaced\n")
    for arch, (changes, _) in results.items():
        listed = "; ".join(change.text for change in changes)
        lines.append(f"- {arch}: {listed or 'nothing: no figure is its own'}")
    return "\n".join(lines) + "\n"


def _format_cells(score: ScoreEntry) -> tuple[str, ...]:
    return (
        *(score.suite or "", score.gpu or "", str(score.rows), f"{score.mape:.1%}"),
        *(f"{score.median_ape:.1%}", f"{score.bias:.2f}"),
        "" if score.spearman is None else f"{score.spearman:.3f}",
        f"{score.interval_coverage:.0%}",
    )


def main() -> None:
    """Validate each architecture and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archs", nargs="*", metavar="ARCH", help="all, if not given")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="only say what would be replaced")
    arguments = parser.parse_args()
    files, console = ArchFiles(), Console()
    results: dict[str, tuple[list[ParameterReplacement | LatencyRemoval], ValidationReport]] = {}
    for arch in arguments.archs or GPUS:
        changes: list[ParameterReplacement | LatencyRemoval] = [
            *find_replacements(files, arch),
            *find_removals(arch),
        ]
        for change in changes:
            console.print(f"{arch}: {change.text}", highlight=False)
        if not arguments.dry:
            results[arch] = (changes, validate_arch(arch, changes, arguments.jobs))
            PAGE.write_text(render_page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
