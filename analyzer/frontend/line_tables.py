"""Line tables of a cubin, read without a CUDA tool.

`.debug_line` gives the source line of each instruction, `.nv_debug_line_sass` the line of the PTX that it was
made from. Both are line programs of DWARF 2 (section 6.2): opcodes that advance a state of address, file and
line, and append it as a row. A row holds from its address to that of the next row. NVIDIA adds an extended
opcode for inlined code: it names the row of the call, counted from 1, as the context of what follows.

    set address 0; line += 25; copy        0x00: line 26
    line += 21, address += 16; copy        0x10: line 47
"""

import struct
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.frontend.cubin_elf import SHT_REL, SHT_RELA, CubinElf, DamagedElfError, unpack_fields

SOURCE_SECTION = ".debug_line"
PTX_SECTION = ".nv_debug_line_sass"
_PROLOGUE = struct.Struct("<IHI")
_PARAMETERS = struct.Struct("<BBbBB")  # instruction length, default of is_stmt, line base and range, opcodes
_ADDRESS = struct.Struct("<Q")
_RELOCATION = struct.Struct("<QQ")
_RELOCATION_WITH_ADDEND = struct.Struct("<QQq")
_HALF = struct.Struct("<H")
_VERSIONS = (2, 3)
_MAX_ADDRESS = 1 << 40
_MAX_LINE = 1 << 31
_MAX_LEB_BYTES = 10
_END_SEQUENCE, _SET_ADDRESS, _INLINED_CALL = 0x01, 0x02, 0x90


