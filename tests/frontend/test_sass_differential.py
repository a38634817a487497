"""What is read from every shipped dump, against an independent count of its text and its encodings."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from paths import INSTRUCTION, TRACES, format_trace_name, list_nvdisasm_texts, list_sass_dumps, read_module

from analyzer.frontend.resource_usage import read_resource_usage
from analyzer.ir.module import Kernel, Module
from analyzer.ir.operand import Immediate, Operand
from analyzer.isa.control_encoding import decode_control_code, decode_control_code_columns
from analyzer.isa.register_operands import UNIFORM_REGISTER_BASE

ALL_TEXTS = [*list_sass_dumps(), *list_nvdisasm_texts()]
_HEADER = re.compile(r"^\s*Function : (\S+)|^\s*\.section\s+\.text\.([^,\s]+)")
_WORD = re.compile(r"/\* 0x([0-9a-f]{16}) \*/")
_NOTE = re.compile(r"\s*\(\*.*")
_FLOAT = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
# The metadata or scale operand's `.reuse` is not among the reuse bits (docs/corpus.md).
# TEX has another field in their place: nvcc 13's TEX.SCR.LL sets its first bit and prints no `.reuse`.
_REUSE_ELSEWHERE = ("HMMA.SP", "OMMA.SF", "TEX")


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction as its lines of text say it."""

    kernel: str
    address: int
    guard: str
    mnemonic: str
    operands: str
    upper_word: int | None

    @property
    def n_reuse(self) -> int:
        return self.operands.count(".reuse")


@cache
def text_lines(path: Path) -> tuple[Line, ...]:
    """Instructions of a dump by plain line splitting."""
    found: list[Line] = []
    kernel = ""
    lines = path.read_text(encoding="utf-8").splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if header := _HEADER.match(line):
            kernel = header[1] or header[2]
        elif match := INSTRUCTION.match(line):
            address, guard, mnemonic, operands = match.groups()
            upper = _WORD.findall(following) if _WORD.search(line) else []
            word = int(upper[0], 16) if upper else None
            operands = _NOTE.sub("", operands).strip()
            found.append(Line(kernel, int(address, 16), guard or "", mnemonic, operands, word))
    return tuple(found)


def instructions(module: Module) -> list[tuple[Kernel, int]]:
    return [(kernel, index) for kernel in module for index in range(len(kernel))]


each_text = pytest.mark.parametrize("path", ALL_TEXTS, ids=format_trace_name)
each_dump = pytest.mark.parametrize("path", list_sass_dumps(), ids=format_trace_name)


def test_traces_are_there() -> None:
    assert len(list_sass_dumps()) >= 30
    assert len(list_nvdisasm_texts()) >= 6
    assert sum(len(text_lines(path)) for path in ALL_TEXTS) > 20_000


@each_text
def test_kernels_addresses_and_opcodes_equal_the_text(path: Path) -> None:
    module, lines = read_module(path), text_lines(path)
    read = [(kernel.name, int(kernel.addresses[i])) for kernel, i in instructions(module)]
    assert read == [(line.kernel, line.address) for line in lines]
    mnemonics = Counter(kernel.find_opcode(i).mnemonic for kernel, i in instructions(module))
    assert mnemonics == Counter(line.mnemonic for line in lines)


@each_text
def test_nothing_is_warned_of(path: Path) -> None:
    assert read_module(path).diagnostics == ()


@each_text
def test_every_opcode_is_known(path: Path) -> None:
    assert [o.mnemonic for o in read_module(path).form_table.opcodes if not o.is_known] == []


def normalized(operands: str) -> list[str]:
    """Operand texts without blanks; floats by value, since tools print more digits than needed."""
    text = operands.replace("] [", "][")
    parts = re.split(r",(?![^{]*\})|(?<=\w) (?=-?0x|`)", text)
    return [
        part if part.startswith("{") else _FLOAT.sub(lambda match: repr(float(match[0])), part)
        for part in map(str.strip, parts)
        if part
    ]


