"""Case files of grammars/cases/sass: SASS text, and what is read from it or the error that it gives.

See case_files.py for how they are written.

Run this file as a program to print what a case gives: `python tests/frontend/test_sass_cases.py CASE...`
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from case_files import case_input, match_case, shown
from paths import CASES

from analyzer.frontend.sass_parser import parse_sass
from analyzer.ir.module import InstructionForm, Kernel, Module
from analyzer.ir.operand import Operand
from analyzer.isa.control_encoding import decode_control_code
from analyzer.isa.register_operands import format_register_unit
from analyzer.text.errors import InputError, format_diagnostic

CASE_FILES = sorted((CASES / "sass").glob("*.test"))


def printed(name: str, data: bytes) -> str:
    """What is read from a dump, one line for each instruction; or the error, as the user sees it."""
    try:
        module = parse_sass(name, [data])
        return "\n".join(_module_lines(module)) + "\n"
    except InputError as error:
        return "\n".join(shown(format_diagnostic(error.diagnostic))) + "\n"


def _module_lines(module: Module) -> Iterator[str]:
    yield f"module {module.source_format.value}"
    for kernel in module:
        yield from _kernel_lines(kernel)
    for diagnostic in module.diagnostics:
        yield from shown(f"[{diagnostic.code}] {format_diagnostic(diagnostic)}")


def _kernel_lines(kernel: Kernel) -> Iterator[str]:
    kind = "kernel" if kernel.is_entry else "function"
    yield f"{kind} {kernel.name} {kernel.arch} line {kernel.line}"
    if kernel.resources.registers is not None:
        yield f"resources {kernel.resources.registers} registers, {kernel.resources.shared_bytes} B shared"
    for index in range(len(kernel)):
        yield " | ".join(_parts(kernel, index))
    for address, targets in kernel.branch_targets:
        yield f"targets of {address:04x}: {' '.join(f'{target:04x}' for target in targets)}"
    for label, address in kernel.labels:
        yield f"label {label} {address:04x}"


def _parts(kernel: Kernel, index: int) -> Iterator[str]:
    form, address = kernel.decode_form(index), int(kernel.addresses[index])
    guard = "" if form.guard is None else f"@{form.guard} "
    known = "" if form.opcode.is_known else " (not in the table)"
    yield f"{address:04x} {guard}{form.opcode.mnemonic} {form.opcode.kind.value}{known}"
    yield "; ".join(map(_operand, form.operands)) or "no operands"
    yield f"writes {_storage(form, 'defs')}"
    yield f"reads {_storage(form, 'uses')}"
    if kernel.control_words is not None:
        yield str(decode_control_code(int(kernel.control_words[index])))
    if origin := kernel.find_source_line(index):
        yield f"from {origin}" + (f" in {origin.inlined_at}" if origin.inlined_at else "")


def _operand(operand: Operand) -> str:
    return f"{type(operand).__name__} {operand}"


def _storage(form: InstructionForm, side: str) -> str:
    """Storage names in order; runs of more than four as `R24..R87`."""
    numbers: tuple[int, ...] = getattr(form, side)
    runs: list[list[int]] = []
    for number in numbers:
        if (
            runs
            and number == runs[-1][-1] + 1
            and format_register_unit(number)[0] == format_register_unit(runs[-1][0])[0]
        ):
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [
        f"{format_register_unit(run[0])}..{format_register_unit(run[-1])}"
        if len(run) > 4
        else " ".join(map(format_register_unit, run))
        for run in runs
    ]
    return " ".join(texts) or "nothing"


@pytest.mark.parametrize("case", CASE_FILES, ids=lambda case: case.stem)
def test_case(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(case.name, case_input(case.read_text(encoding="utf-8")))
    result = match_case(case, text)
    assert result == 0, f"{capsys.readouterr().err}\n--- the case gives:\n{text}"


def test_cases_are_many() -> None:
    """A glob that finds nothing would pass silently."""
    assert len(CASE_FILES) >= 60


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        print(printed(path.name, case_input(path.read_text(encoding="utf-8"))), end="")
