"""Case 06: dumps that went through c++filt are read as they were before; kernels are called as they stand there."""

import re
from pathlib import Path

import pytest

from analyzer.flow.cfg import build_cfg
from analyzer.frontend.module_reader import read_module
from analyzer.ir.module import Kernel, Module
from analyzer.text.demangling import demangle
from analyzer.text.errors import InputError

FOLDER = Path(__file__).parent / "06-demangled-names"
PAIRS = [("cuobjdump_80.sass", "cuobjdump_80_filtered.sass"), ("nvdisasm_90.txt", "nvdisasm_90_filtered.txt")]
_MANGLED = re.compile(r"(?<![\w$])_Z\w+(?:\.[\w.]+)?")


def demangled_texts(kernel: Kernel) -> list[str]:
    """The instructions, all names demangled."""
    forms = kernel.decode_forms(0, len(kernel))
    return [_MANGLED.sub(lambda match: demangle(match[0]), form.text) for form in forms]


def edges(kernel: Kernel) -> list[tuple[int, int]]:
    cfg = build_cfg(kernel)
    return [*((edge.source, edge.target) for edge in cfg.edges), *cfg.call_edges]


def read(name: str) -> Module:
    return read_module(str(FOLDER / name))


@pytest.mark.parametrize(("plain", "filtered"), PAIRS)
def test_filtered_names_change_nothing_but_names(plain: str, filtered: str) -> None:
    before, after = read(plain), read(filtered)
    assert [demangle(kernel.name) for kernel in before] == [demangle(kernel.name) for kernel in after]
    assert [demangled_texts(kernel) for kernel in before] == [demangled_texts(kernel) for kernel in after]
    assert [edges(kernel) for kernel in before] == [edges(kernel) for kernel in after]
    assert before.diagnostics == after.diagnostics == ()


def test_kernels_are_called_as_they_stand_there() -> None:
    names = [kernel.name for kernel in read("cuobjdump_80_filtered.sass")]
    assert "void pack<(char)120, float, int>(float*, int*)" in names
    assert "(anonymous namespace)::hidden(float*, int)" in names
    assert any("{lambda(float)#1}" in name for name in names)


def test_filtered_names_stand_in_operands() -> None:
    texts = [text for kernel in read("nvdisasm_90_filtered.txt") for text in demangled_texts(kernel)]
    assert any("CALL" in text and "(anonymous namespace)::step(float, int)" in text for text in texts)
    assert any("operator()(int) const" in text for text in texts)


@pytest.mark.parametrize(
    ("operand", "is_read"),
    [
        ("`(f(float))", True),
        ("`(void g<int (*)(float, int), 'x'>(int (*)(float, int)))", True),
        ("`(ns::operator<(A<(B)1> const&, A<(B)2> const&))", True),
        ("`(" + "f(" * 7 + ")" * 8, True),  # eight deep
        ("`(f(float)", False),
        ("`(f(float)))", False),
        ("`(" + "f(" * 40 + ")" * 41, False),
    ],
)
def test_parentheses_in_operands(tmp_path: Path, operand: str, is_read: bool) -> None:
    path = tmp_path / "k.sass"
    path.write_text(
        f"\tcode for sm_80\n\t\tFunction : k\n        /*0000*/    RET.REL.NODEC R20 {operand} ;\n"
    )
    if is_read:
        (kernel,) = read_module(str(path))
        assert str(kernel.decode_form(0).operands[-1]) == operand
        return
    with pytest.raises(InputError, match="not a SASS instruction") as caught:
        read_module(str(path))
    assert caught.value.diagnostic.location is not None
    assert caught.value.diagnostic.location.line == 3


def test_usage_and_metadata_beside_a_filtered_dump_are_found(tmp_path: Path) -> None:
    """They name kernels as compiled."""
    dump = tmp_path / "k.sass"
    dump.write_text((FOLDER / "cuobjdump_80_filtered.sass").read_text())
    mangled = [kernel.name for kernel in read("cuobjdump_80.sass")]
    lines = [f" Function {name}:\n  REG:{40 + n} STACK:0 SHARED:0 LOCAL:0" for n, name in enumerate(mangled)]
    (tmp_path / "k.res").write_text("Resource usage:\n Common:\n  GLOBAL:0\n" + "\n".join(lines) + "\n")
    found = [kernel.resources.registers for kernel in read_module(str(dump))]
    assert found == [40 + n for n in range(len(mangled))]


def test_filtered_usage_beside_a_filtered_dump_is_found(tmp_path: Path) -> None:
    dump = tmp_path / "k.sass"
    dump.write_text((FOLDER / "cuobjdump_80_filtered.sass").read_text())
    names = [kernel.name for kernel in read("cuobjdump_80_filtered.sass")]
    (tmp_path / "k.res").write_text("".join(f" Function {name}:\n  REG:33 STACK:0\n" for name in names))
    assert {kernel.resources.registers for kernel in read_module(str(dump))} == {33}


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ('.text._Z1ff,"ax",@progbits', "_Z1ff"),
        ('.text._Z1ff, "ax", @progbits', "_Z1ff"),
        (".text._Z1ff", "_Z1ff"),
        ('.text.f(float, int),"ax",@progbits', "f(float, int)"),
        ('.text.void g<float, 2>(int), "ax", @progbits', "void g<float, 2>(int)"),
    ],
)
def test_names_of_sections(tmp_path: Path, section: str, name: str) -> None:
    path = tmp_path / "k.txt"
    path.write_text(f"\t.target\tsm_80\n\t.section\t{section}\n        /*0000*/                   EXIT ;\n")
    assert [kernel.name for kernel in read_module(str(path))] == [name]


def test_a_constant_of_a_relocatable_object_is_read(tmp_path: Path) -> None:
    path = tmp_path / "k.sass"
    path.write_text(
        '\t.target\tsm_75\n\t.section\t.text.k,"ax",@progbits\n'
        "        /*0000*/                   DMUL R6, R6, c[`(_Z1fv.const_opt.0.8)] ;\n"
        "        /*0010*/                   DADD R6, R6, -c[`(f(float, int) [clone .const_opt.0.8])] ;\n"
    )
    (kernel,) = read_module(str(path))
    assert [form.uses for form in kernel.decode_forms(0, 2)] == [(6, 7), (6, 7)]
