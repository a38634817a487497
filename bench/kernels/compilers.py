"""List the rows whose work depends on the compiler's version: `python bench/kernels/compilers.py LIBNVRTC`.

The times of the tunable suites were measured with code of some CUDA 11; the table and our dumps are by
CUDA 13. This compiles every configuration with the given NVRTC as well, compares opcode counts of the code,
and executes kernels in which an opcode differs by more than half a percent of the code. It lists in
compilers.csv the rows that then execute over 5 % more or fewer instructions than the table says (or, where
the table has no count, than our dump, or whose spills differ so much): their measured time does not apply to
our dump. LIBNVRTC: the path of the library in the package nvidia-cuda-nvrtc-cu11.
"""

import argparse
import csv
import ctypes
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analyzer.frontend.module_reader import read_module
from kernels.check import RELATIVE_TOLERANCE, compare_with_table, find_executed_grid
from kernels.compiling import BUILT, find_dump_path, is_built, make_unit
from kernels.executing import ExecutedCounts, ExecutionJob, execute_cached
from kernels.recipes import COMPILER_DEPENDENT_TABLE, MeasuredRow, Recipe, TableError, load_rows, make_recipes
from kernels.sweeps import read_sweep_rows

SUITES = (
    "convolution",
    "convolution_sweep",
    "convolution_milo_15",
    "convolution_milo_17",
    "dedispersion_milo",
)
_COLUMNS = ("suite", "case", "instructions", "registers", "spills", "our_registers", "our_spills")
_SPILL_OPCODES = ("LDL", "STL")
_PADDING_OPCODE = "NOP"
_NEGLIGIBLE_SHARE = 0.005


class Nvrtc:
    """A version of NVRTC, NVIDIA's compiler as a library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile_cubin(self, source: str, options: Sequence[str]) -> bytes:
        """Compile a source to a cubin. Raises TableError with the compiler's log."""
        program, library = ctypes.c_void_p(), self._library
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        c_options = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        try:
            if library.nvrtcCompileProgram(program, len(options), c_options):
                raise TableError(self._read(program, "ProgramLog").decode())
            return self._read(program, "CUBIN")
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, text)
        return text.raw


@dataclass(frozen=True, slots=True)
class OtherBuild:
    """A row compiled by another compiler: executed counts of its code and of ours."""

    row: MeasuredRow
    theirs: ExecutedCounts  # of the other compiler's code
    ours: ExecutedCounts

    @property
    def extra_instruction_share(self) -> float:
        """Executed instructions relative to the table, or to ours if the table has no count, minus 1."""
        if self.row.warp_instructions_per_cta is None:
            return self.theirs.warp_instructions_per_cta / self.ours.warp_instructions_per_cta - 1.0
        return compare_with_table(self.row, self.theirs).instructions

    @property
    def is_different_work(self) -> bool:
        """True if instruction counts differ or, where the table has no count, spills differ."""
        spill_difference = 0.0
        if self.row.warp_instructions_per_cta is None:
            spill_difference = (
                abs(_count_spills_per_cta(self.theirs) - _count_spills_per_cta(self.ours))
                / self.ours.warp_instructions_per_cta
            )
        return max(abs(self.extra_instruction_share), spill_difference) > RELATIVE_TOLERANCE


def _count_spills_per_cta(found: ExecutedCounts) -> float:
    return sum(found.opcodes_per_cta.get(name, 0.0) for name in _SPILL_OPCODES)


def main() -> None:
    """Compile, compare, write compilers.csv."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nvrtc", type=Path)
    compiler = Nvrtc(parser.parse_args().nvrtc)
    console = Console()
    rows = (*load_rows(), *read_sweep_rows())
    todo = [(row, recipe) for row, recipe in make_recipes(rows, SUITES) if is_built(make_unit(row, recipe))]
    compiled = (_compile_other(compiler, *pair) for pair in track(todo, "compiling", console=console))
    found = [other for other in compiled if other is not None]
    listed = [other for other in found if other.is_different_work]
    with COMPILER_DEPENDENT_TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_make_cells, listed))
    console.print(
        f"CUDA {compiler.version}: {len(todo)} rows, {len(found)} with other instructions, "
        f"{len(listed)} that are other work"
    )


def _compile_other(compiler: Nvrtc, row: MeasuredRow, recipe: Recipe) -> OtherBuild | None:
    """Compile and execute a row with this compiler; None if its opcodes are nearly those of our dump."""
    unit = make_unit(row, recipe)
    kept = BUILT / f"nvrtc-{compiler.version}" / row.suite / row.arch / f"{find_dump_path(unit).stem}.cubin"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        defines = [f"-D{define}" for define in recipe.defines]
        options = [f"--gpu-architecture={row.arch}", "--std=c++17", *defines]
        kept.write_bytes(compiler.compile_cubin(recipe.source.read_text(), options))
    if _has_similar_opcodes(
        _count_opcodes(kept, recipe.kernel), _count_opcodes(find_dump_path(unit), recipe.kernel)
    ):
        return None
    theirs, ours = (
        execute_cached(ExecutionJob(row=row, grid=find_executed_grid(row), dump=dump, kernel=recipe.kernel))
        for dump in (kept, find_dump_path(unit))
    )
    return OtherBuild(row, theirs, ours)


def _has_similar_opcodes(theirs: Counter[str], ours: Counter[str]) -> bool:
    """Return whether no opcode count differs by more than `_NEGLIGIBLE_SHARE` of the kernel."""
    tolerance = _NEGLIGIBLE_SHARE * ours.total()
    return all(abs(theirs[name] - ours[name]) <= tolerance for name in theirs | ours)


def _count_opcodes(dump: Path, kernel: str) -> Counter[str]:
    found = next(one for one in read_module(str(dump)).kernels if one.name == kernel)
    names = Counter(found.find_opcode(row).name for row in range(len(found)))
    del names[_PADDING_OPCODE]
    return names


def _make_cells(other: OtherBuild) -> dict[str, object]:
    return {
        "suite": other.row.suite,
        "case": other.row.case,
        "instructions": f"{other.extra_instruction_share:+.1%}",
        "registers": other.theirs.registers,
        "spills": f"{_count_spills_per_cta(other.theirs):g}",
        "our_registers": other.ours.registers,
        "our_spills": f"{_count_spills_per_cta(other.ours):g}",
    }


if __name__ == "__main__":
    try:
        main()
    except TableError as error:
        sys.exit(f"error: {error}")
