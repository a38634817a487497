"""The program as dumped: instruction forms, kernels as columns over them, modules.

A dump repeats itself: a million instructions have some fifty thousand distinct texts. A `FormTable`
holds each distinct text once; a `Kernel` holds arrays of indices into it, so counts are array sums
and an `Instruction` is a view made on demand.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.control_code import ControlCode
from analyzer.ir.launch import Dim3
from analyzer.ir.opcode import Opcode
from analyzer.ir.operand import Operand, Predicate, UnparsedOperand
from analyzer.text.source import Diagnostic

if TYPE_CHECKING:
    from analyzer.ir.trace import Trace

IntArray = NDArray[np.int64]
IdArray = NDArray[np.int32]
WordArray = NDArray[np.uint64]
BoolArray = NDArray[np.bool_]

INSTRUCTION_BYTES = 16


class SourceFormat(StrEnum):
    """Which tool's text a module was read from."""

    CUOBJDUMP = "cuobjdump"
    NVDISASM = "nvdisasm"
    TRACE = "trace"  # of an instruction tracer: what ran, as far as it says


class InstructionForm(Struct, frozen=True, kw_only=True):
    """What one distinct instruction text says, wherever it stands.

    written, read: scalar registers and predicates by `storage` number (see `analyzer.isa.register_operands`);
    operands that the text leaves implicit, such as the guard, are included.
    """

    text: str
    guard: Predicate | None
    opcode: Opcode
    operands: tuple[Operand, ...]
    defs: tuple[int, ...]
    uses: tuple[int, ...]

    @property
    def is_unconditional(self) -> bool:
        """No guard, or one that is always true."""
        return self.guard is None or (self.guard.index is None and not self.guard.is_negated)

    @property
    def is_never_executed(self) -> bool:
        """A guard that is always false: the instruction does nothing."""
        return self.guard is not None and self.guard.index is None and self.guard.is_negated


class FormTable:
    """The distinct instruction texts of a module.

    `opcode_ids[text_id]` indexes `opcodes`; `form(text_id)` decodes operands on demand.
    """

    __slots__ = ("_decode", "_forms", "_masks", "opcode_ids", "opcodes", "texts")

    def __init__(
        self,
        texts: tuple[str, ...],
        opcode_ids: IdArray,
        opcodes: tuple[Opcode, ...],
        decode: Callable[[str], InstructionForm],
    ) -> None:
        self.texts = texts
        self.opcode_ids = opcode_ids
        self.opcodes = opcodes
        self._decode = decode
        self._forms: list[InstructionForm | None] = [None] * len(texts)
        self._masks: dict[Callable[[Opcode], bool], BoolArray] = {}

    def make_opcode_mask(self, test: Callable[[Opcode], bool]) -> BoolArray:
        """Return which opcodes pass a test, [n_opcode], read-only.

        test: a function of a module, never a lambda: masks are cached by it for the next kernel.
        """
        mask = self._masks.get(test)
        if mask is None:
            mask = self._masks[test] = np.array([test(opcode) for opcode in self.opcodes], dtype=bool)
            mask.setflags(write=False)
        return mask

    def is_unparsed(self, text_id: int) -> bool:
        """Whether the grammar refused the text's operands."""
        return any(isinstance(operand, UnparsedOperand) for operand in self.decode_form(text_id).operands)

    def decode_form(self, text_id: int) -> InstructionForm:
        """The decoded form of a text; decoded once."""
        form = self._forms[text_id]
        if form is None:
            form = self._forms[text_id] = self._decode(self.texts[text_id])
        return form


class SourceLine(Struct, frozen=True):
    """A source line, as `-lineinfo` and nvdisasm's -g give it; `inlined_at` where it was inlined."""

    file: str
    line: int
    inlined_at: "SourceLine | None" = None

    def __str__(self) -> str:
        name = self.file.rsplit("/", 1)[-1]
        return f"{name}:{self.line}"


class Instruction(Struct, frozen=True):
    """One instruction of one kernel."""

    index: int
    address: int
    form: InstructionForm
    control_code: ControlCode | None
    source_line: SourceLine | None = None

    @property
    def opcode(self) -> Opcode:
        return self.form.opcode

    def __str__(self) -> str:
        return f"/*{self.address:04x}*/ {self.form.text} ;"


