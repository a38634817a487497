"""The program as dumped: instruction forms, kernels as columns over them, modules.

A dump repeats itself: a million instructions have some fifty thousand distinct texts. A `FormTable` holds
each distinct text once. A `Kernel` holds arrays of indices into it, so that counts are sums over arrays, and
an `Instruction` is made only when one is asked for.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.arrays import BoolArray, IdArray, IntArray, make_read_only
from analyzer.ir.control_code import ControlCode
from analyzer.ir.launch import Dim3
from analyzer.ir.opcode import Opcode
from analyzer.ir.operand import Operand, Predicate
from analyzer.text.source import Diagnostic, shorten_source

if TYPE_CHECKING:
    from analyzer.ir.trace import Trace

ControlWordArray = NDArray[np.uint64]

INSTRUCTION_BYTES = 16
VIRTUAL_NOTE = "virtual: lowered from PTX, no register allocation or scheduling by ptxas"


class SourceFormat(StrEnum):
    """The tool that printed the text of a module, or the language that it was made from."""

    CUOBJDUMP = "cuobjdump"
    NVDISASM = "nvdisasm"
    TRACE = "trace"  # an instruction tracer: executed instructions only
    LISTING = "listing"  # instructions without what the tools print around them, as one pastes them
    CUASSEMBLER = "CuAssembler"
    CUDA_GDB = "cuda-gdb"
    NVDISASM_JSON = "nvdisasm -json"
    SOURCE_PAGE = "Nsight Compute source page"
    PTX = "PTX"
    VIRTUAL_PTX = "PTX, virtual"  # lowered without ptxas, see `frontend.ptx.lowering`


class InstructionForm(Struct, frozen=True, kw_only=True):
    """One distinct instruction text, decoded.

    Register units are numbered as in `analyzer.isa.register_operands`.
    """

    text: str
    guard: Predicate | None
    opcode: Opcode
    operands: tuple[Operand, ...]
    defs: tuple[int, ...]  # register units written
    uses: tuple[int, ...]  # register units read, the guard's too

    @property
    def is_unconditional(self) -> bool:
        """True if there is no guard, or one that is always true."""
        return self.guard is None or (self.guard.index is None and not self.guard.is_negated)

    @property
    def is_never_executed(self) -> bool:
        """True if the guard is always false: the instruction does nothing."""
        return self.guard is not None and self.guard.index is None and self.guard.is_negated


class FormTable:
    """The distinct instruction texts of a module.

    `opcode_ids[text_id]` indexes `opcodes`; operands are decoded when `decode_form(text_id)` asks for them.
    """

    __slots__ = ("_decode", "_forms", "_masks", "opcode_ids", "opcodes", "texts", "unparsed")

    def __init__(
        self,
        texts: tuple[str, ...],
        opcode_ids: IdArray,
        opcodes: tuple[Opcode, ...],
        decode: Callable[[str], InstructionForm],
        unparsed: frozenset[int] = frozenset(),
    ) -> None:
        self.texts = texts
        self.unparsed = unparsed  # ids of texts whose operands the grammar rejected
        self.opcode_ids = opcode_ids
        self.opcodes = opcodes
        self._decode = decode
        self._forms: list[InstructionForm | None] = [None] * len(texts)
        self._masks: dict[Callable[[Opcode], bool], BoolArray] = {}

    def extend(self, texts: Mapping[str, int]) -> "FormTable":
        """Return the table with more texts behind its own; texts: to the id of one with the same opcode."""
        more = self.opcode_ids[list(texts.values())] if texts else self.opcode_ids[:0]
        return FormTable(
            (*self.texts, *texts),
            np.concatenate([self.opcode_ids, more]),
            self.opcodes,
            self._decode,
            self.unparsed,
        )

    def make_opcode_mask(self, test: Callable[[Opcode], bool]) -> BoolArray:
        """Return which opcodes pass a test, [n_opcode], read-only.

        test: a function of a module, never a lambda: masks are cached by it for the next kernel.
        """
        mask = self._masks.get(test)
        if mask is None:
            mask = self._masks[test] = np.array([test(opcode) for opcode in self.opcodes], dtype=bool)
            make_read_only(mask)
        return mask

    def decode_form(self, text_id: int) -> InstructionForm:
        """Return the form of a text, which is decoded once."""
        form = self._forms[text_id]
        if form is None:
            form = self._forms[text_id] = self._decode(self.texts[text_id])
        return form


class SourceLine(Struct, frozen=True):
    """A source line, as `nvcc -lineinfo` records it and `nvdisasm -g` prints it."""

    file: str
    line: int
    inlined_at: "SourceLine | None" = None  # line of the call that was inlined

    @property
    def place(self) -> str:
        """File as the compiler wrote it, and line: `/home/me/kernel.cu:41`."""
        return f"{self.file}:{self.line}"

    @property
    def caller(self) -> "SourceLine":
        """The line that the kernel's author wrote: of its calls, the innermost in the kernel's own file."""
        calls = [self]
        while calls[-1].inlined_at is not None:
            calls.append(calls[-1].inlined_at)
        return next(call for call in calls if call.file == calls[-1].file)

    def __str__(self) -> str:
        return shorten_source(self.place)


class Instruction(Struct, frozen=True):
    """One instruction of one kernel."""

    index: int  # row in the kernel
    address: int
    form: InstructionForm
    control_code: ControlCode | None
    source_line: SourceLine | None = None

    @property
    def opcode(self) -> Opcode:
        """Opcode of the instruction's form."""
        return self.form.opcode

    def __str__(self) -> str:
        return f"/*{self.address:04x}*/ {self.form.text} ;"


