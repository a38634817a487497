"""A loaded input and its kernels, with their analyses that need no GPU."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from analyzer.demand.instruction_mix import InstructionMix
from analyzer.flow.cfg import Cfg, build_cfg
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.flow.loops import LoopForest, find_loops
from analyzer.frontend.input_folder import is_folder, list_kernels
from analyzer.frontend.module_reader import read_module
from analyzer.frontend.ptx_reader import PtxOptions
from analyzer.ir.module import Instruction, Kernel, Module, SourceFormat
from analyzer.isa.control_encoding import decode_control_code
from analyzer.report.notebook import make_html_table
from analyzer.text.demangling import demangle
from analyzer.text.errors import InputError
from analyzer.text.escaping import escape_controls
from analyzer.text.kernel_names import find_matching_names, list_names_for_people
from analyzer.text.source import Diagnostic

if TYPE_CHECKING:
    from analyzer.ir.trace import Trace


class LoadedKernel(Struct, frozen=True, eq=False, dict=True):
    """A kernel with its analyses that need no GPU, computed on first use."""

    kernel: Kernel
    ordinal: int = 1  # position among the kernels of the input, from 1
    traces: "tuple[Trace, ...]" = ()  # recorded launches of it
    input_path: str = ""
    is_virtual: bool = False  # lowered from PTX without ptxas

    @property
    def name(self) -> str:
        """Name as compiled."""
        return self.kernel.name

    @cached_property
    def cfg(self) -> Cfg:
        """Control-flow graph; `cfg.graph` is the same graph for networkx."""
        return build_cfg(self.kernel)

    @cached_property
    def loops(self) -> LoopForest:
        """Natural loops and dominators."""
        return find_loops(self.cfg)

    @cached_property
    def defuse(self) -> DefUseChains:
        """Def-use chains through registers, predicates, uniform registers and scoreboards."""
        return find_def_use_chains(self.cfg)

    @cached_property
    def mix(self) -> InstructionMix:
        """Static counts of opcodes."""
        return InstructionMix(self.kernel)

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Instructions in address order, decoded one by one."""
        for row in range(len(self.kernel)):
            words = self.kernel.control_words
            yield Instruction(
                index=row,
                address=int(self.kernel.addresses[row]),
                form=self.kernel.decode_form(row),
                control_code=None if words is None else decode_control_code(int(words[row])),
                source_line=self.kernel.find_source_line(row),
            )

    def __len__(self) -> int:
        return len(self.kernel)

    def __repr__(self) -> str:
        arch = self.kernel.arch or "architecture ?"
        return f"LoadedKernel({escape_controls(demangle(self.name))}, {arch}, {len(self):,} instructions)"


class Program(Struct, frozen=True, eq=False, dict=True):
    """A loaded input: kernels by name; `program["gemm*"]` is the first one that fits."""

    module: Module
    # Recorded launches, each with the index of its kernel (see `pipeline.trace_matching`); traces that the
    # kernels themselves were read from are in `module`.
    traces: "tuple[tuple[int, Trace], ...]" = ()
    first_ordinal: int = 1  # of its first kernel; more where it is one file of a folder

    @cached_property
    def kernels(self) -> tuple[LoadedKernel, ...]:
        """Kernels in the order of the input, each with its recorded launches."""
        traces = (*enumerate(self.module.traces), *self.traces)
        return tuple(
            LoadedKernel(
                kernel,
                index + self.first_ordinal,
                tuple(trace for at, trace in traces if at == index),
                self.module.path,
                self.module.source_format is SourceFormat.VIRTUAL_PTX,
            )
            for index, kernel in enumerate(self.module.kernels)
        )

    def find_kernel(self, ordinal: int) -> LoadedKernel:
        """Return the kernel at a position among those of the input."""
        return self.kernels[ordinal - self.first_ordinal]

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings of the reader."""
        return self.module.diagnostics

    def __getitem__(self, name: str) -> LoadedKernel:
        found = find_kernels(self.kernels, name)
        if not found:
            raise KeyError(name)
        return found[0]

    def __len__(self) -> int:
        return len(self.module.kernels)

    def __repr__(self) -> str:
        names = [demangle(kernel.name) for kernel in self.kernels]
        return (
            f"Program({escape_controls(self.module.path)}: {escape_controls(list_names_for_people(names))})"
        )

    def _repr_html_(self) -> str:
        """Return the kernels as a table for notebooks."""
        rows = [
            (
                demangle(each.name),
                each.kernel.arch or "?",
                f"{len(each):,}",
                _format_count(resources.registers),
            )
            for each in self.kernels
            for resources in (each.kernel.resources,)
        ]
        return make_html_table(("kernel", "architecture", "instructions", "registers"), rows)


def _format_count(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def load(
    path: str, *, usage_path: str | None = None, arch: str = "", ptx: PtxOptions | None = None
) -> Program:
    """Read a dump, binary, PTX or trace.

    usage_path: text of `cuobjdump -res-usage`; where None, a file of the same stem is looked for.
    arch: architecture of code that names none, such as `sm_90`; of PTX the one that it is assembled for.
    ptx: how PTX becomes instructions.
    A folder must hold one kernel; `load_all` reads several.
    Raises InputError where the file cannot be read as what it claims to be.
    """
    if is_folder(path):
        kernels, _ = list_kernels(path)
        if len(kernels) > 1:
            first = kernels[0].code_path
            raise InputError(
                f"{path}: this folder holds {len(kernels)} kernels", hint=f"name one of them, such as {first}"
            )
        path = kernels[0].code_path
    return Program(read_module(path, usage_path=usage_path, arch=arch, ptx=ptx))


def find_kernels(kernels: Sequence[LoadedKernel], pattern: str) -> list[LoadedKernel]:
    """Return the kernels that a name, a glob or a part of a name fits (see `find_matching_names`).

    `#N` is the Nth kernel of the input.
    """
    if re.fullmatch(r"#\d+", pattern):
        return [kernel for kernel in kernels if kernel.ordinal == int(pattern[1:])]
    return [kernels[index] for index in find_matching_names([kernel.name for kernel in kernels], pattern)]
