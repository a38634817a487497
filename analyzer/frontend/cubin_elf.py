"""Sections and symbols of a cubin, which is an ELF file; read without a CUDA tool.

The file is not trusted. Each offset and size is checked before use, and the sum of all reads is bounded by a
multiple of the file's size: names and sections may share bytes, and a small file must not be costly to read.
"""

import struct

from msgspec import Struct, field

from analyzer.text.errors import InputError

OSABI_CUDA_13 = 0x41  # EI_OSABI of the layout that ptxas 13 writes; before it was 0x33
SHT_SYMTAB = 2
SHT_RELA = 4
SHT_NOBITS = 8
SHT_REL = 9
STT_OBJECT = 1
STT_FUNC = 2
_EM_CUDA = 190
_HEADER_LAYOUT = struct.Struct("<QQQIHHHHHH")  # of the ELF header, from e_entry on
_HEADER_OFFSET_BYTES = 24
_FLAGS_OFFSET = 48  # of e_flags
_SECTION_LAYOUT = struct.Struct("<IIQQQQIIQQ")
_SYMBOL_LAYOUT = struct.Struct("<IBBHQQ")
_MAX_NAME_BYTES = 1 << 15
_MAX_READ_RATIO = 8  # bytes read over bytes of the file


class DamagedElfError(Exception):
    """An offset, size or index points outside the file."""


class Section(Struct, frozen=True, kw_only=True):
    """A row of the section table."""

    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int  # index of the symbol table, or of its names
    info: int  # index of the section that a relocation section applies to

    def find_kernel_name(self, prefix: str) -> str:
        """Return the rest of the section's name after `prefix`, a kernel; empty if it begins otherwise."""
        return self.name.removeprefix(prefix) if self.name.startswith(prefix) else ""


class Symbol(Struct, frozen=True, kw_only=True):
    """A row of the symbol table."""

    name: str
    is_object: bool
    is_function: bool
    section_index: int
    offset: int  # in its section
    size: int


class _SymbolTable(Struct):
    """The bytes of the symbol table and of its names, with a cache of decoded symbols."""

    table: bytes
    names: bytes
    cache: dict[int, Symbol] = field(default_factory=dict)


def unpack_fields(layout: struct.Struct, data: bytes, offset: int, what: str) -> tuple[int, ...]:
    """Unpack the fields at an offset. Raises DamagedElfError if the data ends before."""
    if offset < 0 or offset + layout.size > len(data):
        raise DamagedElfError(f"{what} is cut off")
    return layout.unpack_from(data, offset)


class CubinElf:
    """Sections and symbols of one cubin. All methods raise DamagedElfError, `__init__` InputError too."""

    __slots__ = ("_data", "_n_read", "_symbols", "sections")

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01" or data[18:20] != _EM_CUDA.to_bytes(2, "little"):
            raise InputError(
                "this is not a 64-bit cubin", hint="make one with: nvcc -cubin, or ptxas x.ptx -o x.cubin"
            )
        self._data = data
        self._n_read = 0
        self.sections: tuple[Section, ...] = self._read_sections()
        self._symbols = self._read_symbols()

    @property
    def os_abi(self) -> int:
        """EI_OSABI, which tells the layouts of CUDA releases apart."""
        return self._data[7]

    @property
    def n_symbols(self) -> int:
        """Rows of the symbol table."""
        return len(self._symbols.table) // _SYMBOL_LAYOUT.size

    def read_section(self, section: Section) -> bytes:
        """Return the bytes of a section; empty for one without bytes in the file (SHT_NOBITS)."""
        if section.type == SHT_NOBITS:
            return b""
        return self._read_slice(section.offset, section.size, f"section {section.name[:80]}")

    def read_symbol(self, index: int) -> Symbol:
        """Return the symbol of a row of the symbol table."""
        known = self._symbols.cache.get(index)
        if known is None:
            row = unpack_fields(_SYMBOL_LAYOUT, self._symbols.table, index * _SYMBOL_LAYOUT.size, "a symbol")
            known = self._symbols.cache[index] = Symbol(
                name=self._read_name(self._symbols.names, row[0]),
                is_object=row[1] & 0xF == STT_OBJECT,
                is_function=row[1] & 0xF == STT_FUNC,
                section_index=row[3],
                offset=row[4],
                size=row[5],
            )
        return known

    def _read_sections(self) -> tuple[Section, ...]:
        header = unpack_fields(_HEADER_LAYOUT, self._data, _HEADER_OFFSET_BYTES, "the ELF header")
        table, entry_size, count, names_index = header[2], header[7], header[8], header[9]
        if not count:
            return ()
        if entry_size != _SECTION_LAYOUT.size:
            raise DamagedElfError("the section table has an unknown form")
        rows = [
            unpack_fields(
                _SECTION_LAYOUT, self._data, table + row * _SECTION_LAYOUT.size, "the section table"
            )
            for row in range(count)
        ]
        if names_index >= count:
            raise DamagedElfError("the section of names does not exist")
        names = self._read_slice(rows[names_index][4], rows[names_index][5], "the section of names")
        return tuple(
            Section(
                name=self._read_name(names, row[0]),
                type=row[1],
                flags=row[2],
                offset=row[4],
                size=row[5],
                link=row[6],
                info=row[7],
            )
            for row in rows
        )

    def _read_symbols(self) -> _SymbolTable:
        table = next((s for s in self.sections if s.type == SHT_SYMTAB), None)
        if table is None:
            return _SymbolTable(b"", b"")
        if table.link >= len(self.sections):
            raise DamagedElfError("the symbol names do not exist")
        return _SymbolTable(self.read_section(table), self.read_section(self.sections[table.link]))

    def _read_slice(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > len(self._data):
            raise DamagedElfError(f"{what} lies outside the file")
        self._charge_read(size)
        return self._data[offset : offset + size]

    def _charge_read(self, n_bytes: int) -> None:
        self._n_read += n_bytes
        if self._n_read > _MAX_READ_RATIO * len(self._data):
            raise DamagedElfError("its sections overlap")

    def _read_name(self, names: bytes, offset: int) -> str:
        end = names.find(b"\0", offset, offset + _MAX_NAME_BYTES)
        if end < 0:
            raise DamagedElfError("a name does not end")
        self._charge_read(end - offset)
        return names[offset:end].decode("utf-8", "replace")


def read_cubin_arch(head: bytes) -> int:
    """Return the architecture's number in the flags of a cubin's ELF header, 90 for sm_90; 0 if cut off."""
    if len(head) < _FLAGS_OFFSET + 4:
        return 0
    flags = int.from_bytes(head[_FLAGS_OFFSET : _FLAGS_OFFSET + 4], "little")
    return flags >> 8 & 0xFF if head[7] == OSABI_CUDA_13 else flags & 0xFF
