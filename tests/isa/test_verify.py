"""The rules of `code_rules`: each is broken by some wrong code, none by what compilers print or PTX is lowered to."""

from pathlib import Path

import numpy as np
import pytest
from code_rules import FORM_RULES, KERNEL_RULES, verify_form, verify_kernel
from msgspec.structs import replace

from analyzer.frontend.module_reader import read_module
from analyzer.frontend.ptx.lowering import read_ptx_module
from analyzer.ir.module import Kernel
from analyzer.ir.operand import ConstantBankOperand, UnparsedOperand

TRACES = Path(__file__).parents[2] / "traces"
DUMPS = sorted(
    path for folder in ("cuda", "triton", "blackwell", "volta") for path in (TRACES / folder).rglob("*.sass")
)
LEVELS = sorted((TRACES / "levels").rglob("*.ptx"))


def read_kernel(tmp_path: Path, *lines: str) -> Kernel:
    """Return the kernel of a dump with these instructions."""
    path = tmp_path / "k.sass"
    code = "\n".join(f"        /*{16 * i:04x}*/                   {line} ;" for i, line in enumerate(lines))
    path.write_text(f"\tcode for sm_80\n\t\tFunction : k\n{code}\n")
    (kernel,) = read_module(str(path)).kernels
    return kernel


WRONG = {
    "registers-exist": ("MOV R300, R2", "EXIT"),
    "results-unsigned": ("IADD3 -R1, R2, R3, RZ", "EXIT"),
    "result-present": ("FADD 0x5, R2, R3", "EXIT"),
    "pair-alignment": ("LDG.E.64 R3, [R4.64]", "EXIT"),
    "access-width": ("LDG.E.128 R254, [R4.64]", "EXIT"),
    "targets-exist": ("@P0 BRA 0x90", "EXIT"),
    "control-ends": ("EXIT", "MOV R1, R2"),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_rule_is_broken_by_wrong_code(rule: str, tmp_path: Path) -> None:
    kernel = read_kernel(tmp_path, *WRONG[rule])
    assert rule in {violation.rule for violation in verify_kernel(kernel)}


def test_a_form_that_contradicts_itself_breaks_a_rule(tmp_path: Path) -> None:
    form = read_kernel(tmp_path, "MOV R1, c[0x0][0x160]", "EXIT").decode_form(0)
    assert not verify_form(form)
    changes: dict[str, dict[str, object]] = {
        "operands-parsed": {"operands": (form.operands[0], UnparsedOperand("?"))},
        "guard-is-predicate": {"guard": form.operands[0]},
        "units-in-range": {"defs": (2,)},
        "constants-in-range": {"operands": (form.operands[0], ConstantBankOperand(0, -4))},
    }
    for rule, change in changes.items():
        assert rule in {name for name, _ in verify_form(replace(form, **change))}


def test_columns_and_addresses_are_checked(tmp_path: Path) -> None:
    kernel = read_kernel(tmp_path, "MOV R1, R2", "EXIT")
    assert not verify_kernel(kernel)
    short = replace(kernel, ptx_lines=np.array([1]))
    assert [violation.rule for violation in verify_kernel(short)] == ["columns-equal"]
    swapped = replace(kernel, addresses=kernel.addresses[::-1].copy())
    assert "addresses-ascend" in {violation.rule for violation in verify_kernel(swapped)}
    named = replace(kernel, labels=(("far", 0x400),))
    assert [violation.rule for violation in verify_kernel(named)] == ["labels-exist"]


def test_the_tables_name_all_rules() -> None:
    assert set(WRONG) <= set(FORM_RULES) | set(KERNEL_RULES)


@pytest.mark.parametrize("path", DUMPS[::4], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_dumps_of_compilers_break_no_rule(path: Path) -> None:
    for kernel in read_module(str(path)).kernels:
        assert not verify_kernel(kernel)


@pytest.mark.parametrize("path", LEVELS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_lowered_ptx_breaks_no_rule(path: Path) -> None:
    arch = path.parent.name
    for kernel in read_ptx_module(path.read_bytes(), str(path), arch).kernels:
        assert not verify_kernel(kernel)
