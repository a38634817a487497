"""Kernels under construction: texts are interned and columns collected, then frozen into `Kernel`s."""

import re
from collections.abc import Callable

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.frontend.arch_lookup import find_arch_entry
from analyzer.frontend.instruction_decoder import (
    MAX_TEXT_CHARACTERS,
    SYMBOL_OPERAND,
    FormDecoder,
    SassSyntaxError,
)
from analyzer.ir.arrays import IdArray, IntArray
from analyzer.ir.module import (
    INSTRUCTION_BYTES,
    ControlWordArray,
    FormTable,
    InstructionForm,
    Kernel,
    KernelResources,
    SourceLine,
)
from analyzer.ir.opcode import Opcode

_MAX_SYMBOL_CHARACTERS = 1 << 17
_BRANCH_TARGETS_ANNOTATION = re.compile(r'\(\*"BRANCH_TARGETS ([^"]*)"\*\)')


# What cuobjdump and nvdisasm 12.8 print behind instructions of sm_120: control codes, which the encoding has.
_PRINTED_CONTROL = re.compile(r"\s+(?:&(?:req|rd|wr)=|\?(?:trans|WAIT)\d).*", re.S)
_DIGITS = b"0123456789"
_INSTRUCTION = re.compile(rb"(@!?U?P\w+\s+)?(\S+)\s?(.*)", re.S)


class TextInterner(dict[bytes, int]):
    """Maps distinct instruction texts to ids; each is checked when it first occurs."""

    def __init__(self, decoder: FormDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.texts: list[str] = []
        self.opcode_ids: list[int] = []
        self.opcodes: dict[Opcode, int] = {}
        self.branch_annotations: dict[int, tuple[str, ...]] = {}
        self.syntax_errors: dict[int, SassSyntaxError] = {}
        self._printed_shapes: dict[tuple[bool, bytes, bytes], int] = {}

    def __missing__(self, raw: bytes) -> int:
        text = _read_text(raw)
        annotation = None
        if '(*"' in text:
            annotation = _BRANCH_TARGETS_ANNOTATION.search(text)
            text = text.partition('(*"')[0].rstrip()
        number = len(self.texts)
        opcode = self._check_syntax(text, number)
        if annotation:
            self.branch_annotations[number] = tuple(annotation[1].split(","))
        self.texts.append(text)
        self.opcode_ids.append(self.opcodes.setdefault(opcode, len(self.opcodes)))
        self[raw] = number
        return number

    def add_printed(self, raw: bytes) -> int:
        """Return the id of a text that a disassembler printed from an encoding.

        Its shape is not checked if it differs from a checked one in the digits of operands alone.
        """
        known = self.get(raw)
        match = _INSTRUCTION.fullmatch(raw)
        if known is not None or match is None or b'"' in raw:
            return self[raw]
        shape = (match[1] is None, match[2], match[3].translate(None, _DIGITS))
        opcode_id = self._printed_shapes.get(shape)
        if opcode_id is None:
            number = self[raw]
            if number not in self.syntax_errors:
                self._printed_shapes[shape] = self.opcode_ids[number]
            return number
        number = len(self.texts)
        self.texts.append(_read_text(raw))
        self.opcode_ids.append(opcode_id)
        self[raw] = number
        return number

    def build_form_table(self, decode: Callable[[str], InstructionForm]) -> FormTable:
        """Return the table of all texts so far."""
        return FormTable(
            tuple(self.texts),
            np.array(self.opcode_ids, dtype=np.int32),
            tuple(self.opcodes),
            decode,
            frozenset(self.syntax_errors),
        )

    def _check_syntax(self, text: str, number: int) -> Opcode:
        if len(text) > MAX_TEXT_CHARACTERS and _count_characters_beside_symbols(text) > MAX_TEXT_CHARACTERS:
            raise SassSyntaxError(MAX_TEXT_CHARACTERS, "too long")
        try:
            return self.decoder.check_syntax(text)
        except SassSyntaxError as error:
            self.syntax_errors[number] = error
            return self.decoder.accept_unparsed(text, error)


class KernelBuilder(Struct):
    """A kernel whose lines are being read."""

    name: str
    arch: str
    line: int  # of the dump
    text_ids: list[IdArray] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    control_words: list[ControlWordArray] = field(default_factory=list)
    labels: list[tuple[str, int]] = field(default_factory=list)
    source_line_marks: list[tuple[int, int]] = field(default_factory=list)  # (first row, source line)
    is_entry: bool = True
    has_encodings: bool = True  # False once an instruction came without its hex words

    def compute_next_address(self) -> int:
        """Return the address of the next instruction."""
        return self.addresses[-1] + INSTRUCTION_BYTES if self.addresses else 0


def _read_text(raw: bytes) -> str:
    """Return an instruction's text without control codes that a tool printed behind it."""
    text = raw.decode("utf-8").strip()
    return _PRINTED_CONTROL.sub("", text) if "?" in text else text


def _count_characters_beside_symbols(text: str) -> int:
    """Count the characters of a text without its symbols: a demangled name can be longer than any operand."""
    return len(SYMBOL_OPERAND.sub("", text[:_MAX_SYMBOL_CHARACTERS])) + max(
        0, len(text) - _MAX_SYMBOL_CHARACTERS
    )


def build_kernel(
    builder: KernelBuilder,
    form_table: FormTable,
    branch_annotations: dict[int, tuple[str, ...]],
    origins: tuple[SourceLine, ...],
    usage: dict[tuple[str, str], KernelResources],
) -> Kernel:
    """Build the kernel.

    branch_annotations: labels that an indirect branch can reach, by text id.
    usage: resources by (architecture, kernel).
    """
    ids = np.concatenate(builder.text_ids)
    addresses = np.array(builder.addresses, dtype=np.int64)
    words = np.concatenate(builder.control_words) if builder.has_encodings and builder.control_words else None
    kernel = Kernel(
        name=builder.name,
        arch=builder.arch,
        form_table=form_table,
        text_ids=ids,
        addresses=addresses,
        control_words=words,
        line=builder.line,
        labels=tuple(builder.labels),
        branch_targets=_resolve_branch_targets(builder, ids, addresses, branch_annotations),
        source_line_ids=_expand_source_line_ids(builder.source_line_marks, len(ids)),
        source_lines=origins,
        is_entry=builder.is_entry,
    )
    found = find_arch_entry(usage, builder.arch, builder.name)
    return kernel if found is None else replace(kernel, resources=found)


def _resolve_branch_targets(
    builder: KernelBuilder,
    ids: IdArray,
    addresses: IntArray,
    branch_annotations: dict[int, tuple[str, ...]],
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return (address of an indirect branch, addresses of its targets) for each annotated branch."""
    if not branch_annotations:
        return ()
    addresses_by_label = dict(builder.labels)
    rows = np.flatnonzero(np.isin(ids, list(branch_annotations)))
    return tuple(
        (
            int(addresses[row]),
            tuple(
                addresses_by_label[label]
                for label in branch_annotations[int(ids[row])]
                if label in addresses_by_label
            ),
        )
        for row in rows
    )


def _expand_source_line_ids(marks: list[tuple[int, int]], n: int) -> IdArray | None:
    """Return the source line of each of n rows, -1 before the first mark; None without marks."""
    if not marks:
        return None
    column = np.full(n, -1, dtype=np.int32)
    for row, number in marks:
        column[row:] = number
    return column
