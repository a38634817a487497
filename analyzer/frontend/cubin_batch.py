"""Reads many cubins of one kernel each, such as Triton's cache holds, with few runs of nvdisasm.

nvdisasm takes a third of a second to start, longer than all else that is done for a kernel, and prints some
40,000 instructions per second. So the code of all cubins is taken apart into distinct encodings; those
are printed as one raw binary (`nvdisasm -b`). Half of all instructions recur: two kernels of one source
differ in few, and control fields, which the text does not show, do not count.

    a.cubin  S2R R0, SR_TID.X; EXIT     ->  encodings  S2R R0, SR_TID.X; EXIT; IMAD R0, R0, R1, RZ
    b.cubin  IMAD R0, R0, R1, RZ; EXIT      a: 0 1     b: 2 1

Invariant: what a file is read to does not depend on the files beside it. The text of a branch depends on its
place; the distance does not, so its target is the place in the cubin plus the distance in the raw binary.
It is named as nvdisasm names it: by a symbol, else `.L_x_N` in the order in which code refers to labels. One
file of each kind (flags of its header) is read by nvdisasm alone, gives the kind's architecture, and must
come out the same.

What is not so simple (several functions, relocated code, indirect branches, another result for the file that
is compared) is left to whoever reads a file alone.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from tempfile import NamedTemporaryFile
from threading import Thread

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.child_processes import ToolLimitError, ToolRun
from analyzer.files import read_file
from analyzer.frontend.cubin_elf import SHT_REL, SHT_RELA, CubinElf, DamagedElfError
from analyzer.frontend.cubin_info import CubinInfo, parse_cubin
from analyzer.frontend.cuda_tools import CudaTool, find_max_silence_s, find_tool
from analyzer.frontend.instruction_decoder import FormDecoder, SassSyntaxError
from analyzer.frontend.kernel_builder import TextInterner
from analyzer.frontend.line_tables import SOURCE_SECTION, LineTable, read_line_tables
from analyzer.ir.arrays import IdArray
from analyzer.ir.module import INSTRUCTION_BYTES, Kernel, Module, SourceFormat, SourceLine
from analyzer.text.errors import InputError, WarplensError

MIN_FILES = 8  # fewer are read one by one
_MAX_FILE_BYTES = 8 << 20  # larger ones, which Triton does not write, are read alone
_MAX_TOTAL_BYTES = 2 << 30
_ENCODINGS_PER_RUN = 60_000
_ENCODINGS_PER_SILENT_S = 2_000
_BASE_SILENCE_S = 60.0
_MAX_LINE_BYTES = 4096
_BASE_ADDRESS = 1 << 32  # so that no branch leads below 0
# Bits of the upper word that no text shows: stall cycles, yield, scoreboards and wait mask.
_UNSHOWN_CONTROL_BITS = ((1 << 17) - 1) << 41
_LINE = re.compile(rb"^[ \t]*/\*([0-9a-f]+)\*/[ \t]+([^;\n]*);", re.M)
_MNEMONIC = re.compile(rb"(?:@!?U?P\w+[ \t]+)?([A-Z][A-Z0-9]*)")
_PLACED_NAMES = frozenset(
    {b"BRA", b"BSSY", b"CALL", b"RET", b"JMP", b"BRX", b"JMX", b"BRXU", b"JMXU", b"LEPC"}
)
_PLACED = re.compile(
    rb"((?:@!?U?P\w+ +)?(?:BRA(?:\.U|\.DIV|\.CONV)?|BSSY(?:\.RECONVERGENT|\.RELIABLE)?|CALL\.REL\.NOINC|"
    rb"RET\.REL\.NODEC) (?:[^`]*[ ,])?)(0x[0-9a-f]+)"
)
_SYMBOL_NAME = re.compile(r"[\w$.]+")


class _Code(Struct, frozen=True, eq=False):
    """The code of one cubin, and what its tables say."""

    path: str
    name: str
    kind: tuple[int, int]  # layout and flags of the header
    words: NDArray[np.uint64]  # [n, 2], lower and upper word of each instruction
    symbols: Mapping[int, str]  # functions by their offset
    info: CubinInfo
    elf: CubinElf


class _Encodings(Struct, frozen=True, eq=False):
    """Distinct instructions, printed."""

    texts: tuple[bytes, ...]
    # Of those whose text depends on their place: the text before the target, and the distance to it.
    distances: Mapping[int, tuple[bytes, int]]
    refused: frozenset[int]  # that cannot be moved


def _do_nothing() -> None:
    """Do nothing."""


def read_cubins(
    paths: Sequence[str],
    read_alone: Callable[[str], Module],
    jobs: int = 1,
    meanwhile: Callable[[], None] = _do_nothing,
) -> dict[str, tuple[Module, CubinInfo]]:
    """Return the code and the tables of cubins by path, of those that can be read together.

    Their kernels share one table of forms; what the tables say is not yet in them.
    read_alone: reads the code of one file by nvdisasm.
    jobs: runs of nvdisasm at a time.
    meanwhile: called once while they run.
    """
    disassembler = find_tool("nvdisasm")
    if disassembler is None or len(paths) < MIN_FILES:
        return {}
    by_kind: dict[tuple[int, int], list[_Code]] = {}
    n_bytes = 0
    for path in paths:
        code = _read_code(path)
        if code is not None and n_bytes < _MAX_TOTAL_BYTES:
            n_bytes += code.words.nbytes
            by_kind.setdefault(code.kind, []).append(code)
    decoder = FormDecoder()
    interner = TextInterner(decoder)
    built: list[tuple[_Code, Kernel]] = []
    for codes in by_kind.values():
        if len(codes) < MIN_FILES:
            continue
        example = _read_example(codes[0].path, read_alone)
        if example is not None:
            printing = _Printing(codes, example.arch, disassembler, jobs)
            meanwhile()
            meanwhile = _do_nothing
            built += _build_kernels(codes, example, interner, printing)
    table = interner.build_form_table(decoder.decode_printed)
    return {
        code.path: (_make_module(code, replace(kernel, form_table=table)), code.info)
        for code, kernel in built
    }


def _read_code(path: str) -> _Code | None:
    """Return the code of a cubin with one function; None for any other file."""
    try:
        if os.path.getsize(path) > _MAX_FILE_BYTES:
            return None
        data = read_file(path, _MAX_FILE_BYTES)
        elf = CubinElf(data)
        texts = [i for i, section in enumerate(elf.sections) if section.find_kernel_name(".text.")]
        if len(texts) != 1 or _is_relocated(elf, texts[0]):
            return None
        section = elf.sections[texts[0]]
        name, raw = section.find_kernel_name(".text."), elf.read_section(section)
        if not raw or len(raw) % INSTRUCTION_BYTES or not _SYMBOL_NAME.fullmatch(name):
            return None
        return _Code(
            path=path,
            name=name,
            kind=(elf.os_abi, int.from_bytes(data[48:52], "little")),
            words=np.frombuffer(raw, dtype="<u8").reshape(-1, 2),
            symbols=_list_functions(elf, texts[0]),
            info=parse_cubin(data),
            elf=elf,
        )
    except (OSError, InputError, DamagedElfError):
        return None


def _is_relocated(elf: CubinElf, text_index: int) -> bool:
    return any(
        section.info == text_index and section.type in (SHT_REL, SHT_RELA) and section.size
        for section in elf.sections
    )


def _list_functions(elf: CubinElf, text_index: int) -> dict[int, str]:
    """Return the functions in a section by their offset."""
    symbols = (elf.read_symbol(index) for index in range(elf.n_symbols))
    return {
        symbol.offset: symbol.name
        for symbol in symbols
        if symbol.section_index == text_index and symbol.is_function and symbol.name
    }


def _read_example(path: str, read_alone: Callable[[str], Module]) -> Kernel | None:
    """Return the kernel of one file as nvdisasm alone gives it; None where that fails."""
    try:
        (kernel,) = read_alone(path).kernels
    except (WarplensError, OSError, ValueError):
        return None
    return kernel


def _build_kernels(
    codes: Sequence[_Code], example: Kernel, interner: TextInterner, printing: "_Printing"
) -> Iterator[tuple[_Code, Kernel]]:
    """Yield the kernels of one kind; none where the example comes out otherwise."""
    source_lines = [_find_source_lines(code) for code in codes]  # while nvdisasm runs
    encodings, places = printing.collect(), printing.places
    if encodings is None:
        return
    try:
        ids = _intern_texts(encodings, interner)
    except SassSyntaxError:
        return
    unclear = {-1} | {number for number, opcode in enumerate(interner.opcodes) if not opcode.is_known}
    start = 0
    for number, code in enumerate(codes):
        stop = start + len(code.words)
        kernel = _build_kernel(code, example, places[start:stop], ids, encodings, interner)
        if kernel is not None:
            line_ids, lines = source_lines[number]
            kernel = replace(kernel, source_line_ids=line_ids, source_lines=lines)
        start = stop
        if number == 0 and (kernel is None or not _is_same(kernel, interner, example)):
            return
        # Opcodes that are not known are counted with their places, by whoever reads the file alone.
        if kernel is not None and not _find_opcode_ids(kernel, interner) & unclear:
            yield code, kernel


def _find_opcode_ids(kernel: Kernel, interner: TextInterner) -> set[int]:
    """Return the opcodes of a kernel; also one that is not known, -1, where the grammar rejected a text."""
    numbers = set(kernel.text_ids.tolist())
    return {-1 if number in interner.syntax_errors else interner.opcode_ids[number] for number in numbers}


def _find_distinct(words: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return an encoding of each distinct text, and the place among them of each word.

    Words that differ only in what texts do not show have one text. One of them as it stands is printed:
    nvdisasm refuses some combinations of control fields, all zero among them.
    """
    shown = words.copy()
    shown[:, 1] &= np.uint64(~_UNSHOWN_CONTROL_BITS & (1 << 64) - 1)
    order = np.lexsort((shown[:, 0], shown[:, 1]))
    ordered = shown[order]
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.empty(len(words), dtype=np.int64)
    places[order] = np.cumsum(is_new) - 1
    return words[order[is_new]], places