class KernelResources(Struct, frozen=True, kw_only=True):
    """Resources that a kernel needs on an SM; None if neither the dump nor a file beside it says."""

    registers: int | None = None  # per thread
    has_exact_registers: bool = False  # False if inferred from the highest register in the code
    shared_bytes: int | None = None  # static, per CTA
    dynamic_shared_bytes: int | None = None  # per CTA, as metadata gives it for the launch
    local_bytes: int | None = None  # per thread
    stack_bytes: int | None = None  # per thread
    barriers: int | None = None  # CTA barriers
    block_threads: int | None = None
    has_exact_block_threads: bool = False  # True if the binary or its metadata requires this size


class Parameter(Struct, frozen=True, kw_only=True):
    """One parameter of a compiled kernel."""

    ordinal: int
    offset: int  # in bytes, from the first parameter in constant bank 0
    size_bytes: int
    name: str = ""
    is_pointer: bool | None = None  # None if unknown
    type_name: str = ""  # as the source's compiler wrote it, such as `*fp16`; "" if unknown
    is_hidden: bool = False  # added by the compiler, null at launch
    divisibility: int = 1  # the code is right only for multiples of it


class FoldedArgument(Struct, frozen=True):
    """An argument of the source that was a constant when it was compiled, and so is no parameter."""

    name: str
    value: str  # "" if not known
    n_before: int  # parameters of the compiled kernel that stand before it in the source


class ParameterDeclaration(Struct, frozen=True, kw_only=True):
    """A parameter in the signature of a source; its offset follows from the architecture."""

    name: str
    type_name: str
    size_bytes: int
    alignment_bytes: int
    is_pointer: bool = False
    is_hidden: bool = False  # added by the compiler, null at launch
    divisibility: int = 1  # the code is right only for multiples of it


class Relocation(Struct, frozen=True, kw_only=True):
    """Bytes of a constant bank in which the loader writes the address of a symbol."""

    offset: int
    size_bytes: int
    symbol: str
    object_bytes: int | None = None  # size of the object at the symbol, None if it is no object
    addend: int = 0


class UninitializedConstant(Struct, frozen=True, kw_only=True):
    """A variable in constant memory that is zero in the binary, so that the host may set it."""

    offset: int
    size_bytes: int
    name: str = ""


class ConstantBank(Struct, frozen=True, kw_only=True):
    """A constant bank other than 0, as the binary holds it."""

    number: int
    contents: bytes
    relocations: tuple[Relocation, ...] = ()
    uninitialized: tuple[UninitializedConstant, ...] = ()