class LineTable(Struct, frozen=True):
    """The rows of one function, by address; a row holds until the next one's address."""

    addresses: NDArray[np.int64]  # [n], ascending
    files: NDArray[np.int32]  # [n], into `file_names`
    lines: NDArray[np.int32]  # [n], 0: no line
    callers: NDArray[np.int32]  # [n], row of the call that the code was inlined from; -1: none
    file_names: tuple[str, ...]  # with their folders; the first one stands for none

    def find_file(self, row: int) -> str:
        """Return the name of the file of a row."""
        return self.file_names[int(self.files[row])]

    def find_rows(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row that holds at each address, -1: none. Of several the last is the innermost."""
        return np.searchsorted(self.addresses, addresses, side="right") - 1

    def find_lines(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the line at each address, 0 where none is known."""
        if not len(self.addresses):
            return np.zeros(len(addresses), np.int64)
        rows = self.find_rows(addresses)
        return np.where(rows < 0, 0, self.lines[rows]).astype(np.int64)


def read_line_tables(elf: CubinElf, section_name: str) -> dict[str, LineTable]:
    """Return the line table of each function; empty if the cubin has none. Raises DamagedElfError."""
    index = next((i for i, section in enumerate(elf.sections) if section.name == section_name), None)
    if index is None:
        return {}
    data, start = elf.read_section(elf.sections[index]), 0
    places, rows = _read_places(elf, index), dict[str, LineTable]()
    while start + _PROLOGUE.size <= len(data):
        length, version, header_bytes = unpack_fields(_PROLOGUE, data, start, "a line table")
        stop = start + 4 + length
        if stop > len(data):
            raise DamagedElfError("a line table is cut off")
        if version in _VERSIONS:
            program = _LineProgram(data[:stop], places)
            program.run(start + _PROLOGUE.size, start + _PROLOGUE.size + header_bytes)
            rows |= program.build_tables()
        start = stop
    return rows


def _read_places(elf: CubinElf, index: int) -> dict[int, tuple[str, int]]:
    """Return the function, and the offset in it, that each relocated address of a section stands for."""
    places: dict[int, tuple[str, int]] = {}
    for section in elf.sections:
        if section.info != index or section.type not in (SHT_REL, SHT_RELA):
            continue
        layout = _RELOCATION_WITH_ADDEND if section.type == SHT_RELA else _RELOCATION
        body = elf.read_section(section)
        for at in range(0, len(body) - layout.size + 1, layout.size):
            offset, info, *addend = layout.unpack_from(body, at)
            symbol = elf.read_symbol(info >> 32)
            if symbol.section_index < len(elf.sections):
                name = elf.sections[symbol.section_index].find_kernel_name(".text.")
                places[offset] = (name, symbol.offset + sum(addend))
    return places


class _LineProgram:
    """One line program and the rows that it has appended so far."""

    def __init__(self, data: bytes, places: Mapping[int, tuple[str, int]]) -> None:
        self.data, self.places, self.at = data, places, 0
        self.file_names: list[str] = [""]
        self.rows: list[tuple[str, int, int, int, int]] = []  # function, address, file, line, context
        self.parameters: tuple[int, ...] = ()
        self.operand_counts: tuple[int, ...] = ()
        self._begin_sequence()

    def _begin_sequence(self) -> None:
        self.function, self.address, self.file, self.line, self.context = "", 0, 1, 1, 0

    def run(self, header: int, start: int) -> None:
        """Read the header at one offset, then execute the opcodes from the other one to the end."""
        self._read_header(header)
        self.at = start
        opcode_base = self.parameters[4]
        while self.at < len(self.data):
            opcode = self._read_byte()
            if opcode >= opcode_base:
                self._advance_special(opcode)
                self._append_row()
            elif opcode:
                self._run_standard(opcode)
            else:
                self._run_extended()

    def build_tables(self) -> dict[str, LineTable]:
        """Return the rows by function, in the order of their addresses."""
        by_function: dict[str, list[int]] = {}
        for number, row in enumerate(self.rows):
            if row[0]:
                by_function.setdefault(row[0], []).append(number)
        return {name: self._build_table(numbers) for name, numbers in by_function.items()}

    def _build_table(self, numbers: list[int]) -> LineTable:
        order = sorted(numbers, key=lambda number: self.rows[number][1])
        place_of = {number: place for place, number in enumerate(order)}
        rows = [self.rows[number] for number in order]
        last = len(self.file_names) - 1
        return LineTable(
            addresses=np.array([row[1] for row in rows], np.int64),
            files=np.array([row[2] if row[2] <= last else 0 for row in rows], np.int32),
            lines=np.array([row[3] for row in rows], np.int32),
            callers=np.array([place_of.get(row[4] - 1, -1) for row in rows], np.int32),
            file_names=tuple(self.file_names),
        )

    def _read_header(self, at: int) -> None:
        self.parameters = unpack_fields(_PARAMETERS, self.data, at, "a line table")
        if not self.parameters[3] or not self.parameters[4]:
            raise DamagedElfError("a line table has no range")
        self.at = at + _PARAMETERS.size
        self.operand_counts = (0, *(self._read_byte() for _ in range(self.parameters[4] - 1)))
        folders = [""]
        while name := self._read_text():
            folders.append(name)
        while name := self._read_text():
            folder, _, _ = self._read_unsigned(), self._read_unsigned(), self._read_unsigned()
            has_folder = not name.startswith("/") and 0 < folder < len(folders)
            self.file_names.append(f"{folders[folder]}/{name}" if has_folder else name)

    def _append_row(self) -> None:
        self.rows.append((self.function, self.address, self.file, self.line, self.context))

    def _advance(self, n_bytes: int) -> None:
        self.address = min(self.address + n_bytes * self.parameters[0], _MAX_ADDRESS)

    def _advance_special(self, opcode: int) -> None:
        _, _, line_base, line_range, opcode_base = self.parameters
        steps, lines = divmod(opcode - opcode_base, line_range)
        self._advance(steps)
        self._advance_line(line_base + lines)

    def _advance_line(self, n_lines: int) -> None:
        self.line = max(0, min(self.line + n_lines, _MAX_LINE - 1))

    def _run_standard(self, opcode: int) -> None:
        match opcode:
            case 1:  # copy
                self._append_row()
            case 2:  # advance_pc
                self._advance(self._read_unsigned())
            case 3:  # advance_line
                self._advance_line(self._read_signed())
            case 4:  # set_file
                self.file = min(self._read_unsigned(), _MAX_LINE - 1)
            case 8:  # const_add_pc: what special opcode 255 adds
                self._advance((255 - self.parameters[4]) // self.parameters[3])
            case 9:  # fixed_advance_pc
                self.address += unpack_fields(_HALF, self.data, self.at, "a line table")[0]
                self.at += _HALF.size
            case _:
                for _ in range(self.operand_counts[opcode]):
                    self._read_unsigned()

    def _run_extended(self) -> None:
        length = self._read_unsigned()
        start, stop = self.at, self.at + length
        if not length or stop > len(self.data):
            raise DamagedElfError("a line table is cut off")
        kind = self._read_byte()
        if kind == _END_SEQUENCE:
            self.line = 0
            self._append_row()
            self._begin_sequence()
        elif kind == _SET_ADDRESS and length == 1 + _ADDRESS.size:
            value = _ADDRESS.unpack_from(self.data, self.at)[0]
            self.function, base = self.places.get(start + 1, ("", 0))
            self.address = min(max(0, base + value), _MAX_ADDRESS)
        elif kind == _INLINED_CALL:
            self.context = self._read_unsigned()
        self.at = stop

    def _read_byte(self) -> int:
        if self.at >= len(self.data):
            raise DamagedElfError("a line table is cut off")
        self.at += 1
        return self.data[self.at - 1]

    def _read_text(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise DamagedElfError("a line table is cut off")
        text = self.data[self.at : end].decode("utf-8", "replace")
        self.at = end + 1
        return text

    def _read_unsigned(self) -> int:
        """Read a LEB128 number."""
        value = 0
        for shift in range(0, 7 * _MAX_LEB_BYTES, 7):
            byte = self._read_byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise DamagedElfError("a number of a line table does not end")

    def _read_signed(self) -> int:
        start = self.at
        value = self._read_unsigned()
        n_bits = 7 * (self.at - start)
        return value - (1 << n_bits) if value >> (n_bits - 1) & 1 else value