class _Printing:
    """Runs of nvdisasm that print the distinct instructions of some cubins, begun but not awaited.

    places: [n], the place of each instruction of the cubins among the distinct ones.
    """

    def __init__(self, codes: Sequence[_Code], arch: str, tool: CudaTool, jobs: int) -> None:
        distinct, self.places = _find_distinct(np.concatenate([code.words for code in codes]))
        n_runs = max(1, min(len(distinct) // 1000, max(jobs, -(-len(distinct) // _ENCODINGS_PER_RUN))))
        self._tool, self._arch = tool, arch
        self._parts = np.array_split(distinct, n_runs)
        self._printed: list[list[bytes] | None] = [None] * n_runs
        self._waiting = deque(range(n_runs))
        # Threads wait for nvdisasm; they end before anything is forked.
        self._threads = [Thread(target=self._run, daemon=True) for _ in range(max(1, min(jobs, n_runs)))]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        """Print parts until none is left."""
        with suppress(IndexError, OSError):  # no part is left; no space for one
            while True:
                number = self._waiting.popleft()
                self._printed[number] = _print_part(self._parts[number], self._tool, self._arch)

    def collect(self) -> _Encodings | None:
        """Wait for the runs; return the texts, None where nvdisasm does not print one for each."""
        for thread in self._threads:
            thread.join()
        return _join_printed(self._printed)


def _join_printed(printed: Sequence[list[bytes] | None]) -> _Encodings | None:
    """Return the texts of all runs, and which of them depend on their place."""
    texts: list[bytes] = []
    distances: dict[int, tuple[bytes, int]] = {}
    refused: set[int] = set()
    for lines in printed:
        if lines is None:
            return None
        for index, text in enumerate(lines):
            name = _MNEMONIC.match(text)
            if name is not None and name[1] in _PLACED_NAMES:
                match = _PLACED.fullmatch(text)
                if match is None:
                    refused.add(len(texts))
                else:
                    place = _BASE_ADDRESS + index * INSTRUCTION_BYTES
                    distances[len(texts)] = (match[1], int(match[2], 16) - place)
            texts.append(text)
    return _Encodings(tuple(texts), distances, frozenset(refused))


def _print_part(part: NDArray[np.uint64], tool: CudaTool, arch: str) -> list[bytes] | None:
    """Return what nvdisasm prints for each encoding; None where it fails or prints other lines."""
    with NamedTemporaryFile(prefix="warplens-", suffix=".bin") as file:
        file.write(part.astype("<u8").tobytes())
        file.flush()
        name = arch.replace("sm_", "SM")
        run = ToolRun(
            (tool.path, "-b", name, "-base", str(_BASE_ADDRESS), file.name),
            max_silence_s=find_max_silence_s(_BASE_SILENCE_S + len(part) / _ENCODINGS_PER_SILENT_S),
            max_output_bytes=(1 << 20) + _MAX_LINE_BYTES * len(part),
        )
        try:
            output = b"".join(run.read_output())
        except (OSError, ToolLimitError):
            return None
    lines = _LINE.findall(output)
    if run.status or len(lines) != len(part) or int(lines[0][0], 16) != _BASE_ADDRESS:
        return None
    return [text.strip() for _, text in lines]


def _intern_texts(encodings: _Encodings, interner: TextInterner) -> IdArray:
    """Return the id of each text, -1 for one that depends on its place."""
    moved = encodings.distances.keys() | encodings.refused
    return np.array(
        [-1 if index in moved else interner.add_printed(text) for index, text in enumerate(encodings.texts)],
        dtype=np.int32,
    )


def _build_kernel(
    code: _Code,
    example: Kernel,
    places: NDArray[np.int64],
    ids: IdArray,
    encodings: _Encodings,
    interner: TextInterner,
) -> Kernel | None:
    """Return a kernel, with the form table of the example still; None where its code cannot be moved."""
    text_ids = ids[places]
    labels = {offset: name for offset, name in sorted(code.symbols.items())}
    labels.setdefault(0, code.name)
    for row in np.flatnonzero(text_ids < 0).tolist():
        place = int(places[row])
        if place in encodings.refused:
            return None
        head, distance = encodings.distances[place]
        target = row * INSTRUCTION_BYTES + distance
        if not 0 <= target <= len(code.words) * INSTRUCTION_BYTES:
            return None
        label = labels.setdefault(target, f".L_x_{len(labels) - len(code.symbols)}")
        text_ids[row] = interner.add_printed(head + b"`(" + label.encode() + b")")
    return Kernel(
        name=code.name,
        arch=example.arch,
        form_table=example.form_table,
        text_ids=text_ids,
        addresses=np.arange(len(code.words), dtype=np.int64) * INSTRUCTION_BYTES,
        control_words=code.words[:, 1].astype(np.uint64),
        line=example.line,
        labels=tuple((name, offset) for offset, name in sorted(labels.items())),
    )


def _find_source_lines(code: _Code) -> tuple[IdArray | None, tuple[SourceLine, ...]]:
    """Return the source line of each row as nvdisasm prints it; None where the cubin has none."""
    table = None
    with suppress(DamagedElfError):
        table = read_line_tables(code.elf, SOURCE_SECTION).get(code.name)
    if table is None or not len(table.addresses):
        return None, ()
    rows = table.find_rows(np.arange(len(code.words), dtype=np.int64) * INSTRUCTION_BYTES)
    lines: dict[SourceLine, int] = {}
    numbers = {row: _number_line(table, row, lines) for row in set(rows.tolist())}
    return np.array([numbers[row] for row in rows.tolist()], dtype=np.int32), tuple(lines)


def _number_line(table: LineTable, row: int, lines: dict[SourceLine, int]) -> int:
    if row < 0 or not table.lines[row]:
        return -1
    calls = [row]  # outwards; damaged tables may lead back
    while (caller := int(table.callers[calls[-1]])) >= 0 and caller not in calls:
        calls.append(caller)
    line: SourceLine | None = None
    for call in reversed(calls):
        line = SourceLine(table.find_file(call), int(table.lines[call]), line)
    assert line is not None
    return lines.setdefault(line, len(lines))


def _is_same(kernel: Kernel, interner: TextInterner, example: Kernel) -> bool:
    """Return whether a kernel has the code and lines that nvdisasm alone gives."""
    if len(kernel) != len(example) or example.control_words is None or kernel.control_words is None:
        return False
    rows = range(len(kernel))
    return (
        [interner.texts[number] for number in kernel.text_ids.tolist()]
        == [example.form_table.texts[number] for number in example.text_ids.tolist()]
        and np.array_equal(kernel.control_words, example.control_words)
        and all(kernel.find_source_line(row) == example.find_source_line(row) for row in rows)
    )


def _make_module(code: _Code, kernel: Kernel) -> Module:
    return Module(
        path=code.path,
        source_format=SourceFormat.NVDISASM,
        kernels=(kernel,),
        form_table=kernel.form_table,
    )
