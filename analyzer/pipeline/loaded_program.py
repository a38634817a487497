"""A loaded input and its kernels, with what can be known of them without a GPU."""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from analyzer.demand.instruction_mix import InstructionMix
from analyzer.flow.cfg import Cfg, build_cfg
from analyzer.flow.def_use import DefUseChains
from analyzer.flow.loops import LoopForest, find_loops
from analyzer.frontend.module_reader import read_module
from analyzer.ir.module import Instruction, Kernel, Module
from analyzer.isa.control_encoding import decode_control_code
from analyzer.text.demangling import demangle, strip_signature
from analyzer.text.source import Diagnostic

if TYPE_CHECKING:
    from analyzer.ir.trace import Trace


# Nsight Compute's way to write template arguments: `f<float, (int)2>`.
_TEMPLATE_ARGUMENT_CAST = re.compile(r"(?<=[<,\s])\([a-z ]+\)(?=-?\d)")


class LoadedKernel(Struct, frozen=True, eq=False, dict=True):
    """A kernel with what can be known of it without a GPU, worked out when asked for.

    traces: recorded launches of it.
    """

    kernel: Kernel
    ordinal: int = 1
    traces: "tuple[Trace, ...]" = ()

    @property
    def name(self) -> str:
        return self.kernel.name

    @cached_property
    def cfg(self) -> Cfg:
        """Control-flow graph; `cfg.graph` is its networkx form."""
        return build_cfg(self.kernel)

    @cached_property
    def loops(self) -> LoopForest:
        return find_loops(self.cfg)

    @cached_property
    def defuse(self) -> DefUseChains:
        """Def-use chains through registers, predicates, uniform registers and scoreboards."""
        return DefUseChains(self.cfg)

    @cached_property
    def mix(self) -> InstructionMix:
        return InstructionMix(self.kernel)

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions in address order, decoded as they are asked for."""
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


class Program(Struct, frozen=True, eq=False, dict=True):
    """A loaded input: kernels by name; `program["gemm*"]` takes the first that fits.

    traces: recorded launches of kernels, each with the kernel's place (see `pipeline.trace_matching`); those
    that the kernels themselves were read from are not among them.
    """

    module: Module
    traces: "tuple[tuple[int, Trace], ...]" = ()

    @cached_property
    def kernels(self) -> tuple[LoadedKernel, ...]:
        traces = (*enumerate(self.module.traces), *self.traces)
        return tuple(
            LoadedKernel(kernel, place + 1, tuple(trace for at, trace in traces if at == place))
            for place, kernel in enumerate(self.module.kernels)
        )

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self.module.diagnostics

    def __getitem__(self, name: str) -> LoadedKernel:
        found = find_kernels(self.kernels, name)
        if not found:
            raise KeyError(name)
        return found[0]

    def __len__(self) -> int:
        return len(self.module.kernels)


def load(path: str, *, usage_path: str | None = None) -> Program:
    """Read a dump, binary or trace; `usage_path` is `cuobjdump -res-usage` text, else looked for beside it.

    Raises InputError where the file cannot be read as what it claims to be.
    """
    return Program(read_module(path, usage_path=usage_path))


def find_kernels(kernels: Sequence[LoadedKernel], pattern: str) -> list[LoadedKernel]:
    """Kernels of exactly this name, as compiled or as people write it, with parameters, template arguments
    and scopes or without; where there is none, those that fit it as a glob or hold it.

    `#N` is the Nth kernel of the input.
    """
    if re.fullmatch(r"#\d+", pattern):
        return [kernel for kernel in kernels if kernel.ordinal == int(pattern[1:])]
    if exact := [kernel for kernel in kernels if kernel.name == pattern]:
        return exact
    wanted = _strip_spaces(pattern)
    written = [(kernel, _make_name_variants(kernel.name)) for kernel in kernels]
    for place in range(len(_make_name_variants(""))):
        alike = (
            {wanted, _strip_spaces(_TEMPLATE_ARGUMENT_CAST.sub("", strip_signature(pattern)))}
            if place
            else {wanted}
        )
        if exact := [kernel for kernel, names in written if names[place] in alike]:
            return exact
    return [
        kernel
        for kernel, (whole, *_) in written
        if any(
            fnmatch.fnmatchcase(name, text) or text in name
            for name, text in ((kernel.name, pattern), (whole, wanted))
        )
    ]


@lru_cache(maxsize=1 << 14)
def _make_name_variants(name: str) -> tuple[str, str, str, str]:
    """A kernel's name as people write it, all of it and ever less: without parameters, template arguments,
    scopes."""
    whole = demangle(name)
    bare = strip_signature(whole)
    plain = re.sub(r"<.*", "", bare) or bare
    last = plain.rpartition("::")[2] or plain
    written = (_strip_spaces(text) for text in (whole, bare, plain, last))
    first, second, third, fourth = written
    return first, second, third, fourth


def _strip_spaces(text: str) -> str:
    """Compilers and profilers set them differently: `void f<float, 2>(float *)`."""
    return re.sub(r"\s+", "", text.removeprefix("void "))