class KernelResources(Struct, frozen=True, kw_only=True):
    """What a kernel asks of an SM; None where neither the dump nor a text beside it says.

    shared_bytes is static, dynamic_shared_bytes what metadata says is asked for at launch.
    registers_exact is False where the number was read off the highest register in the code.
    """

    registers: int | None = None
    has_exact_registers: bool = False
    shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    local_bytes: int | None = None
    stack_bytes: int | None = None
    barriers: int | None = None
    block_threads: int | None = None
    has_exact_block_threads: bool = False


class Parameter(Struct, frozen=True, kw_only=True):
    """One parameter of a kernel: `offset` counts from where the arguments start in constant bank 0.

    is_pointer: None where nothing tells; type_name: as the source's compiler wrote it, such as `*fp16`,
    "" where not known; is_hidden: the compiler's own, null at launch.
    """

    ordinal: int
    offset: int
    size_bytes: int
    name: str = ""
    is_pointer: bool | None = None
    type_name: str = ""
    is_hidden: bool = False


class ParameterDeclaration(Struct, frozen=True, kw_only=True):
    """What a source's signature says of a parameter; where it stands follows from the architecture."""

    name: str
    type_name: str
    size_bytes: int
    alignment_bytes: int
    is_pointer: bool = False
    is_hidden: bool = False


class Relocation(Struct, frozen=True, kw_only=True):
    """Bytes that the loader fills in with an address: of an object of so many bytes, else None."""

    offset: int
    size_bytes: int
    symbol: str
    object_bytes: int | None = None
    addend: int = 0


class UninitializedConstant(Struct, frozen=True, kw_only=True):
    """A variable in constant memory that the binary leaves zero, for the host to set."""

    offset: int
    size_bytes: int
    name: str = ""


class ConstantBank(Struct, frozen=True, kw_only=True):
    """A constant bank other than 0 as the binary has it."""

    number: int
    contents: bytes
    relocations: tuple[Relocation, ...] = ()
    uninitialized: tuple[UninitializedConstant, ...] = ()


class Kernel(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One function of a dump, as columns; rows are instructions in address order.

    text_ids[n], addresses[n]: see `FormTable`; control_words[n]: upper 64 bits of each instruction,
    None where the dump has no hex; labels: nvdisasm's names of addresses; branch_targets: addresses
    that an indirect branch may reach, by the address of the branch.

    What lies beside the code, None where no source says: parameters by ordinal, and the offset in constant
    bank 0 at which they start; signature: the parameters as Triton's metadata has them; constants: the
    banks other than 0; cluster: the CTAs of a cluster that the kernel was built for.
    """

    name: str
    arch: str
    form_table: FormTable
    text_ids: IdArray
    addresses: IntArray
    control_words: WordArray | None
    line: int
    resources: KernelResources = KernelResources()
    labels: tuple[tuple[str, int], ...] = ()
    branch_targets: tuple[tuple[int, tuple[int, ...]], ...] = ()
    source_line_ids: IdArray | None = None
    source_lines: tuple[SourceLine, ...] = ()
    is_entry: bool = True
    parameters: tuple[Parameter, ...] | None = None
    parameter_base: int | None = None
    signature: tuple[ParameterDeclaration, ...] | None = None
    constant_banks: tuple[ConstantBank, ...] | None = None
    cluster: Dim3 | None = None

    def __len__(self) -> int:
        return len(self.text_ids)

    @cached_property
    def opcode_ids(self) -> IdArray:
        """Index into `vocabulary.opcodes`, for each instruction."""
        return self.form_table.opcode_ids[self.text_ids]

    def decode_form(self, index: int) -> InstructionForm:
        return self.form_table.decode_form(int(self.text_ids[index]))

    def decode_forms(self, start: int, stop: int) -> list[InstructionForm]:
        """Those of rows [start, stop)."""
        return list(map(self.form_table.decode_form, self.text_ids[start:stop].tolist()))

    def find_opcode(self, index: int) -> Opcode:
        return self.form_table.opcodes[int(self.form_table.opcode_ids[self.text_ids[index]])]

    def find_source_line(self, index: int) -> SourceLine | None:
        if self.source_line_ids is None or self.source_line_ids[index] < 0:
            return None
        return self.source_lines[int(self.source_line_ids[index])]


class Module(Struct, frozen=True, kw_only=True, eq=False):
    """A whole input: its kernels in file order, and what the reader had to say.

    traces: where the input is a recorded run, the trace that each kernel was read from, in their order.
    """

    path: str
    source_format: SourceFormat
    kernels: tuple[Kernel, ...]
    form_table: FormTable
    diagnostics: tuple[Diagnostic, ...] = ()
    toolchain: str = ""
    traces: "tuple[Trace, ...]" = ()

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)
