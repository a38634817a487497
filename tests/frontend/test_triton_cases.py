"""Case files of grammars/cases/triton: Triton IR, and what is read from it or the error that it gives.

The format of a case is that of grammars/cases/sass, see `test_sass_cases.py`. An operation is one line:

    name | results with types | operands | attributes | place in the source

Regions are indented; a block's line has its label and arguments. Run this file as a program to print what a case
gives: `python tests/frontend/test_triton_cases.py CASE...`
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import DumpInputKind, Options
from filecheck.parser import Parser
from paths import CASES

from analyzer.frontend.triton.formatting import format_dictionary, format_type
from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.ir.module import SourceLine
from analyzer.ir.tile_operations import Operation, Region, TritonFunction, TritonModule, Value
from analyzer.text.errors import InputError, UsageError, format_diagnostic

CASE_FILES = sorted((CASES / "triton").glob("*.test"))
_DIRECTIVE = re.compile(r"^// (CHECK|COM).*$", re.M)
_CUT = re.compile(r"<CUT>.*", re.S)
_REPEAT = re.compile(r"<REPEAT (\d+) ([^>]*)>")


def case_input(text: str) -> str:
    """The file that a case stands for."""
    text = _CUT.sub("", _DIRECTIVE.sub("", text))
    return _REPEAT.sub(lambda match: match[2] * int(match[1]), text)


def printed(name: str, text: str) -> str:
    """What is read from a file, or the error, as the user sees it."""
    try:
        module, diagnostics = parse_triton_ir(text, name)
    except (InputError, UsageError) as error:
        return "\n".join(_shown(format_diagnostic(error.diagnostic))) + "\n"
    lines = list(_module_lines(module))
    for diagnostic in diagnostics:
        lines.extend(_shown(f"[{diagnostic.code}] {format_diagnostic(diagnostic)}"))
    return "\n".join(lines) + "\n"


def _shown(message: str) -> Iterator[str]:
    """Lines of a message; leading blanks as dots, since the place of a caret matters."""
    for line in message.splitlines():
        body = line.lstrip(" ")
        yield "." * (len(line) - len(body)) + body


def _module_lines(module: TritonModule) -> Iterator[str]:
    warps = "no warps" if module.n_warps is None else f"{module.n_warps} warps of {module.threads_per_warp}"
    yield f"module {module.level} {module.target or 'no target'}, {warps}, {module.n_ctas} CTAs"
    for function in module.functions:
        yield from _function_lines(function)


def _function_lines(function: TritonFunction) -> Iterator[str]:
    kind = "kernel" if function.is_public else "function"
    results = ", ".join(map(format_type, function.result_types)) or "nothing"
    yield f"{kind} {function.name} line {function.line} returns {results}"
    facts = zip(function.arguments, function.argument_names, function.argument_divisibility, strict=True)
    for argument, name, divisibility in facts:
        yield f"argument {_typed(argument)} named {name or 'nothing'}, a multiple of {divisibility}"
    yield from _region_lines(function.body, 1)


def _region_lines(region: Region, depth: int) -> Iterator[str]:
    for block in region.blocks:
        if depth > 1 or block.label:
            arguments = ", ".join(map(_typed, block.arguments)) or "nothing"
            yield f"{'. ' * (depth - 1)}block {block.label or 'alone'} of {arguments}"
        for operation in block.operations:
            yield from _operation_lines(operation, depth)


def _operation_lines(operation: Operation, depth: int) -> Iterator[str]:
    parts = [
        operation.name,
        ", ".join(map(_typed, operation.results)) or "gives nothing",
        _names(operation.operands) or "of nothing",
        format_dictionary(operation.attributes),
    ]
    if operation.successors:
        pairs = zip(operation.successors, operation.successor_operands, strict=True)
        parts.append(", ".join(f"to {label}({_names(values)})" for label, values in pairs))
    if operation.source_line is not None:
        parts.append(_place(operation.source_line))
    yield ". " * depth + " | ".join(parts)
    for region in operation.regions:
        yield from _region_lines(region, depth + 1)


def _typed(value: Value) -> str:
    return f"{value.name}: {format_type(value.type)}"


def _names(values: tuple[Value, ...]) -> str:
    return ", ".join(value.name for value in values)


def _place(place: SourceLine) -> str:
    return f"{place}" + (f" in {_place(place.inlined_at)}" if place.inlined_at else "")


@pytest.mark.parametrize("case", CASE_FILES, ids=lambda case: case.stem)
def test_case(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(case.name, case_input(case.read_text(encoding="utf-8")))
    options = Options(
        match_filename=str(case),
        dump_input=DumpInputKind.FAIL,
        comment_prefixes=["COM"],
        match_full_lines=True,
    )
    options.check_prefixes = ["CHECK"]
    matcher = Matcher(options, FInput(case.name, text), Parser.from_opts(options))
    result = matcher.run()
    assert result == 0, f"{capsys.readouterr().err}\n--- the case gives:\n{text}"


def test_cases_are_many() -> None:
    """A glob that finds nothing would pass silently."""
    assert len(CASE_FILES) >= 30


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        print(printed(path.name, case_input(path.read_text(encoding="utf-8"))), end="")