class Kernel(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One function of a dump, as columns; rows are its n instructions in address order."""

    name: str  # mangled
    arch: str  # `sm_90`
    form_table: FormTable  # of the whole module
    text_ids: IdArray  # [n], into `form_table`
    addresses: IntArray  # [n], in bytes
    control_words: (
        ControlWordArray | None
    )  # [n], upper 64 bits of each instruction; None if the dump has no hex
    line: int  # of the dump, at which the function begins
    resources: KernelResources = KernelResources()
    labels: tuple[tuple[str, int], ...] = ()  # nvdisasm's names of addresses
    branch_targets: tuple[tuple[int, tuple[int, ...]], ...] = ()  # (address of indirect branch, targets)
    source_line_ids: IdArray | None = None  # [n], into `source_lines`; -1 if unknown
    source_lines: tuple[SourceLine, ...] = ()
    ptx_lines: IntArray | None = None  # [n], line of the PTX beside the source; 0 unknown
    # Returns the same, for a cubin with PTX beside it: a line table that nobody looks at is not read.
    read_ptx_lines: Callable[[], IntArray] | None = None
    is_entry: bool = True  # False for a device function
    is_excerpt: bool = False  # a part of a function, such as a loop pasted from a listing
    # From the binary or files beside the dump; None if nothing says.
    parameters: tuple[Parameter, ...] | None = None  # by ordinal
    parameter_base: int | None = None  # offset of the first parameter in constant bank 0
    signature: tuple[ParameterDeclaration, ...] | None = None  # from Triton's metadata
    folded_arguments: tuple[FoldedArgument, ...] = ()  # from Triton's metadata or its intermediate code
    constant_banks: tuple[ConstantBank, ...] | None = None  # other than bank 0
    cluster: Dim3 | None = None  # cluster size that the kernel was compiled for
    triton_hash: str = ""  # under which Triton compiled it, "" if unknown

    def __len__(self) -> int:
        return len(self.text_ids)

    def __repr__(self) -> str:
        return f"Kernel({self.name}, {self.arch or 'architecture ?'}, {len(self):,} instructions)"

    @cached_property
    def opcode_ids(self) -> IdArray:
        """[n], into `form_table.opcodes`."""
        return self.form_table.opcode_ids[self.text_ids]

    @cached_property
    def unparsed_rows(self) -> tuple[int, ...]:
        """List the rows whose operands the grammar rejected: what they compute is not known."""
        unparsed = self.form_table.unparsed
        if not unparsed:
            return ()
        return tuple(np.flatnonzero(np.isin(self.text_ids, list(unparsed))).tolist())

    def decode_form(self, index: int) -> InstructionForm:
        """Return the form of row `index`."""
        return self.form_table.decode_form(int(self.text_ids[index]))

    def decode_forms(self, start: int, stop: int) -> list[InstructionForm]:
        """Return the forms of rows [start, stop)."""
        return list(map(self.form_table.decode_form, self.text_ids[start:stop].tolist()))

    def find_opcode(self, index: int) -> Opcode:
        """Return the opcode of row `index`; its operands are not decoded."""
        return self.form_table.opcodes[int(self.form_table.opcode_ids[self.text_ids[index]])]

    def find_source_line(self, index: int) -> SourceLine | None:
        """Return the source line of row `index`, None if unknown."""
        if self.source_line_ids is None or self.source_line_ids[index] < 0:
            return None
        return self.source_lines[int(self.source_line_ids[index])]

    def find_ptx_line(self, index: int) -> int | None:
        """Return the line of the PTX beside the source that row `index` was made from, None if unknown."""
        lines = self._known_ptx_lines
        return None if lines is None else int(lines[index]) or None

    @cached_property
    def _known_ptx_lines(self) -> IntArray | None:
        return self.ptx_lines if self.read_ptx_lines is None else self.read_ptx_lines()

    def find_source_place(self, index: int) -> str:
        """Return the source line of row `index` with the whole path of its file, "" if unknown."""
        line = self.find_source_line(index)
        return "" if line is None else line.place


class Module(Struct, frozen=True, kw_only=True, eq=False):
    """A whole input: its kernels in file order, and the warnings of the reader."""

    path: str
    source_format: SourceFormat
    kernels: tuple[Kernel, ...]
    form_table: FormTable
    diagnostics: tuple[Diagnostic, ...] = ()
    toolchain: str = ""  # name and version of the tool that made the input, "" if unknown
    traces: "tuple[Trace, ...]" = ()  # of each kernel, if the input is a trace
    triton: Mapping[str, str | int] = {}  # what Triton's metadata beside it say: hash, warps, stages
    levels: Mapping[str, str] = {}  # files of all levels of a compiler, where the input is one of a folder

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __repr__(self) -> str:
        return f"Module({self.path}, {len(self):,} kernels)"
