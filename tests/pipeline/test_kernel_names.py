"""Kernels by the names that people write, and of several architectures' code the one that a GPU runs."""

from pathlib import Path

import pytest

import analyzer
from analyzer.pipeline import Options
from analyzer.pipeline.loaded_program import Program, find_kernels, load
from analyzer.text.demangling import strip_signature

PLAIN, SCOPED = "_Z5saxpyfPKfPfi", "_ZN2ns5saxpyEfPKfPfi"
TWICE, THRICE = "_Z5scaleIfLi2EEvPKT_PS0_i", "_Z5scaleIdLi3EEvPKT_PS0_i"
BODY = "/*0000*/ MOV R1, c[0x0][0x28] ;\n/*0010*/ EXIT ;\n"


def dump(folder: Path, *kernels: tuple[str, str]) -> Program:
    """name, architecture"""
    path = folder / "dump.sass"
    path.write_text(
        "".join(f"code for {arch}\nFunction : {name}\n{BODY}.........\n" for name, arch in kernels)
    )
    return load(str(path))


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("saxpy", {PLAIN}),
        ("ns::saxpy", {SCOPED}),
        ("saxpy(float, float const*, float*, int)", {PLAIN}),
        ("void ns::saxpy(float, const float *, float *, int)", {SCOPED}),
        ("scale", {TWICE, THRICE}),
        ("scale<float,2>", {TWICE}),
        ("void scale<double, (int)3>(const T1 *, T1 *, int)", {THRICE}),
        ("ns::*", {SCOPED}),
        ("axp", {PLAIN, SCOPED}),
        (PLAIN, {PLAIN}),
        ("printf", set()),
    ],
)
def test_names_as_people_write_them(tmp_path: Path, written: str, found: set[str]) -> None:
    program = dump(tmp_path, *((name, "sm_86") for name in (PLAIN, SCOPED, TWICE, THRICE)))
    assert {kernel.name for kernel in find_kernels(program.kernels, written)} == found


@pytest.mark.parametrize(
    ("demangled", "bare"),
    [
        ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ("void f<g<int> >(void (*)(int))", "f<g<int> >"),
        ("f", "f"),
    ],
)
def test_a_bare_name_has_neither_type_nor_parameters(demangled: str, bare: str) -> None:
    assert strip_signature(demangled) == bare


@pytest.mark.parametrize(
    ("gpu", "archs"),
    [
        ("rtx-a4000", ["sm_86"]),
        ("t4", ["sm_75"]),
        ("rtx-4090", ["sm_86"]),
        ("h100", ["sm_75", "sm_80", "sm_86"]),
    ],
)
def test_a_gpu_gets_the_code_that_it_would_run(tmp_path: Path, gpu: str, archs: list[str]) -> None:
    """None of these runs on an H100: all are carried over."""
    program = dump(tmp_path, *((PLAIN, arch) for arch in ("sm_75", "sm_80", "sm_86")))
    report = analyzer.analyze(program, gpu, grid=(1, 1, 1), block=(32, 1, 1), options=Options())
    assert [kernel.architecture for kernel in report.kernels] == archs
