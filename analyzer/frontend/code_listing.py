"""Builds a module from functions whose instructions a reader has listed one by one.

For formats other than those of `sass_parser`: pasted code, CuAssembler, cuda-gdb, nvdisasm's JSON, Nsight
Compute's source page. They differ from a dump in three ways, which are evened out here:

- Blanks: `IADD3 R1,R2,R3` is `IADD3 R1, R2, R3`.
- Targets: a debugger prints absolute addresses, CuAssembler and people write plain labels.
- Addresses may be missing. Then the code begins at 0, or at its lowest branch target if it is not so long:

      LDG.E R7, [R2.64]        0x50
      FADD R6, R6, R7          0x60
      @!P0 BRA 0x50            0x70
"""

import re
from collections.abc import Sequence
from functools import partial

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.frontend.instruction_decoder import FormDecoder, SassSyntaxError
from analyzer.frontend.kernel_builder import KernelBuilder, TextInterner, build_kernel
from analyzer.frontend.sass_diagnostics import (
    SassDiagnostics,
    is_unsupported_arch,
    make_old_arch_error,
    make_syntax_error,
)
from analyzer.ir.module import INSTRUCTION_BYTES, FormTable, Kernel, Module, SourceFormat
from analyzer.ir.opcode import CONTROL_FLOW_KINDS, OpKind
from analyzer.isa.opcode_table import resolve_opcode
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic, Location, Severity

LISTING_HINT = "give lines as cuobjdump -sass or nvdisasm -c print them, or the cubin"
_TARGET = re.compile(r"(?<![\w.])0x([0-9a-f]{1,16})$")
_DEBUGGER_SYMBOL = re.compile(r"\s*<[^<>]*\+\d+>$")
_LAST_OPERAND = re.compile(r"(?<=[ ,])([.\w$]+)$")
_GUARD = re.compile(r"@!?U?P\w+ ")
_MAX_ADDRESS = 1 << 57
_OPENING, _CLOSING = "([{", ")]}"
_NO_TARGET_KINDS = frozenset({OpKind.RETURN, OpKind.EXIT, OpKind.BRANCH_INDIRECT})


class ListedInstruction(Struct):
    """One instruction as written."""

    text: str
    location: Location  # of its first character
    address: int | None = None
    control_word: int | None = None  # upper 64 bits, or at least their control fields


class ListedFunction(Struct):
    """One function as written."""

    name: str
    arch: str = ""
    line: int = 1
    is_excerpt: bool = False  # a part of a function, which nothing names
    base_address: int = 0  # of the function where addresses and targets are absolute
    instructions: list[ListedInstruction] = field(default_factory=list)
    labels: list[tuple[str, int]] = field(default_factory=list)  # (name, row of the next instruction)


def build_listing_module(
    path: str,
    source_format: SourceFormat,
    functions: Sequence[ListedFunction],
    diagnostics: SassDiagnostics,
    *,
    notes: Sequence[Diagnostic] = (),
    toolchain: str = "",
) -> Module:
    """Build the module; `notes` go before the reader's own warnings.

    Raises InputError, with line, column and caret, for a text that is no instruction.
    """
    builder = _ListingBuilder(diagnostics)
    listed = [function for function in functions if function.instructions]
    kernels = [builder.begin_kernel(function) for function in listed]
    if not kernels:
        raise InputError(f"{path}: no instruction found", hint=LISTING_HINT)
    form_table = builder.build_form_table()
    annotations = builder.interner.branch_annotations
    built: tuple[Kernel, ...] = tuple(
        replace(build_kernel(kernel, form_table, annotations, (), {}), is_excerpt=function.is_excerpt)
        for kernel, function in zip(kernels, listed, strict=True)
    )
    return Module(
        path=path,
        source_format=source_format,
        kernels=built,
        form_table=form_table,
        diagnostics=(*notes, *builder.notes, *diagnostics.build_warnings(built)),
        toolchain=toolchain,
    )


