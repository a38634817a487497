"""Parses the body of a function: one regular expression splits it into statements.

Blocks inside bring names of their own (see scopes.py); they are searched for their labels when the first one
begins, because a branch may stand before its label.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from analyzer.frontend.ptx.constants import PtxElementError, PtxSyntaxError
from analyzer.frontend.ptx.declarations import Declaration, find_element_bytes, make_variables
from analyzer.frontend.ptx.function_head import FunctionHead, load_readers, read_head
from analyzer.frontend.ptx.ptx_diagnostics import PtxDiagnostics
from analyzer.frontend.ptx.ptx_text import PtxText
from analyzer.frontend.ptx.scopes import MAX_SCOPES, FunctionNames, RegisterType, Scope
from analyzer.frontend.ptx.source_lines import LOC_PATTERN, SourceLineTable
from analyzer.frontend.ptx.statements import (
    PtxBranchTargets,
    PtxFunction,
    PtxGuard,
    PtxInstruction,
    PtxLabel,
    PtxOperand,
    PtxRegister,
    PtxStatement,
    PtxSymbol,
    PtxVariable,
)
from analyzer.ir.module import SourceLine

MAX_INSTRUCTION_CHARACTERS, _MAX_OPCODE_CHARACTERS = 1 << 16, 1 << 8
_NAME = r"[A-Za-z_$%][\w$]*+"
_ITEM = re.compile(
    rf"(\s*+)(?:({_NAME})\s*+:(?!:)(?:\s*+\.(branchtargets|calltargets|callprototype)\b([^;]*);)?"  # 2-4
    rf"|(?:@\s*+(!?)\s*+({_NAME})\s*+)?([A-Za-z_][\w.:$]*+)([^;]*+);"  # 5-8
    rf"|{LOC_PATTERN}"  # 9-15
    r"|([{}])"  # 16
    r"|\.(\w+)((?<=pragma)[^;\"]*+(?:\"[^\"\n]*\"[^;\"]*+)*+;|(?<=section)\s[^{}]*+\{[^{}]*+\}"
    r"|(?<=file)\s[^\n]*|(?:(?<=reg)|(?<=param)|(?<=shared)|(?<=local)|(?<=global)|(?<=const)|(?<=tex))\b[^;]*+;"
    r"|\b[^\n;]*+;?)"  # 17-18
    r"|(\Z)|(\S))",  # 19, 20
    re.A,
)
_LABEL, _TABLE, _INSTRUCTION, _LOC_END, _BRACE, _DIRECTIVE, _END, _OTHER = 2, 4, 8, 15, 16, 18, 19, 20
_ELEMENT = re.compile(rf"(?<![\w$%])({_NAME})\s*\[([^][]+)\]", re.A)
_Read = Callable[[str, Scope], tuple[PtxOperand, ...]]
_DECLARING = frozenset(("reg", "param", "shared", "local", "global", "const", "tex"))
_STRING = re.compile(r'"([^"\n]*)"')
_LABEL_HINT = "a label inside { } is not seen from outside; or the file is damaged: compile it again"
_CLOSE_HINT = "the file is cut off: compile it again"


class BodyParser:
    """State of the parser in one function."""

    def __init__(
        self,
        text: PtxText,
        head: FunctionHead,
        lines: SourceLineTable,
        diagnostics: PtxDiagnostics,
        element_bytes: Mapping[str, int],
    ) -> None:
        """Begin a function; `element_bytes` are the sizes of the elements of the module's variables."""
        self._text = text
        self._head = head
        self._lines = lines
        self._diagnostics = diagnostics
        self._element_bytes = element_bytes
        self._names = FunctionNames()
        self._scope = Scope(self._names)
        for variable in (*head.parameters, *head.results):
            if variable.space != "reg":
                self._scope.declare_symbol(variable.name)
        for name, kind in head.registers:
            self._scope.declare_register(name, kind)
        self._statements: list[PtxStatement] = []
        self._variables: list[PtxVariable] = []
        self._prototypes: list[PtxFunction] = []
        self._labels: set[str] = set()
        self._block_labels: dict[int, list[str]] | None = None  # by the offset of the block
        self._branches: list[tuple[str, int]] = []  # label and offset
        self._pragmas: tuple[str, ...] = ()
        self._source_line: SourceLine | None = None
        self._line = 0  # of the present statement
        self._readers = load_readers()
        self._read = self._readers.operands.read
        self._read_call = self._readers.call_operands.read

    def parse(self, start: int, head_line: int, start_line: int) -> tuple[PtxFunction, int, int]:
        """Parse a body that begins after its brace at `start`; return function, its end and the line there.

        Raises InputError.
        """
        self._line = start_line
        last = start
        count = self._text.stripped.count
        handlers: dict[int, Callable[[re.Match[str]], None]] = {
            _LABEL: self._add_label,
            _TABLE: self._add_table,
            _INSTRUCTION: self._add_instruction,
            _DIRECTIVE: self._add_directive,
            _END: self._fail_at_end,
            _OTHER: self._fail_at_character,
        }
        for index in range(9, _LOC_END + 1):
            handlers[index] = self._set_source_line
        for match in _ITEM.finditer(self._text.stripped, start):
            place = match.end(1)
            self._line += count("\n", last, place)
            last = place
            index = match.lastindex or 0
            if index != _BRACE:
                handlers[index](match)
            elif match[_BRACE] == "{":
                self._open_block(match)
            elif self._scope.parent is not None:
                self._scope = self._scope.parent
            else:
                return self._finish(head_line), match.end(), self._line
        raise self._text.make_error("the function has no end", start - 1, hint=_CLOSE_HINT)

    def _finish(self, head_line: int) -> PtxFunction:
        for label, offset in self._branches:
            if label not in self._labels:
                raise self._text.make_error(f"no label {label} is in this function", offset, hint=_LABEL_HINT)
        return self._head.make_function(
            head_line,
            statements=tuple(self._statements),
            variables=tuple(self._variables),
            register_types=self._names.register_types,
            prototypes=tuple(self._prototypes),
        )

    def _open_block(self, match: re.Match[str]) -> None:
        if self._scope.depth >= MAX_SCOPES:
            raise self._text.make_error(f"blocks nested deeper than {MAX_SCOPES}", match.start(_BRACE))
        self._scope = Scope(self._names, self._scope)
        if self._block_labels is None:
            self._block_labels = _find_block_labels(self._text.stripped, match.start(_BRACE))
        for label in self._block_labels.get(match.start(_BRACE), ()):
            self._scope.declare_label(label)

    def _add_label(self, match: re.Match[str]) -> None:
        self._statements.append(PtxLabel(self._define_label(match), self._line))

    def _define_label(self, match: re.Match[str]) -> str:
        name = match[_LABEL]
        if self._scope.parent is None and name not in self._scope.symbols:
            self._scope.declare_label(name)
        unique = self._scope.symbols[name]
        if unique in self._labels:
            raise self._text.make_error(f"label {name} is there twice", match.start(_LABEL), length=len(name))
        self._labels.add(unique)
        return unique

    def _add_table(self, match: re.Match[str]) -> None:
        """Add the targets of `brx.idx`, or the prototype of an indirect call."""
        name = self._define_label(match)
        if match[3] == "callprototype":
            start, end = match.start(3) - 1, match.end(4)
            head = read_head(self._text, start, end, self._warn_directive, name=name)
            self._prototypes.append(head.make_function(self._line, is_declaration=True))
            return
        targets: list[str] = []
        for operand in self._read_operands(self._read, match[4], match.start(4)):
            if not isinstance(operand, PtxSymbol):
                raise self._text.make_error("a list of labels holds names only", match.start(4))
            targets.append(operand.name)
        if match[3] == "branchtargets":
            self._branches += [(target, match.start(4)) for target in targets]
        self._statements.append(PtxBranchTargets(name, tuple(targets)))

    def _add_instruction(self, match: re.Match[str]) -> None:
        is_negated, guard_name, opcode, operand_text = match.group(5, 6, 7, 8)
        words = operand_text.split()
        if words and words[0][0] == ".":  # `mov .u32 %r1, 0`
            opcode, operand_text = _join_opcode(opcode, operand_text)
            words = operand_text.split()
        if len(opcode) > _MAX_OPCODE_CHARACTERS:
            message = f"an opcode of more than {_MAX_OPCODE_CHARACTERS} characters"
            raise self._text.make_error(message, match.start(7))
        name, modifiers = _split_opcode(opcode)
        operands: tuple[PtxOperand, ...] = ()
        if words:
            read = self._read_call if name == "call" else self._read
            operands = self._read_operands(read, operand_text, match.end(8) - len(operand_text), name)
            if name == "bra" and type(operands[-1]) is PtxSymbol:
                self._branches.append((operands[-1].name, match.start(7)))
        guard = None
        if guard_name:
            guard = self._read_guard(guard_name, bool(is_negated), match.start(6))
            opcode = f"@{is_negated}{guard_name} {opcode}"
        self._statements.append(
            PtxInstruction(
                name=name,
                modifiers=modifiers,
                guard=guard,
                operands=operands,
                text=" ".join((opcode, *words)),
                line=self._line,
                source_line=self._source_line,
                pragmas=self._pragmas,
            )
        )
        self._pragmas = ()

    def _read_guard(self, name: str, is_negated: bool, offset: int) -> PtxGuard:
        (register,) = self._read_operands(self._read, name, offset)
        if not isinstance(register, PtxRegister):
            raise self._text.make_error("a guard is a register", offset, length=len(name))
        return PtxGuard(register.name, is_negated)

    def _read_operands(self, read: _Read, text: str, offset: int, opcode: str = "") -> tuple[PtxOperand, ...]:
        try:
            if len(text) > MAX_INSTRUCTION_CHARACTERS:
                raise PtxSyntaxError(f"an instruction of more than {MAX_INSTRUCTION_CHARACTERS} characters")
            operands = read(text, self._scope)
        except PtxElementError as error:
            operands = self._read_elements(read, text, offset, opcode, error)
        except PtxSyntaxError as error:
            raise self._text.make_syntax_error(error, offset, text) from None
        if self._names.unknown_registers:
            for name in self._names.unknown_registers:
                where = partial(self._text.locate, offset + max(0, text.find(name)), len(name))
                self._diagnostics.add_register(name, where)
            self._names.unknown_registers.clear()
        return operands

    def _read_elements(
        self, read: _Read, text: str, offset: int, opcode: str, error: PtxElementError
    ) -> tuple[PtxOperand, ...]:
        """Read operands with elements of arrays, `a[2]`, as addresses `[a+(2)*4]`; of `mov` as `a+(2)*4`."""

        def rewrite(match: re.Match[str]) -> str:
            symbol = self._scope[match[1]]
            size = self._find_element_bytes(symbol.name) if isinstance(symbol, PtxSymbol) else 0
            if not size:
                raise self._text.make_syntax_error(error, offset, text)
            address = f"{match[1]}+({match[2]})*{size}"
            return address if opcode == "mov" else f"[{address}]"

        try:
            return read(_ELEMENT.sub(rewrite, text), self._scope)
        except PtxSyntaxError:
            raise self._text.make_syntax_error(error, offset, text) from None

    def _find_element_bytes(self, name: str) -> int:
        """Return the size of the elements of a variable, 0 if it is not declared."""
        for variable in self._variables:
            if variable.name == name:
                return find_element_bytes(variable)
        return self._element_bytes.get(name, 0)

    def _set_source_line(self, match: re.Match[str]) -> None:
        self._source_line = self._lines.resolve(match.groups()[8:15])

    def _add_directive(self, match: re.Match[str]) -> None:
        name, rest = match.group(17, 18)
        if name in _DECLARING:
            if not rest.endswith(";"):
                raise self._text.make_error("a declaration without its `;`", match.start(17) - 1)
            self._declare(match.start(17) - 1, match.end(18) - 1)
        elif name == "pragma":
            strings = _STRING.findall(rest)
            if not strings:
                raise self._text.make_error("a .pragma without its string", match.start(17) - 1, length=7)
            self._pragmas += tuple(strings)
        elif name not in ("file", "section"):
            self._warn_directive(name, match.start(17) - 1)

    def _warn_directive(self, name: str, offset: int) -> None:
        self._diagnostics.add_directive(f".{name}", partial(self._text.locate, offset, len(name) + 1))

    def _declare(self, start: int, end: int) -> None:
        part = self._text.stripped[start:end]
        try:
            declaration = self._readers.declarations.read(part)
            if declaration.find_space() == "reg":
                self._declare_registers(declaration)
            else:
                self._variables += make_variables(
                    declaration, self._readers.operands, self._scope.declare_symbol
                )
        except PtxSyntaxError as error:
            raise self._text.make_syntax_error(error, start, part) from None

    def _declare_registers(self, declaration: Declaration) -> None:
        kind = RegisterType(declaration.find_type(), declaration.find_lanes())
        if not kind.type_name:
            raise PtxSyntaxError("a declaration without a type such as .b32")
        for declarator in declaration.declarators:
            self._scope.declare_register(declarator.name, kind, declarator.count)

    def _fail_at_end(self, match: re.Match[str]) -> None:
        raise self._text.make_error("the file ends inside a function", match.start(_END), hint=_CLOSE_HINT)

    def _fail_at_character(self, match: re.Match[str]) -> None:
        character, offset = match[_OTHER], match.start(_OTHER)
        if character.isalpha() or character == "@":
            raise self._text.make_error("an instruction without its `;`", offset, hint=_CLOSE_HINT)
        raise self._text.make_error("this is not a statement of PTX", offset)


def _find_block_labels(text: str, start: int) -> dict[int, list[str]]:
    """Return the labels of each block by its offset; the first one of the function begins at `start`."""
    found: dict[int, list[str]] = {}
    open_blocks: list[list[str]] = [[]]
    for item in _ITEM.finditer(text, start):
        if item[_BRACE] == "{":
            labels = found[item.start(_BRACE)] = []
            open_blocks.append(labels)
        elif item[_BRACE] or item[_OTHER]:
            open_blocks.pop()
            if not open_blocks or item[_OTHER]:
                break
        elif item[_LABEL]:
            open_blocks[-1].append(item[_LABEL])
    return found


@lru_cache(maxsize=1 << 12)
def _split_opcode(opcode: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of an opcode and its modifiers."""
    name, *modifiers = opcode.split(".")
    return name, tuple(modifiers)


def _join_opcode(opcode: str, rest: str) -> tuple[str, str]:
    """Join modifiers that blanks separate from their opcode to it."""
    match = re.match(r"(?:\s*\.[\w:]+)*", rest, re.A)
    end = match.end() if match else 0
    return opcode + "".join(rest[:end].split()), rest[end:]
