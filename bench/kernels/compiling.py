"""Compile recipes with nvcc and dump them with cuobjdump, once for each distinct (recipe, architecture).

A dump's name has a digest of the sources, the options and the compiler's version, so a dump is up to date
if it exists. Nearly all of nvcc's time goes into PTX, which is the same for sm_80 and sm_86 except for its
`.target` line: a recipe of both is compiled to PTX once.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shutil import which

from kernels.recipes import HERE, ROOT, MeasuredRow, Recipe, TableError

sys.path.insert(0, str(ROOT))

from analyzer.frontend.cuda_tools import CudaTool, find_tool, make_tool_environment

BUILT = HERE / "built"
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_INVALID_NAME_CHARACTERS = re.compile(r"[^\w.=-]+")
_MAX_NAME_LENGTH = 80
_SHARED_PTX_ARCHS = ("sm_80", "sm_86")


@dataclass(frozen=True, slots=True)
class CompileUnit:
    """One nvcc run: a source, its options and an architecture."""

    suite: str  # folder of the dump
    arch: str
    source: Path
    defines: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def has_arch_flag(self) -> bool:
        """True if the flags name an architecture."""
        return any(flag.startswith(("-arch", "--gpu-arch", "-gencode")) for flag in self.flags)

    @property
    def options(self) -> tuple[str, ...]:
        """nvcc's arguments, except source and output."""
        arch = () if self.has_arch_flag else (f"-arch={self.arch}",)
        return (*self.flags, *arch, *(f"-D{define}" for define in self.defines))


@dataclass(frozen=True, slots=True)
class CompileFailure:
    """A unit that did not compile, and the output of the tool that failed."""

    unit: CompileUnit
    message: str


def make_unit(row: MeasuredRow, recipe: Recipe) -> CompileUnit:
    """Return the unit to compile for a row's recipe. Raises TableError if its source is missing."""
    if not recipe.source.is_file():
        raise TableError(f"{row.case}: source {recipe.source} is not there")
    return CompileUnit(row.suite, row.arch, recipe.source, recipe.defines, recipe.flags)


def find_dump_path(unit: CompileUnit) -> Path:
    """Return the path of a unit's dump; it changes with sources, flags, architecture and compiler version."""
    stem = _INVALID_NAME_CHARACTERS.sub("_", "-".join((unit.source.stem, *unit.defines)))[:_MAX_NAME_LENGTH]
    return BUILT / unit.suite / unit.arch / f"{stem}-{_compute_digest(unit)}.sass"


@cache
def _compute_digest(unit: CompileUnit) -> str:
    inputs = json.dumps([_find_nvcc_version(), unit.options, [text for text in _read_sources(unit.source)]])
    return hashlib.sha256(inputs.encode()).hexdigest()[:12]


@cache
def _read_sources(source: Path) -> tuple[str, ...]:
    """Return the texts of a source and of the files that it includes by relative path."""
    seen: dict[Path, str] = {}
    pending = [source.resolve()]
    while pending:
        path = pending.pop()
        if path in seen or not path.is_file():
            continue
        seen[path] = path.read_text()
        pending += [(path.parent / name).resolve() for name in _INCLUDE.findall(seen[path])]
    return tuple(seen[path] for path in sorted(seen))


@cache
def _find_nvcc() -> str:
    found = which("nvcc") or which("nvcc", path="/usr/local/cuda/bin")
    if found is None:
        raise TableError("nvcc not found: the kernels are built with CUDA 13.0")
    return found


@cache
def _find_nvcc_version() -> str:
    output = subprocess.run([_find_nvcc(), "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"V(\d+(?:\.\d+)+)", output)
    return match[1] if match else ""


@cache
def _find_cuobjdump() -> CudaTool:
    """Find cuobjdump beside nvcc, else where the analyzer looks for it."""
    beside = os.path.join(os.path.dirname(os.path.realpath(_find_nvcc())), "cuobjdump")
    tool = CudaTool("cuobjdump", beside, "beside nvcc") if os.path.exists(beside) else find_tool("cuobjdump")
    if tool is None:
        raise TableError("cuobjdump not found: pip install 'warplens[tools]'")
    return tool


def compile_unit(unit: CompileUnit) -> CompileFailure | None:
    """Compile a unit and write its dump and resource usage, each in one step; return the failure, if any."""
    target = find_dump_path(unit)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        cubin = os.path.join(folder, "kernel.cubin")
        try:
            _compile(unit, cubin, folder)
            _write_atomically(target.with_suffix(".res"), _dump(cubin, "-res-usage"), folder)
            _write_atomically(target, _dump(cubin, "-sass"), folder)
        except subprocess.CalledProcessError as error:
            return CompileFailure(
                unit, f"{' '.join(map(str, error.cmd))}\n{error.stdout}{error.stderr}".rstrip()
            )
    return None


def _compile(unit: CompileUnit, cubin: str, folder: str) -> None:
    """Compile a unit to a cubin; PTX that architectures share is compiled once."""
    if unit.has_arch_flag or unit.arch not in _SHARED_PTX_ARCHS:
        _run([_find_nvcc(), "-cubin", *unit.options, str(unit.source), "-o", cubin])
        return
    shared = replace(unit, suite="", arch=_SHARED_PTX_ARCHS[0])
    kept = BUILT / "ptx" / f"{_compute_digest(shared)}.ptx"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = os.path.join(folder, "kernel.ptx")
        _run([_find_nvcc(), "-ptx", *shared.options, str(unit.source), "-o", draft])
        os.replace(draft, kept)
    own = Path(folder) / "own.ptx"
    own.write_text(kept.read_text().replace(f".target {shared.arch}", f".target {unit.arch}"))
    _run([_find_nvcc(), "-cubin", *unit.flags, f"-arch={unit.arch}", str(own), "-o", cubin])


def is_built(unit: CompileUnit) -> bool:
    """Return whether an up-to-date dump exists."""
    path = find_dump_path(unit)
    return path.exists() and path.with_suffix(".res").exists()


def find_stale_dumps(units: Sequence[CompileUnit], suites: Sequence[str]) -> list[Path]:
    """Return dumps of these suites that belong to no unit."""
    wanted = {find_dump_path(unit) for unit in units}
    found = [path for suite in suites for path in (BUILT / suite).glob("*/*.sass")]
    return [path for path in found if path not in wanted]


def _dump(cubin: str, flag: str) -> str:
    tool = _find_cuobjdump()
    return _run([tool.path, flag, cubin], make_tool_environment(tool))


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def _write_atomically(path: Path, text: str, folder: str) -> None:
    draft = Path(folder) / path.name
    draft.write_text(text)
    draft.replace(path)