class _ListingBuilder:
    """Interns the texts of all functions."""

    def __init__(self, diagnostics: SassDiagnostics) -> None:
        self.decoder = FormDecoder()
        self.interner = TextInterner(self.decoder)
        self.diagnostics = diagnostics
        self.notes: list[Diagnostic] = []

    def build_form_table(self) -> FormTable:
        """Return the table of all texts."""
        return self.interner.build_form_table(self.decoder.decode)

    def begin_kernel(self, function: ListedFunction) -> KernelBuilder:
        """Return a function's columns. Raises InputError."""
        instructions = function.instructions
        if is_unsupported_arch(function.arch):
            raise make_old_arch_error(function.arch, instructions[0].location)
        labels = {name for name, _ in function.labels}
        texts = [self._normalize(each, function, labels) for each in instructions]
        addresses = self._find_addresses(function, texts)
        words = [each.control_word for each in instructions]
        has_words = None not in words
        ids = [self._intern(text, each) for text, each in zip(texts, instructions, strict=True)]
        ends = [*addresses, addresses[-1] + INSTRUCTION_BYTES]
        return KernelBuilder(
            name=function.name,
            arch=function.arch,
            line=function.line,
            text_ids=[np.array(ids, dtype=np.int32)],
            addresses=addresses,
            control_words=[np.array(words, dtype=np.uint64)] if has_words else [],
            has_encodings=has_words,
            labels=[(name, ends[row]) for name, row in function.labels],
        )

    def _normalize(self, listed: ListedInstruction, function: ListedFunction, labels: set[str]) -> str:
        text = normalize_text(listed.text)
        if text.startswith(("{", "}")) or text.endswith("}"):
            raise make_old_arch_error("paired", listed.location)
        guard = _GUARD.match(text)
        mnemonic = text[guard.end() if guard else 0 :].partition(" ")[0]
        if resolve_opcode(mnemonic).kind not in CONTROL_FLOW_KINDS:
            return text
        text = _DEBUGGER_SYMBOL.sub("", text)
        if (last := _LAST_OPERAND.search(text)) and last[1] in labels:
            return f"{text[: last.start()]}`({last[1]})"
        base = function.base_address
        if base and (target := _TARGET.search(text)) and int(target[1], 16) >= base:
            return f"{text[: target.start()]}{int(target[1], 16) - base:#x}"
        return text

    def _intern(self, text: str, listed: ListedInstruction) -> int:
        """Return the id of a text. Raises InputError for one that is no instruction."""
        try:
            number = self.interner[text.encode()]
        except SassSyntaxError as error:
            raise self._make_error(error, listed) from None
        error_of_operands = self.interner.syntax_errors.get(number)
        if error_of_operands is not None and listed.control_word is None:
            raise self._make_error(error_of_operands, listed)
        if error_of_operands is not None:
            self.diagnostics.unparsed_locations.setdefault(number, listed.location)
        return number

    def _make_error(self, error: SassSyntaxError, listed: ListedInstruction) -> InputError:
        place = listed.location
        column = place.column + min(error.column, len(listed.text))
        where = Location(place.path, place.line, column, place.text)
        return make_syntax_error(error, where, hint=f"the line is damaged or no code: {LISTING_HINT}")

    def _find_addresses(self, function: ListedFunction, texts: Sequence[str]) -> list[int]:
        """Return the address of each instruction. Raises InputError if those given do not ascend."""
        instructions = function.instructions
        if all(each.address is None for each in instructions):
            return self._choose_addresses(function, texts)
        addresses: list[int] = []
        for each in instructions:
            expected = addresses[-1] + INSTRUCTION_BYTES if addresses else 0
            address = expected if each.address is None else each.address - function.base_address
            if address >= _MAX_ADDRESS:
                message = f"{address:#x} is beyond the memory of any GPU"
                raise InputError(message, location=each.location, hint=LISTING_HINT)
            if (addresses and address < expected) or address < 0:
                raise InputError(
                    f"address {each.address or address:#06x} does not follow "
                    f"{(addresses[-1] if addresses else 0) + function.base_address:#06x}",
                    location=each.location,
                    hint="lines were lost or doubled; a second function needs a line with its name",
                )
            if addresses and address != expected:
                self.diagnostics.address_gaps.add(partial(_get_location, each))
            addresses.append(address)
        return addresses

    def _choose_addresses(self, function: ListedFunction, texts: Sequence[str]) -> list[int]:
        n_bytes = INSTRUCTION_BYTES * len(texts)
        targets = [target for text in texts if (target := _find_target(text)) is not None]
        start = 0
        if targets and max(targets) >= n_bytes and not min(targets) % INSTRUCTION_BYTES:
            start = min(targets)
            self.notes.append(
                Diagnostic(
                    Severity.WARNING,
                    "no-addresses",
                    f"the code has no addresses: it is taken to begin at {start:#x}, its lowest target",
                    function.instructions[0].location,
                    hint="keep the addresses, or write labels",
                )
            )
        return list(range(start, start + n_bytes, INSTRUCTION_BYTES))


def _get_location(listed: ListedInstruction) -> Location:
    return listed.location


def _find_target(text: str) -> int | None:
    """Return the address at the end of a branch; None for any other text."""
    guard = _GUARD.match(text)
    kind = resolve_opcode(text[guard.end() if guard else 0 :].partition(" ")[0]).kind
    match = _TARGET.search(text)
    if match is None or kind not in CONTROL_FLOW_KINDS - _NO_TARGET_KINDS:
        return None
    return int(match[1], 16)


def normalize_text(text: str) -> str:
    """Return an instruction with its blanks as cuobjdump prints them: `R1,[R2.64]` becomes `R1, [R2.64]`.

    >>> normalize_text("@P0  IADD3 R1,R2 ,R3")
    '@P0 IADD3 R1, R2, R3'
    """
    text = " ".join(text.split())
    if "," not in text:
        return text
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return ", ".join(part.strip() for part in parts)