@each_text
def test_operands_print_back_as_they_were(path: Path) -> None:
    for (kernel, index), line in zip(instructions(read_module(path)), text_lines(path), strict=True):
        form = kernel.decode_form(index)
        printed = [_printed(operand) for operand in form.operands]
        assert printed == normalized(line.operands), f"{kernel.name} {line.address:#x} {form.text}"
        assert ("" if form.guard is None else str(form.guard)) == line.guard


def _printed(operand: Operand) -> str:
    """An operand as it prints itself; a plain number that is no integer by its value."""
    match operand:
        case Immediate(value=float(value), suffixes=()) if abs(value) < float("inf"):
            return repr(value)
        case _:
            return str(operand)


@each_text
def test_encodings_are_read_where_they_are_printed(path: Path) -> None:
    lines = text_lines(path)
    for kernel in read_module(path):
        words = [line.upper_word for line in lines if line.kernel == kernel.name]
        if kernel.control_words is None:
            assert None in words
        else:
            assert kernel.control_words.tolist() == words
            assert len(kernel.control_words) == len(kernel)


def independent_fields(word: int) -> tuple[int, int, int, int, int, int]:
    """(stall, no-yield, write, read, wait, reuse) cut from the binary digits, most significant first."""
    bits = f"{word:064b}"
    reuse, wait, read, write, no_yield, stall = (
        bits[2:6],
        bits[6:12],
        bits[12:15],
        bits[15:18],
        bits[18],
        bits[19:23],
    )
    return int(stall, 2), int(no_yield, 2), int(write, 2), int(read, 2), int(wait, 2), int(reuse, 2)


@each_dump
def test_control_fields_equal_an_independent_decode(path: Path) -> None:
    for kernel in read_module(path):
        assert kernel.control_words is not None
        columns = decode_control_code_columns(kernel.control_words)
        for index, word in enumerate(kernel.control_words.tolist()):
            stall, no_yield, write, read, wait, reuse = independent_fields(word)
            control = decode_control_code(word)
            assert (control.stall_cycles, control.has_yield) == (stall, no_yield == 0)
            assert control.write_barrier == (None if write == 7 else write)
            assert control.read_barrier == (None if read == 7 else read)
            assert (control.wait_mask, control.reuse_mask) == (wait, reuse)
            row = (columns.stall_cycles, columns.write_barrier, columns.read_barrier)
            assert tuple(int(column[index]) for column in row) == (stall, write, read)
            assert bool(columns.has_yield[index]) == (no_yield == 0)
            masks = (int(columns.wait_mask[index]), int(columns.reuse_mask[index]))
            assert masks == (wait, reuse)


@each_dump
def test_reuse_bits_equal_the_printed_reuse(path: Path) -> None:
    checked = 0
    for line in text_lines(path):
        assert line.upper_word is not None
        if line.mnemonic.startswith(_REUSE_ELSEWHERE):
            continue
        mask = decode_control_code(line.upper_word).reuse_mask
        assert mask.bit_count() == line.n_reuse, f"{line.kernel} {line.address:#x} {line.mnemonic}"
        checked += line.n_reuse
    # the kernels of atomics are too short to reuse an operand; elsewhere none would mean that nothing was tested
    assert checked or path.stem == "atomics"


@each_dump
def test_barriers_are_set_before_they_are_waited_for(path: Path) -> None:
    """A scoreboard that nothing sets is never waited for: a shifted field would show here."""
    for kernel in read_module(path):
        assert kernel.control_words is not None
        columns = decode_control_code_columns(kernel.control_words)
        used = set(columns.write_barrier.tolist()) | set(columns.read_barrier.tolist())
        assert used <= {0, 1, 2, 3, 4, 5, 7}
        waited = int(np.bitwise_or.reduce(columns.wait_mask))
        assert {bit for bit in range(6) if waited >> bit & 1} <= used


