"""Case files of grammars/cases/ptx: PTX, and what is read from it or the error that it gives.

They are written as those of SASS are (see test_sass_cases.py), and their marks are the same. What is
read is printed one statement a line, with its line in the file:

    9 @!%p1 bra.uni | Symbol $L1
    10 ld.global.v2.b32 | Vector {%r1, %r2}; Address [%rd1+16] | from kernel.py:96

Run this file as a program to print what a case gives: `python tests/frontend/test_ptx_cases.py CASE...`
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from case_files import case_input, match_case, shown
from paths import CASES
from ptx_printer import format_head, format_operand, format_statement, format_variable

from analyzer.frontend.ptx.parser import parse_ptx
from analyzer.frontend.ptx.statements import (
    PtxFunction,
    PtxInstruction,
    PtxLabel,
    PtxModule,
    PtxOperand,
    PtxStatement,
    PtxVariable,
)
from analyzer.text.errors import InputError, format_diagnostic

CASE_FILES = sorted((CASES / "ptx").glob("*.test"))


def printed(name: str, data: bytes) -> str:
    """What is read from a file, one line for each statement; or the error, as the user sees it."""
    try:
        module, diagnostics = parse_ptx(data, name)
    except InputError as error:
        return "\n".join(shown(format_diagnostic(error.diagnostic))) + "\n"
    lines = [*_module_lines(module)]
    for diagnostic in diagnostics:
        lines += shown(f"[{diagnostic.code}] {format_diagnostic(diagnostic)}")
    return "\n".join(lines) + "\n"


def _module_lines(module: PtxModule) -> Iterator[str]:
    yield f"PTX {module.version} for {', '.join((module.target, *module.target_options))}, {module.address_bits} bits"
    for variable in module.variables:
        yield f"variable {_variable(variable)}"
    for function in module.functions:
        yield from _function_lines(function)
    for first, second in module.aliases:
        yield f"{first} is {second}"


def _variable(variable: PtxVariable) -> str:
    parts = [format_variable(variable), f"{variable.n_bytes} B"]
    if variable.is_extern:
        parts.append("extern")
    return ", ".join(parts)


def _function_lines(function: PtxFunction) -> Iterator[str]:
    yield f"function {format_head(function)} line {function.line}{' declared' * function.is_declaration}"
    if function.register_types:
        yield "registers " + " ".join(f"{name}:{kind}" for name, kind in function.register_types.items())
    for variable in function.variables:
        yield f"variable {_variable(variable)}"
    for prototype in function.prototypes:
        yield f"prototype {prototype.name}: {format_head(prototype, is_prototype=True)}"
    for statement in function.statements:
        yield " | ".join(_parts(statement))


def _parts(statement: PtxStatement) -> Iterator[str]:
    if not isinstance(statement, PtxInstruction):
        yield (
            f"{statement.line} {statement.name}:"
            if isinstance(statement, PtxLabel)
            else format_statement(statement)
        )
        return
    guard = ""
    if statement.guard:
        guard = f"@{'!' * statement.guard.is_negated}{statement.guard.register} "
    yield f"{statement.line} {guard}{'.'.join((statement.name, *statement.modifiers))}"
    yield "; ".join(map(_operand, statement.operands)) or "no operands"
    if statement.pragmas:
        yield f"pragmas {', '.join(statement.pragmas)}"
    line = statement.source_line
    if line is not None:
        chain = [str(line)]
        while line.inlined_at is not None:
            line = line.inlined_at
            chain.append(str(line))
        yield f"from {' in '.join(chain)}"


def _operand(operand: PtxOperand) -> str:
    return f"{type(operand).__name__.removeprefix('Ptx')} {format_operand(operand)}"


@pytest.mark.parametrize("case", CASE_FILES, ids=lambda case: case.stem)
def test_case(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(case.name, case_input(case.read_text(encoding="utf-8")))
    result = match_case(case, text)
    assert result == 0, f"{capsys.readouterr().err}\n--- the case gives:\n{text}"


def test_cases_are_many() -> None:
    """A glob that finds nothing would pass silently."""
    assert len(CASE_FILES) >= 40


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(printed(Path(name).name, case_input(Path(name).read_text(encoding="utf-8"))))
