"""Def-use chains: by hand on small code, by what the compiler promises on real code."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import format_trace_name, list_sass_dumps, parse_lines, read_module

from analyzer.flow.cfg import build_cfg
from analyzer.flow.def_use import DefUseChains
from analyzer.ir.module import Kernel
from analyzer.ir.opcode import AddressSpace, OpKind
from analyzer.isa.control_encoding import NO_BARRIER, decode_control_code_columns


def chains(*texts: str) -> DefUseChains:
    return DefUseChains(build_cfg(parse_lines(*texts)))


def test_straight_line() -> None:
    found = chains("MOV R1, 0x1", "MOV R2, 0x2", "IADD3 R1, R1, R2, RZ", "STG.E [R4.64], R1", "EXIT")
    assert found.producers(2) == {0, 1}
    assert found.producers(3) == {2}
    assert found.consumers(0) == {2}
    assert found.consumers(2) == {3}


def test_a_guarded_write_keeps_the_old_value_alive() -> None:
    found = chains("MOV R1, 0x1", "ISETP.GT.AND P0, PT, R3, RZ, PT", "@P0 MOV R1, 0x2", "MOV R5, R1", "EXIT")
    assert found.producers(3) == {0, 2}
    assert found.producers(2) == {1}


def test_an_instruction_that_never_runs_writes_nothing() -> None:
    found = chains("MOV R1, 0x1", "@!PT MOV R1, 0x2", "MOV R5, R1", "EXIT")
    assert found.producers(2) == {0}


def test_values_meet_at_a_join_and_go_round_a_loop() -> None:
    found = chains(
        "MOV R1, RZ",
        "IADD3 R1, R1, 0x1, RZ",
        "ISETP.LT.AND P0, PT, R1, 0xa, PT",
        "@P0 BRA 0x10",
        "MOV R2, R1",
        "EXIT",
    )
    assert found.producers(1) == {0, 1}
    assert found.producers(4) == {1}
    assert found.consumers(1) == {1, 2, 4}


def test_pairs_and_uniform_registers() -> None:
    found = chains(
        "UMOV UR4, 0x10", "IMAD.WIDE R2, R6, 0x4, R8", "LDG.E R1, [R2.64+UR4]", "MOV R5, R3", "EXIT"
    )
    assert found.producers(2) == {0, 1}
    assert found.producers(3) == {1}


def kernels() -> Iterator[tuple[Path, Kernel]]:
    for path in list_sass_dumps():
        for kernel in read_module(path):
            yield path, kernel


@pytest.mark.parametrize("path", list_sass_dumps(), ids=format_trace_name)
def test_first_reader_of_a_load_waits_for_its_scoreboard(path: Path) -> None:
    """The compiler has to: a load's result is there when its scoreboard says so (true of 4.1 M instructions of the libraries in docs/corpus.md)."""
    compared = 0
    for kernel in read_module(path):
        found = DefUseChains(build_cfg(kernel))
        assert kernel.control_words is not None
        control = decode_control_code_columns(kernel.control_words)
        for block in found.cfg.blocks:
            for row in range(block.start, block.stop):
                opcode = kernel.find_opcode(row)
                if opcode.kind is not OpKind.LOAD or opcode.space is not AddressSpace.GLOBAL:
                    continue
                readers = sorted(r for r in found.consumers(row) if row < r < block.stop)
                if control.write_barrier[row] == NO_BARRIER or not readers:
                    continue
                waits = [
                    r
                    for r in range(row + 1, readers[0] + 1)
                    if row in frozenset().union(*found.sources(r).scoreboards.values())
                ]
                assert waits, f"{kernel.name}: row {readers[0]} reads row {row} without waiting"
                compared += 1
    assert compared or "report16" not in path.name


def test_every_definition_writes_what_is_read() -> None:
    for _, kernel in list(kernels())[:40]:
        found = DefUseChains(build_cfg(kernel))
        for row in range(found.cfg.blocks[-1].stop):
            for number, rows in found.sources(row).definitions.items():
                assert number in kernel.decode_form(row).uses
                assert all(number in kernel.decode_form(producer).defs for producer in rows)
