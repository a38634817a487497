"""Read the table of measured kernels, and find the recipe that compiles each row's kernel.

A suite is a module `suites/<suite>.py` with

    def recipe(row: MeasuredRow) -> Recipe | None

It returns None for a row that is not covered; the module's docstring says why. Where most CTAs of a grid
are idle, the table's mean over a few random CTAs says little. Then the module's SCALED_BY names the opcode
that represents the work, and instructions are compared per execution of this opcode.
"""

import csv
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CUDA = HERE / "cuda"
TABLE = ROOT.parent / "shared" / "data" / "measured" / "cases.csv"
# Rows whose work depends on the compiler's version; written by compilers.py.
COMPILER_DEPENDENT_TABLE = HERE / "compilers.csv"
# Names of GPUs: in the table, and in the hardware database.
GPUS = {
    "RTX 2080 Ti": "rtx-2080-ti",
    "TITAN RTX": "titan-rtx",
    "A100-40GB PCIe": "a100-40gb-pcie",
    "RTX A4000": "rtx-a4000",
    "RTX A6000": "rtx-a6000",
    "RTX 4070": "rtx-4070",
    "RTX 4090": "rtx-4090",
    "RTX 5090 (400 W cap)": "rtx-5090",
    "H100 SXM": "h100-sxm",
    "RTX 3060 Laptop": "rtx-3060-laptop",
}

Dim3 = tuple[int, int, int]
Argument = int | float | str


class TableError(Exception):
    """A fault in a table or a suite; the message names the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One kernel, configuration and GPU of the table, with the time measured there."""

    case: str
    suite: str
    step: str
    gpu: str
    arch: str
    grid: Dim3
    block: Dim3
    cluster: Dim3 | None
    dynamic_shared_bytes: int
    # By position: a number, "ptr", "tensormap", or "@name" for a buffer whose contents matter.
    arguments: tuple[Argument, ...]
    registers: int  # per thread
    static_shared_bytes: int  # from sm_90 on with the 1,024 bytes that the driver reserves
    warp_instructions_per_cta: float | None  # None where the table has no count
    opcodes_per_cta: Mapping[str, float]  # executed warp instructions; rare opcodes may be left out
    sectors_per_request: Mapping[str, float]  # 32-byte sectors per global request
    time_us: float
    note: str
    config: Mapping[str, object]  # parameters of the configuration

    @property
    def gpu_key(self) -> str:
        """Name of the GPU in the hardware database. Raises TableError."""
        try:
            return GPUS[self.gpu]
        except KeyError:
            raise TableError(f"{self.case}: {self.gpu!r} is no GPU of recipes.GPUS") from None

    def find_integer_parameter(self, name: str) -> int:
        """Return an integer parameter of the configuration. Raises TableError."""
        value = self.config.get(name)
        if not isinstance(value, int):
            raise TableError(f"{self.case}: config has {name}={value!r}, not a whole number")
        return value

    def find_template_parameters(self) -> tuple[int | str, ...]:
        """Return the template arguments of the kernel. Raises TableError."""
        values = self.config.get("template")
        if not isinstance(values, list):
            raise TableError(f"{self.case}: config has template={values!r}, not a list")
        return tuple(values)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Source and options that compile a row's kernel."""

    source: Path  # the .cu file
    defines: tuple[str, ...]  # such as "TILE=4", each passed with -D
    flags: tuple[str, ...]  # other flags of nvcc; an -arch here overrides the row's
    kernel: str  # name of the entry in the dump, mangled unless extern "C"
    # By position: contents of arguments for which the table has only "ptr".
    buffers: Mapping[int, NDArray[np.int32]] = field(default_factory=dict, compare=False)


RecipeFunction = Callable[[MeasuredRow], Recipe | None]


def load_rows(path: Path = TABLE) -> tuple[MeasuredRow, ...]:
    """Read all rows of the table. Raises TableError."""
    try:
        text = path.read_text()
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}") from None
    return tuple(_read_rows(path, text.splitlines(keepends=True)))


def _read_rows(path: Path, lines: Iterable[str]) -> Iterator[MeasuredRow]:
    reader = csv.DictReader(lines)
    for cells in reader:
        try:
            yield _parse_row(cells)
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"{path}:{reader.line_num}: {type(error).__name__}: {error}") from None


def _parse_row(cells: Mapping[str, str]) -> MeasuredRow:
    return MeasuredRow(
        case=cells["case"],
        suite=cells["suite"],
        step=cells["step"],
        gpu=cells["gpu"],
        arch=cells["arch"],
        grid=_parse_dim3(cells["grid"]),
        block=_parse_dim3(cells["block"]),
        cluster=_parse_dim3(cells["cluster"]) if cells["cluster"] else None,
        dynamic_shared_bytes=int(cells["dynamic_shared_bytes"]),
        arguments=tuple(json.loads(cells["arguments"])),
        registers=int(cells["registers"]),
        static_shared_bytes=int(cells["static_shared_bytes"]),
        warp_instructions_per_cta=float(executed)
        if (executed := cells["warp_instructions_per_cta"])
        else None,
        opcodes_per_cta=json.loads(cells["opcodes_per_cta"] or "{}"),
        sectors_per_request=json.loads(cells["sectors_per_request"] or "{}"),
        time_us=float(cells["time_us"]),
        note=cells["note"],
        config=json.loads(cells["config"] or "{}"),
    )


def _parse_dim3(text: str) -> Dim3:
    x, y, z = (int(part) for part in text.split(";"))
    return x, y, z


def format_dim3(dim: Dim3 | None) -> str:
    """Format as `x;y;z`, empty for None."""
    return "" if dim is None else ";".join(map(str, dim))


@cache
def read_compiler_dependent_cases() -> frozenset[str]:
    """Return the cases whose measured code, by an older compiler, does other work than our dump."""
    with COMPILER_DEPENDENT_TABLE.open(newline="", encoding="utf-8") as file:
        return frozenset(line["case"] for line in csv.DictReader(file))


def list_suites() -> tuple[str, ...]:
    """Return the suites that have a module, sorted."""
    return tuple(sorted(path.stem for path in (HERE / "suites").glob("[!_]*.py")))


def load_suite(name: str) -> RecipeFunction:
    """Return a suite's function `recipe`. Raises TableError."""
    make_recipe: RecipeFunction | None = getattr(_import_suite(name), "recipe", None)
    if make_recipe is None:
        raise TableError(f"suites/{name}.py has no function recipe(row)")
    return make_recipe


def find_scaling_opcode(name: str) -> str | None:
    """Return the opcode whose executions measure a suite's work (SCALED_BY), if it names one."""
    opcode: str | None = getattr(_import_suite(name), "SCALED_BY", None)
    return opcode


def _import_suite(name: str) -> ModuleType:
    if name not in list_suites():
        raise TableError(f"no suite {name!r}: there are {', '.join(list_suites())}")
    return importlib.import_module(f"kernels.suites.{name}")


def make_recipes(
    rows: Iterable[MeasuredRow], suites: Iterable[str] = ()
) -> Iterator[tuple[MeasuredRow, Recipe]]:
    """Yield the covered rows of these suites, of all if none is named, with recipes. Raises TableError."""
    recipe_functions = {name: load_suite(name) for name in (tuple(suites) or list_suites())}
    for row in rows:
        make_recipe = recipe_functions.get(row.suite)
        recipe = make_recipe(row) if make_recipe else None
        if recipe is not None:
            yield row, recipe
