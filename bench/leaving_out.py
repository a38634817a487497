"""Replace the figures of a GPU that the rows of a measured suite taught: what is left knows nothing of it.

The table bench/splits/taught.toml says which suites taught which figure. A figure stays while another suite
says it too. Else it is, in this order, what the table names for it, the figure of the nearest architecture
that the suite did not teach, another figure of the same GPU, or what one would assume:

    sm_75, partial_write_factor 2, taught by kernels/report16
        left out: kernels/convolution    2
        left out: kernels/report16       2 of sm_90, since sm_80's and sm_86's came from report16 too
"""

import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from arch_files import MEASURED_ARCHS, ArchFiles, measure_arch_distance
from kernels.recipes import ROOT

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_paths import collect_parameters, collect_struct_parameters, with_parameter
from analyzer.hardware.schema import HardwareParameter
from analyzer.ir.scheduling import Basis

TABLE = ROOT / "bench" / "splits" / "taught.toml"
_SOURCE = "left out"
# Sources of figures that measured kernels taught; each such figure must stand in the table. What `h100`,
# `h200` and `pipeweave` measured are micro-benchmarks, what was calibrated on them are kernels.
_MEASURED_SOURCES = frozenset(
    {"measured", "mechanisms", "gemm", "microbench", "umma", "attention", "accelsim"}
)
_TEACHING_SOURCES = {
    Basis.MEASURED: _MEASURED_SOURCES,
    Basis.CALIBRATED: _MEASURED_SOURCES | {"h100", "h200", "pipeweave"},
}


class WhatOthersSay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a figure is without one of its suites."""

    suite: str  # a glob
    value: float
    why: str


class TaughtFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Figures that rows of measured suites taught; fields as in the table."""

    files: tuple[str, ...]
    keys: tuple[str, ...]
    taught_by: tuple[str, ...]
    kind: Literal["mechanism", "clock", "protocol"] = "mechanism"
    without: tuple[WhatOthersSay, ...] = ()
    falls_to: str = ""
    otherwise: float | None = None
    why: str = ""

    def is_taught_by_none_but(self, suite: str) -> bool:
        """Return whether all its teachers are the suite."""
        return all(fnmatchcase(suite, teacher) for teacher in self.taught_by)


class TaughtTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table."""

    inferred_clocks: tuple[str, ...]
    figure: tuple[TaughtFigure, ...]

    def infers_clock_of(self, suite: str) -> bool:
        """Return whether the clocks that rows of a suite state were inferred from their times."""
        return any(fnmatchcase(suite, pattern) for pattern in self.inferred_clocks)

    def find(self, file: str, key: str) -> TaughtFigure | None:
        """Return what is known of a figure; None where no suite taught it."""
        return next((one for one in self.figure if file in one.files and key in one.keys), None)


class Replacement(msgspec.Struct, frozen=True):
    """A figure of a GPU that a suite taught, and what it is without the suite."""

    key: str
    old: float
    new: float
    why: str  # where the new one comes from


@cache
def load_taught() -> TaughtTable:
    """Read the table."""
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), TaughtTable)


def leave_out(gpu: Gpu, suite: str, *, keeps_inputs: bool) -> tuple[Gpu, tuple[Replacement, ...]]:
    """Return a GPU without what a suite taught, and what was replaced.

    keeps_inputs: clocks, and the shortest time between launches, stay; a user can state them.
    """
    found: list[Replacement] = []
    for key, figure in collect_parameters(gpu).items():
        file = _find_defining_file(gpu, key)
        taught = load_taught().find(file, key)
        if taught is None or (keeps_inputs and taught.kind != "mechanism"):
            continue
        replacement = _find_replacement(gpu, file, key, figure.value, taught, suite)
        if replacement is not None:
            found.append(replacement)
    edited = gpu
    for one in found:
        figure = HardwareParameter(value=one.new, basis=Basis.ASSUMED, source=_SOURCE, note=one.why)
        edited = with_parameter(edited, one.key, figure)
    return edited, tuple(found)


def _find_replacement(
    gpu: Gpu, file: str, key: str, old: float, taught: TaughtFigure, suite: str
) -> Replacement | None:
    """Return what a figure is without a suite; None where it stays as it is."""
    for one in taught.without:
        if fnmatchcase(suite, one.suite):
            return Replacement(key, old, one.value, one.why)
    if not taught.is_taught_by_none_but(suite):
        return None
    if file.startswith("arch/") and (donor := next(_find_donors(gpu.file.arch, file, key, suite), None)):
        return Replacement(key, old, donor[1], f"{donor[0]}'s")
    if taught.falls_to:
        known = collect_struct_parameters(gpu.arch) if gpu.arch and taught.falls_to == "arch" else {}
        other = known.get(key) or collect_parameters(gpu)[taught.falls_to]
        return Replacement(key, old, other.value, taught.why or f"as {taught.falls_to}")
    if taught.otherwise is not None:
        return Replacement(key, old, taught.otherwise, taught.why)
    return Replacement(key, old, old, "kept: nobody else has one")


def _find_donors(arch: str, own_file: str, key: str, suite: str) -> Iterator[tuple[str, float]]:
    """Yield other architectures, nearest first, whose figure comes from other rows than the suite's."""
    section, name = key.rsplit(".", 1)
    files = _load_arch_files()
    for other in sorted(
        (one for one in MEASURED_ARCHS if one != arch), key=lambda one: measure_arch_distance(one, arch)
    ):
        place = files.find(other, section, name)
        if place is None or f"arch/{place[0]}" == own_file or place[1].get("basis") == Basis.ASSUMED.value:
            continue
        taught = load_taught().find(f"arch/{place[0]}", key)
        if taught is None or not taught.is_taught_by_none_but(suite):
            yield other, float(place[1]["value"])


@cache
def _load_arch_files() -> ArchFiles:
    return ArchFiles()


def _find_defining_file(gpu: Gpu, key: str) -> str:
    """Return the file of hwdb that has a figure, as the table names it: `arch/sm_86`, `gpu/b200`."""
    if key in collect_struct_parameters(gpu.file):
        table = _read_table("gpu", gpu.key)
        return f"gpu/{gpu.key}" if _has_key(table, key) else f"chip/{table.get('inherits', '')}"
    section, _, name = key.rpartition(".")
    place = _load_arch_files().find(gpu.file.arch, section, name) if section else None
    return f"arch/{place[0]}" if place else ""


@cache
def _read_table(kind: str, name: str) -> Mapping[str, Any]:
    return tomllib.loads((ROOT / "hwdb" / kind / f"{name}.toml").read_text(encoding="utf-8"))


def _has_key(table: Mapping[str, Any], key: str) -> bool:
    value: Any = table
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def list_unlisted_figures(folder: Path) -> list[str]:
    """Return the figures of hwdb that measured kernels taught and that the table lacks, as `file key`."""
    return [
        f"{file} {key}"
        for file, key, figure in _walk_figures(folder)
        if figure["basis"] in (Basis.CALIBRATED.value, Basis.MEASURED.value)
        and figure["source"] in _TEACHING_SOURCES[Basis(figure["basis"])]
        and load_taught().find(file, key) is None
    ]


def _walk_figures(folder: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield file, key and figure of the architectures, chips and GPUs."""
    for kind in ("arch", "chip", "gpu"):
        for path in sorted((folder / kind).glob("*.toml")):
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            yield from ((f"{kind}/{path.stem}", *rest) for rest in _walk_table(table, ""))


def _walk_table(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in table.items():
        if not isinstance(value, dict):
            continue
        key = f"{prefix}{name}"
        if "value" in value and "basis" in value:
            yield key, value
        else:
            yield from _walk_table(value, f"{key}.")
