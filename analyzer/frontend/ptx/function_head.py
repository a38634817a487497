"""Heads of functions: linkage, name, parameters, results, and attributes such as `.maxntid`.

.visible .entry name(.param .u64 .ptr .global .align 1 p, .param .u32 n) .maxntid 128, 1, 1
.func (.param .b32 func_retval0) name(.param .b64 p) .noreturn
"""

import re
from collections.abc import Callable, Iterator
from functools import cache

from msgspec import Struct

from analyzer.frontend.ptx.constants import PtxSyntaxError
from analyzer.frontend.ptx.declarations import (
    LINKAGES,
    Declaration,
    DeclarationReader,
    Specifier,
    make_variables,
)
from analyzer.frontend.ptx.ptx_text import PtxText
from analyzer.frontend.ptx.scopes import RegisterType
from analyzer.frontend.ptx.shapes import OperandReader
from analyzer.frontend.ptx.statements import PtxFunction, PtxStatement, PtxVariable

_HEAD = re.compile(
    r"(?P<before>(?:\s*\.(?!(?:entry|func|callprototype)\b)\w+(?:\s*\((?:[^()]|\([^()]*\))*\))?)*+)"
    r"\s*(?:\.(?P<kind>entry|func|callprototype)\b)"
    r"(?P<middle>(?:\s*\.attribute\s*\((?:[^()]|\([^()]*\))*\))*+)"
    r"\s*(?:\((?P<results>[^()]*)\))?"
    r"\s*(?P<name>[%\w$]+)"
    r"\s*(?:\((?P<parameters>[^()]*)\))?"
    r"(?P<after>[^(]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^(]*)*)",
    re.A,
)
_ATTRIBUTES = frozenset(
    (
        "maxntid",
        "reqntid",
        "minnctapersm",
        "maxnctapersm",
        "maxnreg",
        "reqnctapercluster",
        "maxclusterrank",
        "explicitcluster",
        "blocksareclusters",
        "noreturn",
        "unique",
        "attribute",
        "abi_preserve",
        "abi_preserve_control",
        *LINKAGES,
    )
)
FUNCTION_HINT = "a head is, for example: .visible .entry name(.param .u64 p) .maxntid 128, 1, 1"


class Readers(Struct, frozen=True):
    """Readers of the parts of statements. They know shapes and no file, so all files share them."""

    operands: OperandReader
    call_operands: OperandReader
    declarations: DeclarationReader


@cache
def load_readers() -> Readers:
    """Return the readers, which keep what they have learned."""
    return Readers(OperandReader("operands"), OperandReader("call_operands"), DeclarationReader())


class FunctionHead(Struct, frozen=True):
    """A head, parsed; `registers` are parameters and results that are registers."""

    name: str
    is_entry: bool
    linkage: str
    parameters: tuple[PtxVariable, ...]
    results: tuple[PtxVariable, ...]
    registers: tuple[tuple[str, RegisterType], ...]
    attributes: tuple[Specifier, ...]

    def make_function(
        self,
        line: int,
        *,
        statements: tuple[PtxStatement, ...] = (),
        variables: tuple[PtxVariable, ...] = (),
        register_types: dict[str, str] | None = None,
        prototypes: tuple[PtxFunction, ...] = (),
        is_declaration: bool = False,
    ) -> PtxFunction:
        """Return the function of this head."""
        values = {specifier.name: specifier.arguments for specifier in self.attributes}
        return PtxFunction(
            name=self.name,
            is_entry=self.is_entry,
            is_declaration=is_declaration,
            parameters=self.parameters,
            results=self.results,
            register_types=register_types or {},
            variables=variables,
            statements=statements,
            line=line,
            max_threads=values.get("maxntid", ()),
            required_threads=values.get("reqntid", ()),
            min_ctas_per_sm=next(iter(values.get("minnctapersm", ())), None),
            max_registers=next(iter(values.get("maxnreg", ())), None),
            cluster_size=values.get("reqnctapercluster", ()),
            linkage=self.linkage,
            prototypes=prototypes,
        )


def read_head(
    text: PtxText, start: int, end: int, warn: Callable[[str, int], None], *, name: str = ""
) -> FunctionHead:
    """Return the head of a function in text[start:end].

    warn: is called with the name and offset of an unknown attribute.
    name: of a `.callprototype`, whose own is `_`.
    Raises InputError.
    """
    match = _HEAD.match(text.stripped, start, end)
    if match is None or text.stripped[match.end() : end].strip():
        offset = start if match is None else match.end()
        raise text.make_error("this is not the head of a function", offset, hint=FUNCTION_HINT)
    attributes: list[Specifier] = []
    for group in ("before", "middle", "after"):
        attributes += _read_attributes(text, match.start(group), match.end(group), warn)
    registers: list[tuple[str, RegisterType]] = []
    results = _read_parameters(text, match.start("results"), match.end("results"), registers)
    parameters = _read_parameters(text, match.start("parameters"), match.end("parameters"), registers)
    return FunctionHead(
        name=name or match["name"],
        is_entry=match["kind"] == "entry",
        linkage=next((specifier.name for specifier in attributes if specifier.name in LINKAGES), ""),
        parameters=tuple(parameters),
        results=tuple(results),
        registers=tuple(registers),
        attributes=tuple(attributes),
    )


def _read_attributes(
    text: PtxText, start: int, end: int, warn: Callable[[str, int], None]
) -> tuple[Specifier, ...]:
    part = text.stripped[start:end]
    if not part.strip():
        return ()
    try:
        specifiers = load_readers().declarations.read(part, rule="attributes").specifiers
    except PtxSyntaxError as error:
        raise text.make_syntax_error(error, start, part) from None
    for specifier in specifiers:
        if specifier.name not in _ATTRIBUTES:
            warn(specifier.name, start + max(0, part.find(specifier.name) - 1))
    return specifiers


def _read_parameters(
    text: PtxText, start: int, end: int, registers: list[tuple[str, RegisterType]]
) -> Iterator[PtxVariable]:
    """Yield the parameters that text[start:end] declares; adds those that are registers to `registers`."""
    if start < 0 or not text.stripped[start:end].strip():
        return
    readers = load_readers()
    for part in text.stripped[start:end].split(","):
        try:
            declaration = readers.declarations.read(part)
            if declaration.find_space() == "reg":
                registers += declare_registers(declaration)
            yield from make_variables(declaration, readers.operands, str)
        except PtxSyntaxError as error:
            raise text.make_syntax_error(error, start, part) from None
        start += len(part) + 1


def declare_registers(declaration: Declaration) -> Iterator[tuple[str, RegisterType]]:
    """Yield name and type of the single registers that a declaration declares."""
    kind = RegisterType(declaration.find_type() or "b32", declaration.find_lanes())
    for declarator in declaration.declarators:
        if declarator.count is None:
            yield declarator.name, kind