SAME_CUBIN = [
    ("nvdisasm/softmax_sm_90.hex_g.txt", "triton/sm_90/softmax.sass"),
    ("nvdisasm/softmax_sm_90.txt", "triton/sm_90/softmax.sass"),
    ("nvdisasm/softmax_sm_90.gi.txt", "triton/sm_90/softmax.sass"),
    ("nvdisasm/softmax_sm_100.hex_g.txt", "triton/sm_100/softmax.sass"),
    ("nvdisasm/softmax_sm_120.plr.txt", "triton/sm_120/softmax.sass"),
    ("nvdisasm/matmul_sm_100.txt", "triton/sm_100/matmul.sass"),
]


@pytest.mark.parametrize(("disassembly", "dump"), SAME_CUBIN)
def test_both_tools_give_equal_kernels(disassembly: str, dump: str) -> None:
    ours, theirs = read_module(TRACES / disassembly), read_module(TRACES / dump)
    assert (ours.source_format.value, theirs.source_format.value) == ("nvdisasm", "cuobjdump")
    assert [(k.name, k.arch) for k in ours] == [(k.name, k.arch) for k in theirs]
    for kernel, other in zip(ours, theirs, strict=True):
        places = dict(kernel.labels)
        assert kernel.addresses.tolist() == other.addresses[: len(kernel)].tolist()
        left_out = [other.decode_form(index).text for index in range(len(kernel), len(other))]
        assert set(left_out) <= ({"NOP"} if ".plr" in disassembly else set())  # -plr leaves padding out
        for index in range(len(kernel)):
            form, same = kernel.decode_form(index), other.decode_form(index)
            assert (form.guard, form.opcode) == (same.guard, same.opcode)
            assert (form.defs, form.uses) == (same.defs, same.uses)
            named = [_resolved(str(operand), places) for operand in form.operands]
            assert named == [str(operand) for operand in same.operands]
        if kernel.control_words is not None:
            assert other.control_words is not None
            assert kernel.control_words.tolist() == other.control_words.tolist()


def _resolved(operand: str, places: dict[str, int]) -> str:
    """A label as the address that cuobjdump prints."""
    return f"{places[operand.strip('`()')]:#x}" if operand.startswith("`") else operand


def test_pairs_of_texts_cover_all_that_are_shipped() -> None:
    assert {TRACES / disassembly for disassembly, _ in SAME_CUBIN} == set(list_nvdisasm_texts())


@each_dump
def test_no_register_beyond_the_resource_usage(path: Path) -> None:
    usage = read_resource_usage(path.with_suffix(".res"))
    by_kernel = {name: resources for (_, name), resources in usage.items()}
    for kernel in read_module(path):
        registers = by_kernel[kernel.name].registers
        assert registers is not None
        for index in range(len(kernel)):
            form = kernel.decode_form(index)
            used = [number for number in (*form.defs, *form.uses) if number < UNIFORM_REGISTER_BASE]
            assert max(used, default=0) < registers, f"{kernel.name} {form.text}"


@each_dump
def test_the_highest_register_is_in_use(path: Path) -> None:
    """The other side: what the linker counts, the code uses, up to the granularity of allocation."""
    usage = read_resource_usage(path.with_suffix(".res"))
    by_kernel = {name: resources for (_, name), resources in usage.items()}
    for kernel in read_module(path):
        if any(opcode.name == "USETMAXREG" for opcode in kernel.form_table.opcodes):
            continue  # its warps get other numbers than the linker counts
        used = [
            n for i in range(len(kernel)) for n in kernel.decode_form(i).defs if n < UNIFORM_REGISTER_BASE
        ]
        assert max(used) + 8 >= (by_kernel[kernel.name].registers or 0) - 2, kernel.name


def test_origins_of_g_and_gi_stand_before_the_same_instructions() -> None:
    """With inlining told, the line inside the inlined function comes first; the caller stays the same."""
    plain = read_module(TRACES / "nvdisasm/softmax_sm_90.hex_g.txt").kernels[0]
    inlined = read_module(TRACES / "nvdisasm/softmax_sm_90.gi.txt").kernels[0]
    with_caller = 0
    for index in range(len(plain)):
        outer, inner = plain.find_source_line(index), inlined.find_source_line(index)
        if inner is not None and inner.inlined_at is None:
            assert outer == inner
        with_caller += inner is not None and inner.inlined_at is not None
    assert with_caller > 5
